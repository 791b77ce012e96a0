"""A worker that serves queues of rmq, alone or beside queues of RSMQ."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Retry, Worker
from aiorsmq_ng.rmq import Rmq, RmqDelivery
from aiorsmq_ng.telemetry.opentelemetry_traces import OpenTelemetryTraces

from ..support.waiting import until
from .test_client import READY, REJECTED, listed


@dataclass
class Order:
    number: int


async def running(worker: Worker) -> asyncio.Task[None]:
    task = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.state == "running" or task.done())
    return task


async def stopped(worker: Worker, task: asyncio.Task[None]) -> None:
    worker.stop()
    await asyncio.wait_for(task, 30)


async def test_handler_of_a_queue_of_rmq_gets_body_and_delivery(rmq, redis):
    worker = Worker("redis://127.0.0.1:1")  # is never connected: no handler needs it
    things, got = rmq.queue("things"), []

    @worker.handler(things)
    async def handle(order: Order, delivery: RmqDelivery) -> None:
        got.append((order, delivery.header("traceparent")))

    task = await running(worker)
    await things.publish({"number": 1}, headers={"traceparent": "00-1"})
    await things.publish({"number": 2})
    await until(lambda: len(got) == 2)
    await until(lambda: worker.health.done == 2)
    await stopped(worker, task)

    assert got == [(Order(1), "00-1"), (Order(2), None)]
    assert await things.lengths() == (0, 0)
    assert "things" in repr(worker)


async def test_what_fails_is_pushed_or_rejected_and_hooks_are_called(rmq, redis):
    worker, failures = Worker(), []
    things, other = rmq.queue("things"), rmq.queue("other", push="retry")

    @worker.handler(things)
    async def handle(order: Order) -> None:
        raise RuntimeError("no")

    @worker.handler(other)
    async def handle_other(body: str) -> None:
        raise RuntimeError("no")

    @worker.on_failure
    async def note(delivery: Delivery, error: Exception) -> None:
        failures.append((delivery.queue, type(error)))

    task = await running(worker)
    await things.publish('{"number": 1}', "no order")
    await other.publish("x")
    await until(lambda: len(failures) == 3)
    await stopped(worker, task)

    assert sorted(await listed(redis, REJECTED)) == [b"no order", b'{"number": 1}']
    assert await listed(redis, "rmq::queue::[retry]::ready") == [b"x"]
    assert (worker.health.rejected, worker.health.failed) == (2, 1)


async def test_payload_with_malformed_headers_is_counted_as_rejected(rmq, redis):
    worker, done = Worker(), []
    things = rmq.queue("things")
    malformed = [b"\xff\x00\xbe\xbeJ{}", b"\xff\x00\xbe\xbeJ[1]\n"]
    await things.publish_payloads([malformed[0], b"fine", malformed[1]])

    @worker.handler(things)
    async def handle(body: str) -> None:
        done.append(body)

    task = await running(worker)
    await until(lambda: worker.health.rejected == 2)
    await stopped(worker, task)

    assert done == ["fine"]
    assert worker.health.done == 1
    assert await listed(redis, REJECTED) == malformed


async def test_batch_handler_of_a_queue_of_rmq(rmq):
    worker, sizes = Worker(), []
    things = rmq.queue("things")
    await things.publish(*"abcde")

    @worker.batch_handler(things, size=3, wait=0.1)
    async def handle(batch: list[RmqDelivery]) -> None:
        sizes.append(len(batch))

    task = await running(worker)
    await until(lambda: sum(sizes) == 5)
    await stopped(worker, task)
    assert sizes == [3, 2]
    assert await things.lengths() == (0, 0)


async def test_worker_serves_both_families_at_once_and_gives_back_what_it_did_not_begin(
    rmq, redis, url
):
    gate, begun = asyncio.Event(), []
    async with RSMQ(url) as rsmq:
        worker = Worker(rsmq, concurrency=2)
        things = rmq.queue("things")
        await things.publish(*"abcdef")

        @worker.handler("jobs")
        async def handle_job(body: str) -> None:
            begun.append(body)

        @worker.handler(things)
        async def handle_thing(body: str) -> None:
            begun.append(body)
            await gate.wait()

        task = await running(worker)
        await until(lambda: len(begun) == 2)
        worker.stop()
        gate.set()
        await asyncio.wait_for(task, 30)
        assert begun == ["a", "b"]
        assert await listed(redis, READY) == [b"c", b"d", b"e", b"f"]

    worker = Worker(url)
    done = []

    @worker.handler("jobs")
    async def job(body: str) -> None:
        done.append(body)

    @worker.handler(things)
    async def thing(body: str) -> None:
        done.append(body)

    task = await running(worker)
    async with RSMQ(url) as rsmq:
        await rsmq.queue("jobs").send("job")
    await until(lambda: len(done) == 5)
    await stopped(worker, task)
    assert sorted(done) == ["c", "d", "e", "f", "job"]


async def test_worker_closes_a_client_of_rmq_that_it_has_opened(url, redis):
    rmq, begun = Rmq(url, tag="svc"), asyncio.Event()
    worker = Worker(grace=0, concurrency=1)
    things = rmq.queue("things")

    @worker.handler(things)
    async def handle(body: str) -> None:
        begun.set()
        await asyncio.sleep(3600)

    async with Rmq(url) as other:
        await other.queue("things").publish("a", "b")
    task = await running(worker)
    await begun.wait()
    await stopped(worker, task)

    assert await listed(redis, READY) == [b"a", b"b"]
    assert await redis.smembers("rmq::connections") == set()


async def test_client_of_rmq_that_is_closed_ends_its_worker_first(url, redis):
    async with Rmq(url, tag="svc") as rmq:
        worker, begun = Worker(), asyncio.Event()
        things = await rmq.queue("things")
        await things.publish("a")

        @worker.handler(things)
        async def handle(body: str) -> None:
            begun.set()
            await asyncio.sleep(3600)

        task = await running(worker)
        await begun.wait()
    with pytest.raises(Exception, match="closed before its worker"):
        await task
    assert await listed(redis, READY) == [b"a"]


async def test_rules_that_rmq_does_not_have_are_refused():
    things = Rmq("redis://x").queue("things")
    worker = Worker("redis://x")
    for rules in ({"retry": Retry()}, {"dead_letter": "d"}, {"vt": 3}):
        with pytest.raises(InvalidValue, match="push"):
            worker.handler(things, **rules)

    @worker.handler(things)
    async def handle(body: str) -> None: ...

    with pytest.raises(InvalidValue, match="already"):
        worker.handler(things)(handle)
    with pytest.raises(InvalidValue, match="RmqQueue"):
        worker.handler(3)


async def test_traces_read_the_senders_of_both_families_from_their_headers(rmq, redis, url, caplog):
    """Headers of rmq are lists of texts, with names as Go writes them; those of RSMQ are texts."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    contexts = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 4)]
    async with RSMQ(url, telemetry=[OpenTelemetryTraces(provider)]) as rsmq:
        jobs, things = await rsmq.create_queue("jobs"), await rmq.queue("things")
        worker, seen = Worker(rsmq), []

        @worker.middleware
        async def look(message, call_next):
            seen.append({**message.headers})
            return await call_next()

        @worker.handler(things)
        async def handle(body: bytes) -> None:
            pass

        @worker.handler("jobs")
        async def handle_job(body: bytes) -> None:
            pass

        await jobs.send("d", headers={"traceparent": contexts[2], "tenant": "x"})
        await things.publish("a", headers={"traceparent": [contexts[0], "second"]})
        await things.publish("b", headers={"TRACEPARENT": contexts[1], "Tracestate": "a=b"})
        await things.publish("c", headers={"traceparent": "no context", "empty": []})
        task = await running(worker)
        await until(lambda: worker.health.done == 4)
        await stopped(worker, task)

    links = sorted(
        (span.name, *(link.context.span_id for link in span.links))
        for span in exporter.get_finished_spans()
        if span.name.startswith("process")
    )
    assert links == [
        *(("process jobs", 3), ("process things",), ("process things", 1), ("process things", 2)),
    ]
    assert [record for record in caplog.records if record.name == "aiorsmq_ng.telemetry"] == []
    assert {"Traceparent": [contexts[0], "second"]} in seen
    assert any(found.get("tenant") == "x" for found in seen)
