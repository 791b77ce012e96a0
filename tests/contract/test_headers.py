"""Headers: names and texts beside the body, from the sender to the last holder of the message."""

import json

import pytest

from aiorsmq_ng import Delivery, InvalidValue, Retry, Worker
from aiorsmq_ng._common.message_headers import MAX_HEADER_BYTES

ONE = {"tenant": "acme", "x-note": "größer"}
TWO = {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}


async def stored(raw, ns, queue="jobs"):
    return await raw.hgetall(f"{ns}:{queue}:ng:headers")


async def test_headers_come_with_the_message(queue):
    await queue.send("body", headers=ONE)

    message = await queue.receive()

    assert message.headers == ONE
    assert message.text == "body"


async def test_message_without_headers_has_none(queue):
    await queue.send_many(["a", "b"])
    await queue.send("c", headers={})

    assert [dict(m.headers) for m in await queue.receive_many(3)] == [{}, {}, {}]


async def test_headers_of_a_message_cannot_be_changed(queue):
    await queue.send("a", headers=ONE)

    with pytest.raises(TypeError):
        (await queue.receive()).headers["tenant"] = "other"


async def test_many_messages_share_headers_or_have_their_own(queue):
    await queue.send_many(["a", "b"], headers=ONE)
    await queue.send_many(["c", "d", "e"], headers=[TWO, None, ONE])

    found = [(m.text, dict(m.headers)) for m in await queue.receive_many(5)]

    assert found == [("a", ONE), ("b", ONE), ("c", TWO), ("d", {}), ("e", ONE)]


async def test_every_look_shows_headers(queue):
    await queue.send_many(["a", "b", "c"], headers=[ONE, None, TWO])
    await queue.receive()

    assert [dict(m.headers) for m in await queue.pending()] == [ONE]
    assert [dict(m.headers) for m in await queue.pending(-1)] == [ONE]
    assert [dict(m.headers) for m in await queue.peek()] == [{}, TWO]
    assert {m.text: dict(m.headers) async for m in queue.scan()} == {"a": ONE, "b": {}, "c": TWO}


async def test_pop_returns_headers_and_removes_them(queue, raw, ns):
    await queue.send_many(["a", "b", "c"], headers=[ONE, None, TWO])

    assert [dict(m.headers) for m in await queue.pop_many(3)] == [ONE, {}, TWO]
    assert not await stored(raw, ns)


@pytest.mark.parametrize(
    "how", ["ack", "ack_many", "delete", "delete_leased", "purge", "purge_all"]
)
async def test_headers_are_removed_with_their_message(queue, raw, ns, how):
    ids = await queue.send_many(["a", "b"], headers=[ONE, TWO])
    held = [] if how == "purge" else await queue.receive_many(2)
    assert set(await stored(raw, ns)) == {id.encode() for id in ids}

    match how:
        case "ack":
            for one in held:
                await one.ack()
        case "ack_many":
            assert len(await queue.ack_many(held)) == 2
        case "delete" | "delete_leased":
            assert len(await queue.delete_many(ids, only_leased=how == "delete_leased")) == 2
        case _:
            assert await queue.purge(leased=how == "purge_all") == 2

    assert not await stored(raw, ns)


async def test_headers_end_with_their_queue(rsmq, queue, raw, ns):
    await queue.send("a", headers=ONE)
    await rsmq.delete_queue("jobs")

    assert not await raw.exists(f"{ns}:jobs:ng:headers")


async def test_headers_go_with_a_rejected_message_and_back(rsmq, queue, raw, ns):
    await queue.send_many(["a", "b"], headers=[ONE, None])
    for one in await queue.receive_many(2):
        await one.reject("bad")

    assert [dict(m.headers) for m in await rsmq.queue("jobs-dead").peek()] == [ONE, {}]
    assert not await stored(raw, ns)
    assert await queue.redrive() == 2
    assert [dict(m.headers) for m in await queue.peek()] == [ONE, {}]
    assert not await stored(raw, ns, "jobs-dead")


