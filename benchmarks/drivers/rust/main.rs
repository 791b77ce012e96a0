// The crate rsmq_async, by the line protocol of talk.py: see there.
use rsmq_async::{Rsmq, RsmqConnection, RsmqError, RsmqOptions};
use serde_json::{json, Value};
use std::io::{stdin, stdout, BufRead, Write};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::Instant;

const VERSION: &str = "18.0.0";
const QUEUE: &str = "jobs";
// Latencies that a run reports at most, and tasks that fill a queue.
const SAMPLES: usize = 4000;
const FILL: usize = 64;

async fn once(rsmq: &mut Rsmq, kind: &str, body: &str) -> Result<(), RsmqError> {
    if kind != "drain" {
        rsmq.send_message(QUEUE, body.to_string(), None).await?;
    }
    if kind != "send" {
        let message = rsmq.receive_message::<String>(QUEUE, None).await?;
        let message = message.ok_or(RsmqError::MissingParameter("a message".to_string()))?;
        rsmq.delete_message(QUEUE, &message.id).await?;
    }
    Ok(())
}

// Make calls by several tasks, each one after the other, and return their times.
async fn spread(
    rsmq: &Rsmq, calls: usize, tasks: usize, kind: &str, body: &str,
) -> Result<Vec<f64>, RsmqError> {
    let left = Arc::new(AtomicI64::new(calls as i64));
    let mut going = Vec::new();
    for _ in 0..tasks.min(calls) {
        let (mut rsmq, left) = (rsmq.clone(), left.clone());
        let (kind, body) = (kind.to_string(), body.to_string());
        going.push(tokio::spawn(async move {
            let mut times = Vec::new();
            while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                let began = Instant::now();
                once(&mut rsmq, &kind, &body).await?;
                times.push(began.elapsed().as_secs_f64());
            }
            Ok::<_, RsmqError>(times)
        }));
    }
    let mut joined = Vec::new();
    for task in going {
        joined.extend(task.await.expect("a task")?);
    }
    Ok(joined)
}

fn busy() -> f64 {
    let mut used = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut used) };
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

async fn answer(rsmq: &mut Rsmq, request: &Value) -> Result<Value, RsmqError> {
    let job = if request["run"].is_object() { &request["run"] } else { &request["prepare"] };
    let number = |name: &str| job[name].as_u64().unwrap_or(0) as usize;
    let (kind, messages) = (job["kind"].as_str().unwrap_or(""), number("messages"));
    let body = "x".repeat(number("size"));
    if request["prepare"].is_object() {
        rsmq.create_queue(QUEUE, None, None, Some(-1)).await?;
        if kind == "drain" {
            spread(rsmq, messages, FILL, "send", &body).await?;
        }
        return Ok(json!({"ok": true}));
    }
    let (spent, began) = (busy(), Instant::now());
    let times = spread(rsmq, messages, number("tasks"), kind, &body).await?;
    let (seconds, spent) = (began.elapsed().as_secs_f64(), busy() - spent);
    let thinned: Vec<f64> = times.iter().copied().step_by(times.len() / SAMPLES + 1).collect();
    Ok(json!({"messages": messages, "seconds": seconds, "cpu": spent, "times": thinned}))
}

#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).expect("the address of the server");
    let place = url.trim_start_matches("redis://").split('/').next().unwrap_or("");
    let (host, port) = place.split_once(':').expect("redis://host:port/0");
    let options = RsmqOptions {
        host: host.to_string(),
        port: port.parse().expect("a port"),
        ns: "bench".to_string(),
        ..Default::default()
    };
    let mut rsmq = Rsmq::new(options).await.expect("a connection");
    let say = |what: Value| {
        println!("{what}");
        stdout().flush().expect("standard output");
    };
    say(json!({"ready": {"Rust": option_env!("RUSTC_VERSION").unwrap_or("?"), "rsmq_async": VERSION}}));
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        match answer(&mut rsmq, &request).await {
            Ok(said) => say(said),
            Err(error) => say(json!({"error": error.to_string()})),
        }
    }
}
