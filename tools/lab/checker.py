"""Checks a history of calls and the stored state against the guarantees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from .history import WAITED, Event, History
from .inventory import Inventory

#: The rules, by their names.
ORACLES = {
    "O1": "what was acked is delivered or still there, and stored once",
    "O2": "no two holders under a valid lease; a stale receipt changes nothing",
    "O3": "nothing vanishes, nothing comes back, nothing is left over",
    "O4": "the counters count",
    "O5": "every reply belongs to its request",
    "O7": "no lease is stranded, and the queue is drained in time",
    "O8": "only documented exceptions",
}
_SHOWN = 5

Key = Callable[[bytes], str]


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken, and by what."""

    oracle: str
    what: str

    def __str__(self) -> str:
        return f"{self.oracle} ({ORACLES[self.oracle]}): {self.what}"


@dataclass(slots=True)
class Verdict:
    """What a check found. ``ok`` if nothing is wrong; the numbers tell what was checked."""

    violations: list[Violation] = field(default_factory=list)
    #: Messages sent: confirmed, of unknown fate, certainly not stored.
    acked: int = 0
    unknown: int = 0
    failed: int = 0
    #: Deliveries, and those of them that were not the first of their message.
    delivered: int = 0
    redelivered: int = 0
    #: Deliveries whose holder got LeaseLost.
    refused: int = 0
    #: Acked, never delivered, and not there.
    lost: int = 0
    #: Ids beyond those that the sends account for.
    copies: int = 0
    #: Deliveries made while another holder's lease was valid.
    overlaps: int = 0
    #: Leases that the server granted and no caller got.
    stranded: int = 0
    #: ``totalsent`` minus the distinct messages that were stored.
    drift: int = 0

    @property
    def ok(self) -> bool:
        """Return True if no rule was broken."""
        return not self.violations

    def require(self) -> None:
        """Raise ``AssertionError`` with all that is wrong, if anything is."""
        if self.violations:
            raise AssertionError("\n".join(map(str, self.violations)))

    def __str__(self) -> str:
        numbers = (
            f"{self.acked} acked, {self.unknown} unknown, {self.failed} failed, "
            f"{self.delivered} delivered ({self.redelivered} again), {self.refused} refused, "
            f"{self.lost} lost, {self.copies} copies, {self.overlaps} overlaps, "
            f"{self.stranded} stranded, drift {self.drift}"
        )
        return "\n".join([numbers, *map(str, self.violations)])


def check(
    history: History,
    state: Inventory,
    *,
    strict: bool = False,
    skip: Collection[str] = (),
    drain_within_s: float | None = None,
    key_of: Key = lambda body: body.decode(errors="replace"),
) -> Verdict:
    """Hold *history* and the *state* after it against the rules.

    The queue was empty when the history began, and no other client used it. With *strict* a send of
    unknown fate and a stranded lease are faults, too: lost replies must have been made good. *skip*
    names rules that do not apply, such as "O4" where the server lost its data. *drain_within_s*
    limits the time from ``fault_over`` to ``drained``. *key_of* finds the key of a body.
    """
    case = _Case(history, state, key_of)
    rules = (
        ("O1", case.nothing_lost), ("O1", case.nothing_twice), ("O2", case.no_overlap),
        ("O2", case.no_stale_settlement), ("O3", case.nothing_vanished),
        ("O3", case.nothing_back), ("O3", case.nothing_left_over), ("O4", case.counters_count),
        ("O5", case.replies_fit), ("O7", lambda: case.drained(drain_within_s)),
        ("O8", case.nothing_escaped),
    )  # fmt: skip
    for oracle, rule in rules:
        if oracle not in skip:
            case.verdict.violations += [Violation(oracle, what) for what in rule()]
    if strict:
        case.verdict.violations += [
            Violation(oracle, what) for oracle, what in case.loose_ends() if oracle not in skip
        ]
    return case.verdict


