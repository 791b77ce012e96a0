"""Workers: handlers, outcomes, concurrency, order, batches, stopping."""

import asyncio
import os
import signal
from dataclasses import dataclass

import pytest

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Message, QueueNotFound, Retry, Worker

from ..support.waiting import until

QUICK = Retry(3, base=0.01, cap=0.02)


@dataclass
class Order:
    number: int


@pytest.fixture
def work(rsmq):
    """Run workers in the background; all are stopped at the end."""
    running = []

    def start(worker):
        task = asyncio.create_task(worker.run(signals=False))
        running.append((worker, task))
        return task

    yield start
    for worker, _ in running:
        worker.stop()


async def stopped(worker, task):
    worker.stop()
    await task


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (str, "text", "text"),
        (bytes, b"\xff", b"\xff"),
        (Order, {"number": 7}, Order(7)),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (list[Order], [{"number": 1}], [Order(1)]),
    ],
)
async def test_body_comes_as_the_handlers_annotation_says(rsmq, work, annotation, body, expected):
    worker = Worker(rsmq)
    seen = []

    async def handle(value):
        seen.append(value)

    handle.__annotations__["value"] = annotation
    worker.handler("jobs")(handle)
    task = work(worker)
    await until(lambda: worker.health.state == "running")
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    await queue.send(body)
    await until(lambda: seen)
    await stopped(worker, task)

    assert seen == [expected]
    assert (await queue.attributes()).msgs == 0


async def test_handler_may_want_the_delivery_or_both(rsmq, work):
    seen = []
    worker = Worker(rsmq)

    @worker.handler("one")
    async def one(message: Delivery) -> None:
        seen.append(message.text)

    @worker.handler("two")
    async def two(order: Order, message: Message) -> None:
        seen.append((order.number, message.rc))

    @worker.handler("three")
    async def three(message) -> None:
        seen.append(message.body)

    task = work(worker)
    for name in ("one", "two", "three"):
        queue = await rsmq.create_queue(name, exist_ok=True)
        await queue.send({"number": 5})
    await until(lambda: len(seen) == 3)
    await stopped(worker, task)

    assert sorted(map(str, seen)) == sorted(['{"number":5}', "(5, 1)", str(b'{"number":5}')])


async def test_pydantic_model_reads_itself(rsmq, work):
    """Anything with pydantic's model_validate_json is asked to read the body."""

    class Model:
        @classmethod
        def model_validate_json(cls, body):
            if body == b"bad":
                raise ValueError("no good")
            return "model of " + body.decode()

    seen = []
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(value: Model) -> None:
        seen.append(value)

    handle.__annotations__["value"] = Model
    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    await queue.send("bad")
    await queue.send("good")
    await until(lambda: seen and worker.health.rejected)
    await stopped(worker, task)

    assert seen == ["model of good"]


async def test_body_that_does_not_decode_goes_to_the_dead_letters_at_once(rsmq, work):
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(order: Order) -> None: ...

    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    id = await queue.send("not an order")
    await until(lambda: worker.health.rejected == 1)
    await stopped(worker, task)

    dead = rsmq.queue("jobs-dead")
    assert [m.id for m in await dead.peek()] == [id]
    assert "not JSON" in await dead.reason(id)


async def test_raising_handler_is_tried_again_and_then_given_up(rsmq, work):
    tries = []
    worker = Worker(rsmq)

    @worker.handler("jobs", retry=QUICK, dead_letter="morgue")
    async def handle(message: Delivery) -> None:
        tries.append(message.rc)
        raise KeyError("boom")

    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    id = await queue.send("x")
    await until(lambda: worker.health.rejected == 1)
    await stopped(worker, task)

    assert tries == [1, 2, 3]
    (dead,) = await rsmq.queue("morgue").peek()
    assert (dead.id, dead.rc) == (id, 3)
    assert await rsmq.queue("morgue").reason(id) == "KeyError: 'boom'"
    assert (worker.health.failed, worker.health.last_error) == (2, "KeyError: 'boom'")


