"""The limit: the package's own scripts over one raw socket, many calls in flight, no client at all.

Commands are packed before the clock starts where they can be, replies are parsed by hiredis and
dropped. What is left is what the server does, and what the kernel needs to carry it.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import hiredis
from script_calls import CREATE, SCRIPTS, Calls, delete_words, receive, send
from talk import Job, Peer, serve

from aiorsmq_ng._protocol.operation import Operation
from aiorsmq_ng._protocol.scripts import load

#: Messages of one call, and bytes of bodies that it carries at most; the same as the package's.
BATCH, BATCH_BYTES = 100, 1 << 18
#: Calls in flight while a queue is emptied, and bytes written ahead of the replies.
IN_FLIGHT, AHEAD = 8, 1 << 18


class Limit(Peer):
    """One socket that is never waited for longer than the server needs."""

    packages = ("hiredis",)

    async def open(self, url: str) -> None:
        """Connect, and give the scripts to the server."""
        place = urlsplit(url)
        self.socket = socket.create_connection((place.hostname, place.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()
        self.calls = Calls("limit")
        for name in SCRIPTS:
            self.ask(hiredis.pack_command(("SCRIPT", "LOAD", load(name).source)))

    async def reset(self) -> None:
        """Make the queue."""
        self.ask(self.pack(CREATE))
        self.packed: list[bytes] = []

    async def prepare(self, job: Job) -> None:
        """Pack what can be packed before."""
        await super().prepare(job)
        if job.kind in ("send", "send_many"):
            batch = job.batch if job.kind == "send_many" else _batch(job.size)
            self.packed = list(self.sends(job, batch))

    async def fill(self, job: Job) -> None:
        """Put the job's messages into the queue."""
        self.pour(self.sends(job, _batch(job.size)))

    async def run(self, job: Job) -> list[float]:
        """Do a job; single calls have no time of their own."""
        if job.kind in ("send", "send_many"):
            self.pour(self.packed)
        else:
            self.drain_all(job)
        return []

    def sends(self, job: Job, batch: int) -> Iterator[bytes]:
        """Pack the sends of a job."""
        body = job.body.encode()
        for at in range(0, job.messages, batch):
            bodies = [body] * min(batch, job.messages - at)
            yield self.pack(send(bodies))

    def pack(self, *operations: Operation[Any]) -> bytes:
        """Pack the call that these operations share."""
        return hiredis.pack_command(self.calls.words(*operations))

    def ask(self, command: bytes) -> Any:
        """Make one call and wait for its reply."""
        self.socket.sendall(command)
        return self.reply()

    def reply(self) -> Any:
        """Wait for the next reply."""
        while (reply := self.reader.gets()) is False:
            self.reader.feed(self.socket.recv(1 << 18))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def pour(self, commands: Iterable[bytes]) -> None:
        """Write commands as long as no more than ``AHEAD`` bytes wait for their replies."""
        waiting: list[int] = []
        ahead = at = 0
        for command in commands:
            self.socket.sendall(command)
            waiting.append(len(command))
            ahead += len(command)
            while ahead > AHEAD and at < len(waiting) - 1:
                self.stored()
                ahead -= waiting[at]
                at += 1
        for _ in waiting[at:]:
            self.stored()

    def stored(self) -> None:
        """Wait for the next reply, which must name what was stored."""
        if not isinstance(reply := self.reply(), list):
            raise RuntimeError(f"a send was answered by {reply!r}")

    def drain_all(self, job: Job) -> None:
        """Lease batches and delete them, fenced by their receipts, some calls ahead."""
        batch = _batch(job.size)
        receiving = receive(batch)
        calls, gone = -(-job.messages // batch), 0
        waiting: deque[str] = deque()
        while calls or waiting:
            while calls and len(waiting) < IN_FLIGHT:
                self.socket.sendall(self.pack(receiving))
                waiting.append("receive")
                calls -= 1
            reply = self.reply()[0]
            if waiting.popleft() == "receive":
                self.socket.sendall(hiredis.pack_command(delete_words(reply[2:])))
                waiting.append("delete")
            else:
                gone += sum(reply)
        if gone != job.messages:
            raise RuntimeError(f"{gone} of {job.messages} messages were taken")


def _batch(size: int) -> int:
    return max(1, min(BATCH, BATCH_BYTES // size))


serve(Limit())
