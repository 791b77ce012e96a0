"""Values that several calls have in common, from requests to protobuf and back."""

from __future__ import annotations

from typing import Any, TypeVar

from .._common.queue_defaults import dead_letter_queue
from ..models import Message, QueueAttributes

M = TypeVar("M", bound=Message)

#: Attributes that have the same name and unit on the wire.
_SAME_NAMES = (
    *("maxsize", "totalrecv", "totalsent", "created", "modified", "msgs", "hiddenmsgs"),
    *("ready", "delayed", "leased", "exact"),
)


def of_queue(request: Any, **fields: Any) -> dict[str, Any]:
    """Return the fields of a request about one queue."""
    return {"queue": request.keys.queue, **fields}


def stored_as(request: Any) -> dict[str, Any]:
    """Return the fields for what is stored on a queue; ``None`` is not given."""
    return {
        "vt_ms": None if request.vt is None else request.vt * 1000,
        "delay_ms": None if request.delay is None else request.delay * 1000,
        "maxsize": request.maxsize,
    }


def given(ms: int) -> int | None:
    """Return milliseconds, or ``None`` for -1: what is not given is the queue's stored value."""
    return None if ms < 0 else ms


def dead_letter_field(queue: str, dead: str) -> str:
    """Return the name of a dead-letter queue; empty for *queue*'s own, which needs no right."""
    return "" if dead == dead_letter_queue(queue) else dead


def optional(found: Any, name: str) -> Any:
    """Return a field, or ``None`` if it is not given."""
    return getattr(found, name) if found.HasField(name) else None


def to_message(found: Any, kind: type[M] = Message, **more: Any) -> M:  # type: ignore[assignment]
    """Return a message of *kind*, with what the kind knows besides."""
    return kind(found.id, found.body, found.rc, found.fr, **more)


def to_attributes(found: Any) -> QueueAttributes:
    """Return the attributes of a queue."""
    age_ms = optional(found, "oldest_age_ms")
    return QueueAttributes(
        vt=_number(found.vt),
        delay=_number(found.delay),
        oldest_age=None if age_ms is None else age_ms / 1000,
        **{name: getattr(found, name) for name in _SAME_NAMES},
    )


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value
