"""The handlers of a worker: which may be registered, and which work together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._common.durations import Seconds
from ..client import RSMQ
from ..errors import InvalidValue
from ..retry import Retry
from ..rmq import RmqQueue
from .handlers import H, QueueHandler, RmqHandler, check_queue_name, readers


class HandlerRegistry:
    """The registered handlers of one worker."""

    def __init__(self, rsmq: RSMQ) -> None:
        self._rsmq = rsmq
        self.handlers: list[QueueHandler] = []
        self.rmq_handlers: list[RmqHandler] = []

    def registrar(
        self,
        queue: str | RmqQueue,
        *,
        retry: Retry | None,
        dead_letter: str | None,
        vt: Seconds | None,
        **rules: Any,
    ) -> Callable[[H], H]:
        """Return a decorator that registers a handler of *queue*; a queue has one handler."""
        check_queue_name(queue)
        if isinstance(queue, RmqQueue):
            if retry is not None or dead_letter is not None or vt is not None:
                raise InvalidValue(
                    f"queue {queue.name!r} of rmq has no retry, dead_letter or vt; "
                    "name a push queue: rmq.queue(name, push=...)"
                )
            return self._rmq_registrar(queue, **rules)
        # A queue, or a dead-letter queue, that cannot exist is refused here and not by run().
        handle = self._rsmq.queue(queue, retry=retry or Retry(), dead_letter=dead_letter, vt=vt)
        self._rsmq.queue(handle.dead_letter)

        def register(function: H) -> H:
            handler = QueueHandler(
                queue=handle,
                function=function,
                readers=readers(function, self._rsmq.codec),
                **rules,
            )
            if any(known.queue.name == queue for known in self.handlers):
                raise InvalidValue(f"queue {queue!r} has a handler already")
            self.handlers.append(handler)
            return function

        return register

    def _rmq_registrar(self, queue: RmqQueue, **rules: Any) -> Callable[[H], H]:
        def register(function: H) -> H:
            if any(known.queue is queue for known in self.rmq_handlers):
                raise InvalidValue(f"queue {queue.name!r} of rmq has a handler already")
            self.rmq_handlers.append(
                RmqHandler(
                    queue=queue, function=function, readers=readers(function, queue.codec), **rules
                )
            )
            return function

        return register

    def check(self) -> None:
        """Refuse a worker without handlers, and a handler that no message would ever reach.

        A dead letter keeps its ``rc``, so a handler of a dead-letter queue whose retry policy has a
        limit would move every message on.
        """
        if not self.handlers and not self.rmq_handlers:
            raise InvalidValue("the worker has no handlers; register one with @worker.handler()")
        dead = {handler.queue.dead_letter: handler.queue.name for handler in self.handlers}
        for queue in (handler.queue for handler in self.handlers):
            if queue.name in dead and queue.retry is not None and queue.retry.max_receives:
                raise InvalidValue(
                    f"queue {queue.name!r} holds the dead letters of {dead[queue.name]!r}; "
                    f"its handler needs retry=Retry(0), or none of them would ever reach it"
                )
