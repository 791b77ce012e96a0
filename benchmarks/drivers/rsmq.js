// The npm package rsmq.
"use strict";

const RSMQ = require("rsmq");
const { serve } = require("./talk.js");

const qname = "jobs";
let rsmq = null;

const peer = {
  open(url) {
    const { hostname, port } = new URL(url);
    rsmq = new RSMQ({ host: hostname, port: Number(port), ns: "bench" });
    return new Promise((resolve) => rsmq.on("connect", resolve));
  },
  reset: () => rsmq.createQueueAsync({ qname, maxsize: -1 }),
  send: (message) => rsmq.sendMessageAsync({ qname, message }),
  sendMany: (bodies) => Promise.all(bodies.map((body) => peer.send(body))),
  async take() {
    const { id } = await rsmq.receiveMessageAsync({ qname });
    await rsmq.deleteMessageAsync({ qname, id });
  },
};

serve(peer, ["rsmq", "redis"]);
