"""Random bytes for message ids, fetched from the system in larger portions."""

from __future__ import annotations

import os

#: One system call for some two hundred ids.
_PORTION = 4096

_stock = b""


def take(count: int) -> bytes:
    """Return *count* random bytes, each handed out once."""
    global _stock  # noqa: PLW0603 - the stock is the point
    if len(_stock) < count:
        _stock += os.urandom(max(_PORTION, count))
    taken, _stock = _stock[:count], _stock[count:]
    return taken


def forget() -> None:
    """Throw the stock away, so that the next bytes come fresh from the system."""
    global _stock  # noqa: PLW0603
    _stock = b""


# Parent and child must not hand out the same bytes.
os.register_at_fork(after_in_child=forget)
