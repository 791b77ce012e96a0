"""One attempt of a call: its request id, and the calls to the broker that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from .._transport.calls import Call
from .._transport.driver import ReplyLost
from ..rpc import v1_pb2 as pb
from .channel import BrokerChannel

T = TypeVar("T")

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
        #: True once the broker has answered, so that something may have been done.
        self.acted = False

    @property
    def max_batch(self) -> int:
        """How many messages one request may be about."""
        return self.channel.max_batch

    def pages(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Yield *items* in pages that one request may carry."""
        for at in range(0, len(items), self.max_batch):
            yield items[at : at + self.max_batch]

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
        """True if another broker process than the one asked first has answered this attempt."""
        first: _First | None = self.call.encoded
        return self.call.in_doubt and first is not None and self.channel.broker != first.broker

    async def ask(self, method: str, message: Any = None, **fields: Any) -> Any:
        """Make a call with *message*, or with one made of *fields*; ``Answered`` for an error."""
        if message is None:
            message = getattr(pb, f"{method}Request")(**fields)
        response = await self.channel.call(method, message, self.call)
        self.acted = True
        return response


#: Runs an operation: it is given one request, or a list of them if the kind merges.
Handler = Callable[[Attempt, Any], Awaitable[Any]]


def unary(
    method: str, fields: Callable[[Any], dict[str, Any]], result: Callable[[Any], Any]
) -> Handler:
    """Return the handler of a kind that is one call.

    *fields* are those of its request, *result* reads its response. A call with a number gets a
    request id.
    """

    async def run(attempt: Attempt, request: Any) -> Any:
        named = {"request": attempt.request_id()} if attempt.call.number else {}
        return result(await attempt.ask(method, **fields(request), **named))

    return run
