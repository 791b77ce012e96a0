"""How a worker starts: its queues, its handlers, its server."""

import asyncio

import pytest

from aiorsmq_ng import QueueNotFound, Worker


def ready(rsmq, **more):
    worker = Worker(rsmq, **more)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        worker.stop()

    return worker


async def test_missing_queue_is_created_and_its_dead_letter_queue_is_not(rsmq):
    worker = ready(rsmq)
    worker.on_start(lambda: asyncio.sleep(0, worker.stop()))
    await worker.run(signals=False)

    assert await rsmq.list_queues() == ["jobs"]


@pytest.mark.parametrize(("there", "missing"), [([], "jobs"), (["jobs"], "jobs-dead")])
async def test_worker_that_must_not_create_names_the_queue_that_is_missing(rsmq, there, missing):
    for name in there:
        await rsmq.create_queue(name)

    with pytest.raises(QueueNotFound, match=f"queue '{missing}' does not exist"):
        await ready(rsmq, create=False).run(signals=False)
    assert await rsmq.list_queues() == there


async def test_worker_that_must_not_create_serves_what_is_there(rsmq, queue):
    await rsmq.create_queue("jobs-dead")
    await queue.send("x")

    async with asyncio.timeout(30):
        await ready(rsmq, create=False).run(signals=False)
    assert (await queue.attributes()).msgs == 0


async def test_queue_with_stored_attributes_keeps_them(rsmq):
    await rsmq.create_queue("jobs", vt=77, maxsize=2048)
    worker = ready(rsmq)
    worker.on_start(lambda: asyncio.sleep(0, worker.stop()))
    await worker.run(signals=False)

    attributes = await rsmq.queue("jobs").attributes()
    assert (attributes.vt, attributes.maxsize) == (77, 2048)


async def test_half_made_queue_is_completed(rsmq, raw, ns):
    await raw.hset(f"{ns}:jobs:Q", "vt", "5")
    assert not await rsmq.queue("jobs").exists()
    worker = ready(rsmq)
    worker.on_start(lambda: asyncio.sleep(0, worker.stop()))
    await worker.run(signals=False)

    assert (await rsmq.queue("jobs").attributes()).vt == 5
