"""Dead letters: every move to a dead-letter queue is reported to listeners, wherever it happens.

The holder of a message that is rejected knows of it. A message that a receive moves, because it was
delivered too often and never settled, has no such holder, so that is also logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .._protocol.values import DeadLettered
from ..codec import JSON, Codec
from ..models import DeadLetter

logger = logging.getLogger("aiorsmq_ng.dead_letters")

#: Called with a message that was moved. It must return at once: the receive waits for it.
Listener = Callable[[DeadLetter], object]


class DeadLetters:
    """Reports messages that this client moved to the dead letters to all listeners.

    Programs call ``listen`` and ``forget``; the client calls ``found`` and ``tell``.
    """

    def __init__(self, codec: Codec = JSON) -> None:
        self._codec = codec
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call *listener* for every dead letter from now on; one that raises is logged."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Call *listener* no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def found(self, buried: DeadLettered) -> None:
        """Log and report *buried*, a message that a receive has moved."""
        message, queue, dead = buried.message, buried.keys.queue, buried.dead.queue
        logger.warning(
            "message %s of %r was moved to %r: %s", message.id, queue, dead, buried.reason
        )
        message.with_codec(self._codec)
        self.tell(DeadLetter(message, queue, dead, buried.reason, by_receive=True))

    def tell(self, letter: DeadLetter) -> None:
        """Report *letter*, a message that was moved."""
        for listener in tuple(self._listeners):
            try:
                listener(letter)
            except Exception:
                logger.exception("a listener for dead letters failed")
