"""A world in which time costs nothing and chance can be repeated."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import selectors
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from aiorsmq_ng._common import entropy

T = TypeVar("T")

#: When a simulation begins, for the server: seconds since the epoch.
EPOCH_S = 1_800_000_000.0
#: The same moment on the clock of its event loop.
START_S = 1000.0


class _InstantSelector(selectors.SelectSelector):
    """Never waits: the clock is put forward instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START_S

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation is deadlocked: all tasks wait, and none for a timer")
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time jumps when nothing is ready, so that sleeping costs nothing.

    Tasks that could go on at the same moment do so in an order that *rng* draws. That order
    depends on nothing else: not on addresses, on sets or on the garbage collector.
    """

    def __init__(self, rng: random.Random) -> None:
        self._instant = _InstantSelector()
        super().__init__(self._instant)
        self._rng = rng
        self._numbers: dict[asyncio.Task[Any], int] = {}
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Return the virtual time."""
        return self._instant.now

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coro: Any, **settings: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **settings)
        self._numbers[task] = len(self._numbers)
        return task

    def _run_once(self) -> None:
        self._shuffle()
        super()._run_once()  # type: ignore[misc]

    def _shuffle(self) -> None:
        """Put the tasks that are ready into a new order; all else keeps its place."""
        ready: list[asyncio.Handle] = list(self._ready)  # type: ignore[attr-defined]
        places = [at for at, handle in enumerate(ready) if self._number(handle) is not None]
        if len(places) < 2:
            return
        steps = sorted((ready[at] for at in places), key=lambda h: self._number(h) or 0)
        self._rng.shuffle(steps)
        for at, handle in zip(places, steps, strict=True):
            ready[at] = handle
        self._ready.clear()  # type: ignore[attr-defined]
        self._ready.extend(ready)  # type: ignore[attr-defined]

    def _number(self, handle: asyncio.Handle) -> int | None:
        """Return the number of the task that *handle* takes a step of, if it is one."""
        callback = getattr(handle, "_callback", None)
        return self._numbers.get(getattr(callback, "__self__", None))  # type: ignore[arg-type]


@contextmanager
def repeatable(seed: int, clock: Callable[[], float]) -> Iterator[None]:
    """Let chance come from *seed* and the time of day from *clock*, for all of this process.

    Meant for a block that runs nothing but a simulation: other threads would see it, too.
    """
    chance = random.Random(seed)  # noqa: S311 - it shall be predictable
    before, collecting = random.getstate(), gc.isenabled()
    random.seed(seed)
    entropy.forget()
    # What the collector finds would otherwise be closed at a moment that depends on the past.
    gc.disable()
    try:
        with (
            _replaced(os, "urandom", chance.randbytes),
            _replaced(random, "_urandom", chance.randbytes),
            _replaced(time, "time", clock),
        ):
            yield
    finally:
        if collecting:
            gc.enable()
        entropy.forget()
        random.setstate(before)


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def run_virtually(
    main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], rng: random.Random, seed: int
) -> T:
    """Run *main* on a loop of its own, in virtual time and with chance from *seed*."""
    loop = VirtualLoop(rng)
    try:
        with repeatable(seed, lambda: EPOCH_S - START_S + loop.time()):
            try:
                return loop.run_until_complete(main(loop))
            finally:
                _end(loop)
    finally:
        loop.close()


def _end(loop: VirtualLoop) -> None:
    """Cancel what is left, as asyncio.run does."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
