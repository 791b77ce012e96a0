"""The line protocol between the harness and a contender's process, for contenders in Python.

One JSON object per line on standard input, one per line back. ``{"prepare": job}`` empties the
server, creates the queue, and fills it if the job takes messages. ``{"run": job}`` does the job and
returns how long it took, and the processor time of the peer's own server if it has one. Only what
``run`` does is measured.

This module needs nothing but the standard library, because it runs in the environment of each peer.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

#: Latencies that a run reports at most; more are thinned out evenly.
SAMPLES = 4000
#: Bodies of one call while a queue is being filled.
_FILL = 100
#: Kinds of jobs that take messages from one queue, which is filled before.
_TAKES = ("drain", "consume", "loop", "work")


@dataclass(frozen=True)
class Job:
    """What to do: number and size of the messages, tasks, messages per call, queues."""

    kind: str
    messages: int
    tasks: int = 1
    batch: int = 1
    size: int = 100
    #: Queues, or subscriptions of a topic, that the messages are spread over.
    queues: int = 1

    @property
    def body(self) -> str:
        """The body of every message."""
        return "x" * self.size


class Peer:
    """A contender. Subclasses say how a message is sent and how one is taken."""

    #: Packages whose versions are reported.
    packages: Sequence[str] = ()

    async def open(self, url: str) -> None:
        """Connect."""

    async def reset(self) -> None:
        """Make the queue; the server is empty."""

    async def send(self, body: str) -> None:
        """Send one message."""
        raise NotImplementedError

    async def send_many(self, bodies: list[str]) -> None:
        """Send messages by one call, or as the peer does it best."""
        await asyncio.gather(*map(self.send, bodies))

    async def take(self) -> None:
        """Receive one message and acknowledge it."""
        raise NotImplementedError

    async def cycle(self, body: str) -> None:
        """Send one message, receive it, acknowledge it."""
        await self.send(body)
        await self.take()

    async def drain(self, job: Job, times: list[float]) -> None:
        """Empty the queue, one message at a time, by the job's tasks."""
        await spread(job.messages, job.tasks, self.take, times)

    async def consume(self, job: Job, times: list[float]) -> None:
        """Empty the queue as fast as one process can, ``batch`` messages ahead."""
        raise NotImplementedError

    async def loop(self, job: Job, times: list[float]) -> None:
        """Take one message after the other, ``batch`` messages ahead; acknowledge each of them."""
        raise NotImplementedError

    async def work(self, job: Job, times: list[float]) -> None:
        """Let the peer's own worker handle all messages, ``tasks`` at a time."""
        raise NotImplementedError

    def server_s(self) -> float | None:
        """Return the seconds of processor time of its server; none if it uses the harness's."""
        return None

    async def fill(self, job: Job) -> None:
        """Put the job's messages into the queue."""
        for at in range(0, job.messages, _FILL):
            await self.send_many([job.body] * min(_FILL, job.messages - at))

    async def prepare(self, job: Job) -> None:
        """Get ready for a job."""
        await self.reset()
        if job.kind in _TAKES:
            await self.fill(job)

    async def settle(self) -> None:
        """Stop what a job has started; not measured."""

    async def run(self, job: Job) -> list[float]:
        """Do a job; return how many seconds single calls took."""
        body, times = job.body, list[float]()
        if job.kind == "send":
            await spread(job.messages, job.tasks, lambda: self.send(body), times)
        elif job.kind == "send_many":
            bodies = [body] * job.batch
            calls = job.messages // job.batch
            await spread(calls, job.tasks, lambda: self.send_many(bodies), times)
        elif job.kind == "cycle":
            await spread(job.messages, job.tasks, lambda: self.cycle(body), times)
        else:
            await getattr(self, job.kind)(job, times)
        return times


class Countdown:
    """Counts the messages that a worker handles; ``over`` is set by the last."""

    def __init__(self) -> None:
        self.left = 0
        self.over = asyncio.Event()

    def begin(self, messages: int) -> None:
        """Count down from the number of messages."""
        self.left = messages
        self.over.clear()

    def done(self) -> None:
        """Count one message."""
        self.left -= 1
        if self.left <= 0:
            self.over.set()


async def spread(
    calls: int, tasks: int, call: Callable[[], Awaitable[object]], times: list[float]
) -> None:
    """Make calls by several tasks, each one after the other; record their times."""
    left = calls
    clock = time.perf_counter

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            began = clock()
            await call()
            times.append(clock() - began)

    if tasks == 1:
        await work()
    else:
        await asyncio.gather(*(work() for _ in range(min(tasks, calls))))


async def _answer(peer: Peer, request: dict[str, dict[str, object]]) -> dict[str, object]:
    if "prepare" in request:
        await peer.prepare(Job(**request["prepare"]))  # type: ignore[arg-type]
        # What is left of earlier turns would be collected at any moment of this one.
        gc.collect()
        return {"ok": True}
    job = Job(**request["run"])  # type: ignore[arg-type]
    spent = peer.server_s()
    busy, began = time.process_time(), time.perf_counter()
    times = await peer.run(job)
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    answer = {
        "messages": job.messages,
        "seconds": seconds,
        "cpu": busy,
        "times": times[:: -(-len(times) // SAMPLES) or 1],
    }
    if spent is not None:
        answer["server"] = (peer.server_s() or spent) - spent
    await peer.settle()
    return answer


async def _serve(peer: Peer, url: str) -> None:
    await peer.open(url)
    versions = {name: version(name) for name in peer.packages}
    _say({"ready": {"Python": sys.version.split()[0], **versions}})
    while line := await asyncio.to_thread(sys.stdin.readline):
        try:
            _say(await _answer(peer, json.loads(line)))
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}"[:500]})


def _say(answer: dict[str, object]) -> None:
    sys.__stdout__.write(json.dumps(answer) + "\n")
    sys.__stdout__.flush()


def serve(peer: Peer, *, run: Callable[..., None] = asyncio.run) -> None:
    """Answer the harness until it closes the pipe; the first argument is the server's URL."""
    # Whatever a package prints must not get between the answers.
    sys.stdout = sys.stderr
    run(_serve(peer, sys.argv[1]))
