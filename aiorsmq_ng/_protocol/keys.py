"""Every key and channel name, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..errors import QueueCorrupt, QueueNotFound, RSMQError

_DAMAGE = {
    "queueCorrupt": "an attribute or a counter in its hash is not a number",
    "wrongType": "one of its keys has another type than RSMQ gives it",
    "scriptFailed": "a script failed on what its keys hold",
}


@dataclass(frozen=True)
class Namespace:
    """The key prefix that a set of queues shares."""

    name: str

    @cached_property
    def index(self) -> str:
        """Set of the names of all queues."""
        return f"{self.name}:QUEUES"

    @cached_property
    def topics(self) -> str:
        """Set of the names of all topics."""
        return f"{self.name}:ng:topics"

    def queue(self, queue: str) -> QueueKeys:
        """Return the keys of one queue."""
        return QueueKeys(self, queue)


@dataclass(frozen=True)
class QueueKeys:
    """The keys of one queue: RSMQ's own three, and side keys under ``ng`` of this library."""

    namespace: Namespace
    queue: str

    @cached_property
    def zset(self) -> str:
        """Sorted set: message id, score = epoch ms at which it becomes visible."""
        return f"{self.namespace.name}:{self.queue}"

    @cached_property
    def hash(self) -> str:
        """Hash: attributes, counters, and body, ``:rc`` and ``:fr`` of every message."""
        return f"{self.namespace.name}:{self.queue}:Q"

    @cached_property
    def realtime(self) -> str:
        """Channel on which RSMQ clients with ``realtime`` publish the number of messages."""
        return f"{self.namespace.name}:rt:{self.queue}"

    @cached_property
    def wake(self) -> str:
        """Channel on which this library publishes arrivals if ``realtime`` is off."""
        return f"{self.namespace.name}:{self.queue}:ng:wake"

    def call(self, waiter: str) -> str:
        """Channel of one waiter's wake-ups."""
        return f"{self.wake}:{waiter}"

    @cached_property
    def deliveries(self) -> str:
        """Hash with a TTL: message id -> note on its deliveries; see ``_delivery_notes.lua``."""
        return f"{self.namespace.name}:{self.queue}:ng:deliveries"

    @cached_property
    def with_deliveries(self) -> tuple[str, str, str]:
        """RSMQ's two keys of a queue, and the notes on its deliveries."""
        return (self.zset, self.hash, self.deliveries)

    @cached_property
    def headers(self) -> str:
        """Hash with a TTL: message id -> its headers; see ``_headers.lua``."""
        return f"{self.namespace.name}:{self.queue}:ng:headers"

    @cached_property
    def consumers(self) -> str:
        """Hash with a TTL: consuming client -> time of its last announcement and what it holds."""
        return f"{self.namespace.name}:{self.queue}:ng:consumers"

    def call_record(self, series: str) -> str:
        """Key with a TTL: what the last call of a series on this queue did."""
        return f"{self.namespace.name}:{self.queue}:ng:call:{series}"

    def marker(self, digest: str) -> str:
        """Key with a TTL: id of the message that was sent with a dedup key."""
        return f"{self.namespace.name}:{self.queue}:ng:dedup:{digest}"

    def reason(self, id: str) -> str:
        """Key with a TTL: why the message was rejected into this queue."""
        return f"{self.namespace.name}:{self.queue}:ng:reason:{id}"

    def ledger(self, ledger: str) -> str:
        """Hash: one reader's claims and acknowledgements, and the fence against earlier holders."""
        return f"{self.namespace.name}:{self.queue}:ng:ledger:{ledger}"

    def claim(self, ledger: str, number: int) -> str:
        """Sorted set: runs of messages of one claim, score = number of the first one."""
        return f"{self.namespace.name}:{self.queue}:ng:claim:{ledger}:{number}"

    def moved_bodies(self, ledger: str, number: int) -> str:
        """List: bodies of the messages that one claim has moved out of the queue, in order."""
        return f"{self.claim(ledger, number)}:bodies"

    @cached_property
    def moved(self) -> str:
        """Hash: key of a claim -> how many messages it holds outside of the queue."""
        return f"{self.namespace.name}:{self.queue}:ng:moved"

    @cached_property
    def lean_leases(self) -> str:
        """Sorted set with a TTL: scores of messages under lean leases; see ``_lean_lease.lua``."""
        return f"{self.namespace.name}:{self.queue}:ng:leases"

    def group(self, name: str) -> str:
        """Key: id of the present ledger of a named reader."""
        return f"{self.namespace.name}:{self.queue}:ng:group:{name}"

    def snapshot(self, id: str, page: int) -> str:
        """Sorted set with a TTL: one page of a snapshot of what the queue holds."""
        return f"{self.namespace.name}:{self.queue}:ng:snapshot:{id}:{page}"

    def marks(self, job: str) -> str:
        """Hash with a TTL: partition of a bulk job -> how many of its rows are sent."""
        return f"{self.namespace.name}:{self.queue}:ng:marks:{job}"

    def staged(self, id: str) -> str:
        """List with a TTL: staged rows of one attempt, three values each."""
        return f"{self.namespace.name}:{self.queue}:ng:staged:{id}"

    def epochs(self, job: str) -> str:
        """Hash with a TTL: which epoch of a job was committed, and which is being committed."""
        return f"{self.namespace.name}:{self.queue}:ng:epochs:{job}"

    @cached_property
    def topic(self) -> str:
        """Hash beside a topic's own queue: its version, its subscriptions, its limits."""
        return f"{self.namespace.name}:{self.queue}:ng:topic"

    @cached_property
    def heard(self) -> str:
        """Hash beside a topic's own queue: peer -> time of its last sign of life."""
        return f"{self.namespace.name}:{self.queue}:ng:heard"

    @cached_property
    def gone(self) -> str:
        """Sorted set with a TTL beside a topic's own queue: peers that timed out."""
        return f"{self.namespace.name}:{self.queue}:ng:gone"

    @cached_property
    def kept(self) -> tuple[str, str]:
        """Sorted set and hash with a TTL: the backlog, kept for consumers that subscribe later."""
        return (
            f"{self.namespace.name}:{self.queue}:ng:kept",
            f"{self.namespace.name}:{self.queue}:ng:kept-bodies",
        )

    def failure(self, code: str) -> RSMQError:
        """Return the error for a script's error code on this queue."""
        if code == QueueNotFound.code:
            return QueueNotFound(self.queue, self.namespace.name)
        return QueueCorrupt(self.queue, _DAMAGE.get(code, code))
