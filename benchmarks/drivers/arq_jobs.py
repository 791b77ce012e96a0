"""arq: jobs enqueued by its pool, and done by its worker."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func
from talk import Countdown, Job, Peer, serve


class Arq(Peer):
    """A job that does nothing; results are not kept."""

    packages = ("arq", "redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect."""
        logging.getLogger("arq").setLevel(logging.ERROR)
        self.settings = RedisSettings.from_dsn(url)
        self.pool = await create_pool(self.settings)
        self.count = Countdown()

    async def send(self, body: str) -> None:
        """Enqueue a job."""
        await self.pool.enqueue_job("job", body)

    async def work(self, job: Job, times: list[float]) -> None:
        """Let a worker do the jobs, ``job.tasks`` at a time."""

        async def handle(_: object, body: str) -> None:
            self.count.done()

        self.count.begin(job.messages)
        worker = Worker(
            [func(handle, name="job", keep_result=0)], redis_settings=self.settings,
            max_jobs=job.tasks, handle_signals=False, poll_delay=0.01,
        )  # fmt: skip
        self.worker, self.running = worker, asyncio.create_task(worker.async_run())
        await self.count.over.wait()

    async def settle(self) -> None:
        """Close the worker."""
        worker, self.worker = getattr(self, "worker", None), None
        if worker is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
            with suppress(asyncio.CancelledError):
                await worker.close()


serve(Arq())
