"""Idempotency: a repeated call with the same request id gets the answer of the first."""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    InvalidValue,
    NotSupported,
    RSMQError,
    SendUnknown,
    Unavailable,
)

from .error_to_status import BrokerError
from .memory_budget import CALL_BUDGET, Pool
from .uncancellable import uncancellable

R = TypeVar("R")
#: Method and id of a call.
Name = tuple[str, str]
#: What makes a call, and returns its answer.
Work = Callable[[], Awaitable[Any]]

logger = logging.getLogger("aiorsmq_ng.broker")

#: How long a call is remembered.
REMEMBERED_S = 300.0
#: Limits of remembered calls, and of bytes of answers and of sends whose outcome is unknown.
#: Beyond MOST_BYTES only the fact that a call was made is kept; beyond MOST_CALLS nothing. Each
#: caller has a share of both, and its calls evict only its own.
MOST_CALLS = 100_000
MOST_BYTES = 32 * 1024 * 1024
_SHORTEST_ID, _LONGEST_ID = 16, 128


@dataclass(slots=True)
class _Call:
    """A call that is being made, or its answer or error."""

    at: float
    #: Hash of the request.
    content: int
    #: True from its begin to its end.
    running: bool = True
    #: The task that makes it, if it is cancelled with its callers.
    task: asyncio.Task[None] | None = None
    #: Callers that wait for its end, other than the one whose task makes it.
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    #: As it goes on the wire: a fraction of the message's memory, and it is written once.
    answer: bytes = b""
    error: RSMQError | None = None
    size: int = 0
    #: Bytes of the request, which a send of unknown outcome keeps.
    holds: int = 0
    #: True if the answer is no longer kept, or the caller disconnected and the call was cancelled.
    dropped: bool = False
    abandoned: bool = False

    def end(self) -> None:
        """Wake those that wait for its end."""
        self.running, self.task = False, None
        for ended in self.waiting:
            if not ended.done():
                ended.set_result(None)
        self.waiting.clear()

    async def ended(self) -> None:
        """Wait for its end. If the caller is cancelled, so is the task that makes the call."""
        # A future of its own: cancelling it leaves the task alone, and asyncio.wait would cost
        # several times as much.
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(ended)
        try:
            await ended
        except asyncio.CancelledError:
            if self.task is not None:
                self.task.cancel()
            raise


