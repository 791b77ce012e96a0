"""Dedup keys: one message per key and life of a queue, and a duplicate is called one."""

import asyncio
import random

import pytest

from aiorsmq_ng import Sent


async def create_as_others_do(raw, ns, name):
    """Create a queue by the commands of RSMQ itself."""
    seconds, _ = await raw.time()
    hash = f"{ns}:{name}:Q"
    for field, value in (("vt", 30), ("delay", 0), ("maxsize", 65536)):
        await raw.hsetnx(hash, field, value)
    for field in ("created", "modified"):
        await raw.hsetnx(hash, field, seconds)
    await raw.sadd(f"{ns}:QUEUES", name)


async def delete_as_others_do(raw, ns, name):
    """Delete a queue by the commands of RSMQ itself."""
    await raw.delete(f"{ns}:{name}:Q", f"{ns}:{name}")
    await raw.srem(f"{ns}:QUEUES", name)


async def test_duplicate_is_called_one_and_its_body_is_not_stored(queue):
    first = await queue.send("a", dedup_key="k")
    second = await queue.send("b", dedup_key="k")
    other = await queue.send("c", dedup_key="l")

    assert [type(sent) for sent in (first, second, other)] == [Sent] * 3
    assert [sent.duplicate for sent in (first, second, other)] == [False, True, False]
    assert (second, len(second)) == (first, 32)
    assert [(m.id, m.text) for m in await queue.peek()] == [(first, "a"), (other, "c")]


async def test_publish_says_whether_it_was_a_duplicate(rsmq):
    topic = rsmq.topic("news")
    found = []
    for consumer in ("a", "b"):
        # Before the first subscription, and after it.
        found += [await topic.publish("x", dedup_key=f"k-{consumer}") for _ in range(2)]
        await topic.subscribe(consumer)
    again = await topic.publish("x", dedup_key="k-a")

    assert [sent.duplicate for sent in (*found, again)] == [False, True, False, True, True]
    assert again == found[0]


async def test_of_equal_sends_at_the_same_moment_one_is_no_duplicate(queue):
    sent = await asyncio.gather(*(queue.send(str(i), dedup_key="k") for i in range(20)))

    assert len(set(sent)) == 1
    assert sorted(one.duplicate for one in sent) == [False] + [True] * 19
    assert (await queue.attributes()).totalsent == 1


async def test_id_with_a_durability_still_says_that_it_is_a_duplicate():
    sent = Sent("x" * 32)
    sent.duplicate = True

    assert sent.at("fsynced").duplicate
    assert not Sent("x" * 32).at("fsynced").duplicate


@pytest.mark.parametrize("foreign", [False, True])
async def test_dedup_key_is_free_in_a_queue_that_was_deleted_and_made_again(
    queue, rsmq, raw, ns, foreign
):
    before = await queue.send("x", dedup_key="k")
    if foreign:
        await delete_as_others_do(raw, ns, "jobs")
        await create_as_others_do(raw, ns, "jobs")
    else:
        await rsmq.delete_queue("jobs")
        await rsmq.create_queue("jobs")
    # As many as before, within the same second.
    await queue.send("between")
    after = await queue.send("x", dedup_key="k")

    assert (after == before, after.duplicate) == (False, False)
    assert [m.text for m in await queue.peek()] == ["between", "x"]
    assert (await queue.send("x", dedup_key="k")).duplicate


@pytest.mark.parametrize("subscribed", [False, True])
async def test_dedup_key_is_free_in_a_topic_that_was_deleted(rsmq, subscribed):
    topic = rsmq.topic("news")
    if subscribed:
        await topic.subscribe("a")
    before = await topic.publish("x", dedup_key="k")
    await topic.delete()
    subscription = await topic.subscribe("a")
    after = await topic.publish("x", dedup_key="k")

    assert (after == before, after.duplicate) == (False, False)
    assert [m.id for m in await subscription.observe()] == [after]


async def test_dedup_key_holds_when_the_queue_is_emptied(queue):
    first = await queue.send("x", dedup_key="k")
    await queue.purge(leased=True)

    again = await queue.send("x", dedup_key="k")
    assert (again, again.duplicate) == (first, True)


async def test_marker_outlives_no_window_and_side_keys_none_at_all(queue, rsmq, raw, ns):
    await queue.send("x", dedup_key="k")
    await rsmq.delete_queue("jobs")

    for key in await raw.keys(f"{ns}:*"):
        assert 0 < await raw.pttl(key) <= 3_600_000


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_to_a_queue_a_send_tells_truly_whether_it_stored(
    queue, rsmq, raw, ns, seed
):
    """Random lives of a queue against a model: a key is known if it was sent in this life."""
    chance = random.Random(seed)
    known: dict[str, str] = {}
    for step in range(60):
        match chance.choice("ssssspcfd"):
            case "s":
                key = chance.choice("klm")
                before = (await queue.attributes()).totalsent
                sent = await queue.send(str(step), dedup_key=key)
                stored = (await queue.attributes()).totalsent - before
                assert (sent.duplicate, stored) == (key in known, int(key not in known))
                assert known.setdefault(key, sent) == sent
            case "p":
                await queue.send("plain")
            case "c":
                await queue.pop()
            case "f":
                await delete_as_others_do(raw, ns, "jobs")
                known.clear()
                await chance.choice(
                    (
                        lambda: create_as_others_do(raw, ns, "jobs"),
                        lambda: rsmq.create_queue("jobs"),
                    )
                )()
            case "d":
                await rsmq.delete_queue("jobs")
                known.clear()
                await rsmq.create_queue("jobs")
