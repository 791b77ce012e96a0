"""SIGTERM ends a command as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
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
