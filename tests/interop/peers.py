"""Clients under one set of names, so that a test can be run with any of them in any role."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol

from aiorsmq_ng import RSMQ, Message, RSMQError

from .drivers import Driver, Refused

#: The attributes that every client reports.
ATTRIBUTES = (
    "vt delay maxsize totalrecv totalsent created modified msgs hiddenmsgs".split()  # noqa: SIM905
)
#: PyRSMQ has classes where RSMQ has code words.
_CODES = {"QueueDoesNotExist": "queueNotFound", "QueueAlreadyExists": "queueExists"}


class Got(NamedTuple):
    """A message as its receiver sees it; PyRSMQ does not return when it was sent."""

    id: str
    body: str
    rc: int
    fr: int
    sent: float | None


class Peer(Protocol):
    """What every client can do. Refusals are raised as ``Refused`` with RSMQ's code word."""

    name: str

    async def create(self, queue: str, **attributes: float) -> None: ...
    async def list(self) -> list[str]: ...
    async def delete_queue(self, queue: str) -> None: ...
    async def attributes(self, queue: str) -> dict[str, Any]: ...
    async def set_attributes(self, queue: str, **attributes: float) -> None: ...
    async def send(self, queue: str, body: str, **options: float) -> str: ...
    async def receive(self, queue: str, **options: float) -> Got | None: ...
    async def pop(self, queue: str) -> Got | None: ...
    async def delete(self, queue: str, id: str) -> bool: ...
    async def change_visibility(self, queue: str, id: str, vt: float) -> bool: ...


class Ours:
    """Our library."""

    name = "ours"

    def __init__(self, rsmq: RSMQ) -> None:
        self._rsmq = rsmq

    async def create(self, queue: str, **attributes: Any) -> None:
        await _ours(self._rsmq.create_queue(queue, **attributes))

    async def list(self) -> list[str]:
        return await _ours(self._rsmq.list_queues())

    async def delete_queue(self, queue: str) -> None:
        await _ours(self._rsmq.delete_queue(queue))

    async def attributes(self, queue: str) -> dict[str, Any]:
        found = await _ours(self._rsmq.get_queue_attributes(queue))
        return {name: getattr(found, name) for name in ATTRIBUTES}

    async def set_attributes(self, queue: str, **attributes: Any) -> None:
        await _ours(self._rsmq.set_queue_attributes(queue, **attributes))

    async def send(self, queue: str, body: str, **options: float) -> str:
        return await _ours(self._rsmq.send_message(queue, body, **options))

    async def receive(self, queue: str, **options: float) -> Got | None:
        return _got(await _ours(self._rsmq.receive_message(queue, **options)))

    async def pop(self, queue: str) -> Got | None:
        return _got(await _ours(self._rsmq.pop_message(queue)))

    async def delete(self, queue: str, id: str) -> bool:
        return await _ours(self._rsmq.delete_message(queue, id))

    async def change_visibility(self, queue: str, id: str, vt: float) -> bool:
        return await _ours(self._rsmq.change_message_visibility(queue, id, vt))


class Foreign:
    """The npm package or PyRSMQ; both know the same verbs and arguments."""

    def __init__(self, name: str, driver: Driver, ns: str, *, realtime: bool = False) -> None:
        self.name = name
        self._driver = driver
        self._ns = ns
        self._realtime = realtime

    async def create(self, queue: str, **attributes: float) -> None:
        await self.call("createQueue", qname=queue, **attributes)

    async def list(self) -> list[str]:
        return sorted(await self.call("listQueues"))

    async def delete_queue(self, queue: str) -> None:
        await self.call("deleteQueue", qname=queue)

    async def attributes(self, queue: str) -> dict[str, Any]:
        return await self.call("getQueueAttributes", qname=queue)

    async def set_attributes(self, queue: str, **attributes: float) -> None:
        await self.call("setQueueAttributes", qname=queue, **attributes)

    async def send(self, queue: str, body: object, **options: float) -> str:
        id = await self.call("sendMessage", qname=queue, message=body, **options)
        assert isinstance(id, str), f"{self.name} sent nothing and said {id!r}"
        return id

    async def receive(self, queue: str, **options: float) -> Got | None:
        return self._got(await self.call("receiveMessage", qname=queue, **options))

    async def pop(self, queue: str) -> Got | None:
        return self._got(await self.call("popMessage", qname=queue))

    async def delete(self, queue: str, id: str) -> bool:
        return bool(await self.call("deleteMessage", qname=queue, id=id))

    async def change_visibility(self, queue: str, id: str, vt: float) -> bool:
        return bool(await self.call("changeMessageVisibility", qname=queue, id=id, vt=vt))

    async def subscribe(self, channel: str) -> None:
        assert await self.call("subscribe", channel=channel)

    async def hear(self, channel: str, count: int) -> list[str]:
        """Return what was published on the channel, once it is *count* or 10 s have passed."""
        return await self.call("hear", channel=channel, count=count)

    async def call(self, op: str, **args: Any) -> Any:
        request = {"op": op, "args": args, "ns": self._ns, "realtime": self._realtime}
        try:
            return await asyncio.to_thread(self._driver.ask, request)
        except Refused as refusal:
            # PyRSMQ's exception for what the others answer with an empty result.
            if refusal.code == "NoMessageInQueue":
                return None
            raise Refused(_CODES.get(refusal.code, refusal.code), str(refusal)) from None

    def _got(self, answer: dict[str, Any] | None) -> Got | None:
        if not answer:
            return None
        # PyRSMQ's ts is the time of the first receive.
        fr = answer["fr"] if "fr" in answer else answer["ts"]
        return Got(answer["id"], answer["message"], answer["rc"], fr, answer.get("sent"))


async def refusal(call: Awaitable[object]) -> str | None:
    """Return the code word by which a client refuses *call*; ``None`` if it does not."""
    try:
        await call
    except Refused as refused:
        return refused.code
    return None


async def _ours(call: Awaitable[Any]) -> Any:
    try:
        return await call
    except RSMQError as error:
        raise Refused(error.code, str(error)) from error


def _got(message: Message | None) -> Got | None:
    if message is None:
        return None
    return Got(message.id, message.text, message.rc, message.fr, message.sent)
