"""A driver for aiorsmq-ng: one JSON object per line in, one per line out."""

import asyncio
import dataclasses
import json
import os
import sys
from importlib.metadata import version

from aiorsmq_ng import RSMQ, RSMQError

HELLO = {"name": "aiorsmq-ng", "version": version("aiorsmq-ng"), "language": "Python"}
HELLO["options"] = ["realtime"]


def shown(message):
    if message is None:
        return None
    fields = {name: getattr(message, name) for name in ("id", "rc", "fr", "sent")}
    return {**fields, "message": message.body.decode(errors="replace")}


async def call(rsmq, verb, args):
    match verb:
        case "createQueue":
            return bool(await rsmq.create_queue(args.pop("qname"), **args))
        case "listQueues":
            return await rsmq.list_queues()
        case "deleteQueue":
            return await rsmq.delete_queue(args["qname"]) is None
        case "getQueueAttributes":
            return dataclasses.asdict(await rsmq.get_queue_attributes(args["qname"]))
        case "setQueueAttributes":
            changed = await rsmq.set_queue_attributes(args.pop("qname"), **args)
            return dataclasses.asdict(changed)
        case "sendMessage":
            return await rsmq.send_message(args.pop("qname"), args.pop("message"), **args)
        case "receiveMessage":
            return shown(await rsmq.receive_message(args.pop("qname"), **args))
        case "popMessage":
            return shown(await rsmq.pop_message(args["qname"]))
        case "deleteMessage":
            return await rsmq.delete_message(args["qname"], args["id"])
        case "changeMessageVisibility":
            return await rsmq.change_message_visibility(args["qname"], args["id"], args["vt"])


async def main():
    clients = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        key = asked["ns"], asked.get("realtime", False)
        try:
            if asked["verb"] == "hello":
                reply = {"ok": HELLO}
            else:
                if key not in clients:
                    url = os.environ["RSMQ_CONFORMANCE_URL"]
                    clients[key] = await RSMQ(url, ns=key[0], realtime=key[1]).open()
                reply = {"ok": await call(clients[key], asked["verb"], asked["args"])}
        except RSMQError as error:
            reply = {"error": error.code, "message": str(error)}
        print(json.dumps({"id": asked["id"], **reply}), flush=True)
    for client in clients.values():
        await client.aclose()


asyncio.run(main())
