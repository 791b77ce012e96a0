// A driver for the crate rsmq_async: one JSON object per line in, one per line out.
use rsmq_async::{Rsmq, RsmqConnection, RsmqError, RsmqMessage, RsmqOptions, RsmqQueueAttributes};
use serde_json::{json, Value};
use std::collections::HashMap;
use std::io::{stdin, stdout, BufRead, Write};
use std::time::Duration;

const VERSION: &str = "18.0.0";

fn code(error: &RsmqError) -> String {
    match error {
        RsmqError::QueueNotFound => "queueNotFound",
        RsmqError::QueueExists => "queueExists",
        RsmqError::MessageTooLong => "messageTooLong",
        RsmqError::InvalidFormat(_) => "invalidFormat",
        RsmqError::InvalidValue(..) => "invalidValue",
        RsmqError::NoAttributeSupplied => "noAttributeSupplied",
        RsmqError::MissingParameter(_) => "missingParameter",
        _ => "error",
    }
    .to_string()
}

// The crate takes durations; a negative number cannot be one, which its user is told by the type.
fn duration(args: &Value, name: &str) -> Result<Option<Duration>, (String, String)> {
    match args.get(name).and_then(Value::as_i64) {
        None => Ok(None),
        Some(number) if number < 0 => Err(("invalidValue".into(), "no negative duration".into())),
        Some(number) => Ok(Some(Duration::from_secs(number as u64))),
    }
}

fn message(found: Option<RsmqMessage<Vec<u8>>>) -> Value {
    match found {
        None => Value::Null,
        Some(m) => json!({
            "id": m.id, "message": String::from_utf8_lossy(&m.message), "rc": m.rc, "fr": m.fr,
            "sent": m.sent,
        }),
    }
}

fn attributes(a: RsmqQueueAttributes) -> Value {
    json!({
        "vt": a.vt.as_secs(), "delay": a.delay.as_secs(), "maxsize": a.maxsize,
        "totalrecv": a.totalrecv, "totalsent": a.totalsent, "created": a.created,
        "modified": a.modified, "msgs": a.msgs, "hiddenmsgs": a.hiddenmsgs,
    })
}

async fn call(rsmq: &mut Rsmq, verb: &str, args: &Value) -> Result<Value, (String, String)> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or("").to_string();
    let (qname, id) = (text("qname"), text("id"));
    let (vt, delay) = (duration(args, "vt")?, duration(args, "delay")?);
    let maxsize = args.get("maxsize").and_then(Value::as_i64);
    let refused = |error: RsmqError| (code(&error), error.to_string());
    Ok(match verb {
        "createQueue" => {
            rsmq.create_queue(&qname, vt, delay, maxsize).await.map_err(refused)?;
            json!(true)
        }
        "listQueues" => json!(rsmq.list_queues().await.map_err(refused)?),
        "deleteQueue" => {
            rsmq.delete_queue(&qname).await.map_err(refused)?;
            json!(true)
        }
        "getQueueAttributes" => {
            attributes(rsmq.get_queue_attributes(&qname).await.map_err(refused)?)
        }
        "setQueueAttributes" => attributes(
            rsmq.set_queue_attributes(&qname, vt, delay, maxsize).await.map_err(refused)?,
        ),
        "sendMessage" => {
            json!(rsmq.send_message(&qname, text("message"), delay).await.map_err(refused)?)
        }
        "receiveMessage" => {
            message(rsmq.receive_message::<Vec<u8>>(&qname, vt).await.map_err(refused)?)
        }
        "popMessage" => message(rsmq.pop_message::<Vec<u8>>(&qname).await.map_err(refused)?),
        "deleteMessage" => json!(rsmq.delete_message(&qname, &id).await.map_err(refused)?),
        "changeMessageVisibility" => {
            let vt = vt.unwrap_or_default();
            rsmq.change_message_visibility(&qname, &id, vt).await.map_err(refused)?;
            json!(true)
        }
        _ => return Err(("error".into(), format!("no verb {verb}"))),
    })
}

async fn client(ns: &str, realtime: bool) -> Rsmq {
    let url = std::env::var("RSMQ_CONFORMANCE_URL").expect("RSMQ_CONFORMANCE_URL");
    let place = url.trim_start_matches("redis://").split('/').next().unwrap_or("");
    let (host, port) = place.split_once(':').expect("redis://host:port/0");
    let options = RsmqOptions {
        host: host.to_string(),
        port: port.parse().expect("a port"),
        ns: ns.to_string(),
        realtime,
        ..Default::default()
    };
    Rsmq::new(options).await.expect("a connection")
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut clients: HashMap<(String, bool), Rsmq> = HashMap::new();
    for line in stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let id = &request["id"];
        let verb = request["verb"].as_str().unwrap_or("");
        let reply = if verb == "hello" {
            let hello = json!({
                "name": "rsmq_async", "version": VERSION, "language": "Rust",
                "options": ["realtime"],
            });
            json!({"id": id, "ok": hello})
        } else {
            let realtime = request["realtime"].as_bool().unwrap_or(false);
            let key = (request["ns"].as_str().unwrap_or("").to_string(), realtime);
            if !clients.contains_key(&key) {
                let made = client(&key.0, realtime).await;
                clients.insert(key.clone(), made);
            }
            match call(clients.get_mut(&key).unwrap(), verb, &request["args"]).await {
                Ok(value) => json!({"id": id, "ok": value}),
                Err((code, text)) => json!({"id": id, "error": code, "message": text}),
            }
        };
        println!("{reply}");
        stdout().flush().expect("stdout");
    }
}
