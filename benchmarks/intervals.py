"""How far a median can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

#: How likely the true median is on either side of its interval, at most.
_TAIL = 0.025


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return two of the values between which the true median lies with a probability of 95 %.

    They are chosen by rank, so the scatter may have any shape. Fewer than six values cannot reach
    95 %: then they are the least and the greatest.
    """
    ordered, number = sorted(values), len(values)
    tail, rank = 0.0, 0
    # The probability that at most `rank` values are on one side of the true median.
    while (tail := tail + comb(number, rank) / 2**number) <= _TAIL:
        rank += 1
    rank = max(rank, 1)
    return ordered[rank - 1], ordered[-rank]
