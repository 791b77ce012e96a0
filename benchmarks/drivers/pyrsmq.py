"""PyRSMQ, which blocks: as many threads as there are tasks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from urllib.parse import urlsplit

from redis import BlockingConnectionPool, Redis
from rsmq import RedisSMQ
from talk import Job, Peer, serve

QUEUE = "jobs"


class PyRSMQ(Peer):
    """Its commands, called from threads."""

    packages = ("PyRSMQ", "redis", "hiredis")

    async def open(self, url: str) -> None:
        """Connect by a pool that has a connection for every thread."""
        place = urlsplit(url)
        pool = BlockingConnectionPool(
            max_connections=600, host=place.hostname, port=place.port, decode_responses=True
        )
        self.rsmq = RedisSMQ(client=Redis(connection_pool=pool), ns="bench")

    async def prepare(self, job: Job) -> None:
        """Make the queue, and fill it if the job takes messages."""
        self.rsmq.createQueue(qname=QUEUE, maxsize=-1).execute()
        if job.kind == "drain":
            for _ in range(job.messages):
                self._send(job.body)

    async def run(self, job: Job) -> list[float]:
        """Do a job by threads."""
        body, times, turn, left = job.body, list[float](), Lock(), job.messages

        def work() -> None:
            nonlocal left
            while True:
                with turn:
                    if left <= 0:
                        return
                    left -= 1
                began = time.perf_counter()
                if job.kind != "drain":
                    self._send(body)
                if job.kind != "send":
                    self._take()
                times.append(time.perf_counter() - began)

        if job.tasks == 1:
            work()
            return times
        with ThreadPoolExecutor(job.tasks) as threads:
            for future in [threads.submit(work) for _ in range(job.tasks)]:
                future.result()
        return times

    def _send(self, body: str) -> None:
        self.rsmq.sendMessage(qname=QUEUE, message=body).execute()

    def _take(self) -> None:
        id = self.rsmq.receiveMessage(qname=QUEUE).execute()["id"]
        self.rsmq.deleteMessage(qname=QUEUE, id=id).execute()


serve(PyRSMQ())
