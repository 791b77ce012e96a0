"""A script call as the transport makes it, taken apart again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .._protocol.operation import Argument, Reply
from .._transport.driver import NotExecuted, ReplyLost
from ..errors import RSMQError
from ..rpc import v1_pb2 as pb
from .argv_adapter import Command
from .channel import Link
from .errors import Answered
from .receipts import Receipts
from .subscribers import Subscribers

R = TypeVar("R")

#: How long a broker remembers a call, less what an attempt may take on its way.
REMEMBERED_S = 240.0
#: Attempts that are remembered, in order to know who was asked first.
_MOST_FIRSTS = 10_000
#: Names no broker: what is not remembered is not done.
NOBODY = "recall"


class Firsts:
    """When a numbered call was first made, and which process it then went to."""

    def __init__(self) -> None:
        self._firsts: dict[str, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._firsts)

    def note(self, id: str, broker: str) -> None:
        """Take note of a first attempt; what was noted before has certainly not run."""
        self._firsts[id] = (asyncio.get_running_loop().time(), broker)
        if len(self._firsts) > _MOST_FIRSTS:
            del self._firsts[next(iter(self._firsts))]

    def find(self, id: str) -> str:
        """Return which process was asked first; ``ReplyLost`` if it has forgotten by now."""
        at, broker = self._firsts.get(id, (0.0, ""))
        if not broker or asyncio.get_running_loop().time() - at > REMEMBERED_S:
            raise ReplyLost("the broker may have forgotten the call, which is not repeated")
        return broker

    def drop(self, id: str) -> None:
        """Forget a call whose outcome is known."""
        self._firsts.pop(id, None)


@dataclass(frozen=True, slots=True)
class Session:
    """What all calls of a client share."""

    link: Link
    receipts: Receipts = field(default_factory=Receipts)
    firsts: Firsts = field(default_factory=Firsts)
    subscribers: Subscribers = field(default_factory=Subscribers)


class ScriptCall:
    """One attempt of a call: keys, arguments, and the number by which it is known."""

    def __init__(self, session: Session, command: Command) -> None:
        words = command.words
        count = int(words[2])
        self.session = session
        self.link = session.link
        self.receipts = session.receipts
        self.keys: list[str] = [str(key) for key in words[3 : 3 + count]]
        self.args: Sequence[Argument] = words[3 + count :]
        self.command = command
        self._firsts = session.firsts
        self._attempt = 1
        self._id = ""
        self._ids: set[str] = set()
        #: Which broker was asked first; known to a repetition.
        self._first = ""
        #: Whether a call to the broker has been answered, so that something may have been done.
        self.acted = False

    def numbered(self) -> None:
        """Take the number of the call off the arguments, and the memory off the keys."""
        number, attempt, *self.args = self.args
        series = self.keys.pop().rpartition(":")[2]
        self._id = f"{series}-{int(number)}"
        self._attempt = int(attempt)

    @property
    def recalls(self) -> bool:
        """Whether nothing new is to be done, only undone what earlier attempts did."""
        return self._attempt == 0

    def request_id(self, part: str = "", *, anywhere: bool = False) -> pb.RequestId:
        """Return the id of this call, or of one part of it; the same one for every attempt.

        With *anywhere* it does no harm if another broker makes the call once more.
        """
        id = self._id + part
        self._ids.add(id)
        if self._attempt == 1:
            self._firsts.note(id, self.link.broker)
            return pb.RequestId(id=id)
        if self.recalls:
            return pb.RequestId(id=id, broker=NOBODY)
        self._first = self._firsts.find(id)
        return pb.RequestId(id=id, broker="" if anywhere else self._first)

    def settled(self) -> None:
        """Take note that the outcome is known."""
        for id in self._ids:
            self._firsts.drop(id)

    @property
    def again(self) -> bool:
        """Whether an earlier attempt may have been made."""
        return self._attempt != 1

    @property
    def elsewhere(self) -> bool:
        """Whether this attempt was answered by another broker than the one asked first."""
        return self.again and self.link.broker != self._first

    def queue(self, place: int = 0) -> str:
        """Return the name of the queue whose sorted set is the key number *place*."""
        return self.keys[place].removeprefix(f"{self.link.namespace}:")

    async def ask(self, method: str, request: Any) -> Any:
        """Make a call to the broker."""
        response = await self.link.call(method, request, self.command)
        self.acted = True
        return response

    async def answer(self, method: str, request: Any, read: Callable[[Any], Reply]) -> Reply:
        """Make a call to the broker and read its response, or return the error it answered."""
        try:
            return read(await self.ask(method, request))
        except Answered as answered:
            return answered.error


async def together(*work: Awaitable[R]) -> list[R | RSMQError]:
    """Wait for all; an error that is an answer takes the place of a result, others are raised.

    The one that leaves the most open wins, for then nobody can tell about the whole.
    """
    if len(work) == 1:
        try:
            return [await work[0]]
        except Answered as answered:
            return [answered.error]
    found: list[Any] = await asyncio.gather(*work, return_exceptions=True)
    faults = [f for f in found if isinstance(f, BaseException) and not isinstance(f, Answered)]
    for kind in (asyncio.CancelledError, ReplyLost, NotExecuted, BaseException):
        for fault in faults:
            if isinstance(fault, kind):
                raise fault
    return [f.error if isinstance(f, Answered) else f for f in found]
