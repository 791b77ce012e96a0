"""Suspects: messages whose last delivery vanished with its holder come alone, and run alone."""

import asyncio

import pytest

from aiorsmq_ng import LeaseLost, Retry, Worker

from ..support.clock import pass_time
from ..support.waiting import until
from .test_worker import work

__all__ = ["work"]


async def vanish(queue, raw, ns, count=1, vt=10):
    """Lease messages for a holder that is never heard of again, and let the leases run out."""
    taken = await queue.receive_many(count, vt=vt)
    await pass_time(raw, f"{ns}:{queue.name}", 1.2 * vt)
    return taken


async def taken(queue, count=10, **how):
    """Receive until nothing is left; return what came together."""
    found = []
    while batch := await queue.receive_many(count, **how):
        found.append([m.text for m in batch])
    return found


async def test_messages_that_vanished_with_their_holder_come_one_by_one(queue, raw, ns):
    await queue.send_many(["a", "b", "c"])
    await vanish(queue, raw, ns, 2)

    messages = [await queue.receive_many(10) for _ in range(3)]

    # "c" was ready before the leases ended.
    assert sorted([m.text for m in batch] for batch in messages) == [["a"], ["b"], ["c"]]
    assert {m.text: (m.suspect, m.strikes) for batch in messages for m in batch} == {
        "a": (True, 1),
        "b": (True, 1),
        "c": (False, 0),
    }


@pytest.mark.parametrize(
    "back",
    [
        lambda m: m.release(),
        lambda m: m.release(unseen=True),
        lambda m: m.release_nowait(unseen=True),
        lambda m: m.settle(KeyError("x")),
        lambda m: m.extend(0),
    ],
    ids=["release", "unseen", "release_nowait", "settle", "extend"],
)
async def test_messages_returned_in_order_come_together(queue, back):
    await queue.send_many(["a", "b", "c"])
    for message in await queue.receive_many(3):
        await back(message)

    assert [len(batch) for batch in await taken(queue)] == [3]


async def test_retry_after_an_exception_is_no_suspicion(rsmq, raw, ns):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(5, base=10, cap=10))
    await queue.send_many(["a", "b", "c"])
    for message in await queue.receive_many(3):
        await message.settle(KeyError("x"))
    await pass_time(raw, f"{ns}:jobs", 11)

    assert len(await queue.receive_many(3)) == 3


async def test_change_of_visibility_to_now_is_a_return_in_order(queue):
    ids = await queue.send_many(["a", "b"])
    await queue.receive_many(2)
    for id in ids:
        await queue.change_visibility(id, 0)

    assert len(await queue.receive_many(2)) == 2


async def test_lease_of_no_length_makes_no_suspect(queue):
    await queue.send_many(["a", "b"])
    await queue.receive_many(2, vt=0)

    assert len(await queue.receive_many(2)) == 2


async def test_delivery_by_another_client_that_ran_out_makes_a_suspect(queue, raw, ns):
    await queue.send_many(["a", "b"])
    for message in await queue.receive_many(2):
        await message.release()
        await raw.hincrby(f"{ns}:jobs:Q", f"{message.id}:rc", 1)

    assert [len(batch) for batch in await taken(queue)] == [1, 1]


async def test_strikes_count_deliveries_in_a_row_and_end_with_a_return(queue, raw, ns):
    await queue.send("a")
    for _ in range(3):
        await vanish(queue, raw, ns)
    message = await queue.receive()
    assert message.strikes == 3

    await message.release()

    assert (await queue.receive()).strikes == 0


async def test_suspect_given_back_unseen_stays_one(queue, raw, ns):
    await queue.send("a")
    await vanish(queue, raw, ns)
    message = await queue.receive()
    await message.release(unseen=True)

    again = await queue.receive()

    assert (again.strikes, again.rc, again.attempt) == (1, 3, 2)


async def test_callers_that_share_a_call_get_one_suspect_each(queue, raw, ns):
    await queue.send_many(["a", "b", "c"])
    await vanish(queue, raw, ns, 3)

    got = await asyncio.gather(*(queue.receive_many(5) for _ in range(3)))

    assert sorted(len(batch) for batch in got) == [1, 1, 1]


async def test_suspect_is_not_taken_beside_messages_of_another_queue(rsmq, raw, ns):
    first, second = await rsmq.create_queue("first"), await rsmq.create_queue("second")
    await second.send("struck")
    await vanish(second, raw, ns)
    await first.send("fresh")

    assert [m.text for m in await rsmq.receive_many(["first", "second"], 5)] == ["fresh"]
    assert [m.text for m in await rsmq.receive_many(["first", "second"], 5)] == ["struck"]


async def test_messages_after_a_suspect_of_the_first_queue_stay(rsmq, raw, ns):
    first, second = await rsmq.create_queue("first"), await rsmq.create_queue("second")
    await first.send("struck")
    await vanish(first, raw, ns)
    await second.send("fresh")

    assert [m.text for m in await rsmq.receive_many(["first", "second"], 5)] == ["struck"]
    assert [m.text for m in await rsmq.receive_many(["first", "second"], 5)] == ["fresh"]


