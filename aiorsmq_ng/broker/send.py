"""Send, and what it shares with Publish."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from aiorsmq_ng import InvalidValue, SendUnknown

from ..rpc import v1_pb2 as pb
from .context import BrokerContext, content_of, seconds
from .idempotency import check_id
from .tokens import CALLER


class SendCalls:
    """Store messages."""

    _broker: BrokerContext

    async def Send(self, request: pb.SendRequest, _: Any) -> pb.SendResponse:
        """Store messages in order, all or none."""
        broker = self._broker
        broker.batch("bodies", request.bodies)
        queue, delay = broker.queue(request.queue), seconds(request, "delay_ms")
        dedup_key, durable = dedup_key_of(request)

        async def work() -> pb.SendResponse:
            if len(request.bodies) == 1:
                sent = await queue.send(request.bodies[0], delay=delay, dedup_key=dedup_key)
                return pb.SendResponse(ids=[sent], **send_outcome(sent, durable))
            ids = await queue.send_many(request.bodies, delay=delay)
            return pb.SendResponse(ids=ids, **send_outcome(ids[0]))

        async def again(error: SendUnknown) -> pb.SendResponse:
            if error.token is None:
                raise error
            ids = await queue.resend(error.token)
            return pb.SendResponse(ids=ids, **send_outcome(ids[0]))

        return await (work() if durable else broker.once("Send", request, work, again=again))


def dedup_key_of(request: pb.SendRequest | pb.PublishRequest) -> tuple[str | None, bool]:
    """Return the dedup key of a send or publish, and True if it was made for a durable request."""
    single = len(request.bodies) == 1
    if request.dedup_key and not single:
        raise InvalidValue("a dedup key is for a single body")
    if not (request.request.durable and single and not request.dedup_key):
        return request.dedup_key or None, False
    check_id(request.request.id)
    # The content is part of it: another body under the same id is another message.
    own = f"{CALLER.get().identity}:{request.request.id}:{content_of(request).hex()}"
    # Made in another way than digests of callers' keys, so it never equals one of them.
    made = blake2b(own.encode(), digest_size=16, person=b"durable request")
    return f"digest:{made.hexdigest()}", True


def send_outcome(id: str, durable: bool = False) -> dict[str, Any]:
    """Return the fields of a response to a send: its durability, and if it was a duplicate.

    The key of a *durable* request is its own: a duplicate is its own first attempt.
    """
    duplicate = getattr(id, "duplicate", False) and not durable
    return {"durability": getattr(id, "durability", "memory"), "duplicate": duplicate}
