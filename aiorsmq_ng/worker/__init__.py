"""Workers: handlers by decorator, run with bounded concurrency until told to stop."""

from .routes import Handler, Middleware, Next
from .worker import Worker, WorkerHealth

__all__ = ["Handler", "Middleware", "Next", "Worker", "WorkerHealth"]
