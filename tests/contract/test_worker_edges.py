"""Workers at their edges: what ends, stops, closes or fails in the wrong moment."""

import asyncio
import os
import signal
import time
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from aiorsmq_ng import (
    RSMQ,
    ClientClosed,
    Delivery,
    InvalidValue,
    QueueCorrupt,
    Retry,
    Worker,
)
from aiorsmq_ng._runtime.lease_renewal import lose, seconds_over

from ..support.waiting import until
from .test_worker import stopped, work  # noqa: F401 - work is a fixture


@dataclass
class Picky:
    number: int

    def __post_init__(self):
        raise KeyError("no number is good enough")


async def test_type_that_raises_is_a_failure_like_any_other(rsmq, work):  # noqa: F811
    worker = Worker(rsmq)

    @worker.handler("jobs", retry=Retry(2, base=0.01))
    async def handle(body: Picky) -> None: ...

    queue = await rsmq.create_queue("jobs")
    await queue.send({"number": 1})
    task = work(worker)
    await until(lambda: worker.health.rejected == 1)
    await stopped(worker, task)

    assert worker.health.failed == 1
    assert len(await rsmq.queue("jobs-dead").peek()) == 1


async def test_codec_that_raises_leaves_no_lease_behind(server_url, ns, work):  # noqa: F811
    class Broken:
        def encode(self, value):
            return b"x"

        def decode(self, body, type):
            raise RuntimeError("cannot")

    async with RSMQ(server_url, ns=ns, codec=Broken()) as rsmq:
        worker = Worker(rsmq)

        @worker.handler("jobs", retry=Retry(1))
        async def handle(body: dict) -> None: ...

        queue = await rsmq.create_queue("jobs")
        await queue.send({})
        task = work(worker)
        await until(lambda: worker.health.rejected == 1)
        await stopped(worker, task)
        assert queue._context.keeper.kept() == []


async def test_client_closed_under_a_worker_ends_it(server_url, ns):
    rsmq = await RSMQ(server_url, ns=ns).open()
    gate = asyncio.Event()
    worker = Worker(rsmq, concurrency=1, prefetch=2)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await gate.wait()

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abcdef"))
    task = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.running == 1)
    await asyncio.sleep(0.1)
    await rsmq.aclose()
    gate.set()

    async with asyncio.timeout(20):
        with pytest.raises(ClientClosed, match="closed"):
            await task


async def test_client_closed_under_a_consumer_ends_it(server_url, ns):
    rsmq = await RSMQ(server_url, ns=ns).open()
    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abcdef"))
    consumer = queue.consume(prefetch=3)
    await anext(consumer)
    await rsmq.aclose()

    async with asyncio.timeout(20):
        with pytest.raises(ClientClosed, match="closed"):
            while True:
                await anext(consumer)


async def test_handler_cancelled_from_inside_is_tried_again_by_the_policy(rsmq, work):  # noqa: F811
    tries = []
    worker = Worker(rsmq)

    @worker.handler("jobs", retry=Retry(2, base=0.01))
    async def handle(message: Delivery) -> None:
        tries.append(message.rc)
        raise asyncio.CancelledError

    queue = await rsmq.create_queue("jobs")
    id = await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.rejected == 1)
    await stopped(worker, task)

    assert tries == [1, 2]
    assert "from inside" in await rsmq.queue("jobs-dead").reason(id)


@pytest.mark.parametrize("first", ["pause", "stop"])
async def test_cancellation_of_run_is_not_swallowed(rsmq, first):
    worker = Worker(rsmq, grace=3600)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await asyncio.sleep(3600)

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.running == 1)
    getattr(worker, first)()
    task.cancel()

    await asyncio.wait([task], timeout=20)

    assert task.cancelled()
    assert (await queue.attributes()).ready == 1


async def cancel_twice(worker):
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.running == 2)
    running.cancel()
    await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()


async def cancel_at_every_step(worker):
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.running == 2)
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)


async def cancel_by_a_scope(worker):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(worker.run, signals=False))
        await until(lambda: worker.health.running == 2)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("cancel", [cancel_twice, cancel_at_every_step, cancel_by_a_scope])
