"""Leases of a worker: each has one holder, from the receive to the settlement."""

import asyncio
from collections import Counter

import pytest

from aiorsmq_ng import RSMQ, Delivery, Retry, Worker
from aiorsmq_ng._runtime.queue_context import context_of
from aiorsmq_ng.worker.handler_execution import Execution

from ..support.waiting import until
from .test_worker import stopped, work  # noqa: F401 - work is a fixture


def keeper_of(queue):
    return context_of(queue).keeper


@pytest.fixture
def counted(queue, monkeypatch):
    """Return how often each lease is registered, and how often it is removed."""
    keeper, kept, dropped = keeper_of(queue), Counter(), Counter()

    def counting(method, counter):
        def call(*leases):
            counter.update(lease.id for lease in leases)
            return method(*leases)

        return call

    monkeypatch.setattr(keeper, "keep", counting(keeper.keep, kept))
    monkeypatch.setattr(keeper, "drop", counting(keeper.drop, dropped))
    return kept, dropped


async def succeed(message):
    await asyncio.sleep(0)


async def fail(message):
    raise KeyError(message.id)


async def settle_itself(message):
    await message.reject("as I like")


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("handle", [succeed, fail, settle_itself])
async def test_lease_is_registered_once_and_removed_once(
    rsmq,
    queue,
    work,  # noqa: F811
    counted,
    handle,
    batch,
):
    worker = Worker(rsmq, concurrency=2, prefetch=4)
    retry = Retry(1)

    if batch:

        @worker.batch_handler("jobs", size=batch, wait=0.01, retry=retry)
        async def many(messages: list[Delivery]) -> None:
            for message in messages:
                await handle(message)
    else:

        @worker.handler("jobs", retry=retry)
        async def one(message: Delivery) -> None:
            await handle(message)

    ids = await queue.send_many(["x"] * 20)
    task = work(worker)
    await until(lambda: worker.health.done + worker.health.rejected == 20)
    await stopped(worker, task)

    kept, dropped = counted
    assert kept == dropped == dict.fromkeys(ids, 1)
    assert keeper_of(queue).kept() == []


async def test_handler_and_settlement_share_one_task(rsmq, queue, work):  # noqa: F811
    tasks = []
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        tasks.extend(t for t in asyncio.all_tasks() if "handle" in t.get_name())

    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done == 1)
    await stopped(worker, task)

    assert len(tasks) == 1


async def test_handler_that_other_code_cancels_after_its_timeout_is_not_called_stuck(
    rsmq,
    queue,
    work,  # noqa: F811
):
    """It has ended: the timer that watches a handler which ignores its cancellation is off."""
    worker, executions = Worker(rsmq), []

    @worker.handler("jobs", timeout=0.05, vt=600)
    async def handle(message: Delivery) -> None:
        if message.rc > 1:
            return
        executions.extend(worker._executions.running)
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            asyncio.current_task().cancel()  # as asyncio.run does at its end
            raise

    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done == 1)
    await stopped(worker, task)

    (execution,) = executions
    assert len(execution._timers) == 2
    assert all(timer.cancelled() for timer in execution._timers)
    assert worker.health.failed == 0


async def test_worker_whose_own_tasks_are_cancelled_by_other_code_goes_on(
    rsmq,
    queue,
    work,  # noqa: F811
):
    """The search for its queues, then the intake: only pause and stop end them."""

    def cancel_intake():
        (intake,) = (t for t in asyncio.all_tasks() if t.get_name() == "aiorsmq-ng intake")
        intake.cancel()

    worker = Worker(rsmq)

    @worker.handler("jobs", vt=600)
    async def handle(body: str) -> None:
        if body == "first":
            cancel_intake()

    task = work(worker)
    await asyncio.sleep(0)
    cancel_intake()
    await queue.send("first")
    await until(lambda: worker.health.done == 1)
    await queue.send("second")
    await until(lambda: worker.health.done == 2)
    await stopped(worker, task)


async def test_handler_that_is_cancelled_before_its_first_step_gives_its_message_back(
    rsmq,
    queue,
    work,  # noqa: F811
    monkeypatch,
):
    start = Execution.start
    cancelled = []

    def start_and_cancel(self, on_end):
        start(self, on_end)
        if not cancelled:
            cancelled.append(self)
            self.cancel()

    monkeypatch.setattr(Execution, "start", start_and_cancel)
    worker, seen = Worker(rsmq), []

    @worker.handler("jobs", vt=600)
    async def handle(message: Delivery) -> None:
        seen.append((message.rc, message.attempt))

    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done == 1)
    await stopped(worker, task)

    assert seen == [(2, 1)]


@pytest.mark.parametrize("steps", range(12))
async def test_worker_that_is_cancelled_at_any_step_leaves_no_lease_without_a_holder(
    server_url, ns, queue, steps
):
    await queue.send_many(list("abcdef"))
    async with RSMQ(server_url, ns=ns) as own:
        worker = Worker(own, concurrency=2, prefetch=3)

        @worker.handler("jobs", vt=600)
        async def handle(body: str) -> None:
            await asyncio.sleep(0.001)

        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.running or worker.health.done)
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=20)

        assert keeper_of(own.queue("jobs")).kept() == []
    attributes = await queue.attributes()
    assert (attributes.leased, attributes.ready) == (0, 6 - worker.health.done)


async def test_handler_that_ends_the_process_gives_its_message_back(rsmq, queue):
    """The error goes through the event loop, so the task of the handler is looked at alone."""
    await queue.send("x")
    (message,) = await queue.receive_many(1, vt=600)
    message.hold()
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        raise SystemExit

    execution = Execution(worker._handlers[0], [message], (), (), worker._counters)
    step = execution._run()
    with pytest.raises(SystemExit):
        step.send(None)

    async with asyncio.timeout(10):
        assert (await queue.receive(wait=5)).rc == 2
    assert keeper_of(queue).kept() == []
