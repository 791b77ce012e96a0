"""Calls that were made: a repeated one is answered as the first was."""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from aiorsmq_ng import InvalidValue, RSMQError, SendUnknown, Unavailable

from .budget import VISIT
from .status import BrokerError

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.broker")

#: How long a call is remembered.
REMEMBERED_S = 300.0
#: Calls remembered at most, and bytes of their answers, or of what a send of unknown outcome needs
#: to be asked for. Of an older one only is known that it was made; beyond the first limit not even
#: that.
MOST_CALLS = 100_000
MOST_BYTES = 32 * 1024 * 1024
_SHORTEST_ID, _LONGEST_ID = 16, 128


@dataclass(slots=True)
class _Made:
    """A call: the task that makes it, or what came of it."""

    at: float
    task: asyncio.Task[Any] | None = None
    answer: Any = None
    error: RSMQError | None = None
    size: int = 0
    #: Bytes of the request, which a send of unknown outcome keeps.
    holds: int = 0
    #: Its answer is not kept any more; or nobody waited for one, and it was cancelled.
    dropped: bool = False
    abandoned: bool = False


class Requests:
    """What this process remembers of calls that carry a RequestId."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, most_bytes: int = MOST_BYTES
    ) -> None:
        #: Names this process; a call that was made by another is not remembered here.
        self.broker = secrets.token_hex(8)
        self._clock = clock
        self._most_bytes = most_bytes
        self._made: OrderedDict[tuple[str, str, str], _Made] = OrderedDict()
        self._bytes = 0
        #: When the last call was made that had to be forgotten too early.
        self._dropped_at = -REMEMBERED_S
        #: Those whose answer is still kept, oldest first.
        self._answered: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    async def once(
        self,
        key: tuple[str, str, Any],
        work: Callable[[], Awaitable[R]],
        *,
        again: Callable[[SendUnknown], Awaitable[R]] | None = None,
        abandon: bool = False,
        holds: int = 0,
    ) -> R:
        """Do *work*, unless the call *key* (identity, method, RequestId) was made before.

        It goes on if the caller goes away, so that a repetition finds its result; with *abandon*
        it is cancelled instead, and a repetition begins anew. *again* asks once more for the
        outcome of a send that is not known; *holds* is how many bytes are kept for that.
        """
        identity, method, request = key
        if not request.id:
            return await work()
        _check(request)
        name = (identity, method, request.id)
        while True:
            made = self._made_before(name, request.broker, again) or self._begin(name, work, holds)
            if (task := made.task) is not None:
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    if abandon:
                        task.cancel()
                    raise
            # One that was abandoned by its first caller begins anew for the next.
            if not made.abandoned:
                return cast(R, self._recall(made))

    def _made_before(
        self,
        name: tuple[str, str, str],
        broker: str,
        again: Callable[[SendUnknown], Awaitable[Any]] | None,
    ) -> _Made | None:
        made = self._find(name)
        if made is None and broker:
            if broker != self.broker:
                raise _forgotten("another process made the first attempt")
            if self._clock() - self._dropped_at < REMEMBERED_S:
                raise _forgotten("too many calls were made since to remember it")
        if made is not None and isinstance(made.error, SendUnknown) and again is not None:
            made.task = self._start(name, made, partial(again, made.error))
            self._drop_answer(name)
            made.dropped = False
        return made

    def _find(self, name: tuple[str, str, str]) -> _Made | None:
        now = self._clock()
        while self._made:
            oldest, made = next(iter(self._made.items()))
            if made.task is not None or (
                now - made.at < REMEMBERED_S and len(self._made) <= MOST_CALLS
            ):
                break
            if now - made.at < REMEMBERED_S:
                self._dropped_at = max(self._dropped_at, made.at)
            self._drop_answer(oldest)
            del self._made[oldest]
        return self._made.get(name)

    def _begin(
        self, name: tuple[str, str, str], work: Callable[[], Awaitable[Any]], holds: int
    ) -> _Made:
        made = self._made[name] = _Made(self._clock(), holds=holds)
        made.task = self._start(name, made, work)
        return made

    def _start(
        self, name: tuple[str, str, str], made: _Made, work: Callable[[], Awaitable[Any]]
    ) -> asyncio.Task[Any]:
        async def run() -> None:
            try:
                made.answer = await work()
                made.size = made.answer.ByteSize()
                self._keep(name)
            except RSMQError as error:
                made.error = _bare(error)
                made.size = _error_size(error, made.holds)
                if isinstance(error, Unavailable) and error.executed is False:
                    # It certainly did not run: a repetition may.
                    self._made.pop(name, None)
                self._keep(name)
            except Exception as error:
                logger.exception("a call failed in an unexpected way; please report it")
                made.error = BrokerError("internal", f"unexpected {type(error).__name__}")
                self._made.pop(name, None)
            except asyncio.CancelledError:
                made.abandoned = True
                self._made.pop(name, None)
                raise
            finally:
                made.task = None

        task = asyncio.create_task(run(), name="aiorsmq-ng broker call")
        VISIT.get().hold(task)  # it may go on without its caller, and has the request
        return task

    def _keep(self, name: tuple[str, str, str]) -> None:
        if name not in self._made:
            return
        self._answered[name] = None
        self._bytes += self._made[name].size
        while self._bytes > self._most_bytes and len(self._answered) > 1:
            self._drop_answer(next(iter(self._answered)))

    def _drop_answer(self, name: tuple[str, str, str]) -> None:
        if name in self._answered:
            del self._answered[name]
            made = self._made[name]
            self._bytes -= made.size
            made.answer, made.error, made.dropped = None, None, True

    def _recall(self, made: _Made) -> Any:
        if made.error is not None:
            # Not the one that is kept: raised, it would hold on to all that its caller has.
            raise _bare(made.error)
        if made.dropped:
            raise _forgotten("it was made, but its answer is not kept any more")
        return made.answer


def _bare(error: RSMQError) -> RSMQError:
    """Return the error without its traceback, whose frames hold the request and its bodies."""
    bare = copy.copy(error)
    if isinstance(error, SendUnknown) and isinstance(bare, SendUnknown):
        bare.token = error.token
    return bare


def _error_size(error: RSMQError, holds: int) -> int:
    size = sum(len(str(value)) for value in (error, *vars(error).values()))
    return size + holds if isinstance(error, SendUnknown) and error.token else size


def check_id(id: str) -> None:
    """Raise ``InvalidValue`` for a request id that two clients might draw both."""
    if not _SHORTEST_ID <= len(id) <= _LONGEST_ID:
        raise InvalidValue(f"a request id has {_SHORTEST_ID} to {_LONGEST_ID} characters")


def _check(request: Any) -> None:
    check_id(request.id)
    if request.durable:
        raise InvalidValue("only a send of one body without a dedup key can be durable")


def _forgotten(why: str) -> BrokerError:
    return BrokerError("requestForgotten", f"the call cannot be repeated: {why}")
