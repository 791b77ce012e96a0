"""The conductor: sees a call through from its first attempt to the last caller's result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, Protocol

from .._protocol.operation import Operation, Reply
from ..errors import ClientClosed, InvalidValue, RSMQError, SendToken, SendUnknown, Unavailable
from .call_numbers import TicketBook
from .calls import Call, CallToken
from .driver import NotExecuted, ReplyLost, WrongLayout
from .lanes import Waiting
from .retries import Attempts

logger = logging.getLogger("aiorsmq_ng.transport")

#: Calls with an unknown outcome that are recalled at the same time, each for another deadline.
MAX_RECALLS = 64
#: How long closing may take to make the server forget.
FORGET_S = 2.0
#: Memories that are taken away when the client is closed; more are left to expire.
MAX_MEMORIES = 10_000
#: How long the token of a send can be used; the server remembers it for an hour.
TOKEN_S = 3300.0


class Crew(Protocol):
    """What the conductor needs done in the background."""

    def spawn(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: object) -> None:
        """Run a task that ends with the client; ``ClientClosed`` if that is closed."""

    def undo(self, operation: Operation[Any], result: Any) -> None:
        """Undo what *operation* did for a caller who is gone."""

    def tell(self, news: Sequence[Any]) -> None:
        """Pass on what results tell besides."""


class Conductor:
    """Makes calls, and tells each caller what became of its operation."""

    def __init__(self, attempts: Attempts, crew: Crew, *, deadline_s: float) -> None:
        self._attempts = attempts
        self._crew = crew
        self._deadline_s = deadline_s
        self._tickets = TicketBook()
        self._recalls = 0
        # What the server remembers for us and can forget when we go; not what an attempt that is
        # still on its way must find.
        self._memories: set[str] = set()
        self._doubtful: set[str] = set()

    async def run(self, batch: list[Waiting]) -> None:
        """Make the call that *batch* shares, and hand every caller its result or error."""
        ticket = self._tickets.take() if batch[0].operation.memory else None
        call = Call([waiting.operation for waiting in batch], ticket)
        call.callers = batch
        try:
            reply = await self._attempts.make(call, min(w.deadline for w in batch))
            self._settled(call)
            self._settle_all(call, reply)
        except RSMQError as error:
            cause = error
            self._settled(call)
            self._fail_all(batch, lambda _: copy(cause))
        except WrongLayout as error:
            code = error.code
            self._settled(call)
            self._fail_all(batch, lambda operation: operation.fail(code))
        except NotExecuted as error:
            text = gave_up(error, self._deadline_s)
            self._settled(call)
            self._fail_all(batch, lambda _: Unavailable(text, transient=True))
        except ReplyLost as error:
            self._leave_open(call, f"the reply was lost, so the outcome is not known: {error}")
        except Exception as error:
            # A fault of ours or of the driver must not take the whole client down.
            logger.exception("a call failed in an unexpected way; please report it")
            self._keep_memory(call)
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            self._fail_all(batch, lambda operation: operation.lost(text, executed=None))
        except BaseException:
            self._keep_memory(call)
            text = "the client was closed while the call ran"
            self._fail_all(batch, lambda operation: operation.lost(text, executed=None))
            raise

    async def forget(self) -> None:
        """Take away what the server remembers and nobody will ask for; the rest expires."""
        by_queue: dict[str, list[str]] = {}
        for memory in self._memories - self._doubtful:
            by_queue.setdefault(memory.rpartition(":")[0], []).append(memory)
        self._memories.clear()
        deadline = asyncio.get_running_loop().time() + FORGET_S
        with suppress(RSMQError, WrongLayout, NotExecuted, ReplyLost):
            for memories in by_queue.values():
                await self._attempts.command("UNLINK", *memories, deadline=deadline)

    def _settled(self, call: Call) -> None:
        if call.ticket is None or call.memory is None:
            return
        self._tickets.settle(call.ticket)
        if call.in_doubt:
            self._keep_memory(call)
        elif len(self._memories) < MAX_MEMORIES:
            self._memories.add(call.memory)

    def _keep_memory(self, call: Call) -> None:
        """See that closing leaves the memory: an attempt that is still on its way must find it."""
        if call.memory is not None:
            self._doubtful.add(call.memory)

    def _leave_open(self, call: Call, text: str) -> None:
        """Tell the callers of a call whose outcome is not known; its series stays parked."""
        self._keep_memory(call)
        for place, waiting in enumerate(call.callers):
            waiting.fail(self._unknown(call, place, text))
        if call.ticket and call.first.undo and self._recalls < MAX_RECALLS:
            with suppress(ClientClosed):  # the client is being closed
                self._crew.spawn(self._recall, call)
                self._recalls += 1

    def _unknown(
        self, call: Call, place: int, text: str, token: SendToken | None = None
    ) -> Unavailable:
        error = call.callers[place].operation.lost(text, executed=None, transient=True)
        if isinstance(error, SendUnknown) and call.ticket is not None:
            expires_at = asyncio.get_running_loop().time() + TOKEN_S
            error.token = token or CallToken(self, call, place, expires_at)
        return error

    async def _recall(self, call: Call) -> None:
        """Have what a call took given back; its callers were told that nobody knows what it did."""
        try:
            within = asyncio.get_running_loop().time() + self._deadline_s
            reply = await self._attempts.make(call, within, recall=True)
            self._hear(call, reply)
        except (RSMQError, WrongLayout, NotExecuted, ReplyLost) as error:
            logger.debug(
                "leases of a lost call are not given back, they end by themselves: %s", error
            )
            return
        finally:
            self._recalls -= 1
        self._settled(call)

    async def _resume(self, call: Call, outcome: asyncio.Future[Reply]) -> None:
        until = asyncio.get_running_loop().time() + self._deadline_s
        try:
            reply = await self._attempts.make(call, until)
        except (RSMQError, WrongLayout, NotExecuted, ReplyLost) as error:
            call.outcome = None
            outcome.set_exception(ReplyLost(str(error)))
            outcome.exception()
        except BaseException:
            outcome.cancel()
            raise
        else:
            self._settled(call)
            outcome.set_result(reply)

    def _settle_all(self, call: Call, reply: Reply) -> None:
        batch = call.callers
        if isinstance(reply, bytes):
            code = reply.decode()
            self._fail_all(batch, lambda operation: operation.fail(code))
            return
        parts = reply if call.first.merge else (reply,)
        if len(parts) != len(batch):
            raise ValueError(f"{len(parts)} replies for {len(batch)} operations")
        result_of = call.result_of
        for waiting, part in zip(batch, parts, strict=True):
            try:
                result = result_of(waiting.operation, part)
            except RSMQError as error:
                waiting.fail(error)
            except Exception:
                logger.exception("a reply could not be read; please report it")
                waiting.fail(waiting.operation.lost("the reply could not be read", executed=None))
            else:
                if waiting.future.done():
                    self._crew.undo(waiting.operation, result)
                else:
                    waiting.future.set_result(result)
                if waiting.operation.news is not None:
                    self._crew.tell(waiting.operation.news(result))

    def _hear(self, call: Call, reply: Reply) -> None:
        """Pass on what the reply to a recall tells; the messages in it are given back already."""
        parts = reply if call.first.merge and isinstance(reply, list) else [reply]
        for waiting, part in zip(call.callers, parts, strict=False):
            if waiting.operation.news is not None and isinstance(part, list):
                self._crew.tell(waiting.operation.news(waiting.operation.parse(part)))

    def _fail_all(self, batch: list[Waiting], error: Callable[[Operation[Any]], Exception]) -> None:
        for waiting in batch:
            waiting.fail(error(waiting.operation))

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call that *token* is of, and return what the send would have."""
        if not isinstance(token, CallToken) or token.issuer is not self:
            raise InvalidValue("the token is not of a send by this client")
        if asyncio.get_running_loop().time() >= token.expires_at:
            raise InvalidValue("the token is too old: the server may have forgotten the send")
        call = token.call
        if call.outcome is None:
            outcome: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self._crew.spawn(self._resume, call, outcome)
            call.outcome = outcome
        try:
            reply = await asyncio.shield(call.outcome)
        except ReplyLost as error:
            raise self._unknown(call, token.place, str(error), token) from None
        waiting = call.callers[token.place]
        if isinstance(reply, bytes):
            raise waiting.operation.fail(reply.decode())
        return call.result_of(waiting.operation, reply[token.place])


def gave_up(error: Exception, deadline_s: float) -> str:
    """Say that the server could not be reached, and for how long it was tried."""
    who = getattr(error, "who", "redis")
    return f"{who} cannot be reached: {error} (gave up after {deadline_s:g} s)"
