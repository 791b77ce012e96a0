"""The clock of the server: it jumps, by a library that is loaded before its own."""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Options, Worker
from aiorsmq_ng.testing import FaultProxy, PrivateServer

from ..lab import Verdict, Violation
from .scene import Fault, Load, Scene

Figures = tuple[dict[str, Any], Verdict | None]

#: Every way in which a server asks for the time of day, moved by what the file says.
_SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset_us;

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *at = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
  if (at != MAP_FAILED) offset_us = at;
  close(file);
}

static long long offset(void) { return offset_us ? *offset_us : 0; }

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  static int (*real)(struct timeval *, void *);
  if (!real) real = dlsym(RTLD_NEXT, "gettimeofday");
  int result = real(now, zone);
  long long us = now->tv_sec * 1000000LL + now->tv_usec + offset();
  now->tv_sec = us / 1000000;
  now->tv_usec = us % 1000000;
  return result;
}

int clock_gettime(clockid_t which, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(which, now);
  if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) {
    long long us = now->tv_sec * 1000000LL + now->tv_nsec / 1000 + offset();
    now->tv_nsec = us % 1000000 * 1000 + now->tv_nsec % 1000;
    now->tv_sec = us / 1000000;
  }
  return result;
}

time_t time(time_t *to) {
  struct timeval now;
  gettimeofday(&now, NULL);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
"""


class NoClock(Exception):
    """The clock of a server cannot be moved here; the text says why."""


class JumpyServer(PrivateServer):
    """A server whose clock can be set; ``NoClock`` if that is not possible here."""

    async def start(self) -> Self:
        """Compile the library, start the server with it and see that it works."""
        self._tools = Path(tempfile.mkdtemp(prefix="clock-"))
        try:
            self._compile()
            (self._tools / "offset").write_bytes(bytes(8))
            with (self._tools / "offset").open("r+b") as file:
                self._offset = mmap.mmap(file.fileno(), 8)
            await super().start()
            self.set_clock(1000)
            if await self.ahead_s() < 500:
                raise NoClock("the server does not take its time from the C library")
            self.set_clock(0)
        except BaseException:
            await self.aclose()
            raise
        return self

    def set_clock(self, ahead_s: float) -> None:
        """Set its clock so far ahead of the real one, or behind it."""
        self._offset[:] = struct.pack("q", round(ahead_s * 1e6))

    async def jump(self, ahead_s: float) -> None:
        """Set its clock, and wait until it has looked."""
        self.set_clock(ahead_s)
        async with asyncio.timeout(30):
            while abs(await self.ahead_s() - ahead_s) > 5:
                await asyncio.sleep(0.01)

    async def ahead_s(self) -> float:
        """Return how far its clock is ahead."""
        seconds, micros = await self.command("TIME")
        return int(seconds) + int(micros) / 1e6 - time.time()

    async def aclose(self) -> None:
        """Kill it and remove the library."""
        await super().aclose()
        shutil.rmtree(self._tools, ignore_errors=True)

    def _compile(self) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise NoClock("there is no C compiler")
        source = self._tools / "clock.c"
        source.write_text(_SHIM)
        library = str(self._tools / "clock.so")
        words = [compiler, "-shared", "-fPIC", "-O2", "-w", "-o", library, str(source), "-ldl"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise NoClock(f"the library cannot be compiled: {done.stderr.strip()[:200]}")

    def _spawn(self) -> None:
        mine = {
            "LD_PRELOAD": str(self._tools / "clock.so"),
            "CLOCK_OFFSET_FILE": str(self._tools / "offset"),
        }
        before = {name: os.environ.get(name) for name in mine}
        os.environ.update(mine)
        try:
            super()._spawn()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


async def clock_forward(seconds: float) -> Figures:
    """Leases end too early for the server: a worker that hears nothing goes by its own clock."""
    verdict = Verdict()
    rounds = cancelled = refused = 0
    until = time.monotonic() + seconds
    async with JumpyServer() as server, FaultProxy(server.url) as proxy:
        while rounds == 0 or time.monotonic() < until:
            rounds += 1
            async with RSMQ(proxy.url, ns=f"{rounds}", options=Options(deadline=3)) as rsmq:
                stopped, delivery = await _cut_off_worker(server, proxy, rsmq)
                cancelled += stopped
                try:
                    await delivery.ack()
                    verdict.violations.append(Violation("O2", "a late ack was accepted"))
                except LeaseLost:
                    refused += 1
            await server.jump(0)
    if cancelled < rounds:
        verdict.violations.append(Violation("O2", "a handler went on after its lease"))
    return {"jumps": rounds, "handlers cancelled": cancelled, "late acks refused": refused}, verdict


async def _cut_off_worker(
    server: JumpyServer, proxy: FaultProxy, rsmq: RSMQ
) -> tuple[bool, Delivery]:
    """Let a worker lose sight of the server, whose clock jumps, while another takes its message."""
    held: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    stopped = asyncio.Event()
    async with RSMQ(server.url, ns=rsmq.ns) as other:
        queue = await other.create_queue("jobs")
        worker = Worker(rsmq, grace=0)

        @worker.handler("jobs", vt=4)
        async def handle(_: str, message: Delivery) -> None:
            held.set_result(message)
            try:
                await asyncio.sleep(120)
            except asyncio.CancelledError:
                stopped.set()
                raise

        running = asyncio.create_task(worker.run(signals=False))
        try:
            await queue.send("work")
            delivery = await asyncio.wait_for(held, 30)
            proxy.black_hole()
            await server.jump(60)
            taken = await queue.receive(vt=600, wait=30)
            assert taken is not None
            assert taken.rc > delivery.rc
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 30)
            await proxy.resume()
            await proxy.cut()
            was_stopped = stopped.is_set()
        finally:
            await proxy.resume()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    return was_stopped, delivery


async def clock_back(seconds: float) -> Figures:
    """What was sent before is hidden when the clock goes back; the doctor shows it again."""
    verdict = Verdict()
    rounds = hidden = shown = 0
    until = time.monotonic() + seconds
    async with JumpyServer() as server, RSMQ(server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        while rounds == 0 or time.monotonic() < until:
            rounds += 1
            await queue.send_many([f"{rounds}-{n}" for n in range(20)])
            await server.jump(-3600 * rounds)
            await queue.send("new")
            visible = await queue.receive_many(100, vt=600)
            hidden += 21 - len(visible)
            report = await rsmq.doctor(fix=True)
            kinds = {finding.kind for finding in report.findings}
            again = await queue.receive_many(100, vt=600)
            shown += len(again)
            if len(visible) + len(again) != 21 or "hidden_by_clock" not in kinds:
                told = f"{len(visible)} + {len(again)} of 21 were received; found: {kinds}"
                verdict.violations.append(Violation("O7", told))
            for delivery in (*visible, *again):
                await delivery.ack()
    return {"jumps": rounds, "hidden": hidden, "shown again": shown}, verdict


def steps(server: JumpyServer, most_s: float = 2.0) -> Fault:
    """Move the clock by 100 ms, forward or back, again and again."""

    async def fault(scene: Scene) -> None:
        ahead_s = 0.0
        while True:
            await asyncio.sleep(0.05)
            step_s = scene.chance.choice((-0.1, 0.1))
            if abs(ahead_s + step_s) <= most_s:
                ahead_s += step_s
                server.set_clock(ahead_s)
                scene.mark("step")

    return fault


async def clock_steps(seconds: float) -> Figures:
    """Small steps both ways under load."""
    async with JumpyServer() as server, Scene(server.url, load=Load(wait=30)) as scene:
        await scene.play(seconds, steps(server))
        verdict = await scene.verdict()
        figures = {
            "acked": verdict.acked,
            "lost": verdict.lost,
            "overlaps": verdict.overlaps,
            "redelivered": verdict.redelivered,
            "steps": scene.faults["step"],
        }
        return figures, verdict