async def test_deliveries_without_work_do_not_count_for_the_limit(rsmq):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(2))
    id = await queue.send("a")
    for _ in range(5):
        await (await queue.receive()).release_nowait(unseen=True)

    first = await queue.receive()
    assert (first.rc, first.attempt) == (6, 1)
    await first.release()
    second = await queue.receive()
    assert (second.rc, second.attempt) == (7, 2)
    await second.release()

    assert await queue.receive() is None
    reason = await rsmq.queue("jobs-dead").reason(id)
    assert reason.startswith(
        "received 2 times without being settled (and 5 times given back before the work began)"
    )


async def test_rejected_message_keeps_the_number_of_deliveries_that_do_not_count(rsmq, raw, ns):
    queue, dead = await rsmq.create_queue("jobs"), rsmq.queue("jobs-dead")
    id = await queue.send("a")
    for _ in range(2):
        await (await queue.receive()).release_nowait(unseen=True)
    await vanish(queue, raw, ns)
    await (await queue.receive()).reject()

    message = await dead.receive()
    assert (message.rc, message.attempt, message.strikes) == (5, 3, 0)
    assert await dead.reason(id) is None


async def test_reason_of_a_receive_does_not_follow_a_message_that_is_rejected_later(rsmq, raw, ns):
    await rsmq.create_queue("jobs")
    queue, dead = rsmq.queue("jobs", retry=Retry(1)), rsmq.queue("jobs-dead")
    id = await queue.send("a")
    await vanish(queue, raw, ns)
    assert await queue.receive() is None
    assert await dead.reason(id)
    await (await dead.receive()).reject()

    assert await rsmq.queue("jobs-dead-dead").reason(id) is None


async def test_release_of_unseen_that_is_repeated_excuses_once(queue):
    await queue.send("a")
    message = await queue.receive()
    await message.release_nowait(unseen=True)
    await message.release_nowait(unseen=True)

    assert (await queue.receive()).attempt == 1


async def test_ends_of_leases_are_spread_and_never_earlier_than_asked_for(queue, raw, ns):
    await queue.send_many(["x"] * 20)
    held = await queue.receive_many(20, vt=10)
    now = asyncio.get_running_loop().time()
    ends = [await raw.zscore(f"{ns}:jobs", m.id) for m in held]
    assert ends == sorted(set(ends))
    assert ends[-1] - ends[0] <= 1000
    assert all(m.lease.expires_at <= now + 10 for m in held)

    await asyncio.gather(*(m.extend(10) for m in held))

    assert len({await raw.zscore(f"{ns}:jobs", m.id) for m in held}) == 20


async def test_notes_on_messages_that_another_client_deletes_do_not_pile_up(queue, raw, ns):
    for _ in range(40):
        ids = await queue.send_many(["x"] * 20)
        for message in await queue.receive_many(20):
            await message.release()
        await raw.zrem(f"{ns}:jobs", *ids)
        await raw.hdel(
            f"{ns}:jobs:Q", *(f"{id}{tail}" for id in ids for tail in ("", ":rc", ":fr"))
        )

    # Of 800 notes.
    assert await raw.hlen(f"{ns}:jobs:ng:deliveries") < 300


async def test_released_suspect_can_be_settled_by_the_next_holder_only(queue, raw, ns):
    await queue.send("a")
    (former,) = await vanish(queue, raw, ns)
    message = await queue.receive()

    with pytest.raises(LeaseLost):
        await former.release()
    assert message.suspect
    await message.ack()
    assert await raw.hlen(f"{ns}:jobs:ng:deliveries") == 0


async def test_consume_holds_a_suspect_alone_until_its_taker_comes_back(queue, raw, ns):
    await queue.send_many(["a", "b", "c"])
    await vanish(queue, raw, ns, 2)
    held = []

    async with queue.consume(prefetch=8) as messages:
        async for message in messages:
            if message.suspect:
                await asyncio.sleep(0.1)  # time to lease ahead
                held.append((await queue.attributes()).leased)
            await message.ack()
            if (await queue.attributes()).msgs == 0:
                break

    assert held == [1, 1]


async def test_worker_handles_a_suspect_while_it_holds_nothing_else(rsmq, raw, ns, work):
    queue = await rsmq.create_queue("jobs")
    other = await rsmq.create_queue("other")
    await queue.send_many(["struck 1", "struck 2"])
    await vanish(queue, raw, ns, 2)
    await queue.send_many([f"fresh {n}" for n in range(20)])
    await other.send_many([f"other {n}" for n in range(20)])
    worker = Worker(rsmq)
    beside, done = [], []

    async def handle(body):
        if body.startswith("struck"):
            leased = [(await q.attributes()).leased for q in (queue, other)]
            beside.append((sum(leased), worker.health.running))
        await asyncio.sleep(0.01)
        done.append(body)

    @worker.handler("jobs")
    async def one(body: str) -> None:
        await handle(body)

    @worker.batch_handler("other", size=3, wait=0.05)
    async def many(batch) -> None:
        for message in batch:
            await handle(message.text)

    work(worker)
    await until(lambda: len(done) == 42)

    assert beside == [(1, 1), (1, 1)]
    assert sorted(done) == sorted(set(done))


