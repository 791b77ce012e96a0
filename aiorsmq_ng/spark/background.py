"""Work on the driver that goes on while Spark runs a batch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .._transport.blocking import BlockingRunner

R = TypeVar("R")


class Job(Generic[R]):
    """Something that is done in the background."""

    def __init__(self, work: Callable[[BlockingRunner], R]) -> None:
        self._work = work
        self._done = threading.Event()
        self._result: R
        self._error: BaseException | None = None

    def run(self, runner: BlockingRunner) -> None:
        """Do it."""
        try:
            self._result = self._work(runner)
        except BaseException as error:
            self._error = error
        self._done.set()

    @property
    def failed(self) -> bool:
        """Whether it is over and came to nothing."""
        return self._error is not None

    @property
    def over(self) -> bool:
        """Whether it is over."""
        return self._done.is_set()

    def wait(self) -> R:
        """Return what came of it."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Background:
    """A thread with a connection of its own that does one job after the other."""

    def __init__(self, connect: Callable[[], BlockingRunner]) -> None:
        self._connect = connect
        self._jobs: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[BlockingRunner], R]) -> Job[R]:
        """Have *work* done after what was started before."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        job = Job(work)
        self._jobs.put(job)  # type: ignore[arg-type]
        return job

    def stop(self) -> None:
        """End the thread after what it is doing; what was not begun is left undone."""
        while not self._jobs.empty():
            self._jobs.get()
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout=5)

    def _run(self) -> None:
        runner = self._connect()
        try:
            while (job := self._jobs.get()) is not None:
                job.run(runner)
        finally:
            runner.close()
