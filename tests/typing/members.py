"""Every member of the main classes with its arguments and its result; never run.

Read by mypy and pyright. One function per class; tests/unit/test_typing.py fails if a public
member, or an argument of one, is missing.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, assert_type

from aiorsmq_ng import (
    RSMQ,
    Codec,
    Consumer,
    DeadLetter,
    DeadLetters,
    Delivery,
    DoctorReport,
    Gateway,
    Lease,
    Message,
    PendingMessage,
    Queue,
    QueueAttributes,
    QueueStats,
    Receipt,
    Retry,
    ScannedMessage,
    SendToken,
    Sent,
    ServerStatus,
    Subscription,
    SubscriptionMode,
    Topic,
    TopicInfo,
    Worker,
    WorkerHealth,
)
from aiorsmq_ng.gateway import PurgedPage, RecoverPlace

MINUTE = timedelta(minutes=1)
TOKEN = SendToken()


async def ended() -> None: ...


def counted(number: int) -> None: ...


def examined(what: str, done: int, total: int) -> None: ...


def chosen(message: Message) -> bool:
    return message.rc > 1


async def rsmq_members(rsmq: RSMQ) -> None:
    assert_type(rsmq.ns, str)
    assert_type(rsmq.codec, Codec)
    assert_type(rsmq.dead_letters, DeadLetters)
    assert_type(rsmq.gateway, Gateway)
    assert_type(rsmq.server_status, ServerStatus)
    assert_type(await rsmq.open(wait_for_server=MINUTE), RSMQ)
    assert_type(await rsmq.open(wait_for_server=None), RSMQ)
    await rsmq.aclose()
    await rsmq.quit()
    rsmq.add_close_hook(ended)
    rsmq.remove_close_hook(ended)
    await rsmq.wait_idle(MINUTE)
    assert_type(
        await rsmq.create_queue("jobs", vt=MINUTE, delay=0.5, maxsize=-1, exist_ok=True), Queue
    )
    assert_type(rsmq.queue("jobs", dead_letter="dead", retry=Retry(), vt=MINUTE), Queue)
    assert_type(await rsmq.list_queues(), list[str])
    await rsmq.delete_queue("jobs")
    queue = rsmq.queue("jobs")
    assert_type(await rsmq.receive("a", queue, vt=MINUTE, wait=1.5), Delivery | None)
    assert_type(await rsmq.receive_many(["a", queue], 3, vt=30, wait=MINUTE), list[Delivery])
    assert_type(rsmq.watch("a", queue), AsyncGenerator[set[str], None])
    assert_type(rsmq.topic("news", keep_backlog=MINUTE), Topic)
    assert_type(await rsmq.list_topics(), list[str])
    assert_type(await rsmq.doctor(server_only=True), DoctorReport)
    assert_type(
        await rsmq.doctor("a", queue, fix=True, max_hidden=MINUTE, progress=examined), DoctorReport
    )
    assert_type(await rsmq.send_message("jobs", {"a": 1}, delay=MINUTE, dedup_key="k"), str)
    assert_type(await rsmq.receive_message("jobs", vt=MINUTE), Delivery | None)
    assert_type(await rsmq.pop_message("jobs"), Message | None)
    assert_type(await rsmq.delete_message("jobs", "id"), bool)
    assert_type(await rsmq.change_message_visibility("jobs", "id", MINUTE), bool)
    assert_type(await rsmq.get_queue_attributes("jobs"), QueueAttributes)
    assert_type(
        await rsmq.set_queue_attributes("jobs", vt=MINUTE, delay=0, maxsize=-1), QueueAttributes
    )


async def queue_members(queue: Queue) -> None:
    assert_type(queue.name, str)
    assert_type(queue.ns, str)
    assert_type(queue.dead_letter, str)
    assert_type(queue.retry, Retry | None)
    assert_type(await queue.send({"a": 1}, delay=MINUTE), str)
    assert_type(await queue.send("a", delay=None, dedup_key="k", headers={"k": "v"}), Sent)
    assert_type(await queue.send_many(["a", b"b", 1], delay=MINUTE), list[str])
    assert_type(await queue.send_many(["a"], headers=[{"k": "v"}, None]), list[str])
    await queue.send("a", headers={"k": 1})  # type: ignore[dict-item]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(await queue.resend(TOKEN), list[str])
    assert_type(await queue.receive(vt=MINUTE, wait=0.5), Delivery | None)
    assert_type(await queue.receive_many(3, vt=None, wait=MINUTE), list[Delivery])
    assert_type(queue.delivery(("id", 1, 2), vt=MINUTE), Delivery)
    assert_type(queue.delivery(Receipt("id", 1, 2)), Delivery)
    with queue.present():
        pass
    assert_type(await queue.pop(), Message | None)
    assert_type(await queue.pop_many(2), list[Message])
    assert_type(await queue.ack_many([queue.delivery(("id", 1, 2))]), list[Delivery])
    assert_type(await queue.delete("id"), bool)
    assert_type(await queue.delete_many(["id"], only_leased=True), list[str])
    assert_type(await queue.change_visibility("id", MINUTE), bool)
    assert_type(await queue.exists(), bool)
    assert_type(await queue.attributes(), QueueAttributes)
    assert_type(await queue.stats(), QueueStats)
    assert_type(await queue.set_attributes(vt=MINUTE, delay=0.5, maxsize=-1), QueueAttributes)
    assert_type(await queue.peek(start=-3, count=3), list[Message])
    assert_type(await queue.pending(start=-3, count=3), list[PendingMessage])
    assert_type(queue.scan(start=-3, count=3, after=None), AsyncIterator[ScannedMessage])
    assert_type(await queue.recover(3, MINUTE, vt=30), list[Delivery])
    assert_type(await queue.reason("id"), str | None)
    assert_type(await queue.find("id"), ScannedMessage | None)
    assert_type(await queue.redrive(queue, count=3, where=chosen, rate=0.5, progress=counted), int)
    assert_type(await queue.purge(leased=True, progress=counted), int)
    assert_type(queue.consume(prefetch=3, vt=MINUTE, settle="background"), Consumer)
    async for message in queue:
        assert_type(message, Delivery)


async def message_members(message: Message, codec: Codec) -> None:
    assert_type(message.id, str)
    assert_type(message.body, bytes)
    assert_type(message.rc, int)
    assert_type(message.fr, int)
    assert_type(message.headers, Mapping[str, str])
    assert_type(message.sent, float | None)
    assert_type(message.sent_at, datetime | None)
    assert_type(message.first_received_at, datetime | None)
    assert_type(message.text, str)
    assert_type(message.json(), Any)
    assert_type(message.json(dict[str, int]), dict[str, int])
    assert_type(message.decode(list[int]), list[int])
    assert_type(message.with_codec(codec), Message)


async def delivery_members(delivery: Delivery, codec: Codec) -> None:
    assert_type(delivery.id, str)
    assert_type(delivery.with_codec(codec), Delivery)
    assert_type(delivery.queue, str)
    assert_type(delivery.dead_letter, str)
    assert_type(delivery.attempt, int)
    assert_type(delivery.strikes, int)
    assert_type(delivery.suspect, bool)
    assert_type(delivery.receipt, Receipt)
    assert_type(delivery.lease, Lease)
    assert_type(delivery.lease_lost, bool)
    assert_type(delivery.outcome, Literal["acked", "released", "rejected", "forwarded"] | None)
    assert_type(delivery.settled, bool)
    assert_type(delivery.visible_at, datetime)
    await delivery.ack()
    await delivery.extend(MINUTE)
    await delivery.release(MINUTE, unseen=True)
    assert_type(delivery.release_nowait(MINUTE, unseen=True, vanished=False), asyncio.Future[Any])
    await delivery.reject("broken")
    await delivery.forward("elsewhere", delay=MINUTE)
    await delivery.settle(ValueError())
    delivery.hold(lambda: None)
    delivery.let_go()
    async with delivery as same:
        assert_type(same, Delivery)


async def worker_members(worker: Worker) -> None:
    assert_type(worker.rsmq, RSMQ)
    assert_type(worker.health, WorkerHealth)
    assert_type(worker.wait_for_server, float | None)
    assert_type(worker.server_status, ServerStatus)
    await worker.check_queues()
    worker.wait_for_server = MINUTE
    worker.alone = MINUTE
    await worker.run(signals=False)
    worker.stop()
    worker.pause()
    worker.resume()

    @worker.handler("jobs", retry=Retry(), dead_letter="dead", timeout=MINUTE, vt=MINUTE, weight=2)
    async def handle(body: int, message: Delivery) -> str:
        return str(body)

    @worker.batch_handler(
        "many", size=3, wait=MINUTE, retry=Retry(), dead_letter="dead", timeout=9, vt=MINUTE
    )
    async def handle_many(messages: list[Delivery]) -> int:
        return len(messages)

    async def wrap(message: Delivery, call: Any) -> Any: ...
    async def start() -> None: ...
    async def failed(message: Delivery, error: Exception) -> None: ...
    async def dead(letter: DeadLetter) -> None: ...

    worker.middleware(wrap)
    worker.on_start(start)
    worker.on_stop(start)
    worker.on_failure(failed)
    worker.on_dead_letter(dead)

    # A message that a receive has moved has no lease: it is no Delivery.
    async def wants_lease(message: Delivery) -> None: ...

    worker.on_dead_letter(wants_lease)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    delivery = worker.rsmq.queue("jobs").delivery(("id", 1, 2))
    assert_type(await handle(1, delivery), str)
    assert_type(await handle_many([delivery]), int)


async def topic_members(topic: Topic) -> None:
    assert_type(topic.name, str)
    assert_type(topic.backlog, Queue)
    assert_type(await topic.publish({"a": 1}, delay=MINUTE), str)
    assert_type(await topic.publish("a", delay=None, dedup_key="k", headers={"k": "v"}), Sent)
    assert_type(await topic.publish_many(["a", b"b"], delay=MINUTE, headers=None), list[str])
    assert_type(await topic.resend(TOKEN), list[str])
    mode: SubscriptionMode = "broadcast"
    assert_type(
        await topic.subscribe(
            "c", mode=mode, peer="p", vt=MINUTE, delay=0, maxsize=-1, peer_timeout=MINUTE
        ),
        Subscription,
    )
    assert_type(
        topic.subscription(
            "c", mode=mode, peer="p", peer_timeout=30, dead_letter="dead", retry=Retry()
        ),
        Subscription,
    )
    await topic.subscribe("c", mode="each")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await topic.unsubscribe("c", peer="p", discard=True), int)
    assert_type(await topic.describe(attributes=False), TopicInfo)
    await topic.set_backlog(max_length=None, max_age=MINUTE, maxsize=-1)
    assert_type(await topic.delete(), bool)


async def subscription_members(subscription: Subscription) -> None:
    assert_type(subscription.topic, str)
    assert_type(subscription.consumer, str)
    assert_type(subscription.peer, str | None)
    assert_type(subscription.mode, SubscriptionMode)
    await subscription.join()
    assert_type(await subscription.keep_alive(), bool)
    assert_type(await subscription.observe(3, vt=MINUTE, wait=0.5), list[Delivery])
    assert_type(await subscription.receive(vt=MINUTE, wait=0.5), Delivery | None)
    assert_type(await subscription.pop_many(3), list[Message])
    assert_type(await subscription.recover(3, MINUTE, vt=30), list[Delivery])


async def consumer_members(consumer: Consumer) -> None:
    async with consumer as same:
        assert_type(same, Consumer)
        assert_type(await anext(same), Delivery)
    await consumer.aclose()


async def gateway_members(gateway: Gateway, queue: Queue) -> None:
    assert_type(
        await gateway.receive_now([queue, "a"], 3, vt=MINUTE), tuple[list[Delivery], float | None]
    )
    assert_type(
        await gateway.recover_page(queue, 3, MINUTE, vt=30, after=RecoverPlace(0, 0)),
        tuple[list[Delivery], RecoverPlace],
    )
    assert_type(await gateway.receive_ahead([queue, "a"], 3, wait=MINUTE), list[Delivery])
    assert_type(await gateway.purge_page(queue, 1000), PurgedPage)
    assert_type(await gateway.move_page(queue, queue, ["id"]), int)
    await gateway.announce(queue, "name", 1, ["id"])
