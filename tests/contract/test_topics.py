"""Topics on a real server: publish, subscribe, unsubscribe, observe."""

import asyncio

import pytest

from aiorsmq_ng import (
    RSMQ,
    InvalidValue,
    MessageTooLong,
    QueueNotFound,
    Retry,
    Subscription,
    Worker,
)


@pytest.fixture
def topic(rsmq):
    return rsmq.topic("news")


async def texts(queue, count=100):
    """Receive and acknowledge what is ready; return the texts in order."""
    found = await queue.receive_many(count)
    await asyncio.gather(*(message.ack() for message in found))
    return [message.text for message in found]


async def test_message_goes_into_every_subscription_under_one_id(topic, rsmq):
    first, second = await topic.subscribe("billing"), await topic.subscribe("mail")
    id = await topic.publish({"order": 7})

    for subscription in (first, second):
        assert isinstance(subscription, Subscription)
        (message,) = await subscription.observe()
        assert (message.id, message.json()) == (id, {"order": 7})
        await message.ack()
        assert await subscription.observe() == []
    assert await rsmq.list_topics() == ["news"]
    assert {"news__billing", "news__mail"} <= set(await rsmq.list_queues())


async def test_messages_without_a_subscription_wait_for_the_first_one(topic):
    ids = [await topic.publish(str(i)) for i in range(3)]
    assert [m.id for m in await topic.backlog.peek()] == ids
    first, second = await topic.subscribe("a"), await topic.subscribe("b")

    assert [m.id for m in await first.observe()] == ids
    assert await second.observe() == []
    assert (await topic.backlog.attributes()).msgs == 0


async def test_messages_after_the_last_unsubscribe_wait_again(topic):
    await topic.subscribe("a")
    assert await topic.unsubscribe("a") == 0
    await topic.publish_many(["x", "y"])

    assert await texts(await topic.subscribe("b")) == ["x", "y"]


async def test_what_was_not_received_comes_back_after_subscribing_again(topic, rsmq):
    await topic.subscribe("a")
    await topic.publish("before")
    assert await topic.unsubscribe("a") == 1
    assert "news__a" in await rsmq.list_queues()
    (info,) = (await topic.describe()).subscriptions
    assert (info.consumer, info.state, info.attributes.msgs) == ("a", "left", 1)
    with pytest.raises(InvalidValue, match="has messages left"):
        await topic.subscribe("a", mode="broadcast", peer="p")
    await topic.publish("between")

    assert await texts(await topic.subscribe("a")) == ["before", "between"]


async def test_discard_deletes_what_was_not_received(topic, rsmq):
    await topic.subscribe("a")
    await topic.publish("x")

    assert await topic.unsubscribe("a", discard=True) == 0
    assert "news__a" not in await rsmq.list_queues()
    assert await texts(await topic.subscribe("a")) == []


async def test_peers_of_a_shared_subscription_share_the_messages(topic):
    one = await topic.subscribe("a", peer="1")
    two = await topic.subscribe("a", peer="2")
    await topic.publish_many(map(str, range(10)))

    seen = await texts(one, 5) + await texts(two, 5)
    assert seen == list(map(str, range(10)))
    peers = [p.name for p in (await topic.describe()).subscriptions[0].peers]
    assert peers == ["1", "2"]
    await topic.unsubscribe("a", peer="1")
    (info,) = (await topic.describe()).subscriptions
    assert ([p.name for p in info.peers], info.state) == (["2"], "on")


async def test_each_peer_gets_its_own_copy(topic):
    one = await topic.subscribe("a", mode="broadcast", peer="1")
    two = await topic.subscribe("a", mode="broadcast", peer="2")
    await topic.publish_many(["x", "y"])

    assert await texts(one) == await texts(two) == ["x", "y"]


async def test_one_consumer_has_one_mode(topic):
    await topic.subscribe("a")
    with pytest.raises(InvalidValue, match="subscribed in mode 'shared'"):
        await topic.subscribe("a", mode="broadcast", peer="1")


