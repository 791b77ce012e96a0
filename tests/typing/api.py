"""Types of the public surface, read by mypy and pyright; never run."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, assert_type

from redis.asyncio import Redis

from aiorsmq_ng import (
    RSMQ,
    Consumer,
    Delivery,
    DoctorReport,
    FindingKind,
    Message,
    Options,
    PendingMessage,
    Queue,
    QueueAttributes,
    QueueStats,
    Retry,
    ScannedMessage,
    Sent,
    Subscription,
    Topic,
    TopicInfo,
    Worker,
    WorkerHealth,
)
from aiorsmq_ng.compat.redismq import ReliableQueue


async def surface(client: Redis) -> None:
    async with RSMQ("redis://localhost", ns="rsmq") as rsmq:
        assert_type(rsmq, RSMQ)
        queue = await rsmq.create_queue("jobs", vt=30, exist_ok=True)
        assert_type(queue, Queue)
        assert_type(rsmq.queue("jobs"), Queue)
        assert_type(await rsmq.list_queues(), list[str])
        assert_type(await rsmq.receive("a", queue, wait=1.5), Delivery | None)
        assert_type(await rsmq.receive_many(["a", queue], 3), list[Delivery])
        assert_type(await queue.send({"a": 1}, delay=0.5), str)
        assert_type(await queue.send_many(["a", b"b"]), list[str])
        assert_type(await queue.receive(), Delivery | None)
        assert_type(await queue.receive_many(3), list[Delivery])
        assert_type(await queue.pop(), Message | None)
        assert_type(await queue.delete("x"), bool)
        assert_type(await queue.delete_many(["x"]), list[str])
        assert_type(await queue.attributes(), QueueAttributes)
        assert_type(await queue.peek(), list[Message])
        assert_type(await queue.pending(), list[PendingMessage])
        assert_type(queue.scan(0, 10), AsyncIterator[ScannedMessage])
        assert_type(await queue.purge(), int)
        assert_type(await queue.exists(), bool)
        assert_type(await queue.pop_many(2), list[Message])
        assert_type(await queue.change_visibility("x", timedelta(seconds=1)), bool)
        assert_type(await queue.set_attributes(vt=5), QueueAttributes)
        assert_type(await queue.reason("x"), str | None)
        assert_type(await rsmq.send_message("jobs", "a"), str)
        assert_type(await rsmq.receive_message("jobs", vt=5), Delivery | None)
        assert_type(await rsmq.pop_message("jobs"), Message | None)
        assert_type(await rsmq.delete_message("jobs", "x"), bool)
        assert_type(await rsmq.change_message_visibility("jobs", "x", 5), bool)
        assert_type(await rsmq.get_queue_attributes("jobs"), QueueAttributes)
        assert_type(await rsmq.set_queue_attributes("jobs", vt=5), QueueAttributes)
        assert_type((await rsmq.doctor()).findings[0].kind, FindingKind)
        assert_type(await rsmq.gateway.receive_now([queue], 1), tuple[list[Delivery], float | None])
        reliable = ReliableQueue(rsmq, "jobs", create=True)
        assert_type(await reliable.pop(3, block=1), list[tuple[str, bytes]])
        assert_type(await reliable.ack("x"), list[str])
        assert_type(await reliable.recover(3, 1000), list[tuple[str, bytes]])
        assert_type(await reliable.inspect(0, 3), list[tuple[str, bytes]])
        assert_type(
            await reliable.inspect(0, 3, pending=True), list[tuple[str, bytes, int, int, int]]
        )
        assert_type(await rsmq.doctor(queue, fix=True, max_hidden=60), DoctorReport)
        assert_type(await queue.stats(), QueueStats)
        assert_type(await queue.recover(3, idle=60), list[Delivery])
        assert_type(await queue.redrive(where=lambda m: m.rc > 1, rate=10), int)
        assert_type(queue.consume(prefetch=3), Consumer)
        assert_type(await ReliableQueue(rsmq, "jobs").push("a", b"b"), list[str])
        topic = rsmq.topic("news")
        assert_type(topic, Topic)
        assert_type(await topic.publish({"a": 1}, delay=1, dedup_key="k"), Sent)
        assert_type(await topic.publish({"a": 1}), str)
        assert_type(await queue.send("a"), str)
        assert_type((await queue.send("a", dedup_key="k")).duplicate, bool)
        assert_type(await topic.publish_many(["a", b"b"]), list[str])
        subscription = await topic.subscribe("a", mode="broadcast", peer="p")
        assert_type(subscription, Subscription)
        assert_type(await subscription.observe(wait=1), list[Delivery])
        assert_type(await topic.unsubscribe("a", discard=True), int)
        assert_type(await topic.describe(), TopicInfo)
        await topic.set_backlog(max_length=None, max_age=timedelta(hours=1))
        assert_type(await topic.delete(), bool)
        assert_type(await subscription.keep_alive(), bool)
        assert_type(await rsmq.list_topics(), list[str])
        async for message in queue:
            assert_type(message, Delivery)
            async with message as same:
                assert_type(same, Delivery)
            assert_type(message.body, bytes)
            assert_type(message.text, str)
            assert_type(message.json(), Any)
            assert_type(message.json(dict[str, int]), dict[str, int])
            assert_type(message.sent, float | None)
            assert_type(message.decode(int), int)
            assert_type(message.sent_at, datetime | None)
            assert_type(message.first_received_at, datetime | None)
            assert_type(message.decode(list[int]), list[int])
    RSMQ(client=client)
    options = Options(deadline=timedelta(seconds=5), poll_cap=3, dedup_window=0.5)
    assert_type(options.deadline, float)
    for held in await rsmq.queue("jobs").pending():
        assert_type(held.idle, float)
        assert_type(held.delivered_at, datetime | None)


worker = Worker("redis://localhost", concurrency=5)


@worker.handler("jobs", retry=Retry(5), timeout=10)
async def handle(body: dict[str, int], message: Delivery) -> None:
    assert_type(message.settled, bool)


assert_type(worker.health, WorkerHealth)
assert_type(worker.health.ok, bool)


@worker.handler("typed", vt=timedelta(seconds=5), timeout=timedelta(seconds=1))
async def typed(body: int, message: Delivery) -> str:
    return str(body)


@worker.on_failure
async def told(message: Delivery, error: Exception) -> None: ...


@worker.on_failure
async def told_all(message: Delivery, error: BaseException) -> None: ...


async def call_them(delivery: Delivery) -> None:
    """Decorated functions keep their own types, so unit tests that call them are checked."""
    assert_type(await typed(1, delivery), str)
    await typed("1", delivery)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await told(delivery, ValueError())
    Retry(base=timedelta(seconds=1), backoff=(timedelta(seconds=1), 5))
