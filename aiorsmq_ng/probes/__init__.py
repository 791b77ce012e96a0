"""Probes of a program: whether it lives, whether it is ready, whether it has started.

``Probes`` answers for a program with a client, ``aiorsmq_ng.worker.WorkerProbes`` for a worker.
``ProbeServer`` serves the answers over HTTP, from a thread of its own.
"""

from __future__ import annotations

from .checks import ProbeAnswer, ProbeName, Probes, ProgramState
from .http_server import ProbeServer

__all__ = ["ProbeAnswer", "ProbeName", "ProbeServer", "Probes", "ProgramState"]
