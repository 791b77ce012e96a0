"""What operations return: messages and snapshots of queues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self, TypeVar, overload

from . import codec
from ._common.message_headers import decode_headers
from ._common.message_ids import sent_ms
from .errors import InvalidValue

T = TypeVar("T")

#: Where a message is: it can be received, waits for its time, or is in a consumer's hands.
MessageState = Literal["ready", "delayed", "leased"]
#: ``shared``: a consumer's peers share the messages; ``broadcast``: every peer gets its own copy.
SubscriptionMode = Literal["shared", "broadcast"]
#: ``on``; or ``left``: it has ended, gets nothing new, and holds messages for its return, or for
#: another peer.
SubscriptionState = Literal["on", "left"]

#: What ``RSMQ.doctor`` can notice; docs/guides/doctor.md explains each.
FindingKind = Literal[
    "phantom",
    "not_an_id",
    "orphan",
    "leak",
    "ghost",
    "headless",
    "vacant",
    "unlisted",
    "absent",
    "wrong_type",
    "bad_number",
    "not_a_queue",
    "other_format",
    "hidden_by_clock",
    "too_far",
    "long_hidden",
    "sent_in_future",
    "moved",
    "milliseconds",
    "fraction",
    "unknown_field",
    "odd_name",
    "scan_refused",
    "clock_offset",
    "eviction",
    "volatile_eviction",
    "no_persistence",
    "fsync",
    "no_maxmemory",
    "memory_low",
    "facts_refused",
    "facts_unknown",
]
#: ``info``: a remark; ``warning``: look at it; ``error``: messages are lost or calls fail.
Severity = Literal["info", "warning", "error"]

#: Headers of a message that has none.
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _aware(ms: float) -> datetime | None:
    """Return a time in epoch milliseconds as an aware datetime; None if that has no such year."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except (OverflowError, ValueError):
        return None


class Message:
    """A message as it was stored.

    ``rc`` is the receive count including the delivery that returned it, ``fr`` the time of the
    first receive in epoch milliseconds; both are 0 for a message that was only looked at and has
    never been received. Not a dataclass, because one is made for every message received.
    """

    __slots__ = ("_codec", "_headers", "body", "fr", "id", "rc")

    def __init__(
        self, id: str, body: bytes, rc: int, fr: int, headers: bytes | Mapping[str, str] = b""
    ) -> None:
        #: Its id: 32 characters of RSMQ.
        self.id = id
        #: Its body as it was stored.
        self.body = body
        #: How often it was received, with the delivery that returned it.
        self.rc = rc
        #: When it was first received, epoch milliseconds; 0 if never.
        self.fr = fr
        self._codec: codec.Codec = codec.JSON
        #: As they are stored, until they are asked for.
        self._headers = headers

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers it was sent with: names and texts; empty if there are none."""
        found = self._headers
        if not found:
            return _NO_HEADERS
        if isinstance(found, bytes):
            found = self._headers = decode_headers(found)
        return MappingProxyType(dict(found))

    @property
    def sent(self) -> float | None:
        """When it was sent, in epoch milliseconds; ``None`` if its id has no time."""
        return sent_ms(self.id)

    @property
    def sent_at(self) -> datetime | None:
        """When it was sent, as an aware datetime; ``None`` if its id has no time."""
        return None if (sent := sent_ms(self.id)) is None else _aware(sent)

    @property
    def first_received_at(self) -> datetime | None:
        """When it was first received, as an aware datetime; ``None`` if it never was."""
        return _aware(self.fr) if self.fr else None

    @property
    def text(self) -> str:
        """The body as UTF-8 text; ``UnicodeDecodeError`` if it is not text."""
        return self.body.decode()

    @overload
    def json(self, type: None = None) -> Any: ...
    @overload
    def json(self, type: type[T]) -> T: ...
    def json(self, type: Any = None) -> Any:
        """Return the body decoded from JSON, checked against *type* if one is given.

        Plain JSON, with any codec of the client; ``decode`` uses the codec. *type* may be
        anything msgspec understands: a dataclass, a TypedDict, ``list[int]``; for a
        model of pydantic, use ``decode``. Raises ``InvalidValue`` if the body is not JSON or does
        not fit.

        Args:
            type: what to check the value against; ``None`` for plain JSON values.
        """
        try:
            return codec.JSON.decode(self.body, Any if type is None else type)
        except InvalidValue as error:
            if type is None or not codec.holds_model(type, set()):
                raise
            fault = str(error)
        raise InvalidValue(f"{fault}; json() reads no models of pydantic: use decode()")

    @overload
    def decode(self, type: type[T]) -> T: ...
    @overload
    def decode(self, type: Any) -> Any: ...
    def decode(self, type: Any) -> Any:
        """Return the body as *type*, read by the client's codec as a worker reads it.

        ``str`` and ``bytes`` are the body as it is, as ``send`` stores them. Else *type* is what
        a handler may be annotated with: what msgspec understands, a dataclass, a model of pydantic,
        a union, a list of models. Raises ``InvalidValue`` if the body does not fit.

        Args:
            type: what to decode: anything that msgspec or pydantic understands.
        """
        return codec.from_body(self.body, type, self._decoder())

    def with_codec(self, codec: codec.Codec) -> Self:
        """Let ``decode`` use *codec* from now on; return the same message.

        Args:
            codec: what ``decode`` uses.
        """
        self._codec = codec
        return self

    def _decoder(self) -> codec.Codec:
        return self._codec

    def __repr__(self) -> str:
        """Show everything but the body, which may be private."""
        return f"<{type(self).__name__} {self.id} rc={self.rc} {len(self.body)} bytes>"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that was moved to a dead-letter queue."""

    #: The message.
    message: Message
    #: The queue that it was received from.
    queue: str
    #: The queue that it was moved to.
    dead_letter: str
    #: Why; empty if its holder gave no reason.
    reason: str
    #: Whether a receive moved it, because it was delivered too often and never settled.
    by_receive: bool = False


