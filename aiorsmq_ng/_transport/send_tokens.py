"""Send tokens: a send whose outcome is not known is repeated by the token in its error."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ..errors import InvalidValue, RSMQError, SendToken, SendUnknown, Unavailable
from .driver import NotExecuted, ReplyLost

if TYPE_CHECKING:
    from .call import Call
    from .call_numbers import CallNumbers
    from .call_retries import Retries
    from .call_runner import BackgroundTasks

logger = logging.getLogger("aiorsmq_ng.transport")

#: How long the token of a send can be used; the server keeps its record for an hour.
TOKEN_S = 3300.0


class CallToken(SendToken):
    """Stands for one send of a call whose outcome is not known."""

    __slots__ = ("call", "expires_at", "issuer", "place")

    def __init__(self, issuer: object, call: Call, place: int, expires_at: float) -> None:
        self.issuer = issuer
        self.call = call
        self.place = place
        #: When the server may have forgotten the call, on the event loop's clock.
        self.expires_at = expires_at


class SendTokens:
    """Issues tokens, and repeats the calls that they stand for."""

    def __init__(
        self, retries: Retries, tasks: BackgroundTasks, numbers: CallNumbers, *, deadline_s: float
    ) -> None:
        self._retries = retries
        self._tasks = tasks
        self._numbers = numbers
        self._deadline_s = deadline_s

    def unknown(
        self, call: Call, place: int, text: str, token: SendToken | None = None
    ) -> Unavailable:
        """Return the error of a caller with an unknown outcome; that of a send has a token."""
        error = call.kind.unknown(text, executed=None, transient=True)
        if isinstance(error, SendUnknown) and call.number is not None:
            expires_at = asyncio.get_running_loop().time() + TOKEN_S
            error.token = token or CallToken(self, call, place, expires_at)
        return error

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call of *token*, and return the result of the send."""
        if not isinstance(token, CallToken) or token.issuer is not self:
            raise InvalidValue(
                "the token is not of a send by this client; pass it to the client that raised it"
            )
        if asyncio.get_running_loop().time() >= token.expires_at:
            raise InvalidValue(
                f"the token is older than {TOKEN_S / 60:g} minutes, so the server may have dropped "
                "its record of the send; check if the message is there before you send it again"
            )
        call = token.call
        if call.outcome is None:
            outcome: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            self._tasks.spawn(self._resume, call, outcome)
            call.outcome = outcome
        try:
            results = await asyncio.shield(call.outcome)
        except ReplyLost as error:
            raise self.unknown(call, token.place, str(error), token) from None
        return call.finish(token.place, results[token.place])

    async def _resume(self, call: Call, outcome: asyncio.Future[list[Any]]) -> None:
        until = asyncio.get_running_loop().time() + self._deadline_s
        try:
            results = await self._retries.make(call, until)
        except (RSMQError, NotExecuted, ReplyLost) as error:
            call.outcome = None
            outcome.set_exception(ReplyLost(str(error)))
            outcome.exception()
        except Exception as error:
            # If it were raised, it would end all tasks of the client.
            logger.exception(
                "a resumed send to queue %r failed in an unexpected way; please report it",
                call.queue,
            )
            call.outcome = None
            text = f"the call failed in an unexpected way ({type(error).__name__})"
            outcome.set_exception(ReplyLost(text))
            outcome.exception()
        except BaseException:
            outcome.cancel()
            raise
        else:
            self._numbers.release(call)
            outcome.set_result(results)
