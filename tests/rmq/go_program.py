"""Builds the Go program of these tests, and speaks with it."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parent / "go"
#: Kept between runs and out of git; remove it to build again.
CACHE = Path(__file__).parents[2] / ".interop"
#: Less than the time limit of a test, so that a mute proxy leads to a reason.
BUILD_LIMIT_S = 110
#: How long a reply may take on a busy machine.
REPLY_S = 60


class NotBuilt(Exception):
    """The program cannot be had here; the text says why."""


class Refused(Exception):
    """An error that rmq returned."""


def build() -> Path:
    """Return the program, built from these sources."""
    go = shutil.which("go")
    if go is None:
        raise NotBuilt("go is not installed")
    parts = [(SOURCE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum")]
    program = CACHE / f"rmq-{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "rmq.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            # Two steps, so that a build that is killed leaves no program.
            command = [go, "build", "-o", f"{program}.new", "."]
            try:
                subprocess.run(
                    command, cwd=SOURCE, check=True, capture_output=True, timeout=BUILD_LIMIT_S
                )
            except subprocess.CalledProcessError as error:
                raise NotBuilt(error.stderr.decode(errors="replace")[-300:]) from error
            except subprocess.TimeoutExpired as error:
                raise NotBuilt(f"go build took more than {BUILD_LIMIT_S} s") from error
            os.replace(f"{program}.new", program)
    return program


class GoProgram:
    """A process on rmq: one connection of rmq, asked by lines of JSON."""

    def __init__(self, process: Process) -> None:
        self.process = process
        #: What its consumers reported: payload, header, size of the batch, error of settling.
        self.deliveries: list[dict[str, Any]] = []
        self._replies: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._reader = asyncio.create_task(self._read())

    async def ask(self, verb: str, queue: str = "", **words: Any) -> Any:
        """Return the result of one call, or raise ``Refused``."""
        line = json.dumps({"verb": verb, "queue": queue, **words}).encode() + b"\n"
        assert self.process.stdin
        self.process.stdin.write(line)
        return await self.reply()

    async def publish(self, queue: str, *payloads: bytes, **words: Any) -> None:
        """Publish payloads."""
        texts = [base64.b64encode(payload).decode() for payload in payloads]
        await self.ask("publish", queue, payloads=texts, **words)

    async def reply(self) -> Any:
        """Return the next reply."""
        answer = await asyncio.wait_for(self._replies.get(), REPLY_S)
        if answer is None:
            raise RuntimeError(f"the Go program ended with {await self.process.wait()}")
        if error := answer.get("error"):
            raise Refused(error)
        return answer.get("result")

    async def kill(self) -> None:
        """End it as a power cut would."""
        with suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        await self._reader

    @property
    def payloads(self) -> list[bytes]:
        """The payloads that it consumed, in order."""
        return [delivery["payload"] for delivery in self.deliveries]

    async def _read(self) -> None:
        assert self.process.stdout
        async for line in self.process.stdout:
            said = json.loads(line)
            if delivery := said.get("delivery"):
                delivery["payload"] = base64.b64decode(delivery["payload"] or "")
                self.deliveries.append(delivery)
            else:
                self._replies.put_nowait(said)
        self._replies.put_nowait(None)


@asynccontextmanager
async def go_program(
    program: Path, tag: str, mode: str, addresses: Iterable[str]
) -> AsyncIterator[GoProgram]:
    """Run the program on a server or a cluster; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        program, tag, mode, ",".join(addresses), stdin=PIPE, stdout=PIPE, limit=1 << 26
    )
    peer = GoProgram(process)
    try:
        assert await peer.reply() == "ready"
        yield peer
    finally:
        await peer.kill()
