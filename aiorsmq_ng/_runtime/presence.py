"""Presence: a client announces which queues it consumes from, and what it holds.

Operators see it in the statistics of a queue. No other function depends on it: the messages of a
crashed consumer become visible when their leases end.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections import Counter
from contextlib import suppress

import anyio

from .._protocol.keys import QueueKeys
from .._protocol.operations import presence
from .._transport.transport import Transport
from ..errors import ClientClosed, WrongContext
from .lease_renewal import LeaseKeeper


class Presence:
    """Announces this client on every queue it consumes from."""

    def __init__(self, transport: Transport, keeper: LeaseKeeper) -> None:
        self._transport = transport
        self._keeper = keeper
        self._consumers: Counter[QueueKeys] = Counter()
        #: Queues with an announcement in flight, and those of them that have changed since.
        self._in_flight: set[QueueKeys] = set()
        self._outdated: set[QueueKeys] = set()
        self._changed = asyncio.Event()
        self._running = False
        self._name = ""

    @property
    def name(self) -> str:
        """The name of this client: host, process id and a random part."""
        # Made on first use: a child process that inherits the client has a name of its own.
        self._name = self._name or f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"
        return self._name

    def named(self) -> str:
        """Return the name; a callable for code that needs it later."""
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
        """Announce one consumer less; the last one is removed at once."""
        self._consumers[keys] -= 1
        if self._consumers[keys] <= 0:
            del self._consumers[keys]
            self._announce(keys)

    def close(self) -> None:
        """Remove this client from every queue."""
        for keys in list(self._consumers):
            del self._consumers[keys]
            self._announce(keys)

    async def _run(self) -> None:
        try:
            while self._consumers:
                self._changed.clear()
                for keys in list(self._consumers):
                    self._announce(keys)
                with anyio.move_on_after(presence.ANNOUNCE_S):
                    await self._changed.wait()
                    # Consumers often start together; announce them together.
                    await anyio.sleep(0.05)
        finally:
            self._running = False

    def _announce(self, keys: QueueKeys) -> None:
        """Announce the present state of a queue's consumers.

        One announcement per queue is in flight at a time: calls are made on several connections,
        and an older announcement that came last would show a consumer that has left.
        """
        if keys in self._in_flight:
            self._outdated.add(keys)
            return
        holding = [x.id for x in self._keeper.kept() if x.queue == keys.queue]
        operation = presence.announce(keys, self.name, self._consumers[keys], holding)
        with suppress(ClientClosed, WrongContext):  # a closed client has nothing to announce
            future = self._transport.submit(operation, closing=True)
            self._in_flight.add(keys)
            future.add_done_callback(lambda _: self._announced(keys))

    def _announced(self, keys: QueueKeys) -> None:
        self._in_flight.discard(keys)
        if keys in self._outdated:
            self._outdated.discard(keys)
            self._announce(keys)
