"""A server that is out of memory: what works goes on, and a worker can be started to make room."""

import asyncio

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, QueueExists, Retry, ServerOutOfMemory, Worker
from aiorsmq_ng.testing import PrivateServer


@pytest.fixture
async def server():
    async with PrivateServer() as server:
        yield server


@pytest.fixture
async def full(server):
    """Make the server refuse to store anything more."""

    async def fill():
        async with Redis.from_url(server.url) as admin:
            await admin.config_set("maxmemory", "1")

    return fill


async def test_queue_that_exists_is_found_and_one_that_does_not_is_refused(server, full):
    async with RSMQ(server.url) as rsmq:
        await rsmq.create_queue("jobs")
        await full()

        jobs = await rsmq.create_queue("jobs", exist_ok=True)
        assert await jobs.exists()
        with pytest.raises(QueueExists):
            await rsmq.create_queue("jobs")
        with pytest.raises(ServerOutOfMemory):
            await rsmq.create_queue("new", exist_ok=True)
        assert not await rsmq.queue("new").exists()


@pytest.mark.parametrize("create", [True, False])
async def test_worker_starts_drains_and_dead_letters(server, full, create):
    async with RSMQ(server.url) as rsmq:
        jobs, dead = [await rsmq.create_queue(name) for name in ("jobs", "jobs-dead")]
        await jobs.send_many([str(n) for n in range(50)])
        await full()
        worker = Worker(server.url, create=create)

        @worker.handler("jobs", retry=Retry(1))
        async def handle(body: str) -> None:
            assert body != "7"

        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(30):
            while (await jobs.attributes()).msgs and not running.done():
                await asyncio.sleep(0.02)
        worker.stop()
        await running

        assert [m.text for m in await dead.peek()] == ["7"]
        assert worker.health.done == 49


async def test_worker_on_a_full_server_says_that_its_queue_cannot_be_created(server, full):
    await full()
    worker = Worker(server.url)

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    with pytest.raises(ServerOutOfMemory):
        await worker.run(signals=False)
    async with RSMQ(server.url) as rsmq:
        assert await rsmq.list_queues() == []