async def test_suspect_goes_to_a_batch_handler_as_a_batch_of_one(rsmq, raw, ns, work):
    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["a", "b"])
    await vanish(queue, raw, ns, 2)
    await queue.send_many(["c", "d"])
    worker = Worker(rsmq)
    batches = []

    @worker.batch_handler("jobs", size=4, wait=0.1)
    async def many(batch) -> None:
        batches.append(sorted(m.text for m in batch))

    work(worker)
    await until(lambda: sum(map(len, batches)) == 4)

    assert sorted(batches) == [["a"], ["b"], ["c", "d"]]


async def test_long_handler_does_not_keep_a_suspect_away_for_ever(rsmq, raw, ns, work):
    queue = await rsmq.create_queue("jobs")
    await queue.send("long")
    worker = Worker(rsmq)
    worker.alone = 0.2
    begun, end = [], asyncio.Event()

    @worker.handler("jobs")
    async def one(body: str) -> None:
        begun.append(body)
        if body == "long":
            await end.wait()

    task = work(worker)
    await until(lambda: begun == ["long"])
    worker.pause()
    await queue.send("struck")
    assert await queue.receive(vt=0.05, wait=5)
    await asyncio.sleep(0.06)
    worker.resume()
    await until(lambda: "struck" in begun)
    await queue.send("fresh")
    await until(lambda: "fresh" in begun)

    end.set()
    worker.stop()
    await task


async def test_suspect_that_vanished_twice_waits_while_a_long_handler_runs(rsmq, raw, ns, work):
    queue = await rsmq.create_queue("jobs")
    await queue.send("long")
    worker = Worker(rsmq)
    worker.alone = 0.1
    begun, end = [], asyncio.Event()

    @worker.handler("jobs")
    async def one(body: str) -> None:
        begun.append(body)
        if body == "long":
            await end.wait()

    work(worker)
    await until(lambda: begun == ["long"])
    worker.pause()
    await queue.send("struck")
    for _ in range(2):
        assert await queue.receive(vt=0.05, wait=5)
        await asyncio.sleep(0.06)
    await queue.send("fresh")
    worker.resume()
    await until(lambda: "fresh" in begun)
    assert "struck" not in begun
    end.set()
    await until(lambda: "struck" in begun)


async def test_suspect_that_vanished_twice_is_put_back_a_few_times_and_then_runs(
    rsmq, raw, ns, work, caplog
):
    """Handlers that take long may follow each other without end."""
    # In a queue of its own, and struck before the worker runs. A worker that is paused after it has
    # waited for messages leaves a receive behind that may take the message once more, through a
    # broker: the cancellation is on its way to it. It comes back unseen, with a higher count.
    queue = await rsmq.create_queue("jobs")
    await queue.send("struck")
    await vanish(queue, raw, ns, 1)
    await vanish(queue, raw, ns, 1)
    slow = await rsmq.create_queue("slow")
    await slow.send("long")
    worker = Worker(rsmq)
    worker.alone = 0.05
    begun, end = [], asyncio.Event()

    @worker.handler("slow")
    async def long(message) -> None:
        begun.append(message.text)
        await end.wait()

    @worker.handler("jobs", retry=Retry(5))
    async def one(message) -> None:
        begun.append((message.text, message.attempt, message.rc))

    with caplog.at_level("WARNING", "aiorsmq_ng.worker"):
        work(worker)
        await until(lambda: len(begun) == 2)
    end.set()

    assert begun == ["long", ("struck", 3, 6)]
    told = [record.getMessage() for record in caplog.records]
    assert ["is put back" in line for line in told] == [True, True, True, False]
    assert "runs beside" in told[-1]
    assert not worker._intake.postponed


async def test_suspect_of_a_worker_that_stops_is_given_back_and_stays_one(rsmq, raw, ns, work):
    queue = await rsmq.create_queue("jobs")
    await queue.send("long")
    worker = Worker(rsmq, grace=0)
    begun = asyncio.Event()

    @worker.handler("jobs")
    async def one(body: str) -> None:
        begun.set()
        await asyncio.sleep(60)

    task = work(worker)
    await begun.wait()
    worker.pause()
    await queue.send("struck")
    assert await queue.receive(vt=0.05, wait=5)
    await asyncio.sleep(0.06)
    worker.resume()
    await until(lambda: worker._intake.suspect is not None)
    worker.stop()
    await task

    found = {m.text: m for m in [await queue.receive(), await queue.receive()]}
    assert (found["struck"].strikes, found["struck"].attempt) == (1, 2)
    assert found["long"].strikes == 0
