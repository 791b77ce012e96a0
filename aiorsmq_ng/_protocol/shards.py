"""Several namespaces used as one, so that queues spread over the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

from .._common.queue_defaults import DEAD_SUFFIX
from ..errors import InvalidValue
from . import argument_checks
from .keys import Namespace, QueueKeys

#: Separator after the name of a topic in the names of its queues.
TOPIC_MARK = "__"


@dataclass(frozen=True)
class Shards:
    """One namespace or several; the name of a queue decides in which of them it is stored.

    This mapping is part of the stored layout: all clients must use the same namespaces in the same
    order.
    """

    namespaces: tuple[Namespace, ...]

    @classmethod
    def of(cls, ns: str | Sequence[str], *, nested: bool) -> Shards:
        """Return the shards for the user's ``ns``; raise ``InvalidValue`` if it is not valid."""
        given = list(ns) if isinstance(ns, Sequence) and not isinstance(ns, str) else [ns]
        names = [argument_checks.check_namespace(name, nested=nested) for name in given]
        if not names or len(set(names)) < len(names):
            raise InvalidValue("ns must name at least one namespace, and each of them once")
        return cls(tuple(map(Namespace, names)))

    @cached_property
    def name(self) -> str:
        """The namespaces as text."""
        return ",".join(namespace.name for namespace in self.namespaces)

    def queue(self, name: str) -> QueueKeys:
        """Return the keys of a queue, in the namespace that its name hashes to.

        The hash is CRC-32 of the name as UTF-8, modulo the number of namespaces. ``-dead`` at the
        end is left out, so that the default dead-letter queue is in the namespace of its queue. So
        is everything from ``__`` on, so that the queues of a topic are in one namespace.
        """
        if len(self.namespaces) == 1:
            return self.namespaces[0].queue(name)
        stem = name.partition(TOPIC_MARK)[0] or name
        while stem.endswith(DEAD_SUFFIX):
            stem = stem.removesuffix(DEAD_SUFFIX)
        number = crc32(stem.encode("utf-8", "surrogatepass")) % len(self.namespaces)
        return self.namespaces[number].queue(name)


def check_together(*queues: QueueKeys) -> None:
    """Raise ``InvalidValue`` unless all of *queues* are in one namespace, as one call needs."""
    first = queues[0]
    for other in queues[1:]:
        if other.namespace != first.namespace:
            raise InvalidValue(
                f"queues {first.queue!r} and {other.queue!r} lie in different namespaces "
                f"({first.namespace.name!r} and {other.namespace.name!r}), which no single call "
                "can reach; use queues of one namespace, or receive here and send there"
            )
