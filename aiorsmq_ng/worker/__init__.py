"""Workers: handlers by decorator, run with bounded concurrency until told to stop."""

from .health import WorkerHealth
from .routes import FailureHook, Handler, Hook, Middleware, Next
from .worker import Worker

__all__ = ["FailureHook", "Handler", "Hook", "Middleware", "Next", "Worker", "WorkerHealth"]