async def test_handler_that_hangs_is_cancelled_at_its_timeout(rsmq, work):
    cancelled = []
    worker = Worker(rsmq)

    @worker.handler("jobs", retry=QUICK, timeout=0.1)
    async def handle(body: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(body)
            raise

    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    id = await queue.send("x")
    await until(lambda: worker.health.rejected == 1)
    await stopped(worker, task)

    assert cancelled == ["x"] * 3
    assert "longer than 0.1 s" in await rsmq.queue("jobs-dead").reason(id)


async def test_handler_that_swallows_cancellation_holds_up_only_its_slot(rsmq, work, monkeypatch):
    monkeypatch.setattr("aiorsmq_ng.worker.handler_execution._CANCEL_S", 0.05)
    let_go = asyncio.Event()
    seen = []
    worker = Worker(rsmq, concurrency=2)

    @worker.handler("jobs", timeout=0.05, vt=0.5)
    async def handle(body: str, message: Delivery) -> None:
        if body == "stubborn" and message.rc == 1:
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
        seen.append((body, message.rc))

    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    await queue.send("stubborn")
    await until(lambda: worker.health.stuck == 1)
    await queue.send("next")
    await until(lambda: len(seen) == 2)
    assert set(seen) == {("next", 1), ("stubborn", 2)}
    let_go.set()
    await until(lambda: worker.health.stuck == 0)
    await stopped(worker, task)


async def test_no_more_handlers_run_than_allowed(rsmq, work):
    now, most = 0, 0
    worker = Worker(rsmq, concurrency=4)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    task = work(worker)
    queue = await rsmq.create_queue("jobs", exist_ok=True)
    await queue.send_many(["x"] * 40)
    await until(lambda: worker.health.done == 40)
    await stopped(worker, task)

    assert most == 4


async def test_strict_order_serves_the_first_queue_first(rsmq, work):
    seen = []
    for name in ("high", "low"):
        queue = await rsmq.create_queue(name)
        await queue.send_many([name] * 10)
    worker = Worker(rsmq, concurrency=1, prefetch=1)

    @worker.handler("high")
    async def high(body: str) -> None:
        seen.append(body)

    @worker.handler("low")
    async def low(body: str) -> None:
        seen.append(body)

    task = work(worker)
    await until(lambda: len(seen) == 20)
    await stopped(worker, task)

    assert seen == ["high"] * 10 + ["low"] * 10


async def test_weighted_order_prefers_and_never_starves(rsmq, work):
    seen = []
    for name in ("heavy", "light"):
        queue = await rsmq.create_queue(name)
        await queue.send_many([name] * 200)
    worker = Worker(rsmq, concurrency=1, prefetch=1, order="weighted")

    async def handle(body: str) -> None:
        seen.append(body)

    worker.handler("heavy", weight=9)(handle)
    worker.handler("light", weight=1)(handle)
    task = work(worker)
    await until(lambda: len(seen) >= 150)
    await stopped(worker, task)

    first = seen[:150]
    assert first.count("heavy") > first.count("light") > 0


async def test_batch_fires_at_its_size_or_after_its_wait(rsmq, work):
    sizes = []
    worker = Worker(rsmq)

    @worker.batch_handler("jobs", size=5, wait=0.2)
    async def handle(batch: list[Delivery]) -> None:
        sizes.append(len(batch))

    queue = await rsmq.create_queue("jobs")
    await queue.send_many([str(i) for i in range(12)])
    task = work(worker)
    await until(lambda: sum(sizes) == 12)
    await stopped(worker, task)

    assert sizes == [5, 5, 2]
    assert (await queue.attributes()).msgs == 0


async def test_batch_of_one_fires_at_once(rsmq, work):
    sizes = []
    worker = Worker(rsmq)

    @worker.batch_handler("jobs", size=1, wait=60)
    async def handle(batch: list[Delivery]) -> None:
        sizes.append(len(batch))

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: sizes)
    await stopped(worker, task)

    assert sizes == [1]


