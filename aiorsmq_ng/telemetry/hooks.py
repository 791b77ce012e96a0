"""What a client reports to its outlets: the base class of outlets, and the values that they get.

An outlet is an object that a client reports to. It turns the reports into metrics or spans. The
library has ``PrometheusMetrics``, ``OpenTelemetryMetrics`` and ``OpenTelemetryTraces``. All are
built on ``Telemetry``, and so can be an outlet of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from ..models import Message

#: Called once at the end of what was reported; the report is complete then.
After = Callable[[], object]

#: What OpenTelemetry calls the type of an operation; empty for all others.
OperationType = Literal["send", "receive", "settle", ""]

#: The verbs that have a type.
OPERATION_TYPES: dict[str, OperationType] = {
    "send": "send",
    "publish": "send",
    "resend": "send",
    "receive": "receive",
    "pop": "receive",
    "recover": "receive",
    "ack": "settle",
    "release": "settle",
    "extend": "settle",
    "reject": "settle",
    "forward": "settle",
}

#: What became of a message that a handler was called for, or would have been.
#: ``failed``: given back for a retry. ``released``: given back by the handler itself, or because
#: the worker ended. ``lost``: it is delivered again without that, because its lease was lost, its
#: settlement failed, or its handler did not end with the worker.
HandledOutcome = Literal["acked", "forwarded", "failed", "rejected", "released", "lost"]

#: The error of a call whose caller did not wait for the reply. The server may have done it.
CANCELLED = "cancelled"


class ClientCall(Struct, eq=False, kw_only=True):
    """One operation of a client: from its submission until its result is known.

    The batches of calls that share a round trip, and retries, are below this. A receive that waits
    makes several.
    """

    #: The verb: ``send``, ``publish``, ``receive``, ``pop``, ``recover``, ``ack``, ``release``,
    #: ``extend``, ``reject``, ``forward``, ``delete``, ``resend``, or another operation's name.
    operation: str
    type: OperationType
    namespace: str
    queue: str
    #: Ids of the messages that it is about: those to settle; at the end, those sent or received.
    ids: Sequence[str] = ()
    #: Number of messages that it is about; for a receive it is known at the end.
    messages: int = 0
    #: True for several messages by one call, also if there is one, or none.
    batch: bool = False
    #: Headers to send with the messages. An outlet may add to them when the call begins. Of a
    #: message that has one of these names already, all headers stay as they are.
    headers: dict[str, str] = field(default_factory=dict)
    #: True if the program has given headers to one of the messages.
    has_headers: bool = False
    #: Known at the end: seconds, the code of the error, and the number of messages received, by
    #: queue.
    duration: float = 0.0
    error: str | None = None
    received: Mapping[str, int] = field(default_factory=dict)
    #: The messages themselves, of a pop or a recover only; those of a receive are in ``Receive``.
    found: Sequence[Message] = ()


class Receive(Struct, eq=False, kw_only=True):
    """A receive as the program asks for it: with the wait, and for several queues at once.

    Not what a worker or a consumer leases ahead. The round trips of a receive are a ``ClientCall``
    each.
    """

    #: ``receive`` or ``pop``.
    operation: str
    namespace: str
    queues: Sequence[str]
    #: How many messages are asked for, and how long it may wait for the first, in seconds.
    count: int
    wait: float = 0.0
    #: Known at the end.
    messages: Sequence[Message] = ()
    error: str | None = None


class Process(Struct, eq=False, kw_only=True):
    """The work on a message, or on a batch: a handler of a worker, or a block ``async with``."""

    namespace: str
    queue: str
    messages: Sequence[Message]
    #: Name of the handler; empty for a block.
    handler: str = ""
    #: Seconds from the send of each message to the start; only of first deliveries.
    waits: Sequence[float] = ()
    #: Known at the end: seconds, and the name of the class of what it raised.
    duration: float = 0.0
    error: str | None = None


class Handled(Struct, frozen=True, kw_only=True):
    """What became of messages that a worker has handled; each delivery is counted once."""

    namespace: str
    queue: str
    outcome: HandledOutcome
    count: int = 1


class ObservedClient(Protocol):
    """A client, for gauges that are read when an outlet needs them."""

    @property
    def namespace(self) -> str:
        """The namespace: the prefix of every key."""
        ...

    @property
    def is_open(self) -> bool:
        """True from its first call until it is closed."""
        ...

    @property
    def is_connected(self) -> bool:
        """True if the server has answered, and still does."""
        ...


class ObservedWorker(Protocol):
    """A worker, for gauges that are read when an outlet needs them."""

    @property
    def namespace(self) -> str:
        """The namespace of its client."""
        ...

    @property
    def queues(self) -> Sequence[str]:
        """The queues of its handlers."""
        ...

    @property
    def running(self) -> Mapping[str, int]:
        """Handlers running now, by queue; those that are stuck excluded."""
        ...

    @property
    def stuck(self) -> Mapping[str, int]:
        """Handlers that ignore their cancellation, by queue."""
        ...

    @property
    def prefetched(self) -> Mapping[str, int]:
        """Messages that are leased ahead, by queue."""
        ...


class Telemetry:
    """One outlet: an object that a client with ``RSMQ(telemetry=[outlet, ...])`` reports to.

    It is the base class of all outlets. Each method of it does nothing, so an outlet overrides
    those that it needs.

    Methods are called in the event loop of the client, and must not block. What they raise never
    fails a call; the first error of each type is logged. Methods that return a function are called
    when something begins, in the context of the program that began it (an empty one for what the
    client does in the background, such as renewals), and the function is called when it ends.
    """

    def on_client(self, client: ObservedClient) -> None:
        """Note *client*, which reports here. Keep no reference that keeps it alive."""

    def on_call(self, call: ClientCall) -> After | None:
        """Note that the operation *call* begins."""

    def on_retry(self, operation: str, namespace: str, queue: str) -> None:
        """Note that a round trip for *operation* on *queue* of *namespace* is made again."""

    def on_receive(self, receive: Receive) -> After | None:
        """Note that the program asks for messages by *receive*."""

    def on_process(self, process: Process) -> AbstractContextManager[Any] | None:
        """Return a context in which *process*, a handler or a block, runs, in its task."""

    def on_handled(self, handled: Handled) -> None:
        """Note what became of messages: *handled*."""

    def on_lease_lost(self, namespace: str, queue: str) -> None:
        """Note that a lease in *queue* of *namespace* is lost: its message is delivered again."""

    def on_worker(self, worker: ObservedWorker) -> After | None:
        """Note that *worker* starts."""
