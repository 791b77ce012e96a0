"""saq: jobs enqueued in its queue, and done by its worker."""

from __future__ import annotations

import asyncio
import logging

from saq import Queue, Worker
from talk import Countdown, Job, Peer, serve


class Saq(Peer):
    """A job that does nothing; results are not kept."""

    packages = ("saq", "redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        logging.getLogger("saq").setLevel(logging.ERROR)
        self.queue = Queue.from_url(url)
        await self.queue.connect()
        self.count = Countdown()
        self.running: asyncio.Task[None] | None = None

    async def send(self, body: str) -> None:
        """Enqueue a job."""
        await self.queue.enqueue("work", body=body, ttl=-1)

    async def work(self, job: Job, times: list[float]) -> None:
        """Let a worker do the jobs, ``job.tasks`` at a time."""

        async def handle(_: object, *, body: str) -> None:
            self.count.done()

        self.count.begin(job.messages)
        self.worker = Worker(self.queue, [("work", handle)], concurrency=job.tasks)
        self.running = asyncio.create_task(self.worker.start())
        await self.count.over.wait()

    async def settle(self) -> None:
        """Stop the worker."""
        if self.running is not None:
            await self.worker.stop()
            await self.running
            self.running = None


serve(Saq())
