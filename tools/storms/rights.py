"""Workers with the rights of a consumer on a full server, killed and started again."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options, ServerOutOfMemory
from aiorsmq_ng.broker import Broker, BrokerOptions, Tokens
from aiorsmq_ng.testing import PrivateServer
from tests.support.roles import ACL_RULES

from ..lab import Verdict, Violation

Figures = tuple[dict[str, Any], Verdict | None]

SENDERS, WORKERS, BODY = 8, 3, 1000
#: Memory that the server has for messages.
ROOM = 3_000_000
TOKENS = """
[sender]
token = "token-of-the-sender"
roles = ["producer"]
queues = ["jobs"]
[worker]
token = "token-of-the-worker"
roles = ["consumer"]
queues = ["jobs"]
"""
PATIENT = Options(connect_timeout=60, deadline=120)


async def by_acl(seconds: float) -> Figures:
    """Senders and workers are the ACL users of docs/guides/security.md."""
    async with PrivateServer() as server:
        url = server.url
        storm = Storm(
            server,
            url.replace("redis://", "redis://producer:password@"),
            url.replace("redis://", "redis://consumer:password@"),
        )
        return await storm.play(seconds)


async def by_token(seconds: float) -> Figures:
    """Senders and workers have tokens of a broker."""
    async with PrivateServer() as server, RSMQ(server.url, options=PATIENT) as rsmq:
        options = BrokerOptions(listen=("127.0.0.1:0",), grace=1)
        async with Broker(rsmq, options, Tokens.read(TOKENS)) as broker:
            url = f"grpc://{broker.addresses[0]}"
            storm = Storm(server, url, url, "token-of-the-sender", "token-of-the-worker")
            return await storm.play(seconds)


class Storm:
    """Senders that never pause, and workers that are killed and started again meanwhile."""

    def __init__(
        self,
        server: PrivateServer,
        sends_to: str,
        works_at: str,
        sender: str | None = None,
        worker: str | None = None,
    ) -> None:
        self._server = server
        self._sends_to = sends_to
        self._works_at = works_at
        self._sender = sender
        self._worker = worker or ""
        self._chance = random.Random(1)
        self.sent: set[str] = set()
        self.refused = 0
        self.starts = self.starts_while_full = self.failed_starts = self.kills = 0
        self._stopping = False
        self._running: list[asyncio.subprocess.Process] = []

    async def play(self, seconds: float) -> Figures:
        """Return the figures of *seconds* of it, and what was against the rules."""
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            self._file = Path(folder) / "handled"
            self._file.touch()
            async with RSMQ(self._server.url, options=PATIENT) as owner:
                await self._set_up(owner)
                async with self._hammering():
                    while not self.refused:
                        await asyncio.sleep(0.01)
                    for _ in range(WORKERS):
                        await self._start()
                    ends = time.monotonic() + seconds
                    while time.monotonic() < ends:
                        await asyncio.sleep(1)
                        await self._replace()
                left = await self._drain(owner)
                exits = [await self._stop(process) for process in self._running]
                scan = owner.queue("jobs-dead").scan()
                dead = {message.text.split(" ")[0] async for message in scan}
            handled = Counter(self._file.read_text().split())
        wanted = {key for key in self.sent if not key.startswith("fine")}
        found = {
            "sent": len(self.sent),
            "refused for want of memory": self.refused,
            "worker starts": self.starts,
            "of them on the full server": self.starts_while_full,
            "failed starts": self.failed_starts,
            "workers killed": self.kills,
            "handled": len(handled),
            "again": handled.total() - len(handled),
            "dead letters": len(dead),
            "lost": len(self.sent - handled.keys() - dead),
            "wrongly put aside": len(dead - wanted),
            "not put aside": len(wanted - dead),
            "left": left,
            "exits of the last workers": exits,
            "seconds": round(time.monotonic() - began, 1),
        }
        nothing = ("failed starts", "lost", "wrongly put aside", "not put aside", "left")
        wrong = [Violation("O1", f"{name}: {found[name]}") for name in nothing if found[name]]
        if any(exits) or not self.starts_while_full:
            wrong.append(Violation("O8", f"exits {exits}, starts {self.starts_while_full}"))
        return found, Verdict(wrong)

    async def _set_up(self, owner: RSMQ) -> None:
        for name in ("jobs", "jobs-dead"):
            await owner.create_queue(name)
        async with Redis.from_url(self._server.url) as admin:
            for name, rules in ACL_RULES.items():
                await admin.execute_command("ACL", "SETUSER", name, *rules)
            used = (await admin.info("memory"))["used_memory"]
            await admin.config_set("maxmemory", used + ROOM)

    @asynccontextmanager
    async def _hammering(self) -> AsyncIterator[None]:
        async with RSMQ(self._sends_to, token=self._sender, options=PATIENT) as rsmq:
            senders = [asyncio.create_task(self._send(rsmq, n)) for n in range(SENDERS)]
            try:
                yield
            finally:
                self._stopping = True
                await asyncio.gather(*senders)

    async def _send(self, rsmq: RSMQ, number: int) -> None:
        queue, n = rsmq.queue("jobs"), 0
        while not self._stopping:
            n += 1
            kind = "worse" if n % 300 == 0 else "bad" if n % 20 == 0 else "fine"
            key = f"{kind}-{number}-{n}"
            try:
                await queue.send(f"{key} {'x' * BODY}")
                self.sent.add(key)
            except ServerOutOfMemory:
                self.refused += 1
                await asyncio.sleep(0.005)

    async def _start(self) -> None:
        refused = self.refused
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tools.storms.rights_worker"),
            *(self._works_at, self._worker, str(self._file)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        self.starts += 1
        async with asyncio.timeout(120):
            if b"begun" not in await process.stdout.readline():
                self.failed_starts += 1
                await process.wait()
                return
        # Something was refused while it started, so the server was full then.
        self.starts_while_full += self.refused > refused
        self._running.append(process)

    async def _replace(self) -> None:
        if self._running:
            process = self._running.pop(self._chance.randrange(len(self._running)))
            process.kill()
            await process.wait()
            self.kills += 1
        await self._start()

    async def _drain(self, owner: RSMQ) -> int:
        ends = time.monotonic() + 180
        while time.monotonic() < ends:
            if (left := (await owner.queue("jobs").attributes()).msgs) == 0:
                break
            await asyncio.sleep(0.1)
        return left

    async def _stop(self, process: asyncio.subprocess.Process) -> int | None:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            await process.wait()
        return process.returncode