class Sent(str):
    """The id of a message that was sent with a dedup key, or with a durability above ``memory``.

    A ``str`` that also knows whether the message was stored before, and how safely it is.
    """

    #: The level of durability that was reached: ``memory``, ``replicated:n`` or ``fsynced``.
    durability: str = "memory"
    #: Whether nothing was stored by this send, because a message with its dedup key was before: the
    #: id is that one's, also if its body is another.
    duplicate: bool = False

    def at(self: str, durability: str) -> Sent:
        """Return the same id with another level.

        Args:
            durability: the level reached.
        """
        sent = Sent(self)
        sent.duplicate = getattr(self, "duplicate", False)
        sent.durability = durability
        return sent


class PendingMessage(Message):
    """A leased message as ``Queue.pending`` shows it. Its holder is not known.

    ``idle`` are the seconds since the last delivery, ``deliveries`` how often it was delivered
    (RSMQ's ``rc``).
    """

    __slots__ = ("_delivered_ms", "idle")

    def __init__(
        self,
        id: str,
        body: bytes,
        rc: int,
        fr: int,
        delivered_ms: int,
        idle_ms: int,
        headers: bytes | Mapping[str, str] = b"",
    ) -> None:
        super().__init__(id, body, rc, fr, headers)
        self._delivered_ms = delivered_ms
        #: Seconds since the last delivery.
        self.idle = idle_ms / 1000

    @property
    def delivered_at(self) -> datetime | None:
        """When it was last delivered, by the server's clock; an aware datetime."""
        return _aware(self._delivered_ms)

    @property
    def deliveries(self) -> int:
        """How often it was delivered."""
        return self.rc


class ScannedMessage(Message):
    """A message as ``Queue.scan`` shows it, with its place in the order of the queue.

    ``state`` is that by the server's clock at the moment of the look. ``score`` is the raw number
    by which RSMQ orders messages: visible-at in epoch milliseconds.
    """

    __slots__ = ("score", "state")

    def __init__(
        self,
        id: str,
        body: bytes,
        rc: int,
        fr: int,
        headers: bytes | Mapping[str, str] = b"",
        *,
        visible_at: float,
        state: MessageState,
    ) -> None:
        super().__init__(id, body, rc, fr, headers)
        #: Visible-at in epoch milliseconds: RSMQ's order.
        self.score = visible_at
        #: Its state by the server's clock when it was read.
        self.state: MessageState = state

    @property
    def visible_at(self) -> datetime | None:
        """When it becomes or became visible, as an aware datetime; ``None`` beyond all years."""
        return _aware(self.score)


class RecoverPlace(NamedTuple):
    """Where ``Gateway.recover_page`` goes on."""

    #: ``None``: there is no next page.
    at: int | None
    #: When the first page was read, epoch milliseconds of the server.
    started_ms: int


