"""What the probes look at: the state of the program, its event loop, its leases, its server."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from .._common.durations import Seconds, in_seconds
from .._runtime.queue_context import context_of
from ..client import RSMQ
from ..errors import AccessDenied, QueueNotFound, RSMQError
from ..models import ServerStatus

logger = logging.getLogger("aiorsmq_ng.probes")

ProbeName = Literal["livez", "readyz", "startupz"]
NAMES: tuple[ProbeName, ...] = ("livez", "readyz", "startupz")
ProgramState = Literal["starting", "running", "paused", "stopping", "stopped"]

#: Seconds within which the server must answer a readiness probe.
SERVER_S = 0.5
#: Seconds for which an answer about the server is used again: probes cost it two calls per second.
_REUSED_S = 0.5
#: Pause before leases that are late are looked at again: their task may have its turn only now.
_TURN_S = 0.05
#: The queue that a program without queues of its own asks for; it need not exist.
_ANY_QUEUE = "health"


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """Answer of a probe."""

    #: The probe: ``livez``, ``readyz`` or ``startupz``.
    probe: ProbeName
    #: What the program is doing.
    state: str
    #: Why the probe fails, a sentence each; empty if it does not.
    reasons: tuple[str, ...] = ()
    #: Figures about the program.
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        return not self.reasons

    @property
    def status(self) -> int:
        """Status of HTTP: 200 or 503."""
        return 200 if self.ok else 503

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as an object of JSON; no bodies, no passwords, no error of a handler.

        The figures are fields of their own.
        """
        found = {"probe": self.probe, "ok": self.ok, "state": self.state}
        return {**found, "reasons": list(self.reasons), **self.figures}

    def as_json(self) -> bytes:
        """Return the answer as the body of a reply."""
        return json.dumps(self.as_dict()).encode() + b"\n"


class Probes:
    """Probes of a program with a client: whether it lives, is ready, and has started.

    They run on the event loop of the client. A loop that is blocked cannot answer; ``ProbeServer``
    answers for it.

    Args:
        rsmq: the client; it is not closed.
        state: returns what the program is doing.
        queues: queues that the program needs: readiness asks whether they exist.
        blocked_limit: seconds for which the event loop may be blocked before ``livez`` fails.
    """

    def __init__(
        self,
        rsmq: RSMQ,
        state: Callable[[], ProgramState],
        queues: Sequence[str] = (),
        *,
        blocked_limit: Seconds = 10.0,
    ) -> None:
        self.rsmq = rsmq
        self._state = state
        #: Seconds for which the event loop may be blocked before ``livez`` fails.
        self.blocked_limit = in_seconds("blocked_limit", blocked_limit)
        self._queues = queues
        self._looking: asyncio.Task[str | None] | None = None
        self._looked_at = 0.0

    async def check(self, probe: ProbeName) -> ProbeAnswer:
        """Answer a probe by its name.

        Args:
            probe: ``livez``, ``readyz`` or ``startupz``.
        """
        return await {"livez": self.livez, "readyz": self.readyz, "startupz": self.startupz}[
            probe
        ]()

    async def livez(self) -> ProbeAnswer:
        """Return whether the program works; if not, it should be started again."""
        reasons = self._failures()
        if (problem := await self._lease_problem()) is not None:
            reasons.append(problem)
        return self._answer("livez", reasons)

    async def readyz(self) -> ProbeAnswer:
        """Return whether the program runs, and its server answers within half a second."""
        if self._state() not in ("running", "paused"):
            return self._answer("readyz", self._failures() or [self._not_running()])
        # Shielded: another probe may wait for the same reply.
        problem = await asyncio.shield(self._server())
        return self._answer("readyz", [problem] if problem else [])

    async def startupz(self) -> ProbeAnswer:
        """Return whether the program has started."""
        reasons = self._failures()
        if self._state() == "starting":
            reasons.append(self._not_running())
        return self._answer("startupz", reasons)

    def _failures(self) -> list[str]:
        """Return why the program has to be started again, apart from its leases."""
        return []

    def _figures(self) -> dict[str, float]:
        """Return figures for every answer."""
        return {}

    @property
    def _server_status(self) -> ServerStatus:
        """What is known of the server."""
        return self.rsmq.server_status

    async def _ask_server(self) -> None:
        """Ask the server; raises an error if the program cannot use it."""
        if not self._queues:
            with suppress(AccessDenied):  # a token or user for other queues
                await self.rsmq.queue(_ANY_QUEUE).exists()
        there = await asyncio.gather(*(self.rsmq.queue(name).exists() for name in self._queues))
        for name, exists in zip(self._queues, there, strict=True):
            if not exists:
                raise QueueNotFound(name, self.rsmq.ns)

    def _answer(self, probe: ProbeName, reasons: list[str]) -> ProbeAnswer:
        return ProbeAnswer(probe, self._state(), tuple(reasons), self._figures())

    def _not_running(self) -> str:
        error = self._server_status.error
        if self._state() == "starting" and error is not None:
            return f"the program waits for its server: {error}"
        return f"the program is {self._state()}"

    async def _lease_problem(self) -> str | None:
        keeper = context_of(self.rsmq.queue(_ANY_QUEUE)).keeper
        if keeper.problem() is not None:
            await asyncio.sleep(_TURN_S)
        return keeper.problem()

    def _server(self) -> asyncio.Task[str | None]:
        now = asyncio.get_running_loop().time()
        task = self._looking
        if task is None or (task.done() and now - self._looked_at > _REUSED_S):
            self._looked_at = now
            task = asyncio.create_task(self._server_problem(), name="aiorsmq-ng probe")
            self._looking = task
        return task

    async def _server_problem(self) -> str | None:
        """Return why the server cannot be used; ``None`` if it answers."""
        try:
            async with asyncio.timeout(SERVER_S):
                await self._ask_server()
        except TimeoutError:
            error = self._server_status.error
            because = f": {error}" if error else ""
            return f"the server has not answered within {SERVER_S:g} s{because}"
        except RSMQError as error:
            return str(error)
        except Exception as error:  # its text may be that of a program
            logger.exception("a probe could not ask the server")
            return f"the server cannot be asked: {type(error).__name__}"
        return None
