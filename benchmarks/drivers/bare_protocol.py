"""The least that a client in Python can do: the same scripts, called by a bare asyncio protocol.

One command is in flight at a time. The words of sends and receives are computed before the clock
starts; what is left is to pack them, to write, to parse the reply with hiredis and to wake the
caller.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import hiredis
from script_calls import CREATE, SCRIPTS, Calls, delete_words, receive, send
from talk import Job, Peer, serve

from aiorsmq_ng._protocol.scripts import load


class Connection(asyncio.Protocol):
    """One socket, and one caller that waits."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, words: tuple[Any, ...]) -> asyncio.Future[Any]:
        """Write a command; the future is its reply."""
        self.waiter: asyncio.Future[Any] = self.loop.create_future()
        self.transport.write(hiredis.pack_command(words))
        return self.waiter

    def data_received(self, data: bytes) -> None:
        """Wake the caller if the reply is complete."""
        self.reader.feed(data)
        reply = self.reader.gets()
        if isinstance(reply, Exception):
            self.waiter.set_exception(reply)
        elif reply is not False:
            self.waiter.set_result(reply)


class BareProtocol(Peer):
    """Calls without a client."""

    packages = ("hiredis",)

    async def open(self, url: str) -> None:
        """Connect, and give the scripts to the server."""
        place = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, self.connection = await loop.create_connection(Connection, place.hostname, place.port)
        # Calls of one series must follow each other in the order of their numbers.
        self.sending, self.receiving = Calls("bare-sends"), Calls("bare-receives")
        for name in SCRIPTS:
            await self.connection.ask(("SCRIPT", "LOAD", load(name).source))

    async def prepare(self, job: Job) -> None:
        """Make the queue, and all that the calls say."""
        await self.connection.ask(self.sending.words(CREATE))
        number = range(job.messages)
        self.sends = iter([self.sending.words(send([job.body.encode()])) for _ in number])
        self.receives = iter([self.receiving.words(receive(1)) for _ in number])

    async def send(self, body: str) -> None:
        """Send one message."""
        await self.connection.ask(next(self.sends))

    async def take(self) -> None:
        """Receive one message and delete it, fenced by its receipt."""
        reply = (await self.connection.ask(next(self.receives)))[0]
        gone = await self.connection.ask(delete_words(reply[2:]))
        if sum(gone[0]) != 1:
            raise RuntimeError(f"a delete was answered by {gone!r}")


serve(BareProtocol())