async def test_headers_go_with_a_forwarded_message(rsmq, queue, raw, ns):
    other = await rsmq.create_queue("other")
    await queue.send("a", headers=ONE)
    await (await queue.receive()).forward(other)

    assert (await other.receive()).headers == ONE
    assert not await stored(raw, ns)


async def test_headers_go_with_a_message_that_a_receive_dead_letters(rsmq, queue):
    letters = []
    rsmq.dead_letters.listen(letters.append)
    limited = rsmq.queue("jobs", retry=Retry(max_receives=1))
    await queue.send_many(["a", "b"], headers=[ONE, TWO])
    await (await limited.receive()).release()

    assert (await limited.receive_many(2))[0].headers == TWO
    assert [dict(letter.message.headers) for letter in letters] == [ONE]
    assert [dict(m.headers) for m in await rsmq.queue("jobs-dead").peek()] == [ONE]


async def test_headers_stay_over_releases_and_takeovers(queue):
    await queue.send_many(["a", "b"], headers=[ONE, TWO])
    for one in await queue.receive_many(2):
        await one.release()
    held = await queue.receive_many(2, vt=60)
    assert [dict(m.headers) for m in held] == [ONE, TWO]

    assert [dict(m.headers) for m in await queue.recover(2, 0)] == [ONE, TWO]


async def test_receive_from_several_queues_brings_headers(rsmq, queue):
    other = await rsmq.create_queue("other")
    await queue.send_many(["a", "b"], headers=[None, ONE])
    await other.send("c", headers=TWO)

    found = await rsmq.receive_many(["jobs", "other"], 5)

    assert [dict(m.headers) for m in found] == [{}, ONE, TWO]


async def test_every_subscription_gets_headers(rsmq, raw, ns):
    topic = rsmq.topic("news")
    await topic.publish("early", headers=ONE)
    first, second = await topic.subscribe("first"), await topic.subscribe("second")
    await topic.publish("late", headers=TWO)
    await topic.publish_many(["x", "y"], headers=[None, ONE])

    found = [dict(m.headers) for m in await first.receive_many(5)]
    assert found == [ONE, TWO, {}, ONE]
    held = await second.receive_many(5)
    assert [dict(m.headers) for m in held] == found[1:]
    await second.ack_many(held)
    assert not await stored(raw, ns, second.name)
    assert not await stored(raw, ns, topic.backlog.name)


async def test_headers_of_a_subscription_end_with_it(rsmq, raw, ns):
    topic = rsmq.topic("news")
    first = await topic.subscribe("first")
    await topic.publish("a", headers=ONE)
    await topic.unsubscribe("first", discard=True)
    assert not await raw.exists(f"{ns}:{first.name}:ng:headers")

    await topic.publish("b", headers=ONE)
    await topic.delete()
    assert not await raw.keys(f"{ns.replace('{', '[{]').replace('}', '[}]')}:*:ng:headers")


async def test_second_message_with_a_dedup_key_stores_no_headers(queue):
    await queue.send("a", dedup_key="k", headers=ONE)
    assert (await queue.send("a", dedup_key="k", headers=TWO)).duplicate

    assert [dict(m.headers) for m in await queue.receive_many(5)] == [ONE]


async def test_handler_sees_headers(rsmq, queue):
    worker, seen = Worker(rsmq), []

    @worker.handler("jobs")
    async def handle(body: str, message: Delivery) -> None:
        seen.append((body, dict(message.headers)))
        worker.stop()

    await queue.send("a", headers=ONE)
    await worker.run(signals=False)

    assert seen == [("a", ONE)]


async def test_headers_have_a_time_to_live_that_a_long_delay_prolongs(queue, raw, ns):
    day = 86400
    await queue.send("a", headers=ONE)
    assert 14 * day <= await raw.ttl(f"{ns}:jobs:ng:headers") <= 15 * day
    await queue.send("b", headers=ONE, delay=100 * day)
    assert 114 * day <= await raw.ttl(f"{ns}:jobs:ng:headers") <= 115 * day
    await queue.send("c", headers=ONE)
    assert 114 * day <= await raw.ttl(f"{ns}:jobs:ng:headers") <= 115 * day


