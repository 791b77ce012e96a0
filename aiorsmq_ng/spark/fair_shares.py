"""Divides the limit of a batch among queues, by what waits in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")

#: Of an equal share, this part goes to every queue, however short it is beside the others.
FLOOR = 4


def divide(limit: int, waiting: Mapping[K, int], first: int = 0) -> dict[K, int]:
    """Return how many messages to take of each queue: *limit* at most in all.

    Every queue gets what it has up to a floor, the rest is divided by backlog. If the limit is
    smaller than the number of queues, one message each goes to as many queues as it allows,
    beginning with number *first*, which a caller changes from batch to batch.
    """
    left = {name: size for name, size in waiting.items() if size > 0}
    if not left or limit <= 0:
        return {}
    if sum(left.values()) <= limit:
        return left
    if limit < len(left):
        names = list(left)
        return {names[(first + at) % len(names)]: 1 for at in range(limit)}
    floor = max(1, limit // (FLOOR * len(left)))
    shares = {name: min(size, floor) for name, size in left.items()}
    left = {name: size - shares[name] for name, size in left.items() if size > shares[name]}
    rest, total = limit - sum(shares.values()), sum(left.values())
    for name, size in left.items():
        shares[name] += rest * size // total
    # What division left over goes to the longest queue that has room for it.
    rest = limit - sum(shares.values())
    for name in sorted(left, key=left.__getitem__, reverse=True):
        more = min(rest, waiting[name] - shares[name])
        shares[name] += more
        rest -= more
    return shares