class IdempotentCalls:
    """The calls with a RequestId that this process remembers."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        most_bytes: int = MOST_BYTES,
        most_calls: int = MOST_CALLS,
        *,
        divided: bool = False,
    ) -> None:
        #: Identifies this process. Calls made by other processes are not remembered here.
        self.broker_id = secrets.token_hex(8)
        self._clock = clock
        self._calls = Pool(most_calls, divided=divided)
        self._bytes = Pool(most_bytes, divided=divided)
        #: By identity, so there are no more than tokens.
        self._callers: dict[str, _CallerCalls] = {}

    async def once(
        self,
        key: tuple[str, str, Any],
        work: Callable[[], Awaitable[R]],
        *,
        content: int = 0,
        again: Callable[[SendUnknown], Awaitable[R]] | None = None,
        abandon: bool = False,
        holds: int = 0,
    ) -> R | bytes:
        """Run *work*, unless the call *key* (identity, method, RequestId) was made before.

        Return the answer as bytes, for they are kept; without an id the message itself.
        It continues if the caller disconnects, so that a repetition gets its result, and must have
        no time limits. With *abandon* it is cancelled instead, and a repetition starts again.
        *again* resends a send of unknown outcome; *holds* is the number of bytes kept for that.
        *content* distinguishes a repetition from another request under the same id, which is
        refused.
        """
        identity, method, request = key
        if not request.id:
            return await work()
        _check(request)
        calls = self._callers.get(identity)
        if calls is None:
            calls = _CallerCalls(identity, self._clock, self._calls, self._bytes)
            self._callers[identity] = calls
        name = (method, request.id)
        if request.broker not in ("", self.broker_id) and not calls.knows(name):
            raise _forgotten("another process made the first attempt")
        while True:
            made, todo = calls.made_before(name, content, again, said=bool(request.broker))
            if made is None:
                made, todo = calls.begin(name, content, holds), work
            if todo is not None and not abandon:
                await uncancellable(calls.run(name, made, todo))
            elif todo is not None:
                calls.start(name, made, todo)
            if made.running:
                await made.ended()
            # A call that its first caller abandoned runs again for the next caller.
            if not made.abandoned:
                return _recall(made)


class _CallerCalls:
    """The calls of one identity."""

    def __init__(self, identity: str, clock: Callable[[], float], calls: Pool, space: Pool) -> None:
        self._identity = identity
        self._clock = clock
        self._calls, self._bytes = calls, space
        self._made: OrderedDict[Name, _Call] = OrderedDict()
        #: Time of the newest call that was evicted before its time.
        self._dropped_at = -REMEMBERED_S
        #: Calls whose answers are still kept, oldest first.
        self._answered: OrderedDict[Name, None] = OrderedDict()

    def knows(self, name: Name) -> bool:
        """Return True if the call is remembered."""
        self._forget()
        return name in self._made

    def made_before(
        self,
        name: Name,
        content: int,
        again: Callable[[SendUnknown], Awaitable[Any]] | None,
        *,
        said: bool,
    ) -> tuple[_Call | None, Work | None]:
        """Return the call if it is remembered, and what this caller must do to learn its outcome.

        *said*: the client knows it was made here.
        """
        self._forget()
        made = self._made.get(name)
        if made is None:
            if said and self._clock() - self._dropped_at < REMEMBERED_S:
                raise _forgotten("too many calls were made since to remember it")
            return None, None
        if made.content != content:
            raise InvalidValue(
                "the request id was used for another request; draw a new one for each request"
            )
        if isinstance(made.error, SendUnknown) and again is not None:
            todo = partial(again, made.error)
            self._drop_answer(name)
            made.running, made.dropped = True, False
            return made, todo
        return made, None

    def begin(self, name: Name, content: int, holds: int) -> _Call:
        """Remember a call that is made for the first time."""
        made = self._made[name] = _Call(self._clock(), content, holds=holds)
        self._calls.add(self._identity, 1)
        return made

    def _forget(self) -> None:
        """Evict old calls, and newer ones beyond the share of this identity."""
        now = self._clock()
        while self._made:
            oldest, made = next(iter(self._made.items()))
            young = now - made.at < REMEMBERED_S
            if made.running or (young and self._calls.room(self._identity) > 0):
                break
            if young:
                self._dropped_at = max(self._dropped_at, made.at)
            self._drop_answer(oldest)
            self._remove(oldest)

    def _remove(self, name: Name) -> None:
        if self._made.pop(name, None) is not None:
            self._calls.add(self._identity, -1)

    async def run(self, name: Name, made: _Call, work: Work) -> None:
        """Make a call, and keep its answer or error."""
        try:
            made.answer = (await work()).SerializeToString()
            made.size = len(made.answer)
            self._keep(name)
        except RSMQError as error:
            made.error = _bare(error)
            made.size = _error_size(error, made.holds)
            if _may_run_later(error):
                self._remove(name)
            self._keep(name)
        except Exception as error:
            logger.exception("a call failed in an unexpected way; please report it")
            made.error = BrokerError("internal", f"unexpected {type(error).__name__}")
            self._remove(name)
        except BaseException:
            made.abandoned = True
            self._remove(name)
            raise
        finally:
            made.end()

    def start(self, name: Name, made: _Call, work: Work) -> None:
        """Make a call in a task of its own, which is cancelled with its callers."""
        budget = CALL_BUDGET.get()
        budget.hold()  # the task may outlive the call, and holds the request

        def ended(task: asyncio.Task[None]) -> None:
            budget.leave()
            if task.cancelled() and not made.abandoned:
                # It was cancelled before its first step.
                made.abandoned = True
                self._remove(name)
                made.end()

        made.task = asyncio.create_task(self.run(name, made, work), name="aiorsmq-ng broker call")
        made.task.add_done_callback(ended)

    def _keep(self, name: Name) -> None:
        if name not in self._made:
            return
        self._answered[name] = None
        self._bytes.add(self._identity, self._made[name].size)
        while self._bytes.room(self._identity) < 0 and len(self._answered) > 1:
            self._drop_answer(next(iter(self._answered)))

    def _drop_answer(self, name: Name) -> None:
        if name in self._answered:
            del self._answered[name]
            made = self._made[name]
            self._bytes.add(self._identity, -made.size)
            made.answer, made.error, made.dropped = b"", None, True


def _recall(made: _Call) -> bytes:
    if made.error is not None:
        # A copy: the stored error, once raised, would keep the frames of its caller alive.
        raise _bare(made.error)
    if made.dropped:
        raise _forgotten("it was made, but its answer is no longer kept")
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
    """Raise ``InvalidValue`` for a request id that is too short to be unique, or too long."""
    if not _SHORTEST_ID <= len(id) <= _LONGEST_ID:
        raise InvalidValue(f"a request id has {_SHORTEST_ID} to {_LONGEST_ID} characters")


def _check(request: Any) -> None:
    check_id(request.id)
    if request.durable:
        raise InvalidValue("only a send of one body without a dedup key can be durable")


def _forgotten(why: str) -> BrokerError:
    return BrokerError("requestForgotten", f"the call cannot be repeated: {why}")


def _may_run_later(error: RSMQError) -> bool:
    """Return True if the call certainly did not run, and a repetition may succeed."""
    if isinstance(error, Unavailable):
        return error.executed is False
    return isinstance(error, AccessDenied | ClientClosed | NotSupported)


def content_of(request: Any) -> bytes:
    """Return a digest of a request that is the same for all its attempts, in all processes."""
    return blake2b(_content(request), digest_size=16).digest()


def fingerprint(request: Any) -> tuple[int, int]:
    """Return a hash that is the same for all attempts of a request in this process, and its size.

    The hash costs a fraction of a digest. The bytes, which may be many, are not kept.
    """
    text = _content(request)
    return hash(text), len(text)


def _content(request: Any) -> bytes:
    """Return a request as bytes that are the same for all its attempts.

    A later attempt names the broker of the first, and may have a shorter wait: both are left out.
    """
    broker, wait_ms = request.request.broker, getattr(request, "wait_ms", 0)
    if broker:
        request.request.broker = ""
    if wait_ms:
        request.wait_ms = 0
    text: bytes = request.SerializeToString(deterministic=True)
    if broker:
        request.request.broker = broker
    if wait_ms:
        request.wait_ms = wait_ms
    return text