@dataclass(frozen=True, slots=True)
class QueueAttributes:
    """What is stored on a queue, and how many messages are in which state.

    The first nine are RSMQ's. ``hiddenmsgs`` is exact to the millisecond; every message is ready,
    delayed (never received, not due yet) or leased (received, its lease runs).
    """

    #: Default visibility timeout, seconds. Other clients may have stored fractions.
    vt: float
    #: Default delay of new messages, seconds.
    delay: float
    #: Largest body in bytes; -1 for no limit.
    maxsize: int
    #: How often messages were received or popped, redeliveries included.
    totalrecv: int
    #: How many messages were sent.
    totalsent: int
    #: When the queue was created, epoch seconds; 0 if the creator did not say.
    created: int
    #: When the queue was last changed, epoch seconds.
    modified: int
    #: Messages in the queue.
    msgs: int
    #: Messages that are not visible now.
    hiddenmsgs: int
    #: Messages that can be received now.
    ready: int
    #: Messages that were never received and are not due yet.
    delayed: int
    #: Messages that were received and whose leases run.
    leased: int
    #: False when more than 4096 messages are hidden: then ``leased`` is an upper bound.
    exact: bool
    #: Seconds for which the message at the head has been visible; ``None`` if none is ready.
    oldest_age: float | None


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A client that consumes from a queue, as it last reported."""

    #: Host, process and a random part.
    name: str
    #: Iterations and workers it runs on this queue.
    consumers: int
    #: Ids of messages whose leases it renews (at most 100 are reported).
    holding: tuple[str, ...]
    #: Seconds since its last sign of life; it gives one every 10 s.
    idle: float


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """One of several that read a subscription."""

    #: The name that it gave.
    name: str
    #: Seconds since its last sign of life.
    idle: float


@dataclass(frozen=True, slots=True)
class SubscriptionInfo:
    """One subscription of a topic, seen at one moment."""

    #: Name of the consumer.
    consumer: str
    #: ``shared``: the consumer's peers share it; ``broadcast``: it is the copy of one peer.
    mode: SubscriptionMode
    #: Name of its queue.
    queue: str
    #: ``on``; or ``left``: it has ended, gets nothing new, and holds messages for its return, or
    #: for another peer.
    state: SubscriptionState
    #: Those that gave their names; for ``broadcast`` the one it belongs to.
    peers: tuple[PeerInfo, ...]
    #: Seconds without a sign of life after which a peer counts as gone.
    peer_timeout: float
    #: Its queue; ``None`` if another client has deleted that.
    attributes: QueueAttributes | None


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its subscriptions, seen at one moment."""

    #: Name of the topic.
    name: str
    #: Name of its own queue, where messages wait for the first subscription.
    queue: str
    #: Messages that wait there.
    waiting: int
    #: Most messages that wait there; ``None`` for any number.
    max_length: int | None
    #: Seconds for which a message waits there; ``None`` for any time.
    max_age: float | None
    #: Messages that went because of these limits.
    trimmed: int
    #: Subscriptions that ended because another client deleted their queue.
    lost: int
    #: All subscriptions.
    subscriptions: tuple[SubscriptionInfo, ...]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue, its dead letters and its living consumers, seen at one moment."""

    #: The queue.
    attributes: QueueAttributes
    #: Messages in the dead-letter queue.
    dead: int
    #: Clients that consume from it.
    consumers: tuple[ConsumerInfo, ...]

    @property
    def ready(self) -> int:
        """Messages waiting for a consumer."""
        return self.attributes.ready

    @property
    def leased(self) -> int:
        """Messages that are leased."""
        return self.attributes.leased

    @property
    def delayed(self) -> int:
        """Messages that are not due yet."""
        return self.attributes.delayed

    @property
    def oldest_age(self) -> float | None:
        """Seconds for which the message at the head has been visible."""
        return self.attributes.oldest_age


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that ``RSMQ.doctor`` noticed. What each ``kind`` means: docs/guides/doctor.md."""

    #: The queue, or ``None`` for something about the server or the namespace.
    queue: str | None
    #: What was noticed.
    kind: FindingKind
    #: How many messages, fields or keys it is about.
    count: int
    #: How bad it is.
    severity: Severity
    #: One sentence: what is wrong, and what to do about it or what was done.
    detail: str
    #: Whether it can be repaired.
    fixable: bool = False
    #: Whether this run has repaired it.
    fixed: bool = False
    #: A few of the ids or names it is about.
    ids: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        """True if there is something left to do: more than a remark, and not repaired."""
        return self.severity != "info" and not self.fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the server reports about itself; ``None`` for what it does not report to this user."""

    #: ``redis`` or ``valkey``.
    engine: str | None = None
    #: Version of the engine.
    version: str | None = None
    #: What it does when its memory is full (``maxmemory-policy``).
    eviction_policy: str | None = None
    #: Bytes; 0 for no limit.
    maxmemory: int | None = None
    #: Bytes in use.
    used_memory: int | None = None
    #: Whether it keeps an append-only file.
    aof: bool | None = None
    #: How often the append-only file is synced.
    appendfsync: str | None = None
    #: When it makes snapshots, as in its configuration; empty: never.
    snapshots: str | None = None
    #: Replicas connected to it.
    replicas: int | None = None
    #: Whether it is a node of a cluster.
    cluster: bool | None = None
    #: Its clock minus the local one, seconds.
    clock_offset: float | None = None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What a client knows about its server from the calls that were made anyway."""

    #: When the server last replied, be it with an error; ``None`` if it never did.
    last_reply: datetime | None
    #: True if the server has left a call without a reply for a second, until it replies again. The
    #: log has a line for each.
    away: bool
    #: Why the last attempt failed; ``None`` if it had a reply.
    error: str | None


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What ``RSMQ.doctor`` looked at and noticed."""

    #: What the server reports about itself.
    server: ServerFacts
    #: The queues looked at.
    queues: list[str] = field(default_factory=list)
    #: What was noticed, by queue.
    findings: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether nothing is left to do: every finding is a remark or was repaired."""
        return not any(finding.open for finding in self.findings)