async def test_batch_has_an_outcome_per_message(rsmq, work):
    worker = Worker(rsmq)
    done = asyncio.Event()

    @worker.batch_handler("jobs", size=4, wait=0.5)
    async def handle(batch: list[Delivery]) -> None:
        await batch[0].reject("bad one")
        await batch[1].release(delay=600)
        await batch[2].ack()
        done.set()

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abcd"))
    task = work(worker)
    await done.wait()
    await until(lambda: worker.health.done)
    await stopped(worker, task)

    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.leased) == (1, 1)
    assert [m.text for m in await rsmq.queue("jobs-dead").peek()] == ["a"]


async def test_batch_that_raises_gives_all_back(rsmq, work):
    calls = []
    worker = Worker(rsmq)

    @worker.batch_handler("jobs", size=3, wait=0.1, retry=QUICK)
    async def handle(batch: list[Delivery]) -> None:
        calls.append([m.rc for m in batch])
        if len(calls) == 1:
            raise KeyError

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abc"))
    task = work(worker)
    await until(lambda: worker.health.done == 3)
    await stopped(worker, task)

    assert calls[0] == [1, 1, 1]
    assert worker.health.failed == 3


async def test_middleware_wraps_in_order_and_sees_the_error(rsmq, work):
    log = []
    worker = Worker(rsmq)

    @worker.middleware
    async def outer(message, call_next):
        log.append("outer in")
        try:
            return await call_next()
        finally:
            log.append("outer out")

    @worker.middleware
    async def inner(message, call_next):
        log.append(f"inner {message.text}")
        return await call_next()

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        log.append("handler")

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done)
    await stopped(worker, task)

    assert log == ["outer in", "inner x", "handler", "outer out"]


async def test_pause_gives_back_idle_messages_and_resume_goes_on(rsmq, work):
    gate = asyncio.Event()
    worker = Worker(rsmq, concurrency=1, prefetch=10)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await gate.wait()

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abcdef"))
    task = work(worker)
    await until(lambda: worker.health.running == 1)
    worker.pause()

    async def only_one_leased():
        return (await queue.attributes()).leased == 1

    await until(only_one_leased)
    gate.set()
    await until(lambda: worker.health.done == 1)
    await asyncio.sleep(0.1)
    assert worker.health.done == 1
    worker.resume()
    await until(lambda: worker.health.done == 6)
    await stopped(worker, task)


async def test_stop_lets_handlers_end_and_leaves_nothing_hidden(rsmq, work):
    worker = Worker(rsmq, concurrency=100)
    ended = []

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await asyncio.sleep(0.3)
        ended.append(body)

    queue = await rsmq.create_queue("jobs")
    await queue.send_many([str(i) for i in range(300)])
    task = work(worker)
    await until(lambda: worker.health.running == 100)
    await stopped(worker, task)

    attributes = await queue.attributes()
    assert len(ended) >= 100
    assert attributes.leased == 0
    assert attributes.ready == 300 - len(ended)


async def test_stop_after_the_grace_cancels_and_gives_back(rsmq, work):
    worker = Worker(rsmq, grace=0.1)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await asyncio.sleep(60)

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(list("abc"))
    task = work(worker)
    await until(lambda: worker.health.running == 3)
    await stopped(worker, task)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (3, 0)
    assert worker.health.state == "stopped"


async def test_second_stop_does_not_wait_for_the_grace(rsmq, work):
    worker = Worker(rsmq, grace=3600)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        await asyncio.sleep(3600)

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.running == 1)
    worker.stop()
    await asyncio.sleep(0.05)
    worker.stop()
    async with asyncio.timeout(10):
        await task

    assert (await queue.attributes()).ready == 1


async def test_sigterm_stops_the_worker(server_url, ns):
    worker = Worker(RSMQ(server_url, ns=ns))

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    task = asyncio.create_task(worker.run())
    await until(lambda: worker.health.state == "running")
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        await task

    assert worker.health.state == "stopped"
    await worker.rsmq.aclose()


