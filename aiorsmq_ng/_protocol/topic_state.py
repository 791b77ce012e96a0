"""The stored state of a topic, and the decisions based on it: which peers are dead or keepers.

If the peers of a consumer have copies of their own, one peer is the *keeper*: it has received, or
has in its queue, every message that was published while the consumer was subscribed. So the queue
of any other peer may be deleted when that peer is gone, and the keeper's queue passes to another
peer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .topic_names import escape, unescape

SHARED, BROADCAST = "shared", "broadcast"
#: States of a subscription. ``on``: it gets what is published. ``left``: it has ended; its messages
#: are kept for its return, or for the keeper.
ON, LEFT = "on", "left"
#: Stands for "no peer" in a record; no name is escaped to it.
NO_PEER = "."
#: Prefix of the field with a consumer's clock, among those with the peers' signs of life.
_CLOCK = "clock"
#: Subscriptions of silent peers that one call ends, at most.
_AT_ONCE = 1000


class Member(NamedTuple):
    """One subscription of a topic."""

    queue: str
    consumer: str
    mode: str
    #: The peer that this copy is for; ``None`` if the consumer's peers share it.
    peer: str | None
    peer_timeout_ms: int
    #: When it began, in microseconds. What was published later is in its own queue.
    since_us: int
    state: str
    keeper: bool
    #: Last sign of life of its peer, as stored: by the consumer's clock, and by the server's.
    heard: str

    @property
    def on(self) -> bool:
        """True if it gets what is published."""
        return self.state == ON

    @property
    def heard_ms(self) -> tuple[int, int]:
        """Last sign of life of its peer: by the consumer's clock, and by the server's."""
        by_clock, _, by_server = (self.heard or "0").partition(" ")
        return int(by_clock), int(by_server or by_clock)


class Ending(NamedTuple):
    """Subscriptions that one call ends."""

    members: Sequence[Member]
    #: Those of them whose messages may be deleted, because the keeper has received them, too.
    spare: Sequence[Member] = ()
    #: Queue of the new keeper; empty if the keeper stays.
    successor: str = ""
    #: Other fields beside those of the peers that are deleted.
    fields: Sequence[str] = ()
    #: True if they end because their peers timed out; such peers may come back.
    dead: bool = False
    #: The consumer that unsubscribes, and its peer if only that one does.
    consumer: str = ""
    peer: str | None = None


@dataclass(frozen=True)
class TopicState:
    """The stored state of a topic."""

    version: str = ""
    now_ms: int = 0
    waiting: int = 0
    members: tuple[Member, ...] = ()
    #: Peers of shared subscriptions: queue, name, last sign of life (epoch ms).
    peers: tuple[tuple[str, str, int], ...] = ()
    #: Consumer whose peers have copies of their own -> its clock, which runs only while a peer
    #: gives signs of life.
    clocks: Mapping[str, int] = field(default_factory=dict)
    max_length: int | None = None
    max_age_ms: int | None = None
    #: Subscriptions that ended because another client deleted their queue.
    lost: int = 0
    #: Messages that were removed because of the backlog's limits.
    trimmed: int = 0

    def find(self, queue: str) -> Member | None:
        """Return the subscription with this queue."""
        return next((m for m in self.members if m.queue == queue), None)

    def of(self, consumer: str) -> list[Member]:
        """Return the subscriptions of a consumer, also those that have ended."""
        return [m for m in self.members if m.consumer == consumer]

    def copies(self, consumer: str) -> list[Member]:
        """Return the active subscriptions of a consumer whose peers have copies of their own.

        The keeper is the first. If another client deleted its queue, the oldest peer is the keeper.
        """
        peers = [m for m in self.of(consumer) if m.on and m.mode == BROADCAST]
        return sorted(peers, key=lambda m: (not m.keeper, m.since_us, m.queue))

    def keeper(self, consumer: str) -> Member | None:
        """Return the consumer's keeper, the peer that has everything the consumer is to get."""
        return next(iter(self.copies(consumer)), None)

    def timed_out(self, member: Member) -> bool:
        """Return True if a peer timed out while other peers of its consumer gave signs of life."""
        clock = self.clocks.get(member.consumer, 0)
        return bool(member.heard) and clock - member.heard_ms[0] > member.peer_timeout_ms

    def dead(self, me: Member) -> Ending:
        """Return the ending of silent siblings of *me*, except for the keeper."""
        peers = self.copies(me.consumer)[1:]
        gone = [m for m in peers if m.queue != me.queue and self.timed_out(m)][:_AT_ONCE]
        return Ending(gone, spare=gone, dead=True)

    def left(self, me: Member) -> tuple[Member, list[Member]]:
        """Return the keeper, and the subscriptions whose messages it adopts.

        If the present keeper is silent, *me* becomes the keeper and adopts from it, too.
        """
        keeper = self.keeper(me.consumer) or me
        ended = [m for m in self.of(me.consumer) if not m.on]
        if keeper.queue != me.queue and self.timed_out(keeper):
            return me, [keeper, *ended]
        return keeper, ended

    def leaving(self, consumer: str, peer: str | None) -> Ending:
        """Return what ends when a consumer, or one peer of it, unsubscribes."""
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
        # The new keeper is the peer with the latest sign of life.
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
    """Decode the fields of a topic, and the peers' last signs of life."""
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
    state, mode, timeout_ms, keeper, consumer, peer, since = record.split(" ")
    return Member(
        queue=queue,
        consumer=unescape(consumer),
        mode=mode,
        peer=None if peer == NO_PEER else unescape(peer),
        peer_timeout_ms=int(timeout_ms),
        since_us=int(since),
        state=state,
        keeper=keeper == "1",
        heard=heard if mode == BROADCAST else "",
    )
