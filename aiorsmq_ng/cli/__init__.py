"""``rsmqctl``: queues from the command line. Needs the extra ``cli``."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

#: Modules that the extra installs.
EXTRA = ("click", "rich")
#: Exit status after Ctrl-C, or SIGTERM.
INTERRUPTED = 130
_MISSING = 'rsmqctl needs the extra "cli": pip install "aiorsmq-ng[cli]"'


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (by default the process's own) and return its exit status."""
    _fill_streams()
    _write_whole()
    try:
        from .app import run  # needs click, which the extra brings

        with _sigterm_as_ctrl_c():
            status = run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"{_MISSING}\n")
        return 1
    except KeyboardInterrupt:
        status = INTERRUPTED  # before or after the command: no message is needed
    if status:
        _drop_rest(wait=status != INTERRUPTED)
    return status


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """End a command by SIGTERM as by Ctrl-C: it gives back what it holds, and reports it.

    A command with handlers of its own, such as a worker, replaces this one.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(_: int, frame: FrameType | None) -> None:
    # Not by a SIGINT: shells let background commands ignore that.
    handler = signal.getsignal(signal.SIGINT)
    (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)


def _fill_streams() -> None:
    """Open /dev/null for the standard streams that are closed.

    Otherwise a connection would get the file descriptor of a standard stream.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    os.close(number)


def _drop_rest(*, wait: bool) -> None:
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


def _write_whole() -> None:
    """Buffer a stdout that is unbuffered, as with ``PYTHONUNBUFFERED`` and ``python -u``.

    Without a buffer, Python loses the rest of a write that a signal interrupts. Every command
    flushes what it prints, so no output is delayed.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        encoding, errors = sys.stdout.encoding, sys.stdout.errors
        buffer = os.fdopen(raw.fileno(), "wb", closefd=False)
        sys.stdout = io.TextIOWrapper(buffer, encoding, errors, write_through=True)
