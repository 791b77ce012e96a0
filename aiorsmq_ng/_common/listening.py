"""The error of an address that cannot be listened on: the same of every server of the library."""

from __future__ import annotations

import os
import socket

from ..errors import InvalidValue


def cannot_listen(address: str | int, error: OSError) -> InvalidValue:
    """Return the error for *address*; raise it from *error*, the reason of the system."""
    # Python's own text repeats the address.
    known = error.errno is not None and not isinstance(error, socket.gaierror)
    reason = os.strerror(error.errno) if known and error.errno else error.strerror or str(error)
    return InvalidValue(f"cannot listen on {address}: {reason.lower()}")
