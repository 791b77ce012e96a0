"""Telemetry: what a client reports to its outlets is what was done, on every backend."""

import asyncio
from collections import Counter
from contextlib import contextmanager

import pytest

from aiorsmq_ng import Delivery, InvalidValue, LeaseLost, Retry, Worker
from aiorsmq_ng.telemetry import Telemetry

from ..support.waiting import until

QUICK = Retry(3, base=0.01, cap=0.02)


class Notes(Telemetry):
    """Keeps all reports."""

    def __init__(self):
        self.calls, self.received, self.processed = [], [], []
        self.handled, self.lost, self.retries = Counter(), Counter(), Counter()
        self.clients, self.workers, self.at_work = [], [], 0

    def on_client(self, client):
        self.clients.append(client)

    def on_call(self, call):
        return lambda: self.calls.append(call)

    def on_retry(self, operation, namespace, queue):
        self.retries[operation] += 1

    def on_receive(self, receive):
        return lambda: self.received.append(receive)

    @contextmanager
    def on_process(self, process):
        self.at_work += 1
        try:
            yield
        finally:
            self.at_work -= 1
            self.processed.append(process)

    def on_handled(self, handled):
        self.handled[handled.queue, handled.outcome] += handled.count

    def on_lease_lost(self, namespace, queue):
        self.lost[queue] += 1

    def on_worker(self, worker):
        self.workers.append(worker)
        return lambda: self.workers.remove(worker)

    def messages(self, operation, error=None):
        return sum(c.messages for c in self.calls if (c.operation, c.error) == (operation, error))

    def count(self, operation, error=None):
        return sum((c.operation, c.error) == (operation, error) for c in self.calls)


@pytest.fixture
def notes():
    return Notes()


@pytest.fixture
def telemetry(notes):
    return [notes]


async def test_calls_are_counted_by_messages(rsmq, notes):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs")
    await queue.send("a")
    ids = await queue.send_many(["b", "c", "d"])
    first = await queue.receive(vt=30)
    rest = await queue.receive_many(10, vt=30)
    assert await queue.receive() is None
    await first.ack()
    await queue.ack_many(rest[:2])
    await rest[2].release()
    popped = await queue.pop()
    await queue.send("f")
    assert await queue.delete_many([ids[0]]) == []

    assert (notes.count("send"), notes.messages("send")) == (3, 5)
    assert notes.messages("receive") == 4
    assert (notes.count("ack"), notes.messages("ack")) == (2, 3)
    assert notes.messages("release") == 1
    assert notes.messages("pop") == 1
    assert (notes.count("delete"), notes.messages("delete")) == (1, 0)
    sent = [call for call in notes.calls if call.operation == "send"]
    assert [list(call.ids) for call in sent][1] == ids
    assert {call.type for call in sent} == {"send"}
    assert all(0 < call.duration < 60 for call in notes.calls)
    assert {call.queue for call in notes.calls} == {"jobs"}
    assert {call.namespace for call in notes.calls} == {rsmq.ns}
    assert [[m.id for m in receive.messages] for receive in notes.received] == [
        [first.id], [m.id for m in rest], []
    ]  # fmt: skip
    assert popped.id == rest[2].id


async def test_receive_of_several_queues_is_counted_for_each(rsmq, notes):
    for name in ("one", "two"):
        await rsmq.create_queue(name)
        await rsmq.queue(name).send_many(["a", "b"])
    assert len(await rsmq.receive_many(["one", "two"], 10)) == 4
    received = Counter()
    for call in notes.calls:
        received.update(call.received)
    assert received == {"one": 2, "two": 2}
    assert list(notes.received[0].queues) == ["one", "two"]


async def test_errors_have_the_codes_of_the_library(rsmq, notes):
    with pytest.raises(Exception, match="nowhere"):
        await rsmq.queue("nowhere").send("x")
    with pytest.raises(InvalidValue):
        await rsmq.queue("nowhere").send("x", delay=-1)  # never submitted
    assert [call.error for call in notes.calls if call.type] == ["queueNotFound"]
    assert notes.messages("send", "queueNotFound") == 1


async def test_lost_lease_is_counted_once(rsmq, notes):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs")
    await queue.send("a")
    message = await queue.receive(vt=30)
    await queue.delete(message.id)
    for settle in (message.ack, message.release):
        with pytest.raises(LeaseLost):
            await settle()
    await queue.send("b")
    other = await queue.receive(vt=30)
    await queue.delete(other.id)
    assert await queue.ack_many([other]) == []
    assert notes.lost == {"jobs": 2}
    assert notes.messages("ack") == 0


async def test_cancelled_receive_counts_no_message(rsmq, notes):
    await rsmq.create_queue("jobs")
    waiting = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
    await until(lambda: notes.count("receive"))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert notes.messages("receive") == 0
    assert [receive.error for receive in notes.received] == ["cancelled"]


async def test_block_is_processed_in_the_contexts_of_outlets(rsmq, notes):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs")
    await queue.send_many(["a", "b"])
    async with await queue.receive():
        assert notes.at_work == 1
    with pytest.raises(ZeroDivisionError):
        async with await queue.receive():
            raise ZeroDivisionError
    assert [p.error for p in notes.processed] == [None, "ZeroDivisionError"]
    assert all(len(p.waits) == 1 for p in notes.processed)


@pytest.mark.parametrize("settle", ["await", "background"])
async def test_outcomes_of_a_worker(rsmq, notes, settle):
    worker = Worker(rsmq, concurrency=3, settle=settle)
    attempts = Counter()

    @worker.handler("jobs", retry=QUICK)
    async def handle(body: dict, message: Delivery):
        attempts[body["do"]] += 1
        assert notes.at_work
        match body["do"]:
            case "fail once" if attempts["fail once"] == 1:
                raise ZeroDivisionError
            case "fail":
                raise ZeroDivisionError
            case "release" if attempts["release"] == 1:
                await message.release()
            case "reject":
                await message.reject("no")
            case "lose" if attempts["lose"] == 1:
                await rsmq.queue("jobs").delete(message.id)

    queue = await rsmq.create_queue("jobs")
    does = ["ack", "ack", "fail once", "fail", "release", "reject", "lose"]
    await queue.send_many([{"do": do} for do in does])
    await queue.send("not json {")
    running = asyncio.create_task(worker.run(signals=False))

    def settled():
        return sum(notes.handled.values()) == 12

    await until(settled)
    assert len(notes.workers) == 1
    worker.stop()
    await running
    assert notes.handled == {
        ("jobs", "acked"): 4,  # ack twice, "fail once" and "release" the second time
        ("jobs", "failed"): 3,  # "fail once", and "fail" before its last delivery
        ("jobs", "released"): 1,
        ("jobs", "rejected"): 3,  # by the policy, by the handler, and what does not decode
        ("jobs", "lost"): 1,
    }
    health = worker.health
    assert (health.done, health.failed, health.rejected) == (4, 4, 3)
    assert notes.lost == {"jobs": 1}
    assert notes.workers == []
    assert len(notes.processed) == 11
    assert all(process.handler.endswith("handle") for process in notes.processed)
