"""Every error this library raises, in three families under ``RSMQError``.

- ``ServerError``: the server answered, and the answer is no. Another call, or another right, helps.
- ``UsageError``: the program used the library in a way that cannot work. The program must change.
- ``Unavailable``: the server could not be reached, or its reply was lost. Trying again may help.

``code`` is RSMQ's own word where RSMQ has one, so that services which share queues with other
RSMQ clients can compare errors by the same word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "AccessDenied",
    "ClaimLost",
    "ClientClosed",
    "DurabilityUnmet",
    "InvalidValue",
    "LeaseLost",
    "MessageTooLong",
    "NoAttributeSupplied",
    "NotSupported",
    "QueueCorrupt",
    "QueueExists",
    "QueueNotFound",
    "RSMQError",
    "RowsDiffer",
    "SendToken",
    "SendUnknown",
    "ServerError",
    "ServerOutOfMemory",
    "SnapshotGone",
    "Unavailable",
    "UsageError",
    "WrongContext",
]


class RSMQError(Exception):
    """Base of all errors of this library."""

    #: RSMQ's own word where it has one.
    code: str = "rsmqError"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields, not the constructor; a token belongs to this process."""
        state = {name: value for name, value in self.__dict__.items() if name != "token"}
        return _rebuild, (type(self), self.args, state)


def _rebuild(kind: type[RSMQError], args: tuple[Any, ...], state: dict[str, Any]) -> RSMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ServerError(RSMQError):
    """Base of the errors that the server answered with: it could be reached, and it said no.

    Raised directly for an answer that this library does not know.
    """

    code = "serverError"


class UsageError(RSMQError):
    """Base of the errors in how the library is used; nothing was written.

    The same call fails in the same way until the program, its settings or its server change.
    """

    code = "usageError"


class QueueExists(ServerError):
    """Raised by ``create_queue`` for a queue that is there already."""

    code = "queueExists"

    def __init__(self, queue: str, ns: str) -> None:
        super().__init__(
            f"queue {queue!r} exists already in namespace {ns!r}; pass exist_ok=True to accept it"
        )
        #: Name of the queue.
        self.queue = queue
        #: Its namespace.
        self.ns = ns


def _how_to_create(queue: str) -> str:
    """Return the call that makes *queue*, by its name.

    A subscription's queue that ``create_queue`` makes gets no messages: its topic does not know it.
    """
    # As _protocol.topic_names writes it; nothing is imported here.
    parts = queue.split("__")
    if len(parts) in (2, 3) and parts[1] and not queue.endswith("-dead"):
        return (
            "by its name it is a subscription's: topic.subscribe() or subscription.join() makes it"
        )
    return "create it with create_queue()"


class QueueNotFound(ServerError):
    """Raised by operations on a queue that does not exist (or is only half there).

    Deleting a message is the exception, as in RSMQ: there is simply nothing to delete.
    """

    code = "queueNotFound"

    def __init__(self, queue: str, ns: str, hint: str | None = None) -> None:
        hint = hint or _how_to_create(queue)
        super().__init__(f"queue {queue!r} does not exist in namespace {ns!r}; {hint}")
        #: Name of the queue.
        self.queue = queue
        #: Its namespace.
        self.ns = ns


class MessageTooLong(ServerError):
    """Raised when a body has more bytes than the queue's ``maxsize`` allows; nothing was sent."""

    code = "messageTooLong"

    def __init__(self, queue: str, size: int, maxsize: int) -> None:
        super().__init__(
            f"body of {size} bytes exceeds the maxsize of {maxsize} bytes of queue {queue!r}"
        )
        #: Name of the queue.
        self.queue = queue
        #: Bytes of the body.
        self.size = size
        #: The largest body that the queue takes, in bytes.
        self.maxsize = maxsize


class InvalidValue(UsageError, ValueError):
    """Raised for a name, id, body or number that RSMQ does not allow; nothing was sent.

    ``code`` says what kind of fault it is: ``invalidValue``, ``invalidFormat``,
    ``missingParameter`` or ``messageNotString``.
    """

    CODES: ClassVar[frozenset[str]] = frozenset(
        {"invalidValue", "invalidFormat", "missingParameter", "messageNotString"}
    )
    code = "invalidValue"

    def __init__(self, message: str, *, code: str = "invalidValue") -> None:
        super().__init__(message)
        #: ``invalidValue``, ``invalidFormat``, ``missingParameter`` or ``messageNotString``.
        self.code = code


class NoAttributeSupplied(UsageError, ValueError):
    """Raised by ``set_attributes`` when it was given nothing to set."""

    code = "noAttributeSupplied"

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"no attribute to set on queue {queue!r}; give at least one of vt, delay, maxsize"
        )
        #: Name of the queue.
        self.queue = queue


class LeaseLost(ServerError):
    """Raised when a receipt is no longer the newest one; the operation changed nothing.

    ``gone`` names the cause: the message does not exist any more (true), or another consumer has
    received it since (false).
    """

    code = "leaseLost"

    def __init__(self, queue: str, id: str, *, gone: bool, cause: str | None = None) -> None:
        known = "it is no longer in the queue" if gone else "another consumer has received it since"
        cause = cause or known
        super().__init__(f"lease on message {id} of queue {queue!r} is lost: {cause}")
        #: Name of the queue.
        self.queue = queue
        #: Id of the message.
        self.id = id
        #: True if the message is not in the queue any more.
        self.gone = gone


