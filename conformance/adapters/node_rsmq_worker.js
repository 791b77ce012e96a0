// A driver for the npm package rsmq-worker on top of rsmq: a worker sends, receives and deletes.
// One JSON object per line in, one per line out. NODE_PATH names the folder with both packages.
"use strict";

const readline = require("readline");
const redis = require("redis");
const RSMQ = require("rsmq");
const Worker = require("rsmq-worker");

console.log = console.error; // stdout belongs to the answers

const connection = redis.createClient(process.env.RSMQ_CONFORMANCE_URL);
connection.setMaxListeners(0);

const workers = new Map();
// A worker that never polls by itself: each call asks it for one message.
function worker(ns, qname) {
  const key = `${ns} ${qname}`;
  if (!workers.has(key)) {
    const rsmq = new RSMQ({ client: connection, ns });
    // By default a worker sends with a delay of 1 s, not with that of the queue.
    const made = new Worker(qname, { rsmq, autostart: false, timeout: 0, defaultDelay: 0 });
    workers.set(key, new Promise((resolve) => made.once("ready", () => resolve(made))));
  }
  return workers.get(key);
}

const settled = (call) =>
  new Promise((resolve, reject) => call((error, result) => (error ? reject(error) : resolve(result))));

const VERBS = {
  sendMessage: (made, { message, delay }) => settled((done) => made.send(message, delay, done)),
  deleteMessage: (made, { id }) => settled((done) => made.del(id, done)).then(() => true),
  getQueueAttributes: (made) => settled((done) => made.info(done)),
  receiveMessage: receive,
};

// The worker hands a message to its listener and waits for next(); without that it stays hidden.
function receive(made, { vt = 30 }) {
  made.config.invisibletime = vt;
  return new Promise((resolve, reject) => {
    const finish = (settle, value) => {
      made.removeAllListeners("message").removeAllListeners("error");
      made.queue.receiveMessage = original;
      settle(value);
    };
    const original = made.queue.receiveMessage;
    // What the worker hears from rsmq: nothing is emitted for an empty queue.
    made.queue.receiveMessage = (options, done) =>
      original.call(made.queue, options, (error, message) => {
        done(error, message);
        if (error) finish(reject, error);
        else if (!message || !message.id) finish(resolve, null);
      });
    made.on("message", (body, next, id) => finish(resolve, { id, message: body, ...extra(made, id) }));
    made.on("data", (message) => (made.last = message));
    made.receive(false);
  });
}

function extra(made, id) {
  const { rc, fr, sent } = made.last && made.last.id === id ? made.last : {};
  return { rc, fr, sent };
}

async function answer({ verb, ns, args }) {
  if (verb === "hello") {
    const { version } = require("rsmq-worker/package.json");
    return { name: "rsmq-worker", version, language: "JavaScript", verbs: Object.keys(VERBS) };
  }
  return VERBS[verb](await worker(ns, args.qname), args);
}

connection.once("ready", async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    let reply;
    try {
      reply = { ok: await answer(request) };
    } catch (error) {
      reply = { error: error.name, message: error.message };
    }
    process.stdout.write(`${JSON.stringify({ id: request.id, ...reply })}\n`);
  }
  process.exit(0);
});