async def test_handler_much_longer_than_its_lease_is_not_delivered_twice(rsmq, work):
    deliveries = []
    worker = Worker(rsmq)

    @worker.handler("jobs", vt=1)
    async def handle(message: Delivery) -> None:
        deliveries.append(message.rc)
        await asyncio.sleep(3)

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    await until(lambda: worker.health.done == 1)
    await stopped(worker, task)

    assert deliveries == [1]
    assert (await queue.attributes()).totalrecv == 1


async def test_handler_whose_lease_is_lost_is_cancelled_and_cannot_ack(rsmq, work, raw, ns):
    cancelled = asyncio.Event()
    worker = Worker(rsmq)

    @worker.handler("jobs", vt=0.6)
    async def handle(message: Delivery) -> None:
        # Another client receives it, as if this process had been stopped for a while.
        await raw.hincrby(f"{ns}:jobs:Q", f"{message.id}:rc", 1)
        await raw.zadd(f"{ns}:jobs", {message.id: 9e12})
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    task = work(worker)
    async with asyncio.timeout(10):
        await cancelled.wait()
    await stopped(worker, task)

    assert (await queue.attributes()).msgs == 1


async def test_poison_is_moved_by_the_receive_itself_with_its_count(rsmq):
    """What a message that kills its process looks like: received, never settled."""
    queue = rsmq.queue("jobs", retry=Retry(3))
    await rsmq.create_queue("jobs")
    id = await queue.send("poison")
    first = await queue.receive(vt=0)
    for _ in range(2):
        assert (await queue.receive(vt=0)).id == id
    await queue.send("healthy")

    assert (await queue.receive()).text == "healthy"
    (dead,) = await rsmq.queue("jobs-dead").peek()
    assert (dead.id, dead.text, dead.rc, dead.fr) == (id, "poison", 3, first.fr)
    attributes = await rsmq.queue("jobs-dead").attributes()
    assert (attributes.totalsent, attributes.vt) == (1, 30)


async def test_block_that_raises_is_released_by_the_policy(rsmq):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(2, base=100, jitter=False, cap=100))
    await queue.send("x")
    with pytest.raises(KeyError):
        async with await queue.receive():
            raise KeyError
    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (0, 1)

    (row,) = await queue.pending()
    await queue.change_visibility(row.id, 0)
    with pytest.raises(KeyError):
        async with await queue.receive():
            raise KeyError
    assert [m.rc for m in await rsmq.queue("jobs-dead").peek()] == [2]


async def test_stats_tell_of_dead_letters_and_living_consumers(rsmq, work):
    worker = Worker(rsmq)
    gate = asyncio.Event()

    @worker.handler("jobs", vt=30)
    async def handle(body: str) -> None:
        await gate.wait()

    queue = await rsmq.create_queue("jobs")
    ids = await queue.send_many(["a", "b"])
    await queue.send("later", delay=60)
    task = work(worker)
    await until(lambda: worker.health.running == 2)

    async def told():
        stats = await queue.stats()
        return stats.consumers and set(stats.consumers[0].holding) == set(ids)

    # Presence is announced at once when a consumer starts, and then every ten seconds.
    await until(told)
    stats = await queue.stats()
    assert (stats.ready, stats.leased, stats.delayed, stats.dead) == (0, 2, 1, 0)
    assert str(os.getpid()) in stats.consumers[0].name
    gate.set()
    await until(lambda: worker.health.done == 2)
    await stopped(worker, task)

    async def gone():
        return (await queue.stats()).consumers == ()

    await until(gone)


async def test_redrive_moves_back_and_starts_again(rsmq, queue):
    await queue.send_many([str(i) for i in range(250)])
    for message in await queue.receive_many(250):
        await message.reject("broken")

    assert await queue.redrive(count=10) == 10
    assert await queue.redrive("jobs-dead", where=lambda m: int(m.text) % 2 == 0) == 120
    assert await queue.redrive(rsmq.queue("jobs-dead"), rate=100_000) == 120
    assert await queue.redrive() == 0
    received = await queue.receive_many(300)
    assert {m.rc for m in received} == {1}
    assert sorted(int(m.text) for m in received) == list(range(250))


