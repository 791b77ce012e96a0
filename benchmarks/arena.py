"""Rounds: contenders take turns on one server, and every turn is measured from outside, too.

A workload is played round by round: in each round every contender has one turn, in an order that
moves on by one from round to round, so that what the machine does meanwhile meets all alike. How
many messages a turn has follows from the rate of the turn before, so turns take about equally long.

An arena for *pairs* compares contenders that differ by some percent. Every contender has two turns
in a round, the second ones in reverse order (A B B A), so that a machine that becomes slower during
a round does the same to all. All turns of a round have the same number of messages. The server has
one processor and the contenders have another, as far as the system allows.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiorsmq_ng.testing import PrivateServer

from .contenders import Contender
from .environments import NotInstalled
from .timing import machine_cpu, percentile, server_cpu
from .workloads import Workload

#: How long a contender may take for a turn, its preparation included.
TURN_LIMIT_S = 60
#: How long a process may take to end after a signal, which ends what it has started, too.
END_S = 10
#: A line of the protocol at most.
LINE_BYTES = 1 << 22
Sample = dict[str, Any]


class Failed(Exception):
    """A contender did not do what it was asked; the text says why."""


class Process:
    """The process of a contender."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        #: Programs and packages that it runs on.
        self.versions: dict[str, str] = {}
        self._process: asyncio.subprocess.Process | None = None

    @property
    def runs(self) -> bool:
        """True if it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(self, url: str) -> None:
        """Start it, installing what it needs, and wait until it is connected."""
        command, extra = await asyncio.to_thread(self.contender.command, url)
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_BYTES,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **extra},
        )
        self.pid = self._process.pid
        self._said = asyncio.create_task(_tail(self._process.stderr))
        self.versions = (await self._hear())["ready"]

    async def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Ask for one thing and wait for the answer."""
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        answer = await self._hear()
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    async def stop(self) -> None:
        """End it: it leaves when its input ends."""
        if self._process and self._process.stdin:
            self._process.stdin.close()
            await self._end()

    async def _end(self) -> None:
        """Wait until it has ended; send signals if it does not."""
        assert self._process
        for end in (self._process.terminate, self._process.kill):
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._process.wait()
                return
            with suppress(ProcessLookupError):
                end()
        await self._process.wait()

    async def _hear(self) -> dict[str, Any]:
        assert self._process
        assert self._process.stdout
        try:
            async with asyncio.timeout(TURN_LIMIT_S):
                line = await self._process.stdout.readline()
            answer: dict[str, Any] = json.loads(line) if line else {}
        except TimeoutError:
            self._process.terminate()
            await self._end()
            raise Failed(f"no answer within {TURN_LIMIT_S} s") from None
        except ValueError as error:
            raise Failed(f"its answer cannot be read: {error}") from None
        if not answer:
            await self._end()
            raise Failed(f"it ended: {await self._said or 'without a word'}")
        return answer


def _pin(one: Iterable[int], others: Iterable[int]) -> None:
    """Give processes one processor, and other processes another, where the system can do that."""
    if sys.platform == "linux" and len(processors := sorted(os.sched_getaffinity(0))) > 1:
        for pids, processor in ((one, processors[0]), (others, processors[-1])):
            for pid in pids:
                with suppress(OSError):
                    os.sched_setaffinity(pid, {processor})


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """Return what a process says last beside its answers; a line that names an error if any."""
    last = error = ""
    while stream and (line := await stream.readline()):
        last = line.decode(errors="replace").strip() or last
        error = last if "Error" in last else error
    return error or last


