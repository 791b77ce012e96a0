"""taskiq with the stream broker of taskiq-redis: tasks kicked, and done by its receiver."""

from __future__ import annotations

import asyncio
import logging

from talk import Countdown, Job, Peer, serve
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker


class Taskiq(Peer):
    """A task that does nothing; there is no result backend."""

    packages = ("taskiq", "taskiq-redis", "redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        logging.getLogger("taskiq").setLevel(logging.CRITICAL)
        self.count = Countdown()
        self.broker = RedisStreamBroker(url, consumer_id="0")

        @self.broker.task(task_name="job")
        async def job(body: str) -> None:
            self.count.done()

        self.job = job
        self.running: asyncio.Task[None] | None = None

    async def reset(self) -> None:
        """Make the stream and its group."""
        await self.broker.startup()

    async def send(self, body: str) -> None:
        """Kick a task."""
        await self.job.kiq(body)

    async def work(self, job: Job, times: list[float]) -> None:
        """Let a receiver do the tasks, ``job.tasks`` at a time."""
        self.count.begin(job.messages)
        self.finish = asyncio.Event()
        receiver = Receiver(self.broker, max_async_tasks=job.tasks, max_prefetch=job.tasks)
        self.running = asyncio.create_task(receiver.listen(self.finish))
        await self.count.over.wait()

    async def settle(self) -> None:
        """Stop the receiver."""
        if self.running is not None:
            self.finish.set()
            await self.running
            self.running = None


serve(Taskiq())
