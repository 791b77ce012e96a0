// A client in another language: Node, with @grpc/grpc-js and the proto alone.
//
//   npm install @grpc/grpc-js @grpc/proto-loader
//   node examples/grpc/client.js [ADDRESS [TOKEN]]
//
// Sends ten messages to a queue and consumes them. Its last line is: done
const path = require("path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address = "127.0.0.1:10001", token = ""] = process.argv.slice(2);
const proto = process.env.RSMQ_PROTO || path.join(__dirname, "../../aiorsmq_ng/rpc/v1.proto");
const { aiorsmq } = grpc.loadPackageDefinition(loader.loadSync(proto, { keepCase: true }));
const queues = new aiorsmq.v1.Queues(address, grpc.credentials.createInsecure());

const metadata = new grpc.Metadata();
if (token) metadata.set("authorization", `Bearer ${token}`);

const call = (name, request) =>
  new Promise((resolve, reject) =>
    queues[name](request, metadata, { deadline: Date.now() + 10000 }, (error, response) =>
      error ? reject(error) : resolve(response)
    )
  );

async function main() {
  const queue = `example-${process.pid}`;
  await call("CreateQueue", { queue, exist_ok: true });
  const bodies = Array.from({ length: 10 }, (_, n) => Buffer.from(`message ${n}`));
  await call("Send", { queue, bodies });
  const stream = queues.Consume({ sources: [{ queue }], max_unsettled: 3 }, metadata);
  let count = 0;
  for await (const event of stream) {
    for (const delivery of event.deliveries) {
      console.log(delivery.body.toString());
      await call("Ack", { receipts: [delivery.receipt] });
      count += 1;
    }
    if (count === bodies.length) break;
  }
  stream.cancel();
  await call("DeleteQueue", { queue });
  try {
    await call("GetAttributes", { queue });
  } catch (error) {
    console.log(`${error.code} ${error.metadata.get("rsmq-code")}`); // 5 queueNotFound
  }
  queues.close();
  console.log("done");
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
