"""What is stored about a topic, read and judged."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .topic_names import unescape

SHARED, EACH = "shared", "each"
#: A subscription gets what is published; its peer was silent for too long; it was ended: in both
#: cases what it holds waits for its return. Gone: another peer has taken that over.
ON, OFF, LEFT, GONE = "on", "off", "left", "gone"
#: How long a peer is remembered whose messages were taken over, should it come back.
_REMEMBERED_MS = 86_400_000
#: How many of them at most, the last ones; and how many are forgotten in one step.
_REMEMBERED = 1000
#: Stands for "no peer" in a record; no name is escaped to it.
NOBODY = "."


#: Where is noted when a consumer was heard of again, after a time in which nobody was.
_AGAIN = "again"


class Member(NamedTuple):
    """One subscription as the topic knows it."""

    queue: str
    consumer: str
    mode: str
    #: The peer that this copy is for; ``None`` if the consumer's peers share it.
    peer: str | None
    silence_ms: int
    #: When it began, in microseconds.
    since_us: int
    state: str
    #: Whether it has taken over what another peer left.
    heir: bool
    #: When its peer was last heard of, as it is stored (epoch ms), or nothing.
    heard: str

    @property
    def on(self) -> bool:
        """Whether it gets what is published."""
        return self.state == ON

    def alive(self, now_ms: int) -> bool:
        """Tell whether its peer was heard of lately."""
        return self.on and now_ms - int(self.heard or now_ms) <= self.silence_ms


@dataclass(frozen=True)
class TopicState:
    """What is stored about a topic."""

    version: str = ""
    now_ms: int = 0
    waiting: int = 0
    members: tuple[Member, ...] = ()
    #: Peers of shared subscriptions: queue, name, when it was last heard of (epoch ms).
    peers: tuple[tuple[str, str, int], ...] = ()
    #: Consumer -> when it was heard of again (epoch ms), and whether by a peer that is not new.
    again: Mapping[str, tuple[int, bool]] = field(default_factory=dict)
    #: Under which names something is noted beside the peers: a word, a colon, the consumer.
    notes: tuple[str, ...] = ()
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
        """Return the subscriptions of a consumer, also those that were taken off."""
        return [m for m in self.members if m.consumer == consumer]

    def left_by(self, consumer: str) -> list[Member]:
        """Return those of a consumer that have a queue."""
        return [m for m in self.of(consumer) if m.state != GONE]

    @property
    def forgotten(self) -> list[str]:
        """Queues that were taken over so long ago that nobody will ask for them."""
        gone = [(int(m.heard or 0), m.queue) for m in self.members if m.state == GONE]
        newest = sorted(gone, reverse=True)[:_REMEMBERED]
        kept = {queue for heard, queue in newest if self.now_ms - heard <= _REMEMBERED_MS}
        return [queue for _, queue in gone if queue not in kept][:_REMEMBERED]


def heritage(consumer: str, state: TopicState) -> Member | None:
    """Return what a new peer takes over: what one left that is gone, the longest silent first.

    When peers are heard of again after all were silent, their siblings have the same time for it.
    """
    noted, known = state.again.get(consumer, (0, False))
    gone = [
        m
        for m in state.left_by(consumer)
        if not m.alive(state.now_ms)
        and not (m.on and known and state.now_ms - noted <= m.silence_ms)
    ]
    return min(gone, key=lambda m: int(m.heard or 0), default=None)


def first_sign(consumer: str, besides: Collection[str], state: TopicState) -> bool:
    """Tell whether peers of *consumer* may be silent only because nobody could be heard.

    Those with the queues *besides* do not matter: who is heard of now, and who is taken over.

    That is so if none of them was heard of for as long, and they were since that was last noted.
    """
    peers = [m for m in state.of(consumer) if m.on and m.mode == EACH]
    last = max((int(m.heard or 0) for m in peers), default=0)
    noted, _ = state.again.get(consumer, (0, False))
    return any(
        state.now_ms - last > m.silence_ms and int(m.heard or 0) >= noted
        for m in peers
        if m.queue not in besides and not m.alive(state.now_ms)
    )


def orphans(member: Member, state: TopicState) -> list[tuple[Member, bool]]:
    """Return which queues hold what *member* may lack, and whether it takes over all of it."""
    found = []
    heir = not member.heir
    for left in state.left_by(member.consumer):
        if not left.on:
            # One that subscribed after the other was last heard of is probably the same process.
            whole = heir and member.since_us > int(left.heard or 0) * 1000
            heir = heir and not whole
            found.append((left, whole))
    return found


def read_state(now: int, waiting: int, stored: dict[str, str], times: dict[str, str]) -> TopicState:
    """Read the fields of a topic and the times at which peers were heard of."""
    members = [
        _member(name[2:], record, times.get(name[2:], ""))
        for name, record in stored.items()
        if name.startswith("q:")
    ]
    peers, notes, again = [], [], {}
    for name, heard in times.items():
        word, colon, consumer = name.partition(":")
        if colon:
            notes.append(name)
            if word == _AGAIN:
                noted, _, new = heard.partition(" ")
                again[unescape(consumer)] = (int(noted), not new)
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
        again=again,
        notes=tuple(notes),
        max_length=None if length is None else int(length),
        max_age_ms=None if age is None else int(age),
        lost=int(stored.get("lost", 0)),
        trimmed=int(stored.get("trimmed", 0)),
    )


def _member(queue: str, record: str, heard: str) -> Member:
    state, mode, silence, heir, consumer, peer, since = record.split(" ")
    return Member(
        queue=queue,
        consumer=unescape(consumer),
        mode=mode,
        peer=None if peer == NOBODY else unescape(peer),
        silence_ms=int(silence),
        since_us=int(since),
        state=state,
        heir=heir == "1",
        heard=heard if mode == EACH else "",
    )
