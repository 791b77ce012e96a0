"""aiorsmq-ng itself.

Further arguments: ``uvloop`` for that event loop, ``forgetful`` for scripts that remember no calls;
``tasks`` for tasks that receive and acknowledge instead of a ``Worker``, ``await`` for a loop that
waits for each ack, ``one-queue`` for one queue where a job has many; ``metrics`` for
counting; ``checkout=FOLDER`` for the
package of another checkout, which PYTHONPATH must name: this file uses public names only, so that
an earlier revision of the package does the same work.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from talk import Countdown, Job, Peer, serve, spread

import aiorsmq_ng

#: Sends at a time while many queues are filled.
FILL = 1000


class Ours(Peer):
    """Public names only, used as the documentation says."""

    packages = ("redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        self.rsmq = await aiorsmq_ng.RSMQ(url, ns="bench").open()
        self.sender = await aiorsmq_ng.RSMQ(url, ns="bench").open()
        self.countdown = Countdown()
        self.going: list[asyncio.Task[None]] = []

    async def reset(self) -> None:
        """Make the queue."""
        self.queue = await self.rsmq.create_queue("jobs", maxsize=-1)

    async def send(self, body: str) -> None:
        """Send one message."""
        await self.queue.send(body)

    async def send_many(self, bodies: list[str]) -> None:
        """Send messages by one call."""
        await self.queue.send_many(bodies)

    async def take(self) -> None:
        """Receive one message and acknowledge it."""
        message = await self.queue.receive()
        assert message is not None
        await message.ack()

    async def consume(self, job: Job, times: list[float]) -> None:
        """Iterate over the queue; acknowledge a batch at a time, while the next one is taken."""
        left, batch, going = job.messages, list[aiorsmq_ng.Delivery](), set[asyncio.Task[Any]]()
        async with self.queue.consume(prefetch=job.batch) as consumer:
            async for message in consumer:
                batch.append(message)
                left -= 1
                if len(batch) * 2 >= job.batch or not left:
                    if len(going) > 1:
                        done, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
                        await asyncio.gather(*done)
                    going.add(asyncio.create_task(self.queue.ack_many(batch)))
                    batch = []
                if not left:
                    break
            await asyncio.gather(*going)

    async def prepare(self, job: Job) -> None:
        """Get ready for a job."""
        await super().prepare(job)
        if job.kind == "receive":
            await self.fill(job)
        elif job.kind == "wake":
            await self.begin_to_wait(job.tasks)
        elif job.kind == "publish":
            self.topic = self.rsmq.topic("news")
            for number in range(job.queues):
                await self.topic.subscribe(f"consumer{number}")
            await self.topic.publish(job.body)  # reads the subscriptions
        elif job.kind in ("send_queues", "receive_queues"):
            await self.make_queues(job, 1 if "one-queue" in sys.argv else job.queues)

    async def run(self, job: Job) -> list[float]:
        """Do a job; return how many seconds single calls took."""
        body, times = job.body, list[float]()
        if job.kind == "receive":
            await spread(job.messages, job.tasks, self.take, times)
        elif job.kind == "wake":
            await spread(job.messages, 1, lambda: self.wake(body), times)
        elif job.kind == "publish":
            await spread(job.messages, job.tasks, lambda: self.topic.publish(body), times)
        elif job.kind == "send_queues":
            await spread(job.messages, job.tasks, lambda: next(self.queues).send(body), times)
        elif job.kind == "receive_queues":
            await spread(job.messages, job.tasks, self.take_next, times)
        else:
            return await super().run(job)
        return times

    async def make_queues(self, job: Job, number: int) -> None:
        """Make queues; fill them in turn if the job takes messages."""
        made = [self.rsmq.create_queue(f"jobs{n}", maxsize=-1) for n in range(number)]
        queues = await asyncio.gather(*made)
        if job.kind == "receive_queues":
            for at in range(0, job.messages, FILL):
                numbers = range(at, min(at + FILL, job.messages))
                await asyncio.gather(*(queues[n % number].send(job.body) for n in numbers))
        self.queues = itertools.cycle(queues)

    async def loop(self, job: Job, times: list[float]) -> None:
        """Take one message after the other, in a block each, and end when all acks are answered."""
        left = job.messages
        settle: Literal["await", "background"] = "await" if "await" in sys.argv else "background"
        async with self.queue.consume(prefetch=job.batch, settle=settle) as consumer:
            async for message in consumer:
                async with message:
                    left -= 1
                if not left:
                    break
        await self.check_empty()

    async def work(self, job: Job, times: list[float]) -> None:
        """Let a worker handle and acknowledge all messages, and stop it."""
        if "tasks" in sys.argv:
            await spread(job.messages, job.tasks, self.take, times)
            return
        worker = aiorsmq_ng.Worker(self.rsmq, concurrency=job.tasks)

        @worker.handler("jobs")
        async def handle(body: str) -> None:
            self.countdown.done()

        self.countdown.begin(job.messages)
        self.going = [asyncio.create_task(worker.run(signals=False))]
        await self.countdown.over.wait()
        # It returns when the last message is acknowledged.
        worker.stop()
        await asyncio.gather(*self.going)
        self.going = []
        await self.check_empty()

    async def check_empty(self) -> None:
        """Fail if the queue has messages left."""
        if left := (await self.queue.attributes()).msgs:
            raise RuntimeError(f"{left} messages were not acknowledged")

    async def begin_to_wait(self, consumers: int) -> None:
        """Let consumers wait for messages."""
        self.arrived: asyncio.Queue[None] = asyncio.Queue()

        async def consume() -> None:
            async for message in self.queue:
                self.arrived.put_nowait(None)
                await message.ack()

        self.going = [asyncio.create_task(consume()) for _ in range(consumers)]
        await self.wake("x")

    async def wake(self, body: str) -> None:
        """Send one message by another client, and wait until a consumer has it."""
        await self.sender.queue("jobs").send(body)
        await self.arrived.get()

    async def take_next(self) -> None:
        """Receive one message of the next queue and acknowledge it."""
        message = await next(self.queues).receive()
        assert message is not None
        await message.ack()

    async def settle(self) -> None:
        """Stop the consumers."""
        for task in self.going:
            task.cancel()
        await asyncio.gather(*self.going, return_exceptions=True)
        self.going = []


def check(folder: str) -> None:
    """Fail if the package is not that of the checkout."""
    package = Path(aiorsmq_ng.__file__).resolve()
    if not package.is_relative_to(Path(folder).resolve()):
        raise RuntimeError(f"the package is {package}, and not in {folder}")


for argument in sys.argv:
    if argument.startswith("checkout="):
        check(argument.removeprefix("checkout="))
if "metrics" in sys.argv:
    os.environ["RSMQ_TELEMETRY"] = "prometheus"
if "forgetful" in sys.argv:
    # The package loads its scripts later, when they are first needed.
    import_module("forgetful").forget()
loops = import_module("uvloop" if "uvloop" in sys.argv else "asyncio")
serve(Ours(), run=loops.run)
