"""Values that the broker and its client both write and read, each with its two ways together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from .._common.message_headers import decode_headers, header_bytes
from .._common.queue_defaults import dead_letter_queue
from ..models import Message, QueueAttributes
from . import v1_pb2 as pb

M = TypeVar("M", bound=Message)

#: Attributes of a queue that have the same name and unit on the wire.
_SAME_NAMES = (
    "maxsize", "totalrecv", "totalsent", "created", "modified", "msgs", "hiddenmsgs", "ready",
    "delayed", "leased", "exact",
)  # fmt: skip


def optional(message: Any, field: str, default: Any = None) -> Any:
    """Return an optional field; *default* if it is not given."""
    return getattr(message, field) if message.HasField(field) else default


def dead_letter_field(queue: str, dead: str) -> str:
    """Return the name of a dead-letter queue; empty for *queue*'s own, which needs no right."""
    return "" if dead == dead_letter_queue(queue) else dead


def write_message(found: Message) -> pb.Message:
    """Return a message for the wire."""
    return pb.Message(
        id=found.id, body=found.body, rc=found.rc, fr=found.fr, headers=dict(found.headers)
    )


def read_message(found: Any, kind: type[M] = Message, **more: Any) -> M:  # type: ignore[assignment]
    """Return a message of *kind* that ``write_message`` wrote, with what the kind knows besides."""
    return kind(found.id, found.body, found.rc, found.fr, headers=dict(found.headers), **more)


def message_size(found: Message) -> int:
    """Return the bytes of body and headers of a message."""
    return len(found.body) + header_bytes(found.headers)


def write_headers(texts: Sequence[bytes]) -> list[pb.Headers]:
    """Return headers as a send has them: for each stored text one message."""
    return [pb.Headers(values=decode_headers(text)) for text in texts]


def read_headers(found: Sequence[Any]) -> dict[str, str] | list[dict[str, str]] | None:
    """Return headers that ``write_headers`` wrote as ``send_many`` takes them."""
    if not found:
        return None
    read = [dict(one.values) for one in found]
    return read[0] if len(read) == 1 else read


def write_attributes(found: QueueAttributes) -> pb.QueueAttributes:
    """Return the attributes of a queue for the wire."""
    age = found.oldest_age
    return pb.QueueAttributes(
        vt=found.vt,
        delay=found.delay,
        oldest_age_ms=None if age is None else round(age * 1000),
        **{name: getattr(found, name) for name in _SAME_NAMES},
    )


def read_attributes(found: pb.QueueAttributes) -> QueueAttributes:
    """Return the attributes of a queue that ``write_attributes`` wrote."""
    age_ms = optional(found, "oldest_age_ms")
    return QueueAttributes(
        vt=_number(found.vt),
        delay=_number(found.delay),
        oldest_age=None if age_ms is None else age_ms / 1000,
        **{name: getattr(found, name) for name in _SAME_NAMES},
    )


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value
