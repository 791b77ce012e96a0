"""One attempt of a call: its request id, and the calls to the broker that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from .._transport.calls import Call
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import RSMQError
from ..rpc import v1_pb2 as pb
from .channel import BrokerChannel
from .errors import Answered

R = TypeVar("R")

#: How long a broker remembers a call, less what an attempt may take on its way.
REMEMBERED_S = 240.0
#: Names no broker process: a recalled call that is not remembered is not made.
_NO_BROKER = "recall"


class _First(NamedTuple):
    """When a call was first made, and the broker process that it then went to."""

    at: float
    broker: str


class Attempt:
    """One attempt of a call."""

    def __init__(self, channel: BrokerChannel, call: Call) -> None:
        self.call = call
        self.channel = channel
        #: Whether a call to the broker has been answered, so that something may have been done.
        self.acted = False

    @property
    def max_batch(self) -> int:
        """How many messages one request may be about."""
        return self.channel.max_batch

    def request_id(self, part: str = "", *, anywhere: bool = False) -> pb.RequestId:
        """Return the id of this call, or of one part of it; the same one for every attempt.

        With *anywhere* another broker process may make the call again without harm. Raises
        ``ReplyLost`` if the broker may have forgotten the first attempt.
        """
        call, now = self.call, asyncio.get_running_loop().time()
        number = call.number
        id = f"{number.series}-{number.number}{part}" if number else ""
        if call.recall:
            return pb.RequestId(id=id, broker=_NO_BROKER)
        if not call.in_doubt:
            call.encoded = _First(now, self.channel.broker)
            return pb.RequestId(id=id)
        first: _First | None = call.encoded
        if first is None or not first.broker or now - first.at > REMEMBERED_S:
            raise ReplyLost("the broker may have forgotten the call, which is not repeated")
        return pb.RequestId(id=id, broker="" if anywhere else first.broker)

    @property
    def elsewhere(self) -> bool:
        """Whether another broker process than the one asked first has answered this attempt."""
        first: _First | None = self.call.encoded
        return self.call.in_doubt and first is not None and self.channel.broker != first.broker

    async def ask(self, method: str, request: Any) -> Any:
        """Make a call to the broker; ``Answered`` if its answer is an error."""
        response = await self.channel.call(method, request, self.call)
        self.acted = True
        return response


#: What does an operation: it is given one request, or a list of them if the kind merges.
Handler = Callable[[Attempt, Any], Awaitable[Any]]


async def gather_answers(*work: Awaitable[R]) -> list[R | RSMQError]:
    """Wait for all; an error that is an answer takes the place of a result, others are raised.

    Of several errors the one that leaves the most open is raised.
    """
    found: list[Any] = await asyncio.gather(*work, return_exceptions=True)
    faults = [f for f in found if isinstance(f, BaseException) and not isinstance(f, Answered)]
    for kind in (asyncio.CancelledError, ReplyLost, NotExecuted, BaseException):
        for fault in faults:
            if isinstance(fault, kind):
                raise fault
    return [f.error if isinstance(f, Answered) else f for f in found]
