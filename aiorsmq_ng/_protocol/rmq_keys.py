"""Every key of rmq, in both layouts. The prefix ``rmq::`` is fixed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..errors import InvalidValue, NotSupported, QueueCorrupt, RSMQError

#: What foreign data leads to: a key of another type, or a name that splits a queue of a cluster.
FOREIGN = (QueueCorrupt, NotSupported)

_DAMAGE = {
    "wrongType": "one of its keys has another type than rmq gives it",
    "scriptFailed": "a script failed on what its keys hold",
}
#: Longer names than this are a mistake, and would be copied into every key.
_LONGEST_NAME = 1000


@dataclass(frozen=True)
class RmqLayout:
    """The keys that belong to no single queue. In a cluster they may be on any node."""

    #: Write names of queues in braces, so that all keys of a queue are on one node of a cluster.
    cluster: bool = False

    @property
    def connections(self) -> SetKey:
        """Set of the names of all connections, living and dead."""
        return SetKey("rmq::connections")

    @property
    def queues(self) -> SetKey:
        """Set of the names of all queues that were opened."""
        return SetKey("rmq::queues")

    def heartbeat(self, connection: str) -> str:
        """Key with a TTL: it exists while the connection is alive."""
        return f"rmq::connection::{connection}::heartbeat"

    def consumed(self, connection: str) -> SetKey:
        """Set of the names of the queues that the connection consumes."""
        return SetKey(f"rmq::connection::{connection}::queues")

    def queue(self, name: str) -> RmqKeys:
        """Return the keys of one queue."""
        return RmqKeys(self, name)


@dataclass(frozen=True)
class SetKey:
    """One set of names."""

    key: str

    @property
    def queue(self) -> str:
        """What errors and logs call it."""
        return self.key

    def call_record(self, series: str) -> str:
        """No call on it is numbered."""
        raise NotImplementedError

    def failure(self, code: str) -> RSMQError:
        """Return the error for a script's error code."""
        return QueueCorrupt(self.key, "this key is no set of names", layout="rmq")


@dataclass(frozen=True)
class RmqKeys:
    """The keys of one queue. In the layout for clusters all of them are in one slot."""

    layout: RmqLayout
    queue: str

    @cached_property
    def _tag(self) -> str:
        return f"{{{self.queue}}}" if self.layout.cluster else f"[{self.queue}]"

    @cached_property
    def ready(self) -> str:
        """List of what waits: the oldest payload, which is taken next, is at the right end."""
        return f"rmq::queue::{self._tag}::ready"

    @cached_property
    def rejected(self) -> str:
        """List of rejected payloads, the newest at the left end."""
        return f"rmq::queue::{self._tag}::rejected"

    def unacked(self, connection: str) -> str:
        """List of what a connection has taken and not settled, the newest at the left end."""
        return f"rmq::connection::{connection}::queue::{self._tag}::unacked"

    def consumers(self, connection: str) -> str:
        """Set of the names of a connection's consumers."""
        return f"rmq::connection::{connection}::queue::{self._tag}::consumers"

    def call_record(self, series: str) -> str:
        """Key with a TTL, of this library: what the last call of a series on this queue did."""
        return f"rmq::queue::{self._tag}::ng::call:{series}"

    def failure(self, code: str) -> RSMQError:
        """Return the error for a script's error code on this queue."""
        return QueueCorrupt(self.queue, _DAMAGE.get(code, code), layout="rmq")


def check_name(what: str, name: object, layout: RmqLayout) -> str:
    """Return *name* if a queue or a connection may be called so; ``InvalidValue`` otherwise."""
    if not isinstance(name, str) or not name:
        raise InvalidValue(f"{what} must be a text that is not empty, not {name!r}")
    if len(name) > _LONGEST_NAME:
        raise InvalidValue(f"{what} has {len(name)} characters; at most {_LONGEST_NAME} can be")
    try:
        # Surrogate escapes stand for bytes that are not UTF-8, in names that another program wrote.
        name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidValue(f"{what} {name!r} cannot be written as UTF-8") from None
    if layout.cluster and ("{" in name or "}" in name):
        raise InvalidValue(
            f"{what} {name!r} has a brace: the keys of a queue would not be on one cluster node"
        )
    return name
