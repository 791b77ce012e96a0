"""Send, and what it shares with Publish."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from aiorsmq_ng import (
    DurabilityUnmet,
    InvalidValue,
    RSMQError,
    SendToken,
    SendUnknown,
    Unavailable,
)

from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import read_headers
from .broker_context import BrokerContext
from .error_to_status import error_status
from .idempotency import check_id, content_of
from .request_limits import seconds
from .tokens import CALLER

R = TypeVar("R")


class SendCalls:
    """Store messages."""

    _broker: BrokerContext

    async def Send(self, request: pb.SendRequest, _: Any) -> pb.SendResponse:
        """Store messages in order, all or none, or several such sends."""
        queue = self._broker.queue(request.queue)
        target = Target(queue.send, queue.send_many, queue.resend)
        return await store(self._broker, "Send", request, target, pb.SendResponse)


class Target(NamedTuple):
    """How one message and several are stored, and how the outcome of a lost attempt is found."""

    send: Callable[..., Awaitable[str]]
    send_many: Callable[..., Awaitable[list[str]]]
    resend: Callable[..., Awaitable[list[str]]]


class _Part(NamedTuple):
    bodies: Sequence[bytes]
    delay: float | None
    dedup_key: str | None
    headers: Any
    #: True if the dedup key was made for this request: a duplicate is then its own first attempt.
    durable: bool = False


class _PartsToken(SendToken):
    """The outcome of a request with parts; *found* has the ids or the error of each."""

    __slots__ = ("found",)

    def __init__(self, found: Sequence[list[str] | RSMQError]) -> None:
        self.found = found


async def store(
    broker: BrokerContext, method: str, request: Any, target: Target, response: Callable[..., R]
) -> R:
    """Store the messages of a Send or Publish once, however often the request is repeated."""
    parts = _parts(broker, request)

    def answer(found: Sequence[list[str] | RSMQError]) -> R:
        if request.parts:
            return response(outcomes=[_outcome(ids) for ids in found])
        if isinstance(found[0], RSMQError):
            raise found[0]
        return response(ids=found[0], **_stored(found[0], parts[0].durable))

    async def work() -> R:
        # Started in the same tick of the loop, so they share a script call, in order.
        return answer(await _gather([_store(part, target) for part in parts]))

    async def again(error: SendUnknown) -> R:
        parts = error.token.found if isinstance(error.token, _PartsToken) else [error]
        return answer(await _gather([_resend(found, target) for found in parts]))

    if parts[0].durable:
        return await work()
    return await broker.once(method, request, work, again=again)


async def _store(part: _Part, target: Target) -> list[str]:
    if len(part.bodies) == 1:
        own = {"delay": part.delay, "dedup_key": part.dedup_key, "headers": part.headers}
        return [await target.send(part.bodies[0], **own)]
    return await target.send_many(part.bodies, delay=part.delay, headers=part.headers)


async def _resend(found: list[str] | RSMQError, target: Target) -> list[str]:
    """Find the outcome of a part, unless it is known."""
    if isinstance(found, SendUnknown) and found.token is not None:
        return await target.resend(found.token)
    if isinstance(found, RSMQError):
        raise found
    return found


async def _gather(work: Sequence[Awaitable[list[str]]]) -> list[list[str] | RSMQError]:
    """Return the ids or the error of each part. Raise if all are outages, or one is unknown."""
    found: list[Any]
    if len(work) == 1:
        # A task of its own would cost more than the rest of the call.
        try:
            found = [await work[0]]
        except RSMQError as failure:
            found = [failure]
    else:
        found = await asyncio.gather(*work, return_exceptions=True)
    for error in found:
        if isinstance(error, BaseException) and not isinstance(error, RSMQError):
            raise error
    if unknown := [error for error in found if isinstance(error, SendUnknown)]:
        whole = SendUnknown(str(unknown[0]))
        whole.token = _PartsToken(found)
        raise whole
    if all(isinstance(error, Unavailable) for error in found):
        raise found[0]
    return found


def _parts(broker: BrokerContext, request: Any) -> list[_Part]:
    if not request.parts:
        broker.checks.batch("bodies", len(request.bodies))
        dedup_key, durable = dedup_key_of(request)
        delay, headers = seconds(request, "delay_ms"), read_headers(request.headers)
        return [_Part(request.bodies, delay, dedup_key, headers, durable)]
    if request.bodies or request.dedup_key or request.HasField("delay_ms") or request.headers:
        raise InvalidValue("a request has either parts, or bodies, delay_ms, dedup_key and headers")
    parts = [
        _Part(
            *(part.bodies, seconds(part, "delay_ms"), part.dedup_key or None),
            read_headers(part.headers),
        )
        for part in request.parts
    ]
    counts = [len(part.bodies) for part in parts]
    broker.checks.batch("bodies", sum(counts))
    for part, count in zip(parts, counts, strict=True):
        if not count or (part.dedup_key and count > 1):
            raise InvalidValue("a part has at least one body, and with a dedup key only one")
    return parts


def dedup_key_of(request: pb.SendRequest | pb.PublishRequest) -> tuple[str | None, bool]:
    """Return the dedup key of a send or publish, and True if it was made for a durable request."""
    single = len(request.bodies) == 1
    if request.dedup_key and not single:
        raise InvalidValue("a dedup key is for a single body")
    if not (request.request.durable and single and not request.dedup_key):
        return request.dedup_key or None, False
    check_id(request.request.id)
    # The content is part of the key: another body under the same id is another message.
    own = f"{CALLER.get().identity}:{request.request.id}:{content_of(request).hex()}"
    # Derived in another way than digests of callers' keys, so it never equals one of them.
    made = blake2b(own.encode(), digest_size=16, person=b"durable request")
    return f"digest:{made.hexdigest()}", True


def _stored(ids: Sequence[str], durable: bool = False) -> dict[str, Any]:
    """Return durability and duplicate of a response."""
    id = ids[0]
    duplicate = getattr(id, "duplicate", False) and not durable
    return {"durability": getattr(id, "durability", "memory"), "duplicate": duplicate}


def _outcome(found: list[str] | RSMQError) -> dict[str, Any]:
    """Return the fields of an outcome; protobuf would copy a message into its response."""
    if not isinstance(found, RSMQError):
        return {"ids": found, **_stored(found)}
    stored: dict[str, Any] = {}
    if isinstance(found, DurabilityUnmet):
        stored = {"ids": found.ids, "durability": found.reached}
    return {"error": error_status(found).as_message(), **stored}