class Arena:
    """The server, and the contenders that came."""

    def __init__(self, server: PrivateServer, *, pairs: bool = False) -> None:
        self.server = server
        self.pairs = pairs
        self.processes: dict[str, Process] = {}
        #: Contenders that cannot be had here, and why.
        self.missing: dict[str, str] = {}
        #: Contenders, or turns of theirs, that failed, and why.
        self.failures: dict[str, str] = {}
        self._rates: dict[tuple[str, str], float] = {}

    async def admit(self, contenders: Iterable[Contender]) -> None:
        """Start the contenders; one that cannot be had is named, and the others go on."""
        for contender in contenders:
            process = Process(contender)
            try:
                await process.start(self.server.url)
            except NotInstalled as error:
                self.missing[contender.name] = str(error)
                print(f"{contender.name} is missing: {error}", file=sys.stderr)
            except Failed as error:
                self.fail(contender.name, str(error))
                await process.stop()
            else:
                self.processes[contender.name] = process
        if self.pairs:
            server = await self.server.info("server")
            _pin([int(server["process_id"])], [p.pid for p in self.processes.values()])

    async def dismiss(self) -> None:
        """End all processes."""
        await asyncio.gather(*(process.stop() for process in self.processes.values()))

    def fail(self, name: str, why: str) -> None:
        """Record that a contender failed."""
        self.failures[name] = why
        print(f"{name}: {why}", file=sys.stderr)

    async def play(
        self,
        workload: Workload,
        rounds: int,
        duration_s: float,
        *,
        first: int = 1,
        only: Collection[str] = (),
    ) -> list[Sample]:
        """Play a workload: one round that only warms up and finds the rates, then *rounds*.

        The rounds are counted from *first* on. With *only*, contenders of other names sit it out.
        """
        names = [
            name
            for name, process in self.processes.items()
            if process.contender.plays(workload) and (not only or name in only)
        ]
        for name in names:
            if not self.processes[name].runs:
                await self.admit([self.processes[name].contender])
        samples = []
        for number in range(rounds + 1 if names else 0):
            for name, messages in self._turns(names, workload, number, duration_s):
                if f"{name}, {workload.name}" in self.failures:
                    continue
                try:
                    sample = await self._turn(name, workload, messages)
                except Failed as error:
                    self.fail(f"{name}, {workload.name}", str(error))
                    continue
                if number:
                    samples.append({"round": first + number - 1, **sample})
        return samples

    def _turns(
        self, names: list[str], workload: Workload, number: int, duration_s: float
    ) -> list[tuple[str, int]]:
        """Return the turns of a round: contender, and number of messages."""
        start = number % len(names)
        order = names[start:] + names[:start]
        rates = [self._rates.get((name, workload.name), 0) for name in order]
        if self.pairs:
            rates = [min(rates)] * len(order)
        wanted = [max(workload.first, int(rate * duration_s)) for rate in rates]
        turns = [(name, min(n, workload.most)) for name, n in zip(order, wanted, strict=True)]
        return [*turns, *reversed(turns)] if self.pairs else turns

    async def _turn(self, name: str, workload: Workload, messages: int) -> Sample:
        job = workload.job(messages)
        process = self.processes[name]
        await self.server.command("FLUSHALL")
        await process.ask({"prepare": job})
        before, busy = await server_cpu(self.server), machine_cpu()
        result = await process.ask({"run": job})
        busy, spent = machine_cpu() - busy, await server_cpu(self.server) - before
        # A contender with a server of its own has measured it.
        spent = result.get("server", spent)
        messages, seconds = result["messages"], result["seconds"]
        self._rates[name, workload.name] = messages / seconds
        times = result["times"]
        return {
            "workload": workload.name,
            "contender": name,
            "messages": messages,
            "seconds": round(seconds, 5),
            "rate": round(messages / seconds, 1),
            "p50_ms": percentile(times, 50),
            "p99_ms": percentile(times, 99),
            "client_us": round(result["cpu"] / messages * 1e6, 2),
            "server_us": round(spent / messages * 1e6, 2),
            # Processors that others kept busy meanwhile.
            "foreign": round(max(0.0, busy - result["cpu"] - spent) / seconds, 2),
        }


@asynccontextmanager
async def arena(contenders: Iterable[Contender], *, pairs: bool = False) -> AsyncIterator[Arena]:
    """Start a server without persistence, and the contenders; end them all."""
    async with PrivateServer() as server:
        one = Arena(server, pairs=pairs)
        try:
            await one.admit(contenders)
            yield one
        finally:
            await one.dismiss()
