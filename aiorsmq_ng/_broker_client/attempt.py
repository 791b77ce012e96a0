"""One attempt of a call: its request id, the calls to the broker that it takes, common values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from .._transport.call import Call
from .._transport.driver import ReplyLost
from ..rpc import v1_pb2 as pb
from .channel import BrokerChannel

#: How long a broker remembers a call, less what an attempt may take on its way.
REMEMBERED_S = 240.0
#: Names no broker process: a recalled call that is not remembered is not made.
_NO_BROKER = "recall"


class Attempt:
    """One attempt of a call; ``call.encoded`` is when and to which broker process it first went."""

    def __init__(self, channel: BrokerChannel, call: Call) -> None:
        self.call = call
        self.max_batch = channel.max_batch
        self._channel = channel
        #: True once the broker has answered, so that something may have been done.
        self.acted = False

    @property
    def elsewhere(self) -> bool:
        """True if another broker process than the one asked first has answered this attempt."""
        return self.call.in_doubt and self._channel.broker != self.call.encoded[1]

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
            call.encoded = (now, self._channel.broker)
            return pb.RequestId(id=id)
        first_at, broker = call.encoded or (now, "")
        if not broker or now - first_at > REMEMBERED_S:
            raise ReplyLost("the broker may have forgotten the call, which is not repeated")
        return pb.RequestId(id=id, broker="" if anywhere else broker)

    async def ask(self, method: str, **fields: Any) -> Any:
        """Make a call with a request of *fields*; ``Answered`` if the answer is an error."""
        message = getattr(pb, f"{method}Request")(**fields)
        self.call.written = True
        response = await self._channel.call(method, message)
        self.acted = True
        return response

    async def read(
        self, method: str, queue: str, count: int, start: int | None = None
    ) -> AsyncIterator[Any]:
        """Yield *count* messages at most, in pages; a negative *start* counts from the end."""
        count = min(count, -start) if start is not None and start < 0 else count
        done, more = 0, True
        while more and done < count:
            most = min(count - done, self.max_batch)
            place = {} if start is None else {"start": start + done}
            page = await self.ask(method, queue=queue, count=most, **place)
            for message in page.messages:
                yield message
            came = len(page.messages)
            done += came
            # A reply without a place is the last one only if it is empty.
            more = page.more or came == most if place else came > 0


#: Returns the results of operations of one kind: of one operation, unless the kind merges.
Handler = Callable[[Attempt, list[Any]], Awaitable[list[Any]]]


def given(ms: int) -> int | None:
    """Return milliseconds, or ``None`` for -1: what is not given is the queue's stored value."""
    return None if ms < 0 else ms