class _Case:
    """The evidence, sorted once. Rules return what is wrong, in words."""

    def __init__(self, history: History, state: Inventory, key_of: Key) -> None:
        self.history, self.state = history, state
        self.acked = history.of("acked")
        self.received = history.of("received")
        self.popped = history.of("popped")
        self.settled = history.of("settled")
        # A body without an id, or an id without a body, reaches no consumer.
        self.stored = {
            id: key_of(body)
            for stock in (state.queue, state.dead)
            for id, body in stock.bodies.items()
            if id in stock.scores
        }
        self.deliveries: dict[str, list[Event]] = defaultdict(list)
        for event in self.received:
            self.deliveries[event.id].append(event)
        for events in self.deliveries.values():
            events.sort(key=lambda event: event.rc)
        self.ids: dict[str, set[str]] = defaultdict(set)
        for event in (*self.acked, *self.received, *self.popped):
            self.ids[event.key].add(event.id)
        for id, key in self.stored.items():
            self.ids[key].add(id)
        self.seen = set().union(*self.ids.values()) if self.ids else set()
        self.unknown = self._unknown_sends()
        self.unclaimed_pops = self._unclaimed("popping")
        self.verdict = self._count()

    def nothing_lost(self) -> Iterator[str]:
        """See that what was acked is delivered or there, or destroyed by a pop without a reply."""
        lost = {e.id for e in self.acked} - self._reached() - set(self.stored)
        self.verdict.lost = len(lost)
        if len(lost) > self.unclaimed_pops:
            yield f"{len(lost)} acked messages are lost: {_some(lost)}"

    def nothing_twice(self) -> Iterator[str]:
        """See that there are as many ids per key as sends account for."""
        sure: dict[str, set[str]] = defaultdict(set)
        for event in self.acked:
            sure[event.key].add(event.id)
        for key, ids in self.ids.items():
            extra = len(ids) - len(sure[key]) - self.unknown.get(key, 0)
            if extra > 0:
                self.verdict.copies += extra
                yield f"{key!r} is stored {extra} times too often: {_some(ids)}"

    def no_overlap(self) -> Iterator[str]:
        """See that no delivery certainly fell into the lease of an earlier one."""
        for id, events in self.deliveries.items():
            for earlier, later in pairwise(events):
                if earlier.rc == later.rc:
                    self.verdict.overlaps += 1
                    yield f"delivery {earlier.rc} of {id} was made twice"
                # It was granted at its return at the latest.
                elif later.at < self._held_until(earlier):
                    self.verdict.overlaps += 1
                    yield f"{id} went to {later.holder!r} under the lease of {earlier.holder!r}"

    def no_stale_settlement(self) -> Iterator[str]:
        """Check that no client settled a message after another client had received it."""
        ended: dict[str, int] = defaultdict(int)
        for event in (*self.settled, *self.history.of("extended")):
            newer = [e for e in self.deliveries[event.id] if e.rc > event.rc]
            if any(e.at < event.begun for e in newer):
                how = event.how or "extend"
                yield f"stale {how} of {event.id} by delivery {event.rc} was accepted"
            ended[event.id] += event.how in ("ack", "forward")
        for id, times in ended.items():
            if times > 1:
                yield f"{id} was taken out of the queue {times} times"

    def nothing_vanished(self) -> Iterator[str]:
        """Check that every message that is gone was acked, forwarded or popped."""
        settling = (*self.settled, *self.history.of("settling"))
        ended = {e.id for e in settling if e.how in ("ack", "forward")}
        ended |= {e.id for e in self.popped}
        gone = self._reached() - ended - set(self.stored)
        if len(gone) > self.unclaimed_pops:
            yield f"{len(gone)} messages vanished after their delivery: {_some(gone)}"

    def nothing_back(self) -> Iterator[str]:
        """See that what was acked is gone for good."""
        ends = {e.id: e.at for e in self.settled if e.how == "ack"}
        ends |= {e.id: e.at for e in self.popped}
        if still := set(ends) & set(self.stored):
            yield f"{len(still)} messages are there although they were done: {_some(still)}"
        for event in self.received:
            if event.begun > ends.get(event.id, event.begun):
                yield f"{event.id} was delivered to {event.holder!r} after it was done"

    def nothing_left_over(self) -> Iterator[str]:
        """See that ids and bodies belong together, and counts to messages."""
        for name, stock in (("queue", self.state.queue), ("dead letters", self.state.dead)):
            if phantoms := set(stock.scores) - set(stock.bodies):
                yield f"{name}: {len(phantoms)} ids without a body: {_some(phantoms)}"
            if orphans := set(stock.bodies) - set(stock.scores):
                yield f"{name}: {len(orphans)} bodies without an id: {_some(orphans)}"
            if leaked := {m for m in stock.marks if m.rpartition(":")[0] not in stock.ids}:
                yield f"{name}: {len(leaked)} fields of messages that are gone: {_some(leaked)}"

    def counters_count(self) -> Iterator[str]:
        """Compare ``totalsent`` with what was stored, ``totalrecv`` with what was delivered."""
        stock, verdict = self.state.queue, self.verdict
        verdict.drift = stock.totalsent - len(self.seen)
        # A pop whose reply was lost may have destroyed a message that no other call returned.
        if not 0 <= verdict.drift <= min(self.unclaimed_pops, sum(self.unknown.values())):
            yield f"totalsent is {stock.totalsent}, and {len(self.seen)} messages were stored"
        verdict.stranded = stock.totalrecv - len(self.received) - len(self.popped)
        unclaimed = self._unclaimed("receiving") + self.unclaimed_pops
        if not 0 <= verdict.stranded <= unclaimed:
            yield (
                f"totalrecv is {stock.totalrecv}; {len(self.received)} were received, "
                f"{len(self.popped)} popped, and at most {unclaimed} taken without a word"
            )

    def replies_fit(self) -> Iterator[str]:
        """See that an id has one key, the one that it was sent with."""
        keys: dict[str, set[str]] = defaultdict(set)
        for key, ids in self.ids.items():
            for id in ids:
                keys[id].add(key)
        for id, several in keys.items():
            if len(several) > 1:
                yield f"{id} stands for different bodies: {_some(several)}"
        if invented := set(self.ids) - {e.key for e in self.history.of("sending", "acked")}:
            yield f"bodies that were never sent: {_some(invented)}"

    def drained(self, within_s: float | None) -> Iterator[str]:
        """See that a queue that is said to be empty is, and was in time."""
        ends = self.history.of("drained")
        if ends and self.state.queue.scores:
            yield f"{len(self.state.queue.scores)} messages are left in the queue"
        if within_s is None:
            return
        over = self.history.of("fault over")
        if not (ends and over):
            yield "the history does not say when the faults ended and the queue was drained"
        elif (took := ends[-1].at - over[-1].at) > within_s:
            yield f"draining took {took:.1f} s instead of {within_s:g} s"

    def nothing_escaped(self) -> Iterator[str]:
        """See that only errors of the library came out of its calls."""
        return (event.detail for event in self.history.of("escaped"))

    def loose_ends(self) -> Iterator[tuple[str, str]]:
        """Return what is allowed only as long as lost replies are not made good."""
        if self.verdict.unknown:
            yield "O1", f"the fate of {self.verdict.unknown} sends is not known"
        # A pop may lose what it takes; that is its nature.
        if (stranded := self.verdict.stranded - self.unclaimed_pops) > 0:
            yield "O7", f"{stranded} leases are stranded"

    def _reached(self) -> set[str]:
        return {e.id for e in (*self.received, *self.popped)}

    def _unknown_sends(self) -> dict[str, int]:
        """Return per key the number of sends of unknown outcome, also of crashed clients."""
        open_: dict[str, int] = defaultdict(int)
        for event in self.history.of("sending"):
            open_[event.key] += 1
        for event in self.history.of("acked", "failed"):
            open_[event.key] -= 1
        return {key: count for key, count in open_.items() if count > 0}

    def _unclaimed(self, kind: str) -> int:
        """Return how many messages the calls of *kind* without a good end may have taken."""
        outcomes = self.history.of("received", "popped", "nothing")
        ended = {e.call for e in outcomes if e.detail != WAITED}
        begun = [e for e in self.history if e.kind == kind]
        return sum(e.count for e in begun if e.call not in ended)

    def _held_until(self, delivery: Event) -> float:
        """Return until when *delivery* was certainly held: its lease ran and was not ended."""
        # Granted after the call began, so it ends no earlier than this.
        until = delivery.begun + delivery.vt
        mine = [e for e in self._after.get(delivery.id, ()) if e.rc == delivery.rc]
        for event in mine:
            if event.kind == "extended":
                until = event.begun + event.vt
        ends = [e.at for e in mine if e.kind == "settling"]
        return min([until, *ends])

    def _count(self) -> Verdict:
        self._after: dict[str, list[Event]] = defaultdict(list)
        for event in self.history.of("extended", "settling"):
            self._after[event.id].append(event)
        return Verdict(
            acked=len(self.acked),
            unknown=sum(self.unknown.values()),
            failed=len(self.history.of("failed")),
            delivered=len(self.received),
            redelivered=len(self.received) - len(self.deliveries),
            refused=len(self.history.of("lost")),
        )


def _some(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:_SHOWN])
    return shown + (", ..." if len(names) > _SHOWN else "")