async def test_redrive_interrupted_leaves_every_message_in_one_queue(rsmq, queue):
    await queue.send_many([str(i) for i in range(500)])
    for message in await queue.receive_many(500):
        await message.reject()
    task = asyncio.create_task(queue.redrive(rate=1000))
    await asyncio.sleep(0.15)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    here = {m.id for m in await queue.peek(0, 1000)}
    there = {m.id for m in await rsmq.queue("jobs-dead").peek(0, 1000)}
    assert here
    assert there
    assert len(here | there) == 500
    assert not here & there


async def test_redrive_tells_its_progress_also_of_the_batch_that_a_cancellation_meets(rsmq, queue):
    dead = await rsmq.create_queue("jobs-dead")
    for _ in range(5):
        await dead.send_many([str(i) for i in range(1000)])
        seen: list[int] = []
        task = asyncio.create_task(queue.redrive(progress=seen.append))
        while not seen:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the next batch is under way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert 0 < sum(seen) < 1000
        assert sum(seen) == (await queue.attributes()).msgs
        rest: list[int] = []
        assert await queue.redrive(progress=rest.append) == sum(rest) == 1000 - sum(seen)
        await queue.purge()


async def test_purge_tells_its_progress_also_of_the_page_that_a_cancellation_meets(queue):
    for _ in range(5):
        await queue.send_many(["x"] * 5000)
        seen: list[int] = []
        task = asyncio.create_task(queue.purge(progress=seen.append))
        while not seen:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # the next page is under way
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        left = (await queue.attributes()).msgs
        assert 0 < sum(seen) == 5000 - left < 5000
        rest: list[int] = []
        assert await queue.purge(progress=rest.append) == sum(rest) == left


async def test_redrive_without_any_dead_letters_moves_nothing(rsmq, queue):
    assert await queue.redrive() == 0
    with pytest.raises(QueueNotFound):
        await queue.redrive("nope")


async def test_redrive_into_a_queue_that_does_not_exist_is_refused(rsmq):
    with pytest.raises(QueueNotFound, match="nope"):
        await rsmq.queue("nope").redrive()


async def test_reason_of_an_earlier_life_does_not_stick(rsmq):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(1))
    id = await queue.send("x")
    await (await queue.receive()).reject("first life")
    dead = rsmq.queue("jobs-dead")
    assert await dead.reason(id) == "first life"
    await (await dead.receive()).release()
    assert await dead.reason(id) == "first life"
    await asyncio.sleep(0.002)  # the next life begins in another millisecond
    await queue.redrive()
    await queue.receive(vt=0)
    assert await queue.receive() is None  # received too often: moved by the script
    assert [m.id for m in await dead.peek()] == [id]
    assert (await dead.reason(id)).startswith("received once without being settled")


async def test_queue_cannot_be_its_own_dead_letter_queue(rsmq):
    with pytest.raises(InvalidValue, match="its own dead-letter queue"):
        rsmq.queue("jobs", dead_letter="jobs")
    with pytest.raises(InvalidValue, match="its own dead-letter queue"):

        @Worker(rsmq).handler("jobs", dead_letter="jobs")
        async def handle(body: str) -> None: ...


async def test_idle_queue_holds_no_slot(rsmq, work):
    seen = []
    worker = Worker(rsmq, concurrency=1)

    @worker.handler("idle")
    async def idle(body: str) -> None: ...

    @worker.batch_handler("bulk", size=2, wait=0.05)
    async def bulk(batch: list[Delivery]) -> None:
        seen.extend(m.text for m in batch)

    queue = await rsmq.create_queue("bulk")
    task = work(worker)
    await queue.send_many(list("abc"))
    await until(lambda: len(seen) == 3)
    await stopped(worker, task)

    assert sorted(seen) == ["a", "b", "c"]