async def test_run_that_is_cancelled_again_leaves_nothing_leased(server_url, ns, queue, cancel):
    await queue.send_many(list("abcdefgh"))
    async with RSMQ(server_url, ns=ns) as own:
        worker = Worker(own, concurrency=2, prefetch=3)

        @worker.handler("jobs", vt=600)
        async def handle(body: str) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.05)

        async with asyncio.timeout(20):
            await cancel(worker)

    assert (await queue.attributes()).ready == 8
    assert not any(m.suspect for m in await queue.receive_many(8))


@pytest.mark.parametrize("size", [0, 3])
async def test_worker_ends_before_its_client_that_is_closed(server_url, ns, queue, size):
    await queue.send_many([str(i) for i in range(20)])
    rsmq = await RSMQ(server_url, ns=ns).open()
    worker = Worker(rsmq, concurrency=2, prefetch=5)
    began = []

    async def handle(given):
        began.append(given)
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)

    if size:
        worker.batch_handler("jobs", size=size, wait=0.01, vt=600)(handle)
    else:
        worker.handler("jobs", vt=600)(handle)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: len(began) == 2)
    await asyncio.sleep(0.1)  # others wait for a slot
    await rsmq.aclose()

    assert (await queue.attributes()).ready == 20
    with pytest.raises(ClientClosed, match="the client was closed"):
        await running
    assert len(began) == 2
    assert not any(m.suspect for m in await queue.receive_many(20))


async def test_handler_may_close_the_client_of_its_worker(server_url, ns, queue):
    await queue.send("x")
    rsmq = await RSMQ(server_url, ns=ns).open()
    worker = Worker(rsmq)

    @worker.handler("jobs", vt=600)
    async def handle(body: str) -> None:
        await rsmq.aclose()

    async with asyncio.timeout(20):
        with pytest.raises(ClientClosed, match="the client was closed"):
            await worker.run(signals=False)
    await rsmq.aclose()
    assert (await queue.attributes()).ready == 1


async def test_stop_that_is_under_way_ends_well_if_the_client_is_closed(server_url, ns, queue):
    await queue.send("x")
    rsmq = await RSMQ(server_url, ns=ns).open()
    worker = Worker(rsmq, grace=3600)

    @worker.handler("jobs", vt=600)
    async def handle(body: str) -> None:
        await asyncio.sleep(3600)

    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.running == 1)
    worker.stop()
    await asyncio.sleep(0.05)
    await rsmq.aclose()

    async with asyncio.timeout(20):
        await running
    assert (await queue.attributes()).ready == 1


async def test_stop_hook_that_raises_keeps_nothing_open(server_url, ns):
    called = []
    worker = Worker(server_url)

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    @worker.on_stop
    async def bad() -> None:
        raise KeyError

    @worker.on_stop
    async def good() -> None:
        called.append("good")

    task = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.state == "running")
    await asyncio.sleep(0.1)
    worker.stop()
    await task

    assert called == ["good"]
    assert "closed" in repr(worker.rsmq)


async def test_busy_queue_does_not_starve_a_batch_queue(rsmq, work):  # noqa: F811
    batches = []
    worker = Worker(rsmq, concurrency=1)

    @worker.handler("busy")
    async def busy(body: str) -> None:
        await asyncio.sleep(0.002)

    @worker.batch_handler("bulk", size=2, wait=0.01)
    async def bulk(batch: list[Delivery]) -> None:
        batches.append(worker.health.done)

    await (await rsmq.create_queue("busy")).send_many(["x"] * 500)
    await (await rsmq.create_queue("bulk")).send_many(["x"] * 2)
    task = work(worker)
    await until(lambda: batches)
    await stopped(worker, task)

    assert batches[0] < 400


async def test_signal_stops_every_worker_of_the_process(server_url, ns, rsmq):
    before = signal.getsignal(signal.SIGTERM)
    workers = [Worker(rsmq) for _ in range(2)]
    for i, worker in enumerate(workers):

        @worker.handler(f"jobs{i}")
        async def handle(body: str) -> None: ...

    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    await until(lambda: all(w.health.state == "running" for w in workers))
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(20):
        await asyncio.gather(*tasks)

    assert signal.getsignal(signal.SIGTERM) == before


