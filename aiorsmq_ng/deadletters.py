"""Dead letters: every move to a dead-letter queue is told to those who listen, wherever it happens.

A message that its holder puts aside has somebody who knows of it. One that a receive puts aside,
because it was delivered too often and never settled, has not, so that is also logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from .models import DeadLetter
from .protocol.receipts import Buried

logger = logging.getLogger("aiorsmq_ng.deadletters")

#: Called with a message that was moved; returns True if it takes note of it.
Listener = Callable[[DeadLetter], bool]


class DeadLetters:
    """Where a client tells of messages that were moved to the dead letters."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call *listener* from now on; the first that takes note of a message is the only one."""
        self._listeners.append(listener)

    def forget(self, listener: Listener) -> None:
        """Call it no more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def found(self, buried: Buried) -> None:
        """Log and tell of a message that a receive has moved."""
        message, queue, dead = buried.message, buried.keys.queue, buried.dead.queue
        logger.warning(
            "message %s of %r was moved to %r: %s", message.id, queue, dead, buried.reason
        )
        self.tell(DeadLetter(message, queue, dead, buried.reason, by_receive=True))

    def tell(self, letter: DeadLetter) -> None:
        """Tell of a message that was moved."""
        for listener in self._listeners:
            if listener(letter):
                return
