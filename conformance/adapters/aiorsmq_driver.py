"""A driver for aiorsmq 0.1.2 on aioredis 2: one JSON object per line in, one per line out."""

import asyncio
import json
import os
import sys
from importlib.metadata import version

# aioredis 2 makes a class of both, which are one and the same since Python 3.11; lend it another.
_TIMEOUT = asyncio.TimeoutError
if asyncio.TimeoutError is TimeoutError:
    asyncio.TimeoutError = type("TimeoutError", (Exception,), {})
import aioredis  # noqa: E402

asyncio.TimeoutError = _TIMEOUT
from aiorsmq import AIORSMQ, exceptions  # noqa: E402

CODES = {
    exceptions.QueueExistsException: "queueExists",
    exceptions.QueueNotFoundException: "queueNotFound",
    exceptions.NoAttributesSpecified: "noAttributeSupplied",
}
#: This package has one exception for all invalid arguments; its text tells them apart.
INVALID = {
    "queue name": "invalidFormat",
    "message id": "invalidFormat",
    "message length": "messageTooLong",
}


def shown(message):
    if message is None:
        return None
    return {
        "id": message.id,
        "message": message.contents,
        "rc": message.rc,
        "fr": message.fr,
        "sent": message.sent,
    }


def attributes(found):
    return {
        "vt": found.vt,
        "delay": found.delay,
        "maxsize": found.max_size,
        "totalrecv": found.total_recv,
        "totalsent": found.total_sent,
        "created": found.created,
        "modified": found.modified,
        "msgs": found.messages,
        "hiddenmsgs": found.hidden_messages,
    }


class Verbs:
    def __init__(self, rsmq):
        self.rsmq = rsmq

    async def createQueue(self, qname, **given):
        await self.rsmq.create_queue(qname, **sized(given))
        return True

    async def listQueues(self):
        return await self.rsmq.list_queues()

    async def deleteQueue(self, qname):
        await self.rsmq.delete_queue(qname)
        return True

    async def getQueueAttributes(self, qname):
        return attributes(await self.rsmq.get_queue_attributes(qname))

    async def setQueueAttributes(self, qname, **given):
        return attributes(await self.rsmq.set_queue_attributes(qname, **sized(given)))

    async def sendMessage(self, qname, message, delay=None):
        return await self.rsmq.send_message(qname, message, delay=delay)

    async def receiveMessage(self, qname, vt=None):
        return shown(await self.rsmq.receive_message(qname, vt=vt))

    async def popMessage(self, qname):
        return shown(await self.rsmq.pop_message(qname))

    async def deleteMessage(self, qname, id):
        return await found(self.rsmq.delete_message(qname, id))

    async def changeMessageVisibility(self, qname, id, vt):
        return await found(self.rsmq.change_message_visibility(qname, id, vt))


def sized(given):
    return {"max_size" if name == "maxsize" else name: value for name, value in given.items()}


async def found(call):
    try:
        await call
    except exceptions.MessageNotFoundException:
        return False
    return True


def code(error):
    if isinstance(error, exceptions.InvalidValueException):
        text = str(error).lower()
        return next((c for part, c in INVALID.items() if part in text), "invalidValue")
    return CODES.get(type(error), type(error).__name__)


async def main():
    url = os.environ["RSMQ_CONFORMANCE_URL"]
    redis = aioredis.from_url(url, decode_responses=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            if request["verb"] == "hello":
                said = {"name": "aiorsmq", "version": version("aiorsmq"), "language": "Python"}
                reply = {"ok": {**said, "options": ["realtime"]}}
            else:
                real_time = request.get("realtime", False)
                rsmq = AIORSMQ(client=redis, namespace=request["ns"], real_time=real_time)
                reply = {"ok": await getattr(Verbs(rsmq), request["verb"])(**request["args"])}
        except Exception as error:
            reply = {"error": code(error), "message": str(error)}
        print(json.dumps({"id": request["id"], **reply}), flush=True)
    await redis.close()


asyncio.run(main())
