"""``Send`` and ``Publish``: operations that share a call become parts of one request."""

from __future__ import annotations

from typing import Any

from .._common.durability import MEMORY
from .._protocol.messages import SEND, SendRequest
from .._protocol.topics import PUBLISH, PublishRequest
from ..errors import DurabilityUnmet, RSMQError, Unavailable
from ..models import Sent
from ..rpc import v1_pb2 as pb
from .attempt import Attempt, Handler
from .errors import Answered, Failure


async def _send(attempt: Attempt, requests: list[SendRequest]) -> list[Any]:
    return await _store(attempt, "Send", pb.SendRequest(queue=requests[0].keys.queue), requests)


async def _publish(attempt: Attempt, requests: list[PublishRequest]) -> list[Any]:
    # The broker knows the subscriptions, so the plan is only asked for the topic.
    message = pb.PublishRequest(topic=requests[0].plan.keys.name)
    return await _store(attempt, "Publish", message, requests)


async def _store(attempt: Attempt, method: str, message: Any, requests: list[Any]) -> list[Any]:
    single = len(requests) == 1
    for request in requests:
        part = message if single else message.parts.add()
        part.bodies.extend(request.bodies)
        if request.dedup is not None:
            part.dedup_key = f"digest:{request.dedup.digest}"
        if request.delay_ms >= 0:
            part.delay_ms = request.delay_ms
    # Another broker stores no second copy under a dedup key.
    anywhere = all(request.dedup is not None for request in requests)
    message.request.CopyFrom(attempt.request_id(anywhere=anywhere))
    try:
        response = await attempt.ask(method, message)
    except Answered as answered:
        error = answered.error
        if not single or not isinstance(error, DurabilityUnmet) or not error.ids:
            raise
        # They are stored; the call compares what was reached with what this client wants.
        attempt.call.reached = error.reached
        return [_ids(attempt, requests[0], error)]
    if single:
        attempt.call.reached = response.durability or MEMORY
        return [_ids(attempt, requests[0], response)]
    outcomes = list(response.outcomes)
    attempt.call.reached = min((o.durability for o in outcomes if o.durability), default=MEMORY)
    return [_outcome(attempt, *row, method) for row in zip(requests, outcomes, strict=True)]


def _outcome(attempt: Attempt, request: Any, outcome: Any, method: str) -> list[str] | RSMQError:
    if not outcome.HasField("error"):
        return _ids(attempt, request, outcome)
    said = outcome.error
    if outcome.ids:  # stored, but not as safely as the broker wants it
        return _ids(attempt, request, outcome)
    error = Failure.of_part(method, said.code, said.message, said.details).error()
    if isinstance(error, Answered):
        return error.error
    if isinstance(error, RSMQError):
        return error
    return Unavailable(str(error), executed=None, transient=True)


def _ids(attempt: Attempt, request: Any, found: Any) -> list[str]:
    if request.dedup is None:
        return list(found.ids)
    sent = Sent(found.ids[0])
    # After a repetition at another broker the message that is there may be this request's own.
    sent.duplicate = getattr(found, "duplicate", False) and not attempt.elsewhere
    return [sent]


HANDLERS: dict[Any, Handler] = {SEND: _send, PUBLISH: _publish}
