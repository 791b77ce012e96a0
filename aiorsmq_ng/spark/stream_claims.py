"""Who claims, renews and acknowledges on the driver. Knows nothing of Spark."""

from __future__ import annotations

import logging
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .._protocol.keys import QueueKeys
from .._protocol.spark import claims
from .._protocol.spark.claims import Ledger
from ..errors import ClaimLost, InvalidValue, RSMQError
from .background import Background, Job
from .keeper import Keeper
from .options import StreamReadOptions

if TYPE_CHECKING:
    from .._transport.blocking import BlockingRunner

logger = logging.getLogger("aiorsmq_ng.spark")

#: Messages that are acknowledged, given back or renewed by one call.
CHUNK = 1000


@dataclass(frozen=True, slots=True)
class Offset:
    """Where a stream stands: after which claim of which ledger. It lives in the checkpoint."""

    queue: str
    namespace: str
    ledger: str = ""
    claim: int = 0
    count: int = 0

    @classmethod
    def of(cls, offset: dict[str, Any]) -> Offset:
        """Read an offset as Spark kept it."""
        try:
            return cls(**offset)
        except TypeError:
            raise InvalidValue(
                "the checkpoint holds no offset of a queue; is it one of another source?"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ClaimSlice:
    """A part of a claim."""

    ledger: Ledger
    claim: int
    start: int
    stop: int


class StreamClaims:
    """Holds the claims of one query. One per query, in the process that Spark keeps for it."""

    def __init__(self, options: StreamReadOptions) -> None:
        self._options = options
        self._keys = options.keys
        self._runner = options.runner(own=True)
        self._ledger: Ledger | None = None
        #: The ledger that is gone and that ``_ledger`` stands in for, if so.
        self._replaced = ""
        self._acked = 0
        #: Claims of this process that are not acknowledged: number -> messages.
        self._held: dict[int, int] = {}
        self._cutoff_ms: int | None = None
        self._keeper = Keeper(self, lambda: options.runner(own=True))
        self._background = Background(lambda: options.runner(own=True))
        #: What is under way while Spark runs a batch: acknowledgements, and the claim after it.
        self._acks: list[Job[None]] = []
        self._ahead: tuple[int, Job[None]] | None = None

    @property
    def origin(self) -> Offset:
        """The offset before all messages."""
        return Offset(self._keys.queue, self._keys.namespace.name)

    def stop_at_now(self) -> None:
        """From here on claim only what is ready at this moment."""
        self._cutoff_ms = self._runner.run(claims.backlog(self._keys)).now_ms

    def backlog(self) -> claims.Backlog:
        """Count what waits."""
        return self._runner.run(claims.backlog(self._keys))

    def latest(self, start: Offset, limit: int) -> Offset:
        """Claim up to *limit* messages after *start*; *start* itself if there are none.

        Spark has finished with everything up to *start*, so that is acknowledged.
        """
        self._check(start)
        ledger = self._attach(start.ledger)
        done = start.claim if start.ledger == ledger.id else 0
        if self._options.ack_on == "start":
            self._acknowledge(done)
        number = done + 1
        count = self._next(number, limit)
        if not count:
            self._settle()
            return start
        if count >= limit and self._options.claim_ahead and self._ahead is None:
            # More is waiting, most likely.
            work = partial(self._claim, number=number + 1, limit=limit)
            self._ahead = number + 1, self._background.start(work)
        return replace(start, ledger=ledger.id, claim=number, count=count)

    def plan(self, start: Offset, end: Offset) -> list[ClaimSlice]:
        """Divide what was claimed after *start* up to *end*; the same again after a restart."""
        self._check(start)
        self._check(end)
        ledger = self._attach(end.ledger)
        first = start.claim + 1 if start.ledger == ledger.id else 1
        slices: list[ClaimSlice] = []
        for number in range(first, end.claim + 1):
            if number not in self._held:
                self._revive(number)
            count = self._held.get(number, 0)
            size = self._options.max_records_per_partition
            parts = max(1, min(count, max(self._options.min_partitions, -(-count // size))))
            bounds = [count * n // parts for n in range(parts + 1)]
            slices += (ClaimSlice(ledger, number, *pair) for pair in pairwise(bounds) if count)
        return slices

    def commit(self, end: Offset) -> None:
        """Acknowledge everything up to *end*."""
        self._check(end)
        if end.ledger and self._attach(end.ledger).id == end.ledger:
            self._acknowledge(end.claim)
            # Otherwise it was begun by latest(), and goes on while the next batch runs.
            if self._options.ack_on == "commit":
                self._settle()

    def close(self) -> None:
        """Stop renewing. Claims stay as they are: Spark may have them in its log.

        But not the one that was made ahead: Spark knows nothing of it.
        """
        self._keeper.stop()
        self._background.stop()
        if self._ahead is not None and self._ledger is not None:
            with suppress(RSMQError):
                give_back(self._runner, self._ledger, self._ahead[0])
        self._runner.close()

    def held(self) -> list[int]:
        """Return the numbers of the claims that want to be renewed."""
        return sorted(list(self._held))  # noqa: C414 - a copy, for another thread

    def renew(self, runner: BlockingRunner, number: int) -> tuple[int, int]:
        """Renew the leases of one claim; how many messages are others' by now, and gone."""
        taken = gone = at = 0
        while at >= 0:
            with self._keeper.lock:
                if self._ledger is None or number not in self._held:
                    break
                renewed = runner.run(
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

    @property
    def _ttl_s(self) -> int:
        return max(self._options.ledger_ttl_ms, 2 * self._options.lease_ms) // 1000

    def _check(self, offset: Offset) -> None:
        if self._keeper.error is not None:
            raise self._keeper.error
        if (offset.queue, offset.namespace) != (self._keys.queue, self._keys.namespace.name):
            raise InvalidValue(
                f"the checkpoint belongs to queue {offset.queue!r} in namespace "
                f"{offset.namespace!r}, not to {self._keys.queue!r} in "
                f"{self._keys.namespace.name!r}; use another checkpointLocation"
            )

    def _attach(self, id: str) -> Ledger:
        """Return the ledger *id*, taken over if this process has none yet; a new one for ''."""
        if self._ledger is not None:
            if id not in ("", self._ledger.id, self._replaced):
                raise ClaimLost(self._keys.queue, id, "fenced")
            return self._ledger
        ledger = None
        if id:
            try:
                ledger = self._runner.run(claims.take_over(self._keys, id, self._options.ledger))
            except ClaimLost as error:
                if error.cause == "fenced" or self._options.fail_on_data_loss:
                    raise _with_advice(error) from None
                logger.warning("%s; it goes on with a new one", error)
                self._replaced = id
        if ledger is not None and ledger.mode != self._options.claim_mode:
            raise InvalidValue(
                f"the checkpoint was begun with claimMode={ledger.mode}; go on with that, or use "
                "another checkpointLocation"
            )
        self._ledger = ledger or self._begin()
        self._acked = self._ledger.acked
        return self._ledger

    def _begin(self) -> Ledger:
        """Make a new ledger; a named one takes the place of the one that had its name."""
        name, mode = self._options.ledger, self._options.claim_mode
        unique = uuid.uuid4().hex[:16]
        ledger = Ledger(
            self._keys,
            f"{name}.{unique}" if name else unique,
            "move" if mode == "move" else "lease",
            group=name,
        )
        if name:
            before: str | None = ""
            while before is not None:
                if before:
                    retire(self._runner, self._keys, before)
                before = self._runner.run(
                    claims.set_group_ledger(ledger, expected=before, ttl_s=self._ttl_s)
                )
        return ledger

    def _next(self, number: int, limit: int) -> int:
        """Make the next claim, unless it is made; the result is its size."""
        if self._ahead is not None and self._ahead[0] == number:
            (_, job), self._ahead = self._ahead, None
            # An outage that it met may be over; if not, the same is said below.
            with suppress(RSMQError):
                job.wait()
        elif number in self._held:
            return self._held[number]
        else:
            self._give_back_unplanned(number)
        # Also if it is made: this is where a driver that was replaced learns of it.
        self._claim(self._runner, number, limit)
        return self._held.get(number, 0)

    def _claim(self, runner: BlockingRunner, number: int, limit: int) -> None:
        assert self._ledger is not None  # noqa: S101 - callers attach first
        terms = claims.Terms(
            limit,
            self._options.claim_chunk,
            self._options.lease_ms,
            self._ttl_s,
            self._cutoff_ms,
        )
        create = not self._ledger.group and number == 1
        claimed = claims.Claimed(0, False)
        while not claimed.complete:
            claimed = runner.run(claims.claim(self._ledger, number, terms, create=create))
        if claimed.messages:
            self._held[number] = claimed.messages
            if self._options.claim_mode == "lease":
                self._keeper.start(self._options.lease_ms / 3000)

    def _give_back_unplanned(self, number: int) -> None:
        """Give back what an earlier run claimed and Spark never logged; others may want it."""
        ledger = self._ledger
        if ledger is None:
            return
        for unplanned in ledger.live:
            if unplanned >= number:
                give_back(self._runner, ledger, unplanned)
        self._ledger = replace(
            ledger,
            open=0 if ledger.open >= number else ledger.open,
            sealed={n: count for n, count in ledger.sealed.items() if n < number},
        )

    def _revive(self, number: int) -> None:
        """Hold a claim again that an earlier run made and Spark logged."""
        ledger, fatal = self._ledger, self._options.fail_on_data_loss
        assert ledger is not None  # noqa: S101 - callers attach first
        if number not in ledger.sealed:
            lost = ClaimLost(self._keys.queue, ledger.id, "claimGone")
            if fatal:
                raise _with_advice(lost)
            logger.warning("%s; its messages are left out", lost)
            return
        self._held[number] = ledger.sealed[number]
        taken, gone = self.renew(self._runner, number)
        if gone:
            logger.warning("%d messages of claim %d were deleted by others", gone, number)
        if taken and fatal:
            raise RSMQError(
                f"{taken} messages of queue {self._keys.queue!r} that this query had claimed were "
                "received by others while it was down; start it with failOnDataLoss=false to go on "
                "without them, and use a longer leaseMs"
            )
        if self._options.claim_mode == "lease":
            self._keeper.start(self._options.lease_ms / 3000)

    def _acknowledge(self, upto: int) -> None:
        assert self._ledger is not None  # noqa: S101 - callers attach first
        if upto < self._acked:
            raise RSMQError(
                f"the checkpoint stands at claim {upto} of queue {self._keys.queue!r}, but claims "
                f"up to {self._acked} were acknowledged and deleted: a queue cannot be read again; "
                "use a new checkpointLocation"
            )
        for job in [job for job in self._acks if job.over]:
            job.wait()
            self._acks.remove(job)
        for number in range(self._acked + 1, upto + 1):
            with self._keeper.lock:
                self._held.pop(number, None)
            work = partial(acknowledge, ledger=self._ledger, number=number)
            self._acks.append(self._background.start(work))
            self._acked = number

    def _settle(self) -> None:
        """Wait until all that is to be acknowledged is."""
        while self._acks:
            self._acks.pop(0).wait()


def give_back(runner: BlockingRunner, ledger: Ledger, number: int) -> int:
    """Give the messages of one claim back; the result is how many were still held."""
    given, left = 0, 1
    while left:
        released = runner.run(claims.release(ledger, number, count=CHUNK))
        given, left = given + released.given, released.left
    return given


def acknowledge(runner: BlockingRunner, ledger: Ledger, number: int) -> None:
    """Delete the messages of one claim."""
    while runner.run(claims.acknowledge(ledger, number, count=CHUNK)):
        pass


def retire(runner: BlockingRunner, keys: QueueKeys, id: str) -> int:
    """Fence a ledger, give back all that it holds, and remove it; the result is what was given."""
    try:
        ledger = runner.run(claims.take_over(keys, id))
    except ClaimLost:
        return 0
    given = sum(give_back(runner, ledger, number) for number in ledger.live)
    runner.run(claims.forget(ledger))
    return given


def _with_advice(error: ClaimLost) -> RSMQError:
    if error.cause == "fenced":
        return error
    return RSMQError(
        f"{error}; messages that were not acknowledged are or will be back in the queue. Start the "
        "query with failOnDataLoss=false to go on, or with a new checkpointLocation"
    )
