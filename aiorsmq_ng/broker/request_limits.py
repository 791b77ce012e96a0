"""Limits of the values of a request: counts, batches, bytes of a reply, durations."""

from __future__ import annotations

from typing import Any

from aiorsmq_ng import InvalidValue

from ..rpc import v1_pb2 as pb
from ..rpc.wire_values import optional
from .caller_limits import MAX_BYTES
from .options import Limits

#: Largest ``max_bytes`` of a request. A smaller limit of the broker for replies also applies.
MOST_BYTES = 64 * 1024 * 1024
#: Shortest timeout of a peer: with less, keep-alive calls would keep the server busy.
SHORTEST_PEER_TIMEOUT_S = 0.25


class RequestLimits:
    """Checks values of requests against the limits of a broker."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def batch(self, what: str, count: int) -> None:
        """Raise ``InvalidValue`` for an empty batch, or one above the limit."""
        if not 1 <= count <= self._limits.batch:
            raise InvalidValue(f"a request has 1 to {self._limits.batch} {what}, not {count}")

    def count(self, given: int) -> int:
        """Return how many messages a request asks for."""
        if not 0 <= given <= self._limits.batch:
            raise InvalidValue(f"count must be between 1 and {self._limits.batch}, not {given}")
        return given or 1

    def max_bytes(self, given: int) -> int:
        """Return the bytes of bodies that a request allows in one reply."""
        if not 0 <= given <= MOST_BYTES:
            raise InvalidValue(f"max_bytes must be between 1 and {MOST_BYTES}, not {given}")
        return min(given or MAX_BYTES, self._limits.largest_reply)


def peer_timeout(subscriber: pb.Subscriber) -> float:
    """Return a peer's timeout in seconds; keep-alives are sent four times as often."""
    given = seconds(subscriber, "peer_timeout_ms")
    if given is not None and given < SHORTEST_PEER_TIMEOUT_S:
        raise InvalidValue(
            f"peer_timeout_ms must be at least {SHORTEST_PEER_TIMEOUT_S * 1000:.0f}, "
            f"not {given * 1000:.0f}"
        )
    return 30.0 if given is None else given


def seconds(message: Any, field: str) -> float | None:
    """Return an optional duration in seconds; ``None`` if it is not set."""
    ms = optional(message, field)
    return None if ms is None else ms / 1000
