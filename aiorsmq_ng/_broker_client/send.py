"""``Send`` and ``Publish``: operations that share a call become parts of one request."""

from __future__ import annotations

from typing import Any

from .._common.durability import MEMORY
from .._protocol.messages import SEND, SendRequest
from .._protocol.topics import PUBLISH, PublishRequest
from .._transport.driver import ReplyLost
from ..errors import RSMQError, Unavailable
from ..models import Sent
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .conversions import given
from .errors import Failure


async def _send(attempt: Attempt, requests: list[SendRequest]) -> list[Any]:
    return await _store(attempt, "Send", pb.SendRequest(queue=requests[0].keys.queue), requests)


async def _publish(attempt: Attempt, requests: list[PublishRequest]) -> list[Any]:
    # The broker knows the subscriptions, so the plan is only asked for the topic.
    message = pb.PublishRequest(topic=requests[0].plan.keys.name)
    return await _store(attempt, "Publish", message, requests)


async def _store(attempt: Attempt, method: str, message: Any, requests: list[Any]) -> list[Any]:
    for request in requests:
        message.parts.add(
            bodies=request.bodies,
            delay_ms=given(request.delay_ms),
            dedup_key=None if request.dedup is None else f"digest:{request.dedup.digest}",
        )
    # Another broker stores no second copy under a dedup key.
    anywhere = all(request.dedup is not None for request in requests)
    message.request.CopyFrom(attempt.request_id(anywhere=anywhere))
    outcomes = (await attempt.ask(method, message)).outcomes
    # The call compares what each part reached with what this client wants.
    attempt.call.reached = [outcome.durability or MEMORY for outcome in outcomes]
    return [_outcome(attempt, *row, method) for row in zip(requests, outcomes, strict=True)]


def _outcome(attempt: Attempt, request: Any, outcome: Any, method: str) -> list[str] | RSMQError:
    # With ids it is stored, though perhaps not as safely as the broker wants it.
    if not outcome.ids:
        error = Failure.of_part(method, outcome.error).outcome()
        if isinstance(error, Unavailable) and attempt.elsewhere:
            # This broker did not make it; the one asked first may have.
            raise ReplyLost(str(error))
        return error
    if request.dedup is None:
        return list(outcome.ids)
    sent = Sent(outcome.ids[0])
    # After a repetition at another broker the message that is there may be this request's own.
    sent.duplicate = outcome.duplicate and not attempt.elsewhere
    return [sent]


HANDLERS: dict[Any, Handler] = {SEND: _send, PUBLISH: _publish}