async def test_hooks_are_called_around_the_work_and_for_failures(rsmq, work):
    log = []
    worker = Worker(rsmq)

    @worker.on_start
    async def begin() -> None:
        log.append("start")

    @worker.on_stop
    async def end() -> None:
        log.append("stop")

    @worker.on_failure
    async def failed(message, error) -> None:
        log.append((message.text, type(error).__name__))
        raise KeyError("the hook itself")

    @worker.handler("jobs", retry=Retry(1))
    async def handle(order: Order) -> None:
        raise RuntimeError

    queue = await rsmq.create_queue("jobs")
    await queue.send("junk")
    await queue.send({"number": 1})
    task = work(worker)
    await until(lambda: worker.health.rejected == 2)
    await until(lambda: len(log) == 3)
    await stopped(worker, task)

    assert (log[0], log[-1]) == ("start", "stop")
    assert set(log[1:-1]) == {("junk", "InvalidValue"), ('{"number":1}', "RuntimeError")}


async def test_redrive_leaves_leased_dead_letters_alone(rsmq, queue):
    await queue.send_many(["a", "b"])
    for message in await queue.receive_many(2):
        await message.reject()
    looking = await rsmq.queue("jobs-dead").receive()

    assert await queue.redrive() == 1
    await looking.ack()


@pytest.mark.parametrize("rate", [0, -1])
async def test_redrive_with_nonsense_is_refused(queue, rate):
    with pytest.raises(InvalidValue, match="rate"):
        await queue.redrive(rate=rate)
    with pytest.raises(InvalidValue, match="into itself"):
        await queue.redrive("jobs")


def test_worker_that_makes_no_sense_is_refused(rsmq):
    worker = Worker(rsmq)
    with pytest.raises(InvalidValue, match="async function"):
        worker.handler("jobs")(lambda body: None)
    with pytest.raises(InvalidValue, match="body, the delivery, or both"):

        @worker.handler("jobs")
        async def three(a: str, b: str, c: str) -> None: ...

    with pytest.raises(InvalidValue, match=r'ship has no queue; write @worker.handler\("jobs"\)'):

        @worker.handler
        async def ship(body: str) -> None: ...

    with pytest.raises(InvalidValue, match="queue of a handler must be a name, not None"):
        worker.handler(None)
    with pytest.raises(InvalidValue, match="concurrency"):
        Worker(rsmq, concurrency=0)
    with pytest.raises(InvalidValue, match="order"):
        Worker(rsmq, order="random")
    with pytest.raises(InvalidValue, match="at least 1"):
        worker.batch_handler("jobs", size=0, wait=1)
    with pytest.raises(InvalidValue, match="a list of deliveries"):

        @worker.batch_handler("jobs", size=2, wait=1)
        async def numbers(batch: list[int]) -> None: ...

    @worker.handler("jobs")
    async def fine(body: str) -> None: ...

    with pytest.raises(InvalidValue, match="has a handler already"):
        worker.handler("jobs")(fine)


async def test_worker_without_handlers_says_so(rsmq):
    with pytest.raises(InvalidValue, match="no handlers"):
        await Worker(rsmq).run()


@pytest.mark.parametrize(
    ("policy", "delays"),
    [
        (Retry(backoff="exponential", base=1, cap=5, jitter=False), [1, 2, 4, 5, 5]),
        (Retry(backoff="linear", base=2, cap=7, jitter=False), [2, 4, 6, 7, 7]),
        (Retry(backoff="constant", base=3, jitter=False), [3, 3, 3, 3, 3]),
        (Retry(backoff=(10, 60, 300), jitter=False), [10, 60, 300, 300, 300]),
    ],
)
def test_retry_delays_grow_to_their_cap(policy, delays):
    assert [policy.delay(rc) for rc in range(1, 6)] == delays


def test_retry_that_makes_no_sense_is_refused():
    for bad in (
        {"max_receives": -1},
        {"backoff": "x"},
        {"base": 5, "cap": 1},
        {"base": -1},
        {"backoff": ()},
    ):
        with pytest.raises(InvalidValue):
            Retry(**bad)
    assert not Retry(0).gives_up(10**6)
    assert Retry(3).gives_up(3)
    assert not Retry(3).gives_up(2)
