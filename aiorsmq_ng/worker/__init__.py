"""Workers: handlers by decorator, run with bounded concurrency until they are stopped."""

from .handlers import DeadLetterHook, FailureHook, Handler, Hook, Middleware, Next
from .health import WorkerHealth
from .probes import WorkerProbes
from .worker import Worker

__all__ = [
    "DeadLetterHook",
    "FailureHook",
    "Handler",
    "Hook",
    "Middleware",
    "Next",
    "Worker",
    "WorkerHealth",
    "WorkerProbes",
]
