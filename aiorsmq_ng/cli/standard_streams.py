"""Standard streams that are closed, unbuffered, or no longer read."""

from __future__ import annotations

import io
import os
import select
import sys


def open_missing_streams() -> None:
    """Open /dev/null for the standard streams that are closed.

    Otherwise a connection would get the file descriptor of a standard stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    os.close(number)


def drop_unwritten(*, wait: bool) -> None:
    """Discard buffered output that cannot be written, after the failure was reported.

    Python would try to write it again at exit. An interrupted process does not *wait* for a reader
    that reads nothing.
    """
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, io.FileIO) or raw.closed:
        return
    try:
        if wait or select.select([], [raw], [], 0)[1]:
            sys.stdout.flush()
            return
    except OSError:
        pass
    raw.close()


def buffer_stdout() -> None:
    """Buffer a stdout that is unbuffered, as with ``PYTHONUNBUFFERED`` and ``python -u``.

    Without a buffer, Python loses the rest of a write that a signal interrupts. Every command
    flushes what it prints, so no output is delayed.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        buffer = os.fdopen(raw.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(buffer, encoding, errors, write_through=True)