async def test_publisher_of_another_client_learns_of_a_new_subscription(topic, server_url, ns):
    async with RSMQ(server_url, ns=ns) as other:
        publisher = other.topic("news")
        first = await topic.subscribe("a")
        await publisher.publish("1")
        second = await topic.subscribe("b")
        await publisher.publish("2")
        await topic.unsubscribe("a")
        await publisher.publish("3")

    assert await texts(first) == ["1", "2"]
    assert await texts(second) == ["2", "3"]


async def test_nothing_published_after_subscribe_returned_is_missed(topic, rsmq):
    """Publishers run while subscriptions come; each gets all that began after it was there."""
    published, stop = [], asyncio.Event()

    async def publisher(number):
        count = 0
        while not stop.is_set():
            text = f"{number}-{count}"
            begun = len(marks)
            await topic.publish(text)
            published.append((begun, text))
            count += 1

    marks = []
    tasks = [asyncio.create_task(publisher(n)) for n in range(3)]
    for number in range(10):
        marks.append(await topic.subscribe(f"c{number}"))  # noqa: PERF401 - publishers look on
    stop.set()
    await asyncio.gather(*tasks)

    for number, subscription in enumerate(marks):
        got = set(await texts(subscription, 100_000))
        assert {text for begun, text in published if begun > number} <= got


async def test_long_poll_and_iteration_work_on_a_subscription(topic):
    subscription = await topic.subscribe("a", peer="1")
    waiting = asyncio.create_task(subscription.observe(wait=60))
    await asyncio.sleep(0.05)
    await topic.publish("x")
    (message,) = await waiting
    await message.ack()
    await topic.publish("y")
    async for message in subscription:
        async with message:
            assert message.text == "y"
        break


async def test_deleted_queue_of_a_subscription_ends_that_subscription_alone(topic, rsmq):
    gone, stays = await topic.subscribe("a"), await topic.subscribe("b")
    await topic.publish("1")
    await rsmq.delete_queue(gone.name)
    id = await topic.publish("2")

    assert await texts(stays) == ["1", "2"]
    info = await topic.describe()
    assert ([s.consumer for s in info.subscriptions], info.lost) == (["b"], 1)
    with pytest.raises(QueueNotFound):
        await gone.observe()
    await rsmq.delete_queue(stays.name)
    assert await topic.publish("3") > id
    assert await texts(await topic.subscribe("a")) == ["3"]


async def test_body_that_one_subscription_refuses_goes_nowhere(topic):
    small, large = await topic.subscribe("a", maxsize=1024), await topic.subscribe("b")
    with pytest.raises(MessageTooLong):
        await topic.publish("x" * 1025)
    with pytest.raises(MessageTooLong):
        await topic.publish_many(["fits", "x" * 1025])

    assert await small.observe() == await large.observe() == []


async def test_delay_is_that_of_the_call_or_of_each_queue(topic):
    slow, quick = await topic.subscribe("a", delay=100), await topic.subscribe("b")
    await topic.publish("1")
    await topic.publish("2", delay=50)

    assert (await slow.attributes()).delayed == 2
    assert (await quick.attributes()).delayed == 1


async def test_dedup_key_keeps_a_second_copy_away(topic):
    subscription = await topic.subscribe("a")
    first = await topic.publish("x", dedup_key="k")

    assert await topic.publish("x", dedup_key="k") == first
    assert await texts(subscription) == ["x"]


async def test_limits_of_the_backlog_drop_the_oldest(topic, rsmq, raw, ns):
    await topic.set_backlog(max_length=3)
    for i in range(5):
        await topic.publish(str(i))
    info = await topic.describe()
    assert (info.waiting, info.trimmed, info.max_length) == (3, 2, 3)
    await topic.set_backlog(max_age=60)
    oldest = (await topic.backlog.peek())[0].id
    await raw.zincrby(f"{ns}:news__", -61_000, oldest)

    assert await texts(await topic.subscribe("a")) == ["3", "4"]
    assert (await topic.describe()).trimmed == 3


async def test_only_the_limits_that_are_named_change(topic):
    async def limits():
        info = await topic.describe()
        return info.max_length, info.max_age

    await topic.set_backlog(max_length=3, max_age=60)
    await topic.set_backlog(max_age=1.5)
    assert await limits() == (3, 1.5)
    await topic.set_backlog(max_length=None)
    assert await limits() == (None, 1.5)
    await topic.set_backlog(maxsize=2048)
    assert await limits() == (None, 1.5)