async def test_message_lost_while_it_waited_for_a_slot_is_not_handled(rsmq, raw, ns, work):  # noqa: F811
    gate, seen = asyncio.Event(), []
    worker = Worker(rsmq, concurrency=1)

    @worker.handler("jobs", vt=3)  # long enough for a stalled machine
    async def handle(body: str, message: Delivery) -> None:
        seen.append((body, message.lease_lost))
        await gate.wait()

    queue = await rsmq.create_queue("jobs")
    ids = await queue.send_many(["first", "second"])
    task = work(worker)
    await until(lambda: seen)
    await raw.hincrby(f"{ns}:jobs:Q", f"{ids[1]}:rc", 1)
    await raw.zadd(f"{ns}:jobs", {ids[1]: 9e12})
    await until(lambda: len(queue._context.keeper.kept()) == 1)
    gate.set()
    await until(lambda: worker.health.done == 1)
    await queue.send("third")  # the slot that the lost one waited for is free again
    await until(lambda: worker.health.done == 2)
    await stopped(worker, task)

    assert seen == [("first", False), ("third", False)]


async def test_wrong_type_of_a_later_queue_costs_the_first_one_nothing(rsmq, raw, ns):
    a = await rsmq.create_queue("a")
    await rsmq.create_queue("b")
    await raw.set(f"{ns}:b-dead", "not a queue")
    await a.send("x")
    limit = Retry(3)

    with pytest.raises(QueueCorrupt, match="'b'"):
        await rsmq.receive_many([rsmq.queue("a", retry=limit), rsmq.queue("b", retry=limit)], 5)
    attributes = await a.attributes()
    assert (attributes.ready, attributes.totalrecv) == (1, 0)


async def test_dead_letters_are_served_only_without_a_limit(rsmq):
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    @worker.handler("jobs-dead")
    async def bury(body: str) -> None: ...

    with pytest.raises(InvalidValue, match="dead letters of 'jobs'"):
        await worker.run()


def test_prefetch_that_makes_no_sense_is_refused(rsmq):
    with pytest.raises(InvalidValue, match="prefetch"):
        Worker(rsmq, prefetch=-1)


async def test_message_that_could_not_be_acked_does_not_count_as_done(rsmq, work):  # noqa: F811
    seen = []
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(message: Delivery) -> None:
        seen.append(message.text)
        if message.text == "gone":
            await queue.delete(message.id)  # another client deletes it

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["gone", "fine"])
    task = work(worker)
    await until(lambda: len(seen) == 2)
    await stopped(worker, task)

    assert worker.health.done == 1


async def test_drawn_orders_share_one_waiting_receiver(rsmq, work):  # noqa: F811
    worker = Worker(rsmq, order="weighted", prefetch=1)
    queues = [await rsmq.create_queue(f"q{i}") for i in range(6)]

    async def handle(body: str) -> None: ...

    for queue in queues:
        worker.handler(queue.name)(handle)
    task = work(worker)
    for n in range(20):
        await queues[n % 6].send("x")
        await until(lambda n=n: worker.health.done == n + 1)
    waiting = [key for key in rsmq._long_polls if len(key) > 1]
    await stopped(worker, task)

    assert len(waiting) <= 2


async def test_worker_stopped_before_it_runs_returns_at_once(rsmq, queue):
    await queue.send("a")
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        raise AssertionError("it was stopped")

    worker.stop()
    async with asyncio.timeout(10):
        await worker.run(signals=False)

    assert worker.health.state == "stopped"
    assert (await queue.attributes()).totalrecv == 0
    with pytest.raises(InvalidValue, match="runs once"):
        await worker.run(signals=False)


@pytest.mark.parametrize("size", [0, 2])
async def test_handler_is_not_begun_on_a_lease_that_ended_while_the_loop_was_blocked(
    rsmq, queue, caplog, size
):
    await queue.send_many(["a", "b", "c", "d", "e", "f"])
    late, handled = [], []
    worker = Worker(rsmq, concurrency=6)

    def note(message):
        late.append(seconds_over(message.lease, asyncio.get_running_loop().time()))
        if not handled:
            handled.append(message.text)
            time.sleep(1.5)
        else:
            handled.append(message.text)

    if size:

        @worker.batch_handler("jobs", size=size, wait=0, vt=0.5)
        async def handle_some(batch: list[Delivery]) -> None:
            for message in batch:
                note(message)

    else:

        @worker.handler("jobs", vt=0.5)
        async def handle(message: Delivery) -> None:
            note(message)

    running = asyncio.create_task(worker.run(signals=False))
    async with asyncio.timeout(30):
        while (await queue.attributes()).msgs:
            await asyncio.sleep(0.05)
    worker.stop()
    await running

    # The second message of a batch that was begun is the handler's own business.
    assert [x for x in late if x] == [] or size
    assert len([x for x in late if x]) < max(size, 1)
    assert set(handled) == set("abcdef")
    assert worker.health.failed == 0
    assert "the event loop was blocked" in caplog.text


