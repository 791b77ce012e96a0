"""A thread on the driver that renews leases while batches run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ..errors import AccessDenied, RSMQError, Unavailable

if TYPE_CHECKING:
    from .._transport.blocking import BlockingRunner

logger = logging.getLogger("aiorsmq_ng.spark")


class Holder(Protocol):
    """Who has claims."""

    def held(self) -> list[int]:
        """Return the numbers of the claims that want to be renewed."""
        ...

    def renew(self, runner: BlockingRunner, number: int) -> tuple[int, int]:
        """Renew the leases of one claim; how many messages are others' by now, and gone."""
        ...


class Keeper:
    """A thread that renews leases while batches run, on a connection of its own."""

    def __init__(self, holder: Holder, connect: Callable[[], BlockingRunner]) -> None:
        self._holder = holder
        self._connect = connect
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.lock = threading.Lock()
        #: Why it gave up; raised by the next call.
        self.error: RSMQError | None = None

    def start(self, every_s: float) -> None:
        """Begin to renew, unless that runs already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(every_s,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self, every_s: float) -> None:
        runner = self._connect()
        try:
            while not self._stop.wait(every_s):
                self._renew_all(runner)
                if self.error is not None:
                    return
        finally:
            runner.close()

    def _renew_all(self, runner: BlockingRunner) -> None:
        for number in self._holder.held():
            try:
                taken, _gone = self._holder.renew(runner, number)
                if taken:
                    logger.warning("%d messages of claim %d were received by others", taken, number)
            except (Unavailable, AccessDenied) as outage:
                logger.warning("leases were not renewed: %s", outage)
            except RSMQError as error:
                self.error = error
                return
