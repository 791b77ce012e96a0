"""Pools: each caller gets a part, none gets all, and nothing is leaked."""

import asyncio
import random

import pytest

from aiorsmq_ng.broker.memory_budget import CallBudget, Pool


def test_a_party_may_take_half_of_what_the_others_leave():
    pool = Pool(100, divided=True)
    for who, most in (("a", 50), ("b", 25), ("c", 13), ("d", 6)):
        assert pool.share(who) == most
        assert pool.take(who, most)
        assert not pool.take(who, 1)

    pool.add("a", -50)
    assert pool.room("b") == (100 - 13 - 6 + 1) // 2 - 25


def test_one_party_may_take_all_where_there_is_no_other():
    pool = Pool(100, divided=False)
    assert pool.take("a", 100)
    assert not pool.take("b", 1)


async def test_a_party_waits_for_its_own_and_the_others_do_not():
    pool = Pool(8, divided=True)
    assert pool.take("a", 4)
    waiting = [asyncio.ensure_future(pool.acquire("a", amount)) for amount in (2, 1)]
    await asyncio.sleep(0)
    await pool.acquire("b", 1)
    assert not any(task.done() for task in waiting)
    pool.add("a", -1)
    await asyncio.sleep(0)
    # What comes second does not overtake, though it would fit.
    assert not any(task.done() for task in waiting)
    pool.add("a", -3)
    await asyncio.gather(*waiting)

    assert pool.taken == 4


async def test_one_who_stops_waiting_leaves_nothing_behind():
    pool = Pool(2, divided=False)
    assert pool.take("a", 2)
    large, small = (asyncio.ensure_future(pool.acquire("a", amount)) for amount in (2, 1))
    await asyncio.sleep(0)
    pool.add("a", -1)
    large.cancel()
    await small
    granted = asyncio.ensure_future(pool.acquire("a", 1))
    await asyncio.sleep(0)
    pool.add("a", -1)  # grants it, and it is cancelled before it learns of that
    granted.cancel()
    await asyncio.wait([granted, large])

    assert pool.taken == 1
    assert not pool._waiting


async def test_one_who_has_waited_too_long_leaves_nothing_behind():
    pool = Pool(2, divided=False)
    assert pool.take("a", 1)
    large = asyncio.ensure_future(pool.acquire("a", 2, within_s=0.001))
    await asyncio.sleep(0)
    # What came after it waits for its turn, and not for what it wanted.
    await asyncio.wait_for(pool.acquire("a", 1), 10)
    with pytest.raises(TimeoutError):
        await large

    assert pool.taken == 2
    assert not pool._waiting


async def test_one_who_finds_room_needs_no_time():
    pool = Pool(2, divided=False)
    await pool.acquire("a", 2, within_s=0)

    assert pool.taken == 2


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_callers_do_nothing_is_lost_or_taken_twice(seed):
    chance = random.Random(seed)
    places, requests, replies, sources = (Pool(n, divided=True) for n in (10, 1000, 1000, 40))

    async def call(who):
        if not places.take(who, 1):
            return
        visit = CallBudget(who, places, requests, replies, sources)
        within_s = chance.choice([0.001, 1])
        try:
            async with asyncio.timeout(chance.choice([0.001, 1])):
                await visit.expect(100, within_s)
                visit.waits_for(chance.randrange(10))
                await asyncio.sleep(chance.random() / 100)
                visit.arrived(chance.randrange(100))
                if chance.random() < 0.3:
                    visit.hold()
                    asyncio.get_running_loop().call_later(chance.random() / 50, visit.leave)
                await visit.prepare(chance.choice([10, 300, 5000]), within_s)
                if visit.more(50):
                    visit.more(-50)
                visit.replies(chance.randrange(400))
        except TimeoutError:
            pass
        finally:
            visit.leave()

    for _ in range(20):
        await asyncio.gather(*(call(f"caller {chance.randrange(4)}") for _ in range(10)))
        assert requests.taken <= 1000
    await asyncio.sleep(0.05)

    for pool in (places, requests, replies, sources):
        assert (pool.taken, pool._parties, pool._waiting) == (0, {}, {})
