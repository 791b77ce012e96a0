"""A message under lease: its verbs, its fence, its renewal."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, LeaseLost, MessageTooLong, QueueNotFound

from ..support.clock import pass_time, server_ms
from ..support.keys import lasting_keys


async def leased(queue, body="x", **options):
    await queue.send(body)
    return await queue.receive(**options)


async def test_ack_deletes_and_a_second_ack_says_it_is_gone(queue):
    message = await leased(queue)

    await message.ack()

    assert (await queue.attributes()).msgs == 0
    with pytest.raises(LeaseLost) as caught:
        await message.ack()
    assert caught.value.gone


async def test_ack_many_deletes_what_its_holder_still_has_by_one_call(rsmq, queue, raw):
    await queue.send_many(["a", "b", "c"])
    lost = await queue.receive(vt=0)
    held = sorted(await queue.receive_many(3), key=lambda delivery: delivery.id)
    assert held[0].id == lost.id
    before = (await raw.info("commandstats")).get("cmdstat_evalsha", {}).get("calls", 0)

    acked = await queue.ack_many([lost, *held[1:]])

    assert (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"] - before <= 1
    assert acked == held[1:]
    assert all(delivery.settled for delivery in acked)
    assert not lost.settled
    assert (await queue.attributes()).msgs == 1
    assert await queue.ack_many(held) == held[:1]
    assert await queue.ack_many([]) == []
    with pytest.raises(InvalidValue, match="of that queue"):
        await (await rsmq.create_queue("other")).ack_many(held)


async def test_ack_many_of_more_than_one_call_goes_on_if_its_caller_is_cancelled(queue):
    await queue.send_many(["x"] * 1000)
    await queue.send_many(["x"] * 500)
    held = await queue.receive_many(1000) + await queue.receive_many(500)
    assert len(held) == 1500

    acking = asyncio.ensure_future(queue.ack_many(held))
    for _ in range(5):  # long enough to begin, and not to end
        await asyncio.sleep(0)
    acking.cancel()
    await asyncio.wait([acking])

    async with asyncio.timeout(30):
        while (await queue.attributes()).msgs:
            await asyncio.sleep(0.02)


async def test_release_makes_visible_at_once_or_later(queue, raw, ns):
    message = await leased(queue)
    await message.release()
    message = await queue.receive()
    assert message.rc == 2
    await message.release(delay=30)
    assert await queue.receive() is None
    await pass_time(raw, f"{ns}:jobs", 30)
    assert (await queue.receive()).rc == 3


async def test_extend_counts_from_now(queue, raw, ns):
    message = await leased(queue, vt=5)

    await message.extend(60)

    now = await server_ms(raw)
    assert now + 59_000 < await raw.zscore(f"{ns}:jobs", message.id) <= now + 60_000


VERBS = {
    "ack": lambda m: m.ack(),
    "extend": lambda m: m.extend(60),
    "release": lambda m: m.release(),
    "reject": lambda m: m.reject("stale"),
    "forward": lambda m: m.forward("next"),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_verb_of_a_stale_holder_changes_nothing(rsmq, queue, raw, ns, verb):
    await rsmq.create_queue("next")
    stale = await leased(queue, vt=0)
    await queue.receive(vt=50)
    before = {k: await raw.dump(k) for k in await lasting_keys(raw, ns)}

    with pytest.raises(LeaseLost, match="another consumer has received it since") as caught:
        await VERBS[verb](stale)

    assert not caught.value.gone
    assert {k: await raw.dump(k) for k in await lasting_keys(raw, ns)} == before


@pytest.mark.parametrize("verb", VERBS)
async def test_verb_on_a_deleted_message_says_it_is_gone(rsmq, queue, verb):
    await rsmq.create_queue("next")
    message = await leased(queue)
    await queue.delete(message.id)

    with pytest.raises(LeaseLost, match="no longer in the queue") as caught:
        await VERBS[verb](message)
    assert caught.value.gone


async def test_fence_holds_when_an_id_is_sent_again_and_its_count_starts_over(queue, raw, ns):
    message = await leased(queue)
    await queue.delete(message.id)
    now = await server_ms(raw)
    await raw.zadd(f"{ns}:jobs", {message.id: now})
    await raw.hset(
        f"{ns}:jobs:Q",
        mapping={message.id: "other", f"{message.id}:rc": 1, f"{message.id}:fr": now + 5},
    )

    with pytest.raises(LeaseLost):
        await message.ack()


async def test_fence_sees_a_receive_by_another_rsmq_client(queue, raw, ns):
    message = await leased(queue, vt=0)
    await raw.hincrby(f"{ns}:jobs:Q", f"{message.id}:rc", 1)  # what their receive script does

    with pytest.raises(LeaseLost):
        await message.ack()


async def test_reject_moves_body_count_and_first_time_to_the_dead_letters(rsmq, queue):
    message = await leased(queue, "poison", vt=0)
    message = await queue.receive()

    await message.reject("does not parse")

    assert await rsmq.list_queues() == ["jobs", "jobs-dead"]
    assert (await queue.attributes()).msgs == 0
    dead = rsmq.queue("jobs-dead")
    (seen,) = await dead.peek()
    assert (seen.id, seen.text, seen.rc, seen.fr) == (message.id, "poison", 2, message.fr)
    assert await dead.reason(message.id) == "does not parse"
    assert (await dead.attributes()).totalsent == 1


async def test_reject_without_a_reason_to_a_queue_of_ones_choice(rsmq):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", dead_letter="morgue")
    message = await leased(queue)

    await message.reject()

    assert queue.dead_letter == "morgue"
    assert await rsmq.queue("morgue").reason(message.id) is None
    assert (await rsmq.queue("morgue").receive()).id == message.id


async def test_reject_takes_a_body_larger_than_the_dead_letter_queue_allows(rsmq, queue):
    await rsmq.create_queue("jobs-dead", maxsize=1024)
    message = await leased(queue, "x" * 2000)

    await message.reject()

    assert len((await rsmq.queue("jobs-dead").receive()).body) == 2000


async def test_forward_starts_again_in_the_next_queue(rsmq, queue, raw, ns):
    following = await rsmq.create_queue("next", delay=0)
    message = await leased(queue, "x")

    await message.forward(following)

    assert (await queue.attributes()).msgs == 0
    moved = await following.receive()
    assert (moved.id, moved.text, moved.rc) == (message.id, "x", 1)
    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(message.id.encode())]


async def test_forward_honours_the_delay_given_or_the_targets(rsmq, queue):
    following = await rsmq.create_queue("next", delay=60)
    await (await leased(queue, "by default")).forward("next")
    await (await leased(queue, "now")).forward("next", delay=0)

    assert [m.text for m in await following.receive_many(5)] == ["now"]


async def test_forward_to_a_missing_queue_moves_nothing(queue):
    message = await leased(queue)

    with pytest.raises(QueueNotFound, match="'next'"):
        await message.forward("next")
    await message.ack()


async def test_forward_of_a_body_too_long_for_the_target_moves_nothing(rsmq, queue):
    await rsmq.create_queue("next", maxsize=1024)
    message = await leased(queue, "x" * 2000)

    with pytest.raises(MessageTooLong, match="'next'"):
        await message.forward("next")
    await message.ack()


@pytest.mark.parametrize("target", ["jobs", "QUEUES", "a:b"])
async def test_forward_to_an_impossible_queue_is_refused(queue, target):
    message = await leased(queue)

    with pytest.raises(InvalidValue):
        await message.forward(target)


async def test_block_that_ends_well_acks(queue):
    async with await leased(queue) as message:
        assert message.text == "x"

    assert (await queue.attributes()).msgs == 0


async def test_block_that_raises_gives_back_and_lets_the_error_through(queue):
    with pytest.raises(KeyError):
        async with await leased(queue):
            raise KeyError("boom")

    assert (await queue.receive()).rc == 2


async def test_block_that_is_cancelled_gives_back(queue):
    message = await leased(queue)
    inside = asyncio.Event()

    async def handle():
        async with message:
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(handle())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (await queue.receive()).rc == 2


@pytest.mark.parametrize("settle", ["ack", "release", "reject"])
async def test_block_does_not_settle_what_was_settled_inside(queue, settle):
    async with await leased(queue) as message:
        await getattr(message, settle)()

    assert (await queue.attributes()).ready == (settle == "release")


async def test_block_whose_lease_was_lost_says_so_at_its_end(queue):
    with pytest.raises(LeaseLost):
        async with await leased(queue, vt=0):
            await queue.receive()


async def test_error_inside_a_block_is_not_hidden_by_a_lost_lease(queue):
    with pytest.raises(KeyError):
        async with await leased(queue, vt=0):
            await queue.receive()
            raise KeyError("boom")


async def test_block_longer_than_its_lease_keeps_the_message(queue):
    async with await leased(queue, vt=4) as message:
        for _ in range(10):
            await asyncio.sleep(0.5)
            assert await queue.receive() is None
        assert not message.lease_lost

    assert (await queue.attributes()).msgs == 0


async def test_renewals_of_many_messages_share_calls(rsmq, queue, raw):
    await queue.send_many(["x"] * 100)
    held = await queue.receive_many(100, vt=4)
    for message in held:
        await message.__aenter__()
    before = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]
    await asyncio.sleep(4.5)
    after = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]

    assert await queue.receive() is None
    for message in held:
        await message.__aexit__(None, None, None)
    assert 2 <= after - before <= 20
    assert (await queue.attributes()).msgs == 0


async def test_renewal_that_finds_the_lease_lost_tells_the_delivery(queue, raw, ns):
    message = await leased(queue, vt=0.3)
    await message.__aenter__()
    await raw.hincrby(f"{ns}:jobs:Q", f"{message.id}:rc", 1)
    for _ in range(100):
        if message.lease_lost:
            break
        await asyncio.sleep(0.05)

    assert message.lease_lost
    with pytest.raises(LeaseLost):
        await message.__aexit__(None, None, None)


async def test_release_is_never_overtaken_by_a_renewal(queue):
    """A renewal that ran after the release would hide the message for another lease."""
    for _ in range(20):
        async with await leased(queue, vt=0.16) as message:
            await asyncio.sleep(0.055)  # just when the first renewal is due
            await message.release()
        again = await queue.receive()
        assert again is not None
        await again.ack()


async def test_iteration_hands_out_every_message_and_waits_for_more(rsmq, queue):
    seen = []

    async def iterate():
        async for message in queue:
            async with message:
                seen.append(message.text)
            if message.text == "end":
                return

    await queue.send_many(["a", "b"])
    task = asyncio.create_task(iterate())
    await asyncio.sleep(0.1)
    await queue.send("end")
    await task

    assert seen == ["a", "b", "end"]
    assert (await queue.attributes()).msgs == 0


async def test_iteration_with_prefetch_gives_back_the_rest_when_it_ends(queue):
    await queue.send_many([str(i) for i in range(10)])

    async for message in queue.consume(prefetch=8, vt=30):
        await message.ack()
        break
    for _ in range(200):
        if (await queue.attributes()).leased == 0:
            break
        await asyncio.sleep(0.01)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (9, 0)


async def test_iteration_keeps_the_leases_of_prefetched_messages(queue):
    await queue.send_many(["a", "b", "c"])
    seen = []

    async for message in queue.consume(prefetch=3, vt=4):
        async with message:
            seen.append((message.text, message.rc))
            await asyncio.sleep(2)
        if len(seen) == 3:
            break

    assert seen == [("a", 1), ("b", 1), ("c", 1)]


async def test_iteration_that_is_cancelled_leaves_nothing_leased(queue):
    await queue.send_many([str(i) for i in range(10)])
    started = asyncio.Event()

    async def iterate():
        async for message in queue.consume(prefetch=5):
            async with message:
                started.set()
                await asyncio.sleep(60)

    task = asyncio.create_task(iterate())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(200):
        if (await queue.attributes()).leased == 0:
            break
        await asyncio.sleep(0.01)

    assert (await queue.attributes()).ready == 10


async def test_two_consumers_share_a_queue_without_overlap(server_url, ns, queue):
    async with RSMQ(server_url, ns=ns) as other:
        seen = []

        async def work(source):
            async for message in source:
                async with message:
                    seen.append(message.text)

        tasks = [asyncio.create_task(work(q)) for q in (queue, other.queue("jobs")) for _ in "ab"]
        await queue.send_many([str(i) for i in range(200)])
        for _ in range(500):
            if len(seen) >= 200:
                break
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert sorted(seen, key=int) == [str(i) for i in range(200)]


async def test_side_key_of_the_wrong_type_does_no_harm(queue, raw, ns):
    await raw.set(f"{ns}:jobs:ng:deliveries", "not a hash")
    await queue.send_many(["a", "b", "c", "d"])

    await queue.receive(vt=0)
    again = await queue.receive_many(4)
    assert len(await queue.pending()) == 4
    await again[0].ack()
    await again[1].reject()
    await again[2].release()
    assert await queue.pop() is not None
    assert await queue.delete(again[3].id)
    assert await queue.purge() == 0


async def test_only_the_beginning_of_a_long_reason_is_kept(rsmq):
    queue = await rsmq.create_queue("jobs")
    id = await queue.send("x")
    await (await queue.receive()).reject("why: " + "x" * 400_000)

    kept = await rsmq.queue("jobs-dead").reason(id)

    assert kept.startswith("why: x")
    assert len(kept) == 1000


@pytest.mark.parametrize("verb", ["ack", "extend", "release", "reject", "ack_many", "block"])
async def test_client_that_was_never_opened_settles_by_a_receipt(queue, rsmq, server_url, ns, verb):
    await rsmq.create_queue("jobs-dead", exist_ok=True)
    message = await leased(queue)
    other = RSMQ(server_url, ns=ns)
    delivery = other.queue("jobs").delivery(message.receipt)

    if verb == "block":
        async with delivery:
            pass
    elif verb == "ack_many":
        assert await other.queue("jobs").ack_many([delivery]) == [delivery]
    else:
        await getattr(delivery, verb)(*([60] if verb == "extend" else []))

    left = (await queue.attributes()).msgs
    assert left == (1 if verb in ("extend", "release") else 0)
    await other.aclose()


async def test_closing_inside_a_block_gives_back_without_a_warning(queue, server_url, ns, caplog):
    await queue.send("x")
    other = RSMQ(server_url, ns=ns)
    message = await other.queue("jobs").receive()
    with pytest.raises(RuntimeError, match="of the block"):
        async with message:
            await other.aclose()
            raise RuntimeError("of the block")

    assert (await queue.attributes()).ready == 1
    assert caplog.messages == []
