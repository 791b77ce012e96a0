"""Whole queues in and out: ``rsmqctl message export`` and ``import`` beside ``send_many``.

One server, one run: ``send_many`` in this process, first and last, and between them the command as
a process of its own, its start included, once with a terminal on stderr (a progress bar) and once
with a pipe (none). The memory is the most that the process ever held. The processor time, of this
side and of the server, tells what a way costs where other work makes the seconds unsteady.

    python benchmarks/transfer.py [--messages 1000000] [--size 100]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.testing import PrivateServer

#: Messages of one send_many; import makes its calls of as many.
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Run:
    """What a way of moving all messages took."""

    way: str
    seconds: float
    #: Processor seconds, of this side and of the server.
    cpu_s: float
    server_cpu_s: float = 0.0
    peak_mb: float | None = None
    #: What the command printed on stderr.
    shown: bytes = b""


async def send_all(url: str, name: str, body: str, count: int) -> Run:
    """Fill a queue as fast as one task can."""
    async with RSMQ(url) as rsmq:
        queue = await rsmq.create_queue(name)
        page = [body] * PAGE
        await queue.send_many(page)  # warms up
        await queue.purge()
        began, spent = time.perf_counter(), time.process_time()
        for start in range(0, count, PAGE):
            await queue.send_many(page[: count - start])
        took = time.perf_counter() - began
        return Run(f"`send_many`, {PAGE} per call", took, time.process_time() - spent)


async def emptied(url: str) -> None:
    """Delete the queue ``copy`` and create it again."""
    async with RSMQ(url) as rsmq:
        if "copy" in await rsmq.list_queues():
            await rsmq.delete_queue("copy")
        await rsmq.create_queue("copy")


async def size_of(url: str, name: str) -> int:
    async with RSMQ(url) as rsmq:
        return (await rsmq.queue(name).attributes()).msgs


def command(url: str, verb: str, name: str, file: Path, *, terminal: bool) -> Run:
    """Run ``rsmqctl message`` *verb* to its end; *terminal*: a pseudo-terminal is its stderr."""
    ours, theirs = pty.openpty() if terminal else os.pipe()
    line = [sys.executable, "-m", "aiorsmq_ng.cli", "-r", url, "message", verb, "-n", name]
    shown = bytearray()

    def read() -> None:
        try:
            while block := os.read(ours, 65536):
                shown.extend(block)
        except OSError:
            pass  # how a pseudo-terminal ends

    reader = threading.Thread(target=read)
    began = time.perf_counter()
    process = subprocess.Popen(
        [*line, "-f", str(file)], stdout=subprocess.DEVNULL, stderr=theirs, env=os.environ
    )
    os.close(theirs)
    reader.start()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    os.close(ours)
    if process.returncode:
        raise SystemExit(f"{verb} failed: {bytes(shown).decode(errors='replace')}")
    where = "on a terminal" if terminal else "in a pipe"
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    cpu_s = used.ru_utime + used.ru_stime
    way = f"`message {verb}` {where}"
    return Run(way, seconds, cpu_s, peak_mb=used.ru_maxrss / unit, shown=bytes(shown))


async def measure(messages: int, size: int, folder: Path) -> list[Run]:
    """Return what each way took."""
    runs: list[Run] = []
    async with PrivateServer() as server, Redis.from_url(server.url) as admin:

        async def busy() -> float:
            cpu = await admin.info("cpu")
            return float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])

        async def note(before: float, run: Run) -> None:
            runs.append(replace(run, server_cpu_s=await busy() - before))

        await note(await busy(), await send_all(server.url, "full", "x" * size, messages))
        for terminal in (True, False):
            file, before = folder / f"{terminal}.ndjson", await busy()
            await note(before, command(server.url, "export", "full", file, terminal=terminal))
        for terminal in (True, False):
            await emptied(server.url)
            before = await busy()
            await note(before, command(server.url, "import", "copy", file, terminal=terminal))
            if (found := await size_of(server.url, "copy")) != messages:
                raise SystemExit(f"{found} of {messages} messages came back")
        # Again, because other work on the machine may have come or gone meanwhile.
        await note(await busy(), await send_all(server.url, "again", "x" * size, messages))
    for run in runs[1:-1]:
        if (b"%" in run.shown) != ("terminal" in run.way):
            raise SystemExit(f"{run.way}: the progress bar is not where it should be")
    return runs


def main() -> None:
    """Measure and print the table of the documentation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = asyncio.run(measure(given.messages, given.size, Path(folder)))
    print(f"{given.messages} messages of {given.size} bytes; load {os.getloadavg()[0]:.1f}\n")
    print("| way | seconds | messages/s | of `send_many` | processor: own + server | memory |")
    print("|---|---|---|---|---|---|")
    sends = (runs[0].seconds + runs[-1].seconds) / 2
    for run in runs:
        memory = f"{run.peak_mb:.0f} MB" if run.peak_mb else ""
        share = f"{sends / run.seconds:.2f}"
        rate = f"{given.messages / run.seconds:,.0f}".replace(",", " ")
        cpu = f"{run.cpu_s:.1f} + {run.server_cpu_s:.1f} s"
        print(f"| {run.way} | {run.seconds:.1f} | {rate} | {share} | {cpu} | {memory} |")


if __name__ == "__main__":
    main()
