// The line protocol of talk.py for contenders in Node: see there.
"use strict";

const fs = require("fs");
const path = require("path");
const readline = require("readline");

const SAMPLES = 4000;
const FILL = 100;

// Standard output belongs to the answers.
console.log = console.error;

// Not every package lets itself be asked for its package.json.
function versionOf(name) {
  const file = path.join(process.env.NODE_PATH, name, "package.json");
  return JSON.parse(fs.readFileSync(file, "utf8")).version;
}

async function spread(calls, tasks, call, times) {
  let left = calls;
  const work = async () => {
    while (left > 0) {
      left -= 1;
      const began = process.hrtime.bigint();
      await call();
      times.push(Number(process.hrtime.bigint() - began) / 1e9);
    }
  };
  await Promise.all(Array.from({ length: Math.min(tasks, calls) }, work));
}

async function fill(peer, job, body) {
  for (let at = 0; at < job.messages; at += FILL) {
    await peer.sendMany(Array(Math.min(FILL, job.messages - at)).fill(body));
  }
}

async function run(peer, job) {
  const body = "x".repeat(job.size);
  const times = [];
  if (job.kind === "send") {
    await spread(job.messages, job.tasks, () => peer.send(body), times);
  } else if (job.kind === "send_many") {
    const bodies = Array(job.batch).fill(body);
    const calls = Math.floor(job.messages / job.batch);
    await spread(calls, job.tasks, () => peer.sendMany(bodies), times);
  } else if (job.kind === "cycle") {
    const once = async () => {
      await peer.send(body);
      await peer.take();
    };
    await spread(job.messages, job.tasks, once, times);
  } else if (job.kind === "work") {
    await peer.work(job);
  } else {
    await spread(job.messages, job.tasks, () => peer.take(), times);
  }
  return times;
}

async function answer(peer, request) {
  if (request.prepare) {
    const job = request.prepare;
    await peer.reset();
    if (["drain", "work"].includes(job.kind)) await fill(peer, job, "x".repeat(job.size));
    return { ok: true };
  }
  const job = request.run;
  const busy = process.cpuUsage();
  const began = process.hrtime.bigint();
  const times = await run(peer, job);
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  const { user, system } = process.cpuUsage(busy);
  if (peer.settle) await peer.settle();
  const step = Math.ceil(times.length / SAMPLES) || 1;
  return {
    messages: job.messages,
    seconds,
    cpu: (user + system) / 1e6,
    times: times.filter((_, at) => at % step === 0),
  };
}

exports.serve = async (peer, packages) => {
  const say = (said) => process.stdout.write(`${JSON.stringify(said)}\n`);
  await peer.open(process.argv[2]);
  const versions = { Node: process.versions.node };
  for (const name of packages) versions[name] = versionOf(name);
  say({ ready: versions });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    try {
      say(await answer(peer, JSON.parse(line)));
    } catch (error) {
      say({ error: `${error.name}: ${error.message}`.slice(0, 500) });
    }
  }
  process.exit(0);
};
