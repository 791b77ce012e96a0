"""Every error this library raises: one tree, each class named after the fact it states.

``code`` is RSMQ's own word where RSMQ has one, so that services which share queues with other
RSMQ clients can compare errors by the same word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "ClaimLost",
    "DurabilityUnmet",
    "InvalidValue",
    "LeaseLost",
    "MessageTooLong",
    "NoAttributeSupplied",
    "QueueCorrupt",
    "QueueExists",
    "QueueNotFound",
    "RSMQError",
    "RowsDiffer",
    "SendUnknown",
    "ServerOutOfMemory",
    "SnapshotGone",
    "Unavailable",
]


class RSMQError(Exception):
    """Base of all errors of this library."""

    code: str = "rsmqError"

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes whatever the constructor takes; a token stays at home."""
        state = {name: value for name, value in self.__dict__.items() if name != "token"}
        return _rebuild, (type(self), self.args, state)


def _rebuild(kind: type[RSMQError], args: tuple[Any, ...], state: dict[str, Any]) -> RSMQError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class QueueExists(RSMQError):
    """Raised by ``create_queue`` for a queue that is there already."""

    code = "queueExists"

    def __init__(self, queue: str, ns: str) -> None:
        super().__init__(
            f"queue {queue!r} exists already in namespace {ns!r}; pass exist_ok=True to accept it"
        )
        self.queue = queue
        self.ns = ns


class QueueNotFound(RSMQError):
    """Raised by operations on a queue that does not exist (or is only half there).

    Deleting a message is the exception, as in RSMQ: there is simply nothing to delete.
    """

    code = "queueNotFound"

    def __init__(self, queue: str, ns: str) -> None:
        super().__init__(
            f"queue {queue!r} does not exist in namespace {ns!r}; create it with create_queue()"
        )
        self.queue = queue
        self.ns = ns


class MessageTooLong(RSMQError):
    """Raised when a body has more bytes than the queue's ``maxsize`` allows; nothing was sent."""

    code = "messageTooLong"

    def __init__(self, queue: str, size: int, maxsize: int) -> None:
        super().__init__(
            f"body of {size} bytes exceeds the maxsize of {maxsize} bytes of queue {queue!r}"
        )
        self.queue = queue
        self.size = size
        self.maxsize = maxsize


class InvalidValue(RSMQError, ValueError):
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
        self.code = code


class NoAttributeSupplied(RSMQError, ValueError):
    """Raised by ``set_attributes`` when it was given nothing to set."""

    code = "noAttributeSupplied"

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"no attribute to set on queue {queue!r}; give at least one of vt, delay, maxsize"
        )
        self.queue = queue


class LeaseLost(RSMQError):
    """Raised when a receipt is no longer the newest one; the operation changed nothing.

    ``gone`` tells the two causes apart: the message does not exist any more (true), or somebody
    has received it since (false).
    """

    code = "leaseLost"

    def __init__(self, queue: str, id: str, *, gone: bool) -> None:
        cause = "it is no longer in the queue" if gone else "somebody has received it since"
        super().__init__(f"lease on message {id} of queue {queue!r} is lost: {cause}")
        self.queue = queue
        self.id = id
        self.gone = gone


class ServerOutOfMemory(RSMQError):
    """Raised when Redis is out of memory and refuses to store more; nothing was stored."""

    code = "serverOutOfMemory"


class QueueCorrupt(RSMQError):
    """Raised when the keys of a queue do not have RSMQ's layout (wrong type, bad number)."""

    code = "queueCorrupt"

    def __init__(self, queue: str, detail: str) -> None:
        super().__init__(f"queue {queue!r} is not a sound RSMQ queue: {detail}")
        self.queue = queue
        self.detail = detail


class Unavailable(RSMQError):
    """Raised when Redis could not be reached, or refused the client, within the deadline.

    ``executed`` is ``False`` when the operation certainly did not run, ``None`` when its reply
    was lost and nobody can tell. ``transient`` is true for an outage that may end by itself, false
    for a refusal (wrong password, closed client) that will not.
    """

    code = "unavailable"

    def __init__(
        self, message: str, *, executed: bool | None = False, transient: bool = False
    ) -> None:
        super().__init__(message)
        self.executed = executed
        self.transient = transient


class WrongContext(Unavailable):
    """Raised for a call from another event loop, thread or process than the client's own.

    Nothing was written. A client belongs to the event loop of its first call: create one per loop,
    and after a fork.
    """

    code = "wrongContext"


class SendToken:
    """Stands for a send whose outcome is not known; ``Queue.resend`` takes it."""

    __slots__ = ()


class SendUnknown(Unavailable):
    """Raised when the outcome of a send could not be learnt: it is stored zero or one times.

    ``Queue.resend(error.token)`` asks again, in this process and within 55 minutes, and never
    makes a second copy. ``token`` is ``None`` if the client was closed meanwhile.
    """

    code = "sendUnknown"
    token: SendToken | None = None

    def __init__(
        self, message: str, *, executed: bool | None = None, transient: bool = True
    ) -> None:
        super().__init__(message, executed=executed, transient=transient)


class DurabilityUnmet(RSMQError):
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
        self.wanted = wanted
        self.reached = reached
        self.ids = tuple(ids)


class ClaimLost(RSMQError):
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
        self.queue = queue
        self.ledger = ledger
        self.cause = cause


class RowsDiffer(RSMQError):
    """Raised when a partition that Spark runs again has other rows than before; nothing was sent.

    Sort or cache the DataFrame, or write with ``delivery=staged``.
    """

    code = "rowsDiffer"


class SnapshotGone(RSMQError):
    """Raised when a DataFrame is used after the snapshot that it reads has expired; load again."""

    code = "snapshotGone"
