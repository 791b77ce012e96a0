"""Work that runs in its caller's task, and does not end with a cancellation of that task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


@coroutine
def uncancellable(work: Coroutine[Any, Any, R]) -> Generator[Any, None, R]:
    """Await *work*; a cancellation of the task that comes meanwhile is raised when it has ended.

    A task of its own would do the same, but needs two more ticks of the event loop, which cost
    as much as the rest of a short call. *work* must not have time limits: these would have to
    cancel the task.
    """
    cancelled: asyncio.CancelledError | None = None
    while True:
        try:
            future = work.send(None)
        except StopIteration as end:
            if cancelled is not None:
                raise cancelled from None
            result: R = end.value
            return result
        try:
            yield None if future is None else _Uncancellable(future)
        except GeneratorExit:
            work.close()
            raise
        except asyncio.CancelledError as error:
            # That of the future itself reaches the work, which asks the future when it continues.
            if future is None or not future.cancelled():
                cancelled = error
        except BaseException:  # noqa: S110 - an exception of the future, likewise
            pass


class _Uncancellable:
    """Stands for a future that a task waits for, and refuses the task's cancellation.

    The task is then cancelled in its next step, when the future is done.
    """

    __slots__ = ("_asyncio_future_blocking", "_future")

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future
        self._asyncio_future_blocking = True

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._future.get_loop()

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        self._future.add_done_callback(callback, context=context)

    def cancel(self, msg: object = None) -> bool:
        return False
