"""A driver for aiorsmq-ng: one JSON object per line in, one per line out."""

import asyncio
import json
import os
import sys
from dataclasses import asdict, is_dataclass
from importlib.metadata import version

from aiorsmq_ng import RSMQ, Message, RSMQError

HELLO = {"name": "aiorsmq-ng", "version": version("aiorsmq-ng"), "language": "Python"}
HELLO["options"] = ["realtime"]


def shown(verb, result):
    if verb in ("createQueue", "deleteQueue"):
        return True  # it would have raised
    if isinstance(result, Message):
        fields = {name: getattr(result, name) for name in ("id", "rc", "fr", "sent")}
        return {**fields, "message": result.body.decode(errors="replace")}
    return asdict(result) if is_dataclass(result) else result


async def answer(clients, *, verb, ns, args, realtime=False, **_):
    if verb == "hello":
        return HELLO
    if (ns, realtime) not in clients:
        url = os.environ["RSMQ_CONFORMANCE_URL"]
        clients[ns, realtime] = await RSMQ(url, ns=ns, realtime=realtime).open()
    # Its methods are called as the verbs, in Python's spelling: create_queue.
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in verb)
    queue = [args.pop("qname")] if "qname" in args else []
    return shown(verb, await getattr(clients[ns, realtime], name)(*queue, **args))


async def main():
    clients = {}
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        try:
            reply = {"ok": await answer(clients, **asked)}
        except RSMQError as error:
            reply = {"error": error.code, "message": str(error)}
        print(json.dumps({"id": asked["id"], **reply}), flush=True)
    for client in clients.values():
        await client.aclose()


asyncio.run(main())