async def test_handler_that_ends_as_its_lease_is_given_up_has_not_failed(rsmq, queue):
    """As after a stall: the lease is over, and no other client has the message."""
    await queue.send("a")
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(message: Delivery) -> None:
        lose(message.lease)

    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.done or worker.health.failed)
    worker.stop()
    await running

    assert (worker.health.done, worker.health.failed) == (1, 0)
    assert worker.health.last_error is None
    assert (await queue.attributes()).msgs == 0


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_iteration_hands_out_no_message_whose_lease_ended_while_the_loop_was_blocked(
    queue, prefetch
):
    await queue.send_many(["a", "b", "c", "d"])
    late, seen = [], set()

    async with asyncio.timeout(30), queue.consume(prefetch=prefetch, vt=0.5) as consumer:
        while len(seen) < 4:
            message = await anext(consumer)
            late.append(seconds_over(message.lease, asyncio.get_running_loop().time()))
            seen.add(message.text)
            await message.ack()
            if len(seen) == 1:
                time.sleep(1.2)  # noqa: ASYNC251 - the point of it

    assert not any(late)


@pytest.mark.parametrize("batch", [0, 2])
async def test_handler_task_cancelled_from_outside_is_released_and_no_failure(
    rsmq,
    work,  # noqa: F811
    batch,
):
    worker = Worker(rsmq)
    tasks, failures = [], []

    @worker.on_failure
    async def note(message, error):
        failures.append(error)

    async def handle(message):
        tasks.append(asyncio.current_task())
        if len(tasks) == 1:
            await asyncio.Event().wait()

    async def handle_one(message: Delivery) -> None:
        await handle(message)

    async def handle_batch(messages: list[Delivery]) -> None:
        await handle(messages)

    if batch:
        worker.batch_handler("jobs", size=batch, wait=5, retry=Retry(2))(handle_batch)
    else:
        worker.handler("jobs", retry=Retry(2))(handle_one)
    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["x"] * max(batch, 1))
    task = work(worker)
    await until(lambda: tasks)
    tasks[0].cancel()
    await until(lambda: worker.health.done == max(batch, 1))
    await stopped(worker, task)

    assert tasks[0].cancelled()
    assert failures == []
    assert (worker.health.failed, worker.health.rejected) == (0, 0)


async def test_handler_that_awaits_a_cancelled_task_fails_and_the_worker_goes_on(rsmq, work):  # noqa: F811
    worker = Worker(rsmq)
    failures = []

    @worker.on_failure
    async def note(message, error):
        failures.append(type(error))

    @worker.handler("jobs", retry=Retry(2, base=0.01))
    async def handle(message: Delivery) -> None:
        if message.rc == 1:
            inner = asyncio.create_task(asyncio.Event().wait())
            asyncio.get_running_loop().call_soon(inner.cancel)
            await inner

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done == 1)
    await stopped(worker, task)

    assert failures == [RuntimeError]
    assert worker.health.failed == 1


async def test_batch_handler_that_empties_its_list_has_all_messages_settled(rsmq, work):  # noqa: F811
    worker = Worker(rsmq)

    @worker.batch_handler("jobs", size=3, wait=5)
    async def handle(messages: list[Delivery]) -> None:
        messages.clear()

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abc"))
    task = work(worker)
    await until(lambda: worker.health.running == 0 and worker.health.done == 3)
    await stopped(worker, task)

    assert (await queue.attributes()).msgs == 0


async def test_handler_that_ends_as_its_lease_is_lost_fails_by_its_own_error(rsmq, work):  # noqa: F811
    """Nothing was cancelled, so what it raised counts, and not that the lease was lost."""
    worker = Worker(rsmq)
    failures = []

    @worker.on_failure
    async def note(message, error):
        failures.append(type(error))

    @worker.handler("jobs", retry=Retry(1))
    async def handle(message: Delivery) -> None:
        lose(message.lease)
        inner = asyncio.get_running_loop().create_future()
        inner.cancel()
        await inner

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: failures)
    await stopped(worker, task)

    assert failures == [RuntimeError]
