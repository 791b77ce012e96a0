"""Presence: a client tells now and then which queues it consumes from and what it holds.

For people who look at a queue. Nothing depends on it: a crashed consumer's messages come back when
their leases end.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from contextlib import suppress

import anyio

from .._protocol import queues
from .._protocol.keys import QueueKeys
from .._transport.batching import Transport
from ..errors import ClientClosed, WrongContext
from .leases import LeaseKeeper


class Presence:
    """Announces this client on every queue it consumes from."""

    def __init__(self, transport: Transport, keeper: LeaseKeeper) -> None:
        self._transport = transport
        self._keeper = keeper
        self._consumers: Counter[QueueKeys] = Counter()
        self._changed = asyncio.Event()
        self._running = False
        self._name = ""

    @property
    def name(self) -> str:
        """The name of this client: host, process and something drawn."""
        # Not made before it is asked for: children of the process that made the client are others.
        self._name = self._name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        return self._name

    def named(self) -> str:
        """Return the name, when it is needed."""
        return self.name

    def enter(self, keys: QueueKeys) -> None:
        """Announce one more consumer of a queue."""
        self._transport.closers.add(self.close)
        self._consumers[keys] += 1
        self._changed.set()
        if not self._running:
            self._running = True
            self._transport.spawn(self._run)

    def leave(self, keys: QueueKeys) -> None:
        """Announce one consumer less; the last one is taken off at once."""
        self._consumers[keys] -= 1
        if self._consumers[keys] <= 0:
            del self._consumers[keys]
            self._say(keys)

    def close(self) -> None:
        """Take this client off every queue."""
        for keys in list(self._consumers):
            del self._consumers[keys]
            self._say(keys)

    async def _run(self) -> None:
        try:
            while self._consumers:
                self._changed.clear()
                for keys in list(self._consumers):
                    self._say(keys)
                with anyio.move_on_after(queues.ANNOUNCE_S):
                    await self._changed.wait()
                    # Consumers often start together; tell of them together.
                    await anyio.sleep(0.05)
        finally:
            self._running = False

    def _say(self, keys: QueueKeys) -> None:
        holding = [x.id for x in self._keeper.kept() if x.queue == keys.queue]
        said = queues.announce(keys, self.name, self._consumers[keys], holding)
        with suppress(ClientClosed, WrongContext):  # a closed client has nothing more to say
            self._transport.submit(said)
