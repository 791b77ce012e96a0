"""Admission: how many calls, streams and bytes of each caller a broker accepts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from .error_to_status import BrokerError
from .memory_budget import CALL_BUDGET, CallBudget, Pool
from .options import Limits

logger = logging.getLogger("aiorsmq_ng.broker")

#: Bytes of bodies in a reply unless the request sets max_bytes. The whole reply fits into 4 MiB.
MAX_BYTES = 4_000_000
#: Bytes of the limit of requests for each queue in the limit of queues that calls wait for.
_SOURCE_BYTES = 2048
#: Log lines about refusals of one caller per window (seconds). Further refusals are counted.
_LINES, _WINDOW_S = 10, 10.0


class Rule(NamedTuple):
    """What a method requires of its caller, and how its calls are counted."""

    #: The caller must have one of these.
    roles: tuple[str, ...]
    #: True if it is counted with the streams, not with the short calls.
    waits: bool = False
    #: True if it is accepted while the broker stops, so that clients can settle what they hold.
    settles: bool = False
    #: Response to a refused call, after a pause, for clients that crash on an error status.
    fallback_response: Callable[[], Any] | None = None
    #: True if the reply may be large. The call then waits until there is room for its reply.
    large: bool = False
    #: Returns the token in a request, for callers that send no header with one.
    token_of: Callable[[Any], str | None] | None = None


class Admission:
    """Counts calls, streams and bytes in flight, and refuses what exceeds the limits."""

    def __init__(self, limits: Limits, *, divided: bool = False) -> None:
        self._limits = limits
        self._places = {
            False: Pool(limits.calls, divided=divided),
            True: Pool(limits.streams, divided=divided),
        }
        largest = max(limits.largest_reply, limits.message_bytes)
        received = max(limits.receiving_bytes, 4 * limits.message_bytes)
        #: Bytes of requests that are being received or processed, and of unread replies.
        self.requests = Pool(received, divided=divided)
        self.replies = Pool(max(limits.unread_bytes, 4 * largest), divided=divided)
        #: Queues that calls wait for. Each costs about a kilobyte, however short its name is.
        self.sources = Pool(max(received // _SOURCE_BYTES, 4 * limits.batch), divided=divided)
        # Callers without a token have pools of their own, divided by address.
        self._probes = Pool(limits.probes, divided=True)
        self._probing = Pool(4 * limits.message_bytes, divided=True)
        #: Set when the broker stops: from then on it accepts only calls that settle messages.
        self.stopping = asyncio.Event()

    @property
    def under_way(self) -> int:
        """Number of calls and streams in flight."""
        return sum(pool.taken for pool in self._places.values())

    def enter(self, rule: Rule, caller: str) -> CallBudget:
        """Admit a call of *caller*, or raise ``BrokerError``."""
        if self.stopping.is_set() and not rule.settles:
            raise BrokerError("stopping", "the broker is being stopped; try again elsewhere")
        places = self._places[rule.waits]
        if not places.take(caller, 1):
            what = "streams and waiting calls" if rule.waits else "calls"
            raise _full(
                f"{places.taken} {what} are in flight, and {caller!r} has reached its share"
            )
        return CallBudget(caller, places, self.requests, self.replies, self.sources)

    def probe(self, address: str) -> CallBudget:
        """Admit a call of the health service from *address*, or raise ``BrokerError``."""
        if not self._probes.take(address, 1):
            raise _full(f"{self._probes.taken} probes are in flight")
        return CallBudget(address, self._probes, self._probing, self.replies, self.sources)

    async def expect(self, visit: CallBudget) -> None:
        """Wait until there is room for a request of the largest size."""
        try:
            await visit.expect(self._limits.message_bytes, self._limits.arrival)
        except TimeoutError:
            raise _full("too many bytes of requests are in flight") from None

    async def request(self, visit: CallBudget, context: Any) -> Any:
        """Wait until there is room for a request, then receive it and return it."""
        limits = self._limits
        await self.expect(visit)
        try:
            async with asyncio.timeout(limits.arrival):
                request = await context.read()
        except TimeoutError:
            raise BrokerError(
                "tooSlow", f"the request did not arrive within {limits.arrival:g} s; send it faster"
            ) from None
        if not hasattr(request, "ByteSize"):
            raise BrokerError("invalidValue", "the call ended before its request arrived")
        visit.arrived(request.ByteSize())
        return request

    async def reply(self, visit: CallBudget, size: int) -> int:
        """Wait until there is room for *size* bytes of a reply; return how many were counted."""
        try:
            return await visit.prepare(size, self._limits.arrival)
        except TimeoutError:
            raise unread() from None


def count_sources(count: int) -> None:
    """Count *count* queues that the call waits for until it ends, or raise ``BrokerError``."""
    if not CALL_BUDGET.get().waits_for(count):
        raise _full(f"there is no room for a call that waits for {count} queues; name fewer")


def unread() -> BrokerError:
    """Return the error for a client that has too many unread replies."""
    return _full("too many bytes of replies are unread")


def _full(why: str) -> BrokerError:
    return BrokerError("tooManyCalls", f"{why}; try again later")


class RefusalLog:
    """Logs the first refusals of each caller in a window, then the number of further ones."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._count: dict[str, int] = {}

    def log(self, caller: str, level: int, text: str, *args: object) -> None:
        """Log a refusal of *caller*, or count it if this window has enough lines."""
        now = self._clock()
        if now - self._since.get(caller, -_WINDOW_S) >= _WINDOW_S:
            if (more := self._count.get(caller, 0) - _LINES) > 0:
                logger.log(
                    level, "refused %d more calls of %s", more, caller or "unauthenticated callers"
                )
            self._since[caller], self._count[caller] = now, 0
        self._count[caller] += 1
        if self._count[caller] <= _LINES:
            logger.log(level, text, *args)
