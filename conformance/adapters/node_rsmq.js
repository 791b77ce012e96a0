// A driver for the npm package rsmq: one JSON object per line in, one per line out.
// NODE_PATH names the folder that holds the package.
"use strict";

const readline = require("readline");
const redis = require("redis");
const RSMQ = require("rsmq");

console.log = console.error; // stdout belongs to the answers

const connection = redis.createClient(process.env.RSMQ_CONFORMANCE_URL);
connection.setMaxListeners(0); // every namespace adds its own to the one connection

const clients = new Map();
function client(ns, realtime) {
  const key = `${realtime} ${ns}`;
  if (!clients.has(key)) clients.set(key, new RSMQ({ client: connection, ns, realtime }));
  return clients.get(key);
}

const BOOLEAN = new Set(["createQueue", "deleteQueue", "deleteMessage", "changeMessageVisibility"]);

async function answer({ verb, ns, realtime, args }) {
  if (verb === "hello") {
    const { version } = require("rsmq/package.json");
    return { name: "npm rsmq", version, language: "JavaScript", options: ["realtime"] };
  }
  const method = client(ns, Boolean(realtime))[`${verb}Async`];
  const result = verb === "listQueues" ? await method() : await method(args);
  if (BOOLEAN.has(verb)) return result === 1;
  if (verb === "receiveMessage" || verb === "popMessage") return result.id ? result : null;
  return result;
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
  connection.end(false);
});
