"""Random bytes for message ids, from a buffer that is filled from the system in large blocks."""

from __future__ import annotations

import os

#: Size of the buffer: one system call for nearly two hundred ids.
_PORTION = 4096

_stock, _used = b"", 0


def take(count: int) -> bytes:
    """Return *count* random bytes; no byte is returned twice."""
    global _stock, _used  # noqa: PLW0603 - one buffer for the process
    if _used + count > len(_stock):
        _stock, _used = os.urandom(max(_PORTION, count)), 0
    start = _used
    _used = start + count
    return _stock[start:_used]


def forget() -> None:
    """Discard the buffer, so that the next bytes come from the system."""
    global _stock, _used
    _stock, _used = b"", 0


# Parent and forked child must not return the same bytes.
os.register_at_fork(after_in_child=forget)
