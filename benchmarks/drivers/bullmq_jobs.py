"""bullmq for Python: jobs added to its queue, and done by its worker."""

from __future__ import annotations

import asyncio

from bullmq import Queue, Worker
from talk import Countdown, Job, Peer, serve

DONE = {"removeOnComplete": True}


class BullMQ(Peer):
    """A job that does nothing and is removed when it is done."""

    packages = ("bullmq", "redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        self.url = url
        self.queue = Queue("jobs", {"connection": url})
        self.count = Countdown()
        self.worker: Worker | None = None

    async def send(self, body: str) -> None:
        """Add a job."""
        await self.queue.add("job", {"body": body}, DONE)

    async def send_many(self, bodies: list[str]) -> None:
        """Add jobs by one call."""
        await self.queue.addBulk(
            [{"name": "job", "data": {"body": body}, "opts": DONE} for body in bodies]
        )

    async def work(self, job: Job, times: list[float]) -> None:
        """Let a worker do the jobs, ``job.tasks`` at a time."""

        async def handle(job: object, token: str) -> None:
            self.count.done()

        self.count.begin(job.messages)
        options = {"connection": self.url, "concurrency": job.tasks, "autorun": False}
        self.worker = Worker("jobs", handle, options)
        self.running = asyncio.create_task(self.worker.run())
        await self.count.over.wait()

    async def settle(self) -> None:
        """Close the worker."""
        if self.worker is not None:
            await self.worker.close(force=True)
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
            self.worker = None


serve(BullMQ())
