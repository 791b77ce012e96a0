"""RSMQ's defaults and limits of a queue, and the name of its dead-letter queue."""

from __future__ import annotations

#: Lease of a message, and delay of a new one, in seconds: the defaults of ``create_queue``.
DEFAULT_VT, DEFAULT_DELAY = 30, 0
#: Largest body in bytes: the default, and the highest limit that can be set besides no limit.
DEFAULT_MAXSIZE = 65536
#: Longest lease or delay, in seconds.
MAX_SECONDS = 9_999_999
#: Characters of a queue's name, at most.
LONGEST_NAME = 160
DEAD_SUFFIX = "-dead"


def dead_letter_queue(queue: str) -> str:
    """Return the default name of the dead-letter queue of *queue*."""
    return queue + DEAD_SUFFIX


def has_dead_letters(queue: str) -> bool:
    """Return True if a queue can have the default dead-letter queue: its name is short enough."""
    return len(dead_letter_queue(queue)) <= LONGEST_NAME
