"""What is stored about a topic, read and judged.

Of a consumer whose peers have copies of their own, one is the *keeper*: it has had, or has in its
queue, whatever was published while the consumer was subscribed. So the queue of any other peer
may be deleted when that has gone, and the keeper's passes to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .topic_names import escape, unescape

SHARED, EACH = "shared", "each"
#: A subscription gets what is published; it has ended, and what it holds waits for its return, or
#: for the keeper.
ON, LEFT = "on", "left"
#: Stands for "no peer" in a record; no name is escaped to it.
NOBODY = "."
#: Under which name the clock of a consumer is kept, among the times at which peers were heard of.
_CLOCK = "clock"
#: How many subscriptions of silent peers are ended by one call.
_AT_ONCE = 1000


class Member(NamedTuple):
    """One subscription as the topic knows it."""

    queue: str
    consumer: str
    mode: str
    #: The peer that this copy is for; ``None`` if the consumer's peers share it.
    peer: str | None
    silence_ms: int
    #: When it began, in microseconds: it has copies of its own of what was published later.
    since_us: int
    state: str
    keeper: bool
    #: When its peer was last heard of, as it is stored: by the consumer's clock, by the server's.
    heard: str

    @property
    def on(self) -> bool:
        """Whether it gets what is published."""
        return self.state == ON

    @property
    def heard_ms(self) -> tuple[int, int]:
        """When its peer was last heard of: by the consumer's clock, and by the server's."""
        by_clock, _, by_server = (self.heard or "0").partition(" ")
        return int(by_clock), int(by_server or by_clock)


class Ending(NamedTuple):
    """Subscriptions that end at once."""

    members: Sequence[Member]
    #: Those of them that may be deleted with all they hold: the keeper has had it, too.
    spare: Sequence[Member] = ()
    #: Queue of the peer that is the keeper from then on; empty: as it is.
    successor: str = ""
    #: What else is to be forgotten that was noted beside the peers.
    fields: Sequence[str] = ()
    #: Whether they end because nothing was heard of them; such peers may come back.
    dead: bool = False
    #: The consumer that unsubscribes, and its peer if only that one does.
    consumer: str = ""
    peer: str | None = None


@dataclass(frozen=True)
class TopicState:
    """What is stored about a topic."""

    version: str = ""
    now_ms: int = 0
    waiting: int = 0
    members: tuple[Member, ...] = ()
    #: Peers of shared subscriptions: queue, name, when it was last heard of (epoch ms).
    peers: tuple[tuple[str, str, int], ...] = ()
    #: Consumer whose peers have copies of their own -> its clock, which stands while none is heard.
    clocks: Mapping[str, int] = field(default_factory=dict)
    max_length: int | None = None
    max_age_ms: int | None = None
    #: Subscriptions that ended because another client deleted their queue.
    lost: int = 0
    #: Messages that were removed because of the limits.
    trimmed: int = 0

    def find(self, queue: str) -> Member | None:
        """Return the subscription with this queue."""
        return next((m for m in self.members if m.queue == queue), None)

    def of(self, consumer: str) -> list[Member]:
        """Return the subscriptions of a consumer, also those that have ended."""
        return [m for m in self.members if m.consumer == consumer]

    def copies(self, consumer: str) -> list[Member]:
        """Return those of a consumer's peers with copies of their own that get what is published.

        The keeper is the first. If its queue was deleted by another client it is the oldest.
        """
        peers = [m for m in self.of(consumer) if m.on and m.mode == EACH]
        return sorted(peers, key=lambda m: (not m.keeper, m.since_us, m.queue))

    def keeper(self, consumer: str) -> Member | None:
        """Return the peer that has all that the consumer is to get."""
        return next(iter(self.copies(consumer)), None)

    def silent(self, member: Member) -> bool:
        """Return True if a peer was not heard of for too long while others of its consumer were."""
        clock = self.clocks.get(member.consumer, 0)
        return bool(member.heard) and clock - member.heard_ms[0] > member.silence_ms

    def dead(self, me: Member) -> Ending:
        """Return siblings of *me* that are silent, and not the keeper; so many as end at once."""
        peers = self.copies(me.consumer)[1:]
        gone = [m for m in peers if m.queue != me.queue and self.silent(m)][:_AT_ONCE]
        return Ending(gone, spare=gone, dead=True)

    def left(self, me: Member) -> tuple[Member, list[Member]]:
        """Return who is the keeper from now on, *me* if that is silent, and what it adopts."""
        keeper = self.keeper(me.consumer) or me
        ended = [m for m in self.of(me.consumer) if not m.on]
        if keeper.queue != me.queue and self.silent(keeper):
            return me, [keeper, *ended]
        return keeper, ended

    def leaving(self, consumer: str, peer: str | None) -> Ending:
        """Return what it means that a consumer, or one peer of it, unsubscribes."""
        members = [m for m in self.of(consumer) if peer is None or m.peer == peer]
        shared = {m.queue for m in self.of(consumer) if m.mode == SHARED}
        fields = [
            f"{queue} {escape(name)}"
            for queue, name, _ in self.peers
            if queue in shared and peer in (None, name)
        ]
        copies = self.copies(consumer)
        stay = [m for m in copies if m not in members]
        if not stay and consumer in self.clocks:
            fields.append(f"{_CLOCK}:{escape(consumer)}")
        # Rather one that was heard of lately.
        after = max(stay, key=lambda m: m.heard_ms, default=None)
        ends = after is not None and copies[0] in members
        return Ending(
            members,
            spare=[m for m in copies[1:] if m in members],
            successor=after.queue if after and ends else "",
            fields=fields,
            consumer=consumer,
            peer=peer,
        )


def read_state(now: int, waiting: int, stored: dict[str, str], times: dict[str, str]) -> TopicState:
    """Read the fields of a topic and the times at which peers were heard of."""
    members = [
        _member(name[2:], record, times.get(name[2:], ""))
        for name, record in stored.items()
        if name.startswith("q:")
    ]
    peers, clocks = [], {}
    for name, heard in times.items():
        word, _, consumer = name.partition(":")
        if word == _CLOCK:
            clocks[unescape(consumer)] = int(heard.partition(" ")[0])
            continue
        queue, space, peer = name.partition(" ")
        if space:
            peers.append((queue, unescape(peer), int(heard)))
    length, age = stored.get("max_length"), stored.get("max_age_ms")
    return TopicState(
        version=stored.get("version", ""),
        now_ms=now,
        waiting=waiting,
        members=tuple(sorted(members)),
        peers=tuple(sorted(peers)),
        clocks=clocks,
        max_length=None if length is None else int(length),
        max_age_ms=None if age is None else int(age),
        lost=int(stored.get("lost", 0)),
        trimmed=int(stored.get("trimmed", 0)),
    )


def _member(queue: str, record: str, heard: str) -> Member:
    state, mode, silence, keeper, consumer, peer, since = record.split(" ")
    return Member(
        queue=queue,
        consumer=unescape(consumer),
        mode=mode,
        peer=None if peer == NOBODY else unescape(peer),
        silence_ms=int(silence),
        since_us=int(since),
        state=state,
        keeper=keeper == "1",
        heard=heard if mode == EACH else "",
    )