async def test_deferring_a_message_prolongs_headers(queue, raw, ns):
    day = 86400
    await queue.send("a", headers=ONE)
    message = await queue.receive()
    await message.release(delay=100 * day)
    assert 114 * day <= await raw.ttl(f"{ns}:jobs:ng:headers") <= 115 * day


async def test_dead_letters_keep_headers_for_a_year(rsmq, queue, raw, ns):
    year = 365 * 86400
    await queue.send("a", headers=ONE)
    await (await queue.receive()).reject("is bad")
    assert await raw.ttl(f"{ns}:jobs-dead:ng:headers") >= year

    await rsmq.queue("jobs-dead").purge()
    limited = rsmq.queue("jobs", retry=Retry(max_receives=1))
    await queue.send("b", headers=ONE)
    await (await queue.receive()).release()
    await limited.receive()
    assert await raw.ttl(f"{ns}:jobs-dead:ng:headers") >= year


async def test_headers_that_other_clients_leave_behind_are_removed_little_by_little(queue, raw, ns):
    """Another client deletes messages, and knows nothing of headers."""
    for _ in range(20):
        ids = await queue.send_many(["x"] * 100, headers=ONE)
        await raw.zrem(f"{ns}:jobs", *ids)
        await raw.hdel(f"{ns}:jobs:Q", *ids)

    assert len(await stored(raw, ns)) < 400


async def test_headers_of_another_type_are_replaced(queue, raw, ns):
    await raw.set(f"{ns}:jobs:ng:headers", "not a hash")
    await queue.send("a")
    assert (await queue.receive()).headers == {}
    await queue.send("b", headers=ONE)

    assert (await queue.receive()).headers == ONE


async def test_damaged_headers_are_none(queue, raw, ns):
    id = await queue.send("a", headers=ONE)
    await raw.hset(f"{ns}:jobs:ng:headers", id, b"\xff[")

    assert (await queue.receive()).headers == {}


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        ({"a\r\nX: 1": "x", "n": "1"}, {"n": "1"}),
        ({"n" * 129: "x", "n": "1"}, {"n": "1"}),
        ({"x": "a\nb", "y": "\x1b[2J", "n": "1"}, {"n": "1"}),
        ({"n": "x" * MAX_HEADER_BYTES}, {}),
        ({"n": "x" * (MAX_HEADER_BYTES - 1)}, {"n": "x" * (MAX_HEADER_BYTES - 1)}),
    ],
)
async def test_headers_that_no_sender_may_write_are_not_shown(queue, raw, ns, found, seen):
    """Another program with rights on the side key has stored them."""
    id = await queue.send("a", headers=ONE)
    await raw.hset(f"{ns}:jobs:ng:headers", id, json.dumps(found))

    assert (await queue.receive()).headers == seen


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"a b": "x"}, "header name 'a b' is not allowed"),
        ({"": "x"}, "header name '' is not allowed"),
        ({"n" * 129: "x"}, "is not allowed"),
        ({"n": 1}, "header 'n' must be a text, not int"),
        ({"n": "\ud800"}, "header 'n' is not valid text"),
        ({"n": "a\r\nX: 1"}, "header 'n' has the control character '\\r'"),
        ({"n": "\x1b[2J"}, "has the control character"),
        ({"n": "\x85"}, "has the control character"),
        ({"n": "x" * MAX_HEADER_BYTES}, "headers have 8193 bytes"),
        ("n=x", "headers must be a mapping of names to texts, not str"),
    ],
)
async def test_headers_that_are_not_allowed_are_refused(queue, headers, says):
    with pytest.raises(InvalidValue) as failure:
        await queue.send("a", headers=headers)
    assert says in str(failure.value)
    assert (await queue.attributes()).msgs == 0


async def test_headers_for_each_message_must_be_as_many(queue):
    with pytest.raises(InvalidValue, match="one for each of 3 messages, not 2"):
        await queue.send_many(["a", "b", "c"], headers=[ONE, TWO])


async def test_largest_headers_are_kept(queue):
    largest = {"n": "x" * (MAX_HEADER_BYTES - 1)}
    await queue.send("a", headers=largest)

    assert (await queue.receive()).headers == largest
