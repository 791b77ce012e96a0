"""SIGTERM and SIGINT stop every worker of the process; a second signal ends the grace period."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Called by a signal; a process may run several workers.
_stops: set[Callable[[], None]] = set()
_before: list[object] = []


@contextmanager
def stopped_by_signals(stop: Callable[[], None], *, wanted: bool) -> Iterator[None]:
    """Context manager: call *stop* for each signal.

    Only the main thread can handle signals; in other threads the application stops its workers.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    if not _stops:
        _before[:] = [signal.getsignal(number) for number in _SIGNALS]
        for number in _SIGNALS:
            loop.add_signal_handler(number, _stop_all)
    _stops.add(stop)
    try:
        yield
    finally:
        _stops.discard(stop)
        if not _stops:
            for number, handler in zip(_SIGNALS, _before, strict=True):
                loop.remove_signal_handler(number)
                signal.signal(number, handler)  # type: ignore[arg-type]


def _stop_all() -> None:
    for stop in list(_stops):
        stop()
