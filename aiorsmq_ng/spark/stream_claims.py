"""The claims of a streaming query on one queue: made, renewed and acknowledged on the driver.

Everything here runs on the event loop of a ``SyncClient``. While Spark runs a batch, tasks on that
loop renew the leases of claims, acknowledge the batch before, and make the claim after it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from .._protocol.operations.spark import claims
from .._protocol.operations.spark.claims import Ledger
from ..errors import AccessDenied, ClaimLost, InvalidValue, RSMQError, Unavailable
from .offsets import Offset
from .options import StreamReadOptions

if TYPE_CHECKING:
    from .._protocol.keys import QueueKeys
    from .._protocol.operation import Operation

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.spark")

#: Messages that one call acknowledges, gives back or renews.
CHUNK = 1000
#: Seconds that closing waits for the calls of background tasks.
CLOSE_S = 5.0


class Limits(NamedTuple):
    """The most that a claim takes."""

    messages: int
    #: Bytes of bodies after which it is complete; 0: any number.
    max_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ClaimSlice:
    """Messages of a claim, from index *start* up to *stop*."""

    ledger: Ledger
    claim: int
    start: int
    stop: int


class Calls(Protocol):
    """What claims need of a transport."""

    async def run(self, operation: Operation[R]) -> R:
        """Run *operation* and return its result."""
        ...


@dataclass(slots=True)
class StreamMetrics:
    """What the process of a query has done since it was started."""

    claimed: int = 0
    #: Renewals of leases, one per message.
    renewed: int = 0
    #: Messages of its claims that a renewal found in the hands of other consumers.
    taken: int = 0
    #: Times that a queue could not be reached, or leases could not be renewed.
    outages: int = 0


class StreamClaims:
    """Holds a query's claims on one queue, in the process that Spark runs for the query.

    At most one of ``latest``, ``plan``, ``commit`` and ``finish`` may run at a time.
    """

    def __init__(
        self,
        options: StreamReadOptions,
        keys: QueueKeys,
        transport: Calls,
        metrics: StreamMetrics | None = None,
    ) -> None:
        self._metrics = metrics or StreamMetrics()
        self.keys = keys
        self._options = options
        self._transport = transport
        self._ledger: Ledger | None = None
        #: The lost ledger that ``_ledger`` replaces, if there is one.
        self._replaced = ""
        #: Claims up to the first number are acknowledged, up to the second they shall be.
        self._acked = 0
        self._finished = 0
        #: Claims of this process that are not acknowledged: number -> messages.
        self._held: dict[int, int] = {}
        #: Messages of these claims that other consumers have.
        self._taken: dict[int, int] = {}
        #: The newest claim that a limit ended.
        self._full = 0
        #: The newest claim that Spark knows, and the newest that this process began to make.
        self._offered = 0
        self._made = 0
        self._cutoff_ms: int | None = None
        self._renewal: asyncio.Task[None] | None = None
        # A claim is either renewed or dropped from ``_held``, never both at a time.
        self._renewing = asyncio.Lock()
        #: Error that ended the renewal; the next call raises it.
        self._failure: RSMQError | None = None
        #: Background tasks: acknowledgements, and the claim after the current one. They run one
        #: after the other; ``_last`` is the newest.
        self._acks: asyncio.Task[None] | None = None
        self._ahead: tuple[int, asyncio.Task[None], Limits] | None = None
        self._last: asyncio.Task[None] | None = None
        self._closing = False

    async def stop_at_now(self) -> None:
        """From now on, claim only messages that are ready at this moment."""
        self._cutoff_ms = (await self.backlog()).now_ms

    async def backlog(self) -> claims.Backlog:
        """Count the messages in the queue."""
        return await self._transport.run(claims.backlog(self.keys))

    @property
    def is_attached(self) -> bool:
        """True if this process has the ledger, so that nothing of earlier runs is left."""
        return self._ledger is not None

    def ready_after(self, start: Offset) -> int | None:
        """Return the size of the claim after *start*, if it is made or being made."""
        number = start.claim + 1 if self._ledger and start.ledger == self._ledger.id else 1
        if number not in self._held and self._ahead is not None and self._ahead[0] == number:
            return self._ahead[2].messages
        return self._held.get(number)

    async def latest(self, start: Offset, limits: Limits) -> Offset:
        """Claim messages after *start* within *limits*; return *start* if there are none.

        Spark has finished everything up to *start*, so that is acknowledged.
        """
        self._check()
        ledger = await self._attach(start.ledger)
        done = start.claim if start.ledger == ledger.id else 0
        if self._options.ack_on == "start":
            await self._acknowledge(done)
        number = done + 1
        count = await self._next(number, limits)
        if not count:
            await self._settle()
            return start
        return replace(start, ledger=ledger.id, claim=number, count=count)

    def offer(self, offset: Offset) -> None:
        """Note that Spark gets *offset*. Until then, closing gives the claim back."""
        self._offered = max(self._offered, offset.claim)

    def claim_ahead(self, after: Offset, limits: Limits) -> None:
        """Start to make the claim that follows *after*, while Spark runs that one."""
        if self._options.claim_ahead and self._ahead is None:
            number = after.claim + 1
            self._ahead = number, self._start(self._claim, number, limits), limits

    def is_full(self, offset: Offset) -> bool:
        """Return True if a limit ended the claim of *offset*, so that more is probably ready."""
        return offset.claim == self._full

    async def plan(self, start: Offset, end: Offset) -> list[ClaimSlice]:
        """Return what was claimed after *start* up to *end*, whole claims in order."""
        self._check()
        ledger = await self._attach(end.ledger)
        first = start.claim + 1 if start.ledger == ledger.id else 1
        slices: list[ClaimSlice] = []
        for number in range(first, end.claim + 1):
            if number not in self._held:
                await self._revive(number)
            if count := self._held.get(number, 0):
                slices.append(ClaimSlice(ledger, number, 0, count))
        self._offered = max(self._offered, end.claim)
        return slices

    async def commit(self, end: Offset) -> None:
        """Acknowledge everything up to *end*."""
        self._check()
        if end.ledger and (await self._attach(end.ledger)).id == end.ledger:
            await self._acknowledge(end.claim)
            # Otherwise latest() started it, and it continues while the next batch runs.
            if self._options.ack_on == "commit":
                await self._settle()

    async def finish(self, start: Offset) -> None:
        """Acknowledge everything up to *start*, and wait for it."""
        self._check()
        if start.ledger and (await self._attach(start.ledger)).id == start.ledger:
            await self._acknowledge(start.claim)
            await self._settle()

    async def aclose(self) -> None:
        """Stop renewing. Claims stay as they are: Spark may have them in its log.

        Claims that Spark does not know are given back. A running background task is awaited; those
        queued behind it are not started.
        """
        self._closing = True
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        if self._last is not None:
            await asyncio.wait([self._last], timeout=CLOSE_S)
        if self._ledger is not None:
            for number in range(self._offered + 1, self._made + 1):
                with suppress(RSMQError):
                    await give_back(self._transport, self._ledger, number)

    @property
    def _ttl_s(self) -> int:
        return max(self._options.ledger_ttl_ms, 2 * self._options.lease_ms) // 1000

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _attach(self, id: str) -> Ledger:
        """Return the ledger *id*; take it over if this process has none. '' makes a new one."""
        if self._ledger is not None:
            if id not in ("", self._ledger.id, self._replaced):
                raise ClaimLost(self.keys.queue, id, "fenced")
            return self._ledger
        ledger = None
        if id:
            try:
                ledger = await self._transport.run(
                    claims.take_over(self.keys, id, self._options.ledger)
                )
            except ClaimLost as error:
                if error.cause == "fenced" or self._options.fail_on_data_loss:
                    raise _with_advice(error) from error
                logger.warning("%s; the query continues with a new one", error)
                self._replaced = id
        if ledger is not None and ledger.mode != self._options.claim_mode:
            raise InvalidValue(
                f"the checkpoint was made with claimMode={ledger.mode}; continue with that, or use "
                "another checkpointLocation"
            )
        self._ledger = ledger or await self._begin()
        self._acked = self._finished = self._ledger.acked
        return self._ledger

    async def _begin(self) -> Ledger:
        """Make a new ledger. A named one replaces the ledger that had its name."""
        name, mode = self._options.ledger, self._options.claim_mode
        unique = uuid.uuid4().hex[:16]
        ledger = Ledger(
            self.keys,
            f"{name}.{unique}" if name else unique,
            "move" if mode == "move" else "lease",
            group=name,
        )
        if name:
            before: str | None = ""
            while before is not None:
                if before:
                    await retire(self._transport, self.keys, before)
                before = await self._transport.run(
                    claims.set_group_ledger(ledger, expected=before, ttl_s=self._ttl_s)
                )
        return ledger

    async def _next(self, number: int, limits: Limits) -> int:
        """Make the next claim, unless it exists; return its size."""
        if self._ahead is not None and self._ahead[0] == number:
            (_, task, _), self._ahead = self._ahead, None
            # Its error is not raised: an outage may be over, and any other error recurs below.
            await asyncio.wait([task])
        elif number in self._held:
            return self._held[number]
        else:
            await self._give_back_unplanned(number)
        # Called even if the claim exists: a driver that was replaced gets an error here.
        await self._claim(number, limits)
        return self._held.get(number, 0)

    async def _claim(self, number: int, limits: Limits) -> None:
        assert self._ledger is not None  # noqa: S101 - callers attach first
        self._made = max(self._made, number)
        terms = claims.Terms(
            limits.messages,
            self._options.claim_chunk,
            self._options.lease_ms,
            self._ttl_s,
            self._cutoff_ms,
            limits.max_bytes,
            self._options.claim_bytes,
        )
        create = not self._ledger.group and number == 1
        claimed = claims.Claimed(0, False, False)
        while not claimed.complete:
            claimed = await self._transport.run(
                claims.claim(self._ledger, number, terms, create=create)
            )
        if claimed.messages:
            self._metrics.claimed += claimed.messages - self._held.get(number, 0)
            self._hold(number, claimed.messages)
        if claimed.full:
            self._full = number

    def _hold(self, number: int, messages: int) -> None:
        """Start to renew a claim, if it has leases."""
        self._held[number] = messages
        if self._options.claim_mode == "lease" and self._renewal is None:
            self._renewal = asyncio.create_task(self._renew_held(self._options.lease_ms / 3000))

    async def _renew_held(self, every_s: float) -> None:
        """Renew the leases of all claims periodically. Any error but an outage ends this.

        The next call of the query raises that error.
        """
        while True:
            await asyncio.sleep(every_s)
            for number in sorted(self._held):
                try:
                    self._note_renewal(number, *await self._renew(number))
                except (Unavailable, AccessDenied) as outage:
                    self._metrics.outages += 1
                    logger.warning("leases were not renewed: %s", outage)
                except RSMQError as error:
                    self._failure = error
                    return
                except Exception as error:
                    logger.exception("the renewal of leases failed in an unexpected way")
                    self._failure = RSMQError(
                        f"the leases are not renewed any more: {type(error).__name__}: {error}"
                    )
                    return

    def _note_renewal(self, number: int, taken: int, gone: int) -> None:
        """Count a renewal; messages that others took are found by every one, and counted once."""
        self._taken = {n: count for n, count in self._taken.items() if n in self._held}
        new = taken - self._taken.get(number, 0)
        if number not in self._held:
            return
        self._taken[number] = taken
        self._metrics.renewed += max(0, self._held[number] - taken - gone)
        self._metrics.taken += max(0, new)
        if new > 0:
            logger.warning("%d messages of claim %d were received by other consumers", new, number)

    async def _renew(self, number: int) -> tuple[int, int]:
        """Renew the leases of one claim; count messages received elsewhere, and deleted ones."""
        taken = gone = at = 0
        while at >= 0:
            async with self._renewing:
                if self._ledger is None or number not in self._held:
                    break
                renewed = await self._transport.run(
                    claims.renew(
                        self._ledger,
                        number,
                        at,
                        count=CHUNK,
                        lease_ms=self._options.lease_ms,
                        ttl_s=self._ttl_s,
                    )
                )
            at, taken, gone = renewed.next, taken + renewed.taken, gone + renewed.gone
        return taken, gone

    async def _give_back_unplanned(self, number: int) -> None:
        """Give back claims of an earlier run that Spark never logged."""
        ledger = self._ledger
        if ledger is None:
            return
        for unplanned in ledger.live:
            if unplanned >= number:
                await give_back(self._transport, ledger, unplanned)
        self._ledger = replace(
            ledger,
            open=0 if ledger.open >= number else ledger.open,
            sealed={n: count for n, count in ledger.sealed.items() if n < number},
        )

    async def _revive(self, number: int) -> None:
        """Hold a claim again that an earlier run made and Spark logged."""
        ledger, fatal = self._ledger, self._options.fail_on_data_loss
        assert ledger is not None  # noqa: S101 - callers attach first
        if number not in ledger.sealed:
            lost = ClaimLost(self.keys.queue, ledger.id, "claimGone")
            if fatal:
                raise _with_advice(lost) from lost
            logger.warning("%s; its messages are skipped", lost)
            return
        self._hold(number, ledger.sealed[number])
        taken, gone = await self._renew(number)
        if gone:
            logger.warning("%d messages of claim %d were deleted by other clients", gone, number)
        if taken and fatal:
            raise RSMQError(
                f"{taken} messages of queue {self.keys.queue!r} that this query had claimed were "
                "received by others while it was down; start it with failOnDataLoss=false to "
                "continue without them, and use a longer leaseMs"
            )

    async def _acknowledge(self, upto: int) -> None:
        """Start to acknowledge the claims up to *upto*; raise errors of earlier ones."""
        assert self._ledger is not None  # noqa: S101 - callers attach first
        if upto < self._finished:
            raise RSMQError(
                f"the checkpoint stands at claim {upto} of queue {self.keys.queue!r}, but claims "
                f"up to {self._finished} were acknowledged and deleted: a queue cannot be read "
                "again; use a new checkpointLocation"
            )
        if self._acks is not None and self._acks.done():
            ended, self._acks = self._acks, None
            ended.result()
        for number in range(self._finished + 1, upto + 1):
            async with self._renewing:
                self._held.pop(number, None)
        self._finished = max(self._finished, upto)
        if self._acks is None and self._acked < self._finished:
            self._acks = self._start(self._acknowledge_finished)

    async def _acknowledge_finished(self) -> None:
        """Acknowledge claims in order. After an error the same one is the next."""
        assert self._ledger is not None  # noqa: S101 - callers attach first
        while self._acked < self._finished:
            await acknowledge(self._transport, self._ledger, self._acked + 1)
            self._acked += 1

    async def _settle(self) -> None:
        """Wait until all pending acknowledgements are done."""
        while self._acks is not None:
            await asyncio.wait([self._acks])
            ended, self._acks = self._acks, None
            ended.result()
            if self._acked < self._finished and not self._closing:
                self._acks = self._start(self._acknowledge_finished)

    def _start(
        self, work: Callable[..., Coroutine[Any, Any, None]], *args: object
    ) -> asyncio.Task[None]:
        """Run *work* in the background after earlier work, unless closing has begun."""

        async def in_turn(before: asyncio.Task[None] | None) -> None:
            if before is not None:
                await asyncio.wait([before])
            if not self._closing:
                await work(*args)

        self._last = task = asyncio.create_task(in_turn(self._last))
        # Some errors are never retrieved; asyncio would log them.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return task


async def give_back(transport: Calls, ledger: Ledger, number: int) -> int:
    """Give the messages of one claim back; return how many were still held."""
    given, left = 0, 1
    while left:
        released = await transport.run(claims.release(ledger, number, count=CHUNK))
        given, left = given + released.given, released.left
    return given


async def acknowledge(transport: Calls, ledger: Ledger, number: int) -> None:
    """Delete the messages of one claim."""
    while await transport.run(claims.acknowledge(ledger, number, count=CHUNK)):
        pass


async def retire(transport: Calls, keys: QueueKeys, id: str) -> int:
    """Fence a ledger, give its messages back, and remove it; return how many were given back."""
    try:
        ledger = await transport.run(claims.take_over(keys, id))
    except ClaimLost:
        return 0
    given = 0
    for number in ledger.live:
        given += await give_back(transport, ledger, number)
    await transport.run(claims.forget(ledger))
    return given


def _with_advice(error: ClaimLost) -> RSMQError:
    if error.cause == "fenced":
        return error
    return RSMQError(
        f"{error}; messages that were not acknowledged are or will be back in the queue. Start the "
        "query with failOnDataLoss=false to continue, or with a new checkpointLocation"
    )
