// The npm package bullmq: jobs that do nothing and are removed when they are done.
"use strict";

const { Queue, Worker } = require("bullmq");
const { serve } = require("./talk.js");

const opts = { removeOnComplete: true };
let connection = null;
let queue = null;
let worker = null;

const peer = {
  async open(url) {
    const { hostname, port } = new URL(url);
    connection = { host: hostname, port: Number(port), maxRetriesPerRequest: null };
    queue = new Queue("jobs", { connection });
    await queue.waitUntilReady();
  },
  async reset() {},
  send: (body) => queue.add("job", { body }, opts),
  sendMany: (bodies) => queue.addBulk(bodies.map((body) => ({ name: "job", data: { body }, opts }))),
  work({ messages, tasks }) {
    return new Promise((resolve) => {
      let left = messages;
      const work = async () => {
        left -= 1;
        if (left === 0) resolve();
      };
      worker = new Worker("jobs", work, { connection, concurrency: tasks });
    });
  },
  async settle() {
    if (worker !== null) await worker.close(true);
    worker = null;
  },
};

serve(peer, ["bullmq", "ioredis"]);
