"""Probes of a worker: its event loop, its leases, its handlers, its server."""

from __future__ import annotations

from .._common.durations import Seconds, in_seconds
from ..models import ServerStatus
from ..probes import Probes, ProgramState
from .health import State
from .worker import Worker

_STATES: dict[State, ProgramState] = {
    "new": "starting",
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "draining": "stopping",
    "stopped": "stopped",
}


class WorkerProbes(Probes):
    """Probes of a worker: ``livez``, ``readyz`` and ``startupz``.

    ``livez`` fails if its ``run`` has ended with an error, leases are not renewed, or a handler has
    ignored its cancellation for too long. ``readyz`` fails unless it runs (or is paused), its
    server answers within half a second, and its queues exist.

    Args:
        worker: the worker; it need not run yet.
        blocked_limit: seconds for which the event loop may be blocked before ``livez`` fails.
        stuck_limit: seconds for which a handler may ignore its cancellation before ``livez`` fails.
    """

    def __init__(
        self, worker: Worker, *, blocked_limit: Seconds = 10.0, stuck_limit: Seconds = 60.0
    ) -> None:
        self._worker = worker
        super().__init__(
            worker.rsmq, lambda: _STATES[worker.health.state], blocked_limit=blocked_limit
        )
        self._stuck_limit = in_seconds("stuck_limit", stuck_limit)

    @property
    def _server_status(self) -> ServerStatus:
        """What is known of the server."""
        return self._worker.server_status

    def _failures(self) -> list[str]:
        """Return why the worker has to be started again, apart from its leases."""
        health = self._worker.health
        found = []
        if health.state == "stopped" and health.failure is not None:
            # The text may be that of a user's own error.
            found.append(f"the worker has ended with {health.failure.partition(':')[0]}")
        if health.stuck_for > self._stuck_limit:
            found.append(f"a handler has ignored its cancellation for {health.stuck_for:.1f} s")
        return found

    def _figures(self) -> dict[str, float]:
        """Return how many handlers run, and what was done with messages."""
        health = self._worker.health
        names = ("running", "stuck", "done", "failed", "rejected")
        return {name: getattr(health, name) for name in names}

    async def _ask_server(self) -> None:
        """Ask the servers for the queues of the handlers."""
        await self._worker.check_queues()