async def test_changes_of_two_limits_at_once_do_not_undo_each_other(topic, server_url, ns):
    await topic.set_backlog(max_length=0, max_age=1)
    async with RSMQ(server_url, ns=ns) as other:
        theirs = other.topic("news")
        for n in range(1, 20):
            await asyncio.gather(
                topic.set_backlog(max_length=n), theirs.set_backlog(max_age=n * 10)
            )

            info = await topic.describe()
            assert (info.max_length, info.max_age) == (n, n * 10)


async def test_delete_takes_everything_away(topic, rsmq, raw, ns):
    await topic.publish("x")
    await topic.subscribe("a", mode="broadcast", peer="p")
    await topic.subscribe("b")
    await topic.publish("y")
    await topic.unsubscribe("b")

    assert await topic.delete()
    assert not await topic.delete()
    left = [key async for key in raw.scan_iter(f"{ns}:*") if b":ng:call:" not in key]
    assert left == []
    await topic.publish("z")
    assert await texts(await topic.subscribe("b")) == ["z"]


async def test_dead_letters_outlive_their_subscription_and_their_topic(topic, rsmq):
    subscription = await topic.subscribe("a")
    await topic.publish("x")
    await (await subscription.receive()).reject("no")
    await topic.unsubscribe("a", discard=True)
    await topic.delete()

    dead = rsmq.queue(subscription.dead_letter)
    (letter,) = await dead.peek()
    assert (letter.text, await dead.reason(letter.id)) == ("x", "no")


async def test_topic_that_was_deleted_and_made_again_is_not_taken_for_the_old_one(
    topic, server_url, ns
):
    await topic.subscribe("a")
    await topic.publish("x")
    async with RSMQ(server_url, ns=ns) as other:
        await other.topic("news").delete()
        subscription = await other.topic("news").subscribe("b")
        await topic.publish("y")

        assert await texts(subscription) == ["y"]
    assert (await topic.describe()).lost == 0


async def test_worker_serves_a_subscription_by_the_name_of_its_queue(topic, rsmq):
    subscription = await topic.subscribe("a")
    await topic.publish_many(["x", "y"])
    worker, seen = Worker(rsmq), []

    @worker.handler(subscription.name, retry=Retry())
    async def handle(body: str) -> None:
        seen.append(body)
        if len(seen) == 2:
            worker.stop()

    async with asyncio.timeout(60):
        await worker.run()
    assert sorted(seen) == ["x", "y"]


async def test_rejected_message_goes_to_the_dead_letters_of_its_subscription(topic, rsmq):
    subscription, other = await topic.subscribe("a"), await topic.subscribe("a-dead")
    await topic.publish("x")
    (message,) = await subscription.observe()
    await message.reject("no")

    assert [m.text for m in await rsmq.queue(subscription.dead_letter).peek()] == ["x"]
    assert subscription.dead_letter != other.name
    assert await texts(other) == ["x"]


async def test_subscriptions_are_received_from_together(topic, rsmq):
    first, second = await topic.subscribe("a"), await rsmq.topic("other").subscribe("a")
    await rsmq.topic("other").publish("x")

    assert (await rsmq.receive(first, second)).text == "x"


@pytest.mark.parametrize(
    "call",
    [
        lambda topic: topic.publish_many("text"),
        lambda topic: topic.subscribe(""),
        lambda topic: topic.subscribe("a", mode="some"),
        lambda topic: topic.subscribe("a", mode="broadcast"),
        lambda topic: topic.subscribe("a", peer_timeout=0),
        lambda topic: topic.subscribe("a", vt=1.5),
        lambda topic: topic.set_backlog(max_length=-1),
        lambda topic: topic.publish("x", delay=-1),
        lambda topic: topic.unsubscribe(None),
    ],
)
async def test_what_is_not_allowed_is_said_before_anything_happens(topic, raw, ns, call):
    with pytest.raises(InvalidValue):
        await call(topic)

    assert [key async for key in raw.scan_iter(f"{ns}:*")] == []
    assert await topic.publish_many([]) == []
