// Owns the npm package rsmq for a run of tests. One JSON object per line on stdin, one per line
// back: {"op", "args", "ns", "realtime"} is answered by {"ok"} or {"err", "msg"}.
// RSMQ_INTEROP_URL names the server, NODE_PATH the folder that holds the package.
"use strict";

const readline = require("readline");
const redis = require("redis");
const RSMQ = require("rsmq");

const HEARD_LIMIT_MS = 10000;

// Stdout belongs to the answers; the package writes some of its troubles there.
console.log = console.error;

function connect(text) {
  const url = new URL(text);
  if (url.protocol !== "unix:") return redis.createClient(text);
  const options = { path: decodeURIComponent(url.pathname) };
  if (url.searchParams.has("db")) options.db = Number(url.searchParams.get("db"));
  if (url.password) options.password = decodeURIComponent(url.password);
  return redis.createClient(options);
}

const connection = connect(process.env.RSMQ_INTEROP_URL);
// Every namespace adds its listeners to the one connection.
connection.setMaxListeners(0);

const clients = new Map();
function client(ns, realtime) {
  const key = `${realtime} ${ns}`;
  if (!clients.has(key)) clients.set(key, new RSMQ({ client: connection, ns, realtime }));
  return clients.get(key);
}

let listener = null;
const heard = new Map();
let notify = () => {};

function subscribe(channel) {
  if (listener === null) {
    listener = connection.duplicate();
    listener.on("message", (name, text) => {
      heard.get(name).push(text);
      notify();
    });
  }
  heard.set(channel, []);
  return new Promise((resolve, reject) => {
    listener.subscribe(channel, (error) => (error ? reject(error) : resolve(true)));
  });
}

// Answers with what was heard as soon as it is as much as was asked for.
function hear(channel, count) {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      notify = () => {};
      resolve(heard.get(channel));
    };
    const timer = setTimeout(finish, HEARD_LIMIT_MS);
    notify = () => {
      if (heard.get(channel).length >= count) finish();
    };
    notify();
  });
}

function run({ op, args, ns, realtime }) {
  if (op === "subscribe") return subscribe(args.channel);
  if (op === "hear") return hear(args.channel, args.count);
  const method = client(ns, realtime)[`${op}Async`];
  return op === "listQueues" ? method() : method(args);
}

async function answer(line) {
  try {
    const result = await run(JSON.parse(line));
    return { ok: result === undefined ? null : result };
  } catch (error) {
    return { err: error.name, msg: error.message };
  }
}

// A client made before its connection stands would queue its calls and run them anew after every
// reconnect, so no line is read before that.
connection.once("ready", async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await answer(line))}\n`);
  }
  connection.end(false);
  if (listener !== null) listener.end(false);
});
