"""Positions of streams, as Spark stores them in checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from .._protocol.keys import Namespace, QueueKeys
from ..errors import InvalidValue

if TYPE_CHECKING:
    from typing import Self

#: The form that is written. Form 1, of one queue and without this number, is read as well.
VERSION = 2


@dataclass(frozen=True, slots=True)
class Offset:
    """Position in one queue: a ledger and its last claim."""

    queue: str
    namespace: str
    ledger: str = ""
    claim: int = 0
    count: int = 0

    @classmethod
    def first(cls, keys: QueueKeys) -> Self:
        """Return the offset before all messages of a queue."""
        return cls(keys.queue, keys.namespace.name)

    @property
    def keys(self) -> QueueKeys:
        """The keys of the queue."""
        return Namespace(self.namespace).queue(self.queue)

    @property
    def qualified_name(self) -> str:
        """The name of the queue in the offset of a stream."""
        return qualified_name(self.keys)


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Position of a stream: one offset for each queue that it has claimed messages of."""

    #: By ``Offset.qualified_name``; queues without claims are absent.
    offsets: Mapping[str, Offset] = field(default_factory=dict)

    @classmethod
    def of_queues(cls, offsets: Iterable[Offset]) -> Self:
        """Return the position that consists of *offsets*."""
        return cls({offset.qualified_name: offset for offset in offsets if offset.ledger})

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Read an offset as Spark stored it, also one of a version that read one queue only."""
        try:
            if "v" not in stored:
                return cls.of_queues([Offset(**stored)])
            if stored["v"] != VERSION:
                raise InvalidValue(
                    f"the checkpoint was written by a later version (offsets of form "
                    f"{stored['v']!r}); update aiorsmq-ng"
                )
            offsets = {}
            for name, position in stored["parts"].items():
                namespace, _, queue = name.rpartition("/")
                offsets[name] = Offset(queue, namespace, **position)
            return cls(offsets)
        except (TypeError, KeyError, AttributeError):
            raise InvalidValue(
                "the checkpoint has no offset of a queue; is it one of another source?"
            ) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the offset as Spark stores it; equal offsets give equal texts."""
        positions = {}
        for name, offset in sorted(self.offsets.items()):
            position = asdict(offset)
            del position["queue"], position["namespace"]
            positions[name] = position
        return {"v": VERSION, "parts": positions}


def qualified_name(keys: QueueKeys) -> str:
    """Return the name of a queue in the offset of a stream. Names of queues have no slash."""
    return f"{keys.namespace.name}/{keys.queue}"


def is_offset(stored: object) -> bool:
    """Return True if *stored* looks like an offset of this source."""
    return isinstance(stored, dict) and (
        {"queue", "ledger", "claim"} <= set(stored) or {"v", "parts"} == set(stored)
    )
