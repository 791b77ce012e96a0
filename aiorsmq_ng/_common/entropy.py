"""Random bytes for message ids, fetched from the system in larger portions."""

from __future__ import annotations

import os

#: One system call for some two hundred ids.
_PORTION = 4096

_stock, _used = b"", 0


def take(count: int) -> bytes:
    """Return *count* random bytes, each handed out once."""
    global _stock, _used  # noqa: PLW0603 - the stock is the point
    if _used + count > len(_stock):
        _stock, _used = os.urandom(max(_PORTION, count)), 0
    start = _used
    _used = start + count
    return _stock[start:_used]


def forget() -> None:
    """Throw the stock away, so that the next bytes come fresh from the system."""
    global _stock, _used
    _stock, _used = b"", 0


# Parent and child must not hand out the same bytes.
os.register_at_fork(after_in_child=forget)