class ServerOutOfMemory(ServerError):
    """Raised when Redis is out of memory and refuses to store more; nothing was stored."""

    code = "serverOutOfMemory"


class QueueCorrupt(ServerError):
    """Raised when the keys of a queue do not have RSMQ's layout (wrong type, bad number).

    *layout* is the layout that they should have, ``rmq`` for a queue of rmq.
    """

    code = "queueCorrupt"

    def __init__(self, queue: str, detail: str, *, layout: str = "RSMQ") -> None:
        super().__init__(f"queue {queue!r} is not a sound {layout} queue: {detail}")
        #: Name of the queue.
        self.queue = queue
        #: What is wrong with it.
        self.detail = detail
        #: The layout that its keys should have.
        self.layout = layout


class AccessDenied(ServerError):
    """Raised when the server refuses the client's user, password or token, or one of its rights.

    Nothing was written. Trying again does not help until the right is granted.
    """

    code = "accessDenied"


class NotSupported(UsageError):
    """Raised for what the server at this address cannot do; nothing was written.

    Examples: an operation that a broker does not offer, a command that an old server does not know,
    a cluster without a namespace in braces, a server whose settings would delete queues.
    """

    code = "notSupported"


class ClientClosed(UsageError):
    """Raised for a call on a client that is closed, or was closed before the call was made.

    The call certainly did not run. A call that was in flight when the client was closed raises
    ``Unavailable`` or ``SendUnknown`` with ``executed=None`` instead.
    """

    code = "clientClosed"

    def __init__(self, message: str = "the client is closed; open a new one") -> None:
        super().__init__(message)


class WrongContext(UsageError):
    """Raised for a call from another event loop, thread or process than the client's own.

    Nothing was written. A client belongs to the event loop of its first call: create one per loop,
    and after a fork.
    """

    code = "wrongContext"


class Unavailable(RSMQError):
    """Raised when the server could not be reached within the deadline, or its reply was lost.

    ``executed`` is ``False`` when the operation certainly did not run, ``None`` when its reply
    was lost and the outcome is not known. ``transient`` is true for an outage that may end by
    itself, false for one that will not, such as a certificate that is not trusted.
    """

    code = "unavailable"

    def __init__(
        self, message: str, *, executed: bool | None = False, transient: bool = False
    ) -> None:
        super().__init__(message)
        #: True or False if the call was or was not executed; ``None`` if that is unknown.
        self.executed = executed
        #: True if trying again later may succeed.
        self.transient = transient


class SendToken:
    """Stands for a send whose outcome is not known; ``Queue.resend`` takes it."""

    __slots__ = ()


class SendUnknown(Unavailable):
    """Raised when the outcome of a send could not be learnt: it is stored zero or one times.

    ``Queue.resend(error.token)`` asks again, in this process and within 55 minutes, and never
    makes a second copy. ``token`` is ``None`` if the client was closed meanwhile.
    """

    code = "sendUnknown"
    #: What ``Queue.resend`` takes; ``None`` if the client was closed meanwhile.
    token: SendToken | None = None

    def __init__(
        self, message: str, *, executed: bool | None = None, transient: bool = True
    ) -> None:
        super().__init__(message, executed=executed, transient=transient)


class DurabilityUnmet(ServerError):
    """Raised when a message was stored, but not as safely as was asked for.

    ``reached`` is the level that was reached, ``ids`` are the messages, which stay stored.
    Raised by ``open`` (with no ids) if the server cannot reach the level at all.
    """

    code = "durabilityUnmet"

    def __init__(
        self, wanted: str, reached: str, ids: Sequence[str] = (), *, detail: str | None = None
    ) -> None:
        cause = detail or "the messages are stored, and may be lost with the server"
        super().__init__(f"durability {wanted!r} was not reached, only {reached!r}: {cause}")
        #: The level that was asked for.
        self.wanted = wanted
        #: The level that was reached.
        self.reached = reached
        #: The messages, which stay stored.
        self.ids = tuple(ids)


class ClaimLost(ServerError):
    """Raised by a Spark query that may not go on with the messages it claimed.

    ``cause`` is ``fenced`` (another run of the query took its place), ``ledgerGone`` or
    ``claimGone``.
    """

    code = "claimLost"

    _CAUSES: ClassVar[dict[str, str]] = {
        "fenced": "another run took its place",
        "ledgerGone": "its ledger is gone: it expired, was released, or redis lost it",
        "claimGone": "a claim of it is gone: it was acknowledged or released, or redis lost it",
    }

    def __init__(self, queue: str, ledger: str, cause: str) -> None:
        super().__init__(f"reader {ledger!r} of queue {queue!r}: {self._CAUSES.get(cause, cause)}")
        #: Name of the queue.
        self.queue = queue
        #: Name of the reader whose claim it was.
        self.ledger = ledger
        #: ``fenced``, ``ledgerGone`` or ``claimGone``.
        self.cause = cause


class RowsDiffer(ServerError):
    """Raised when a partition of Spark runs again with other rows; nothing was sent."""

    code = "rowsDiffer"


class SnapshotGone(ServerError):
    """Raised when the snapshot that a DataFrame reads from is gone."""

    code = "snapshotGone"
