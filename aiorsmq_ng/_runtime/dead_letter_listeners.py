"""Dead letters: every move to a dead-letter queue is reported to the client's listeners.

A rejection is known to the holder of the message. A message that a receive moves, because it was
delivered too often and never settled, has no holder. Such a move is also logged. A worker logs the
moves of its own messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from inspect import iscoroutinefunction

from .._protocol.operations.message_values import DeadLettered
from ..codec import JSON, Codec
from ..errors import InvalidValue
from ..models import DeadLetter

logger = logging.getLogger("aiorsmq_ng.dead_letters")

#: Called with a message that was moved. It must return at once: the receive waits for it.
Listener = Callable[[DeadLetter], object]


class DeadLetters:
    """Listeners for the messages that this client moves to dead-letter queues."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call *listener* for every dead letter from now on; one that raises is logged."""
        if iscoroutinefunction(listener) or iscoroutinefunction(type(listener).__call__):
            raise InvalidValue(
                f"listener {listener!r} is a coroutine function, which is never awaited; "
                "pass a function that starts a task"
            )
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Call *listener* no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)


class DeadLetterReports(DeadLetters):
    """Reports dead letters to the listeners; the client's side of ``DeadLetters``."""

    def __init__(self, codec: Codec = JSON) -> None:
        super().__init__()
        self._codec = codec

    def moved_by_receive(self, moved: DeadLettered) -> None:
        """Log and report *moved*, a message that a receive has moved."""
        message, queue, dead = moved.message, moved.keys.queue, moved.dead.queue
        letter = DeadLetter(message, queue, dead, moved.reason, by_receive=True)
        log_move(letter)
        message.with_codec(self._codec)
        self.report(letter)

    def report(self, letter: DeadLetter) -> None:
        """Call all listeners with *letter*, a message that was moved."""
        for listener in tuple(self._listeners):
            try:
                listener(letter)
            except Exception:
                logger.exception("a listener failed on a dead letter of queue %r", letter.queue)


def log_move(letter: DeadLetter) -> None:
    """Log that a message was moved to a dead-letter queue, and why; never its body."""
    logger.warning(
        "message %s of queue %r was moved to %r: %s",
        letter.message.id, letter.queue, letter.dead_letter, letter.reason or "no reason given",
        extra={
            "queue": letter.queue, "message_id": letter.message.id, "rc": letter.message.rc,
            "dead_letter": letter.dead_letter, "reason": letter.reason,
        },
    )  # fmt: skip
