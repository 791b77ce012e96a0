"""RedisMQ's verbs: push, pop, ack, recover, inspect."""

import asyncio
import math
import time
from datetime import timedelta

import pytest

import aiorsmq_ng.compat.redismq
from aiorsmq_ng import (
    RSMQ,
    ClientClosed,
    InvalidValue,
    LeaseLost,
    Options,
    QueueCorrupt,
    QueueNotFound,
)
from aiorsmq_ng.compat.redismq import ReliableQueue

from ..support.clock import pass_time, server_ms
from ..support.waiting import until


@pytest.fixture
async def mine(rsmq):
    """A queue that does not exist yet."""
    return ReliableQueue(rsmq, "mine", create=True)


@pytest.fixture
async def theirs(server_url, ns):
    """The same queue, seen from another client."""
    async with RSMQ(server_url, ns=ns) as client:
        yield ReliableQueue(client, "mine", create=True)


def ids(rows):
    return [row[0] for row in rows]


def bodies(rows):
    return [row[1] for row in rows]


async def everything(raw, ns):
    return {key: await raw.dump(key) for key in await raw.keys(f"{ns}*")}


async def test_push_creates_the_queue_and_pop_delivers_in_order(mine, raw, ns):
    pushed = await mine.push("a", b"\xff\x00", {"n": 1}, "")

    assert await mine.pop(3) == list(zip(pushed, [b"a", b"\xff\x00", b'{"n":1}'], strict=False))
    assert await mine.pop(3) == [(pushed[3], b"")]
    assert await mine.pop() == []
    assert await raw.hmget(f"{ns}:mine:Q", "vt", "delay", "maxsize") == [b"3600", b"0", b"-1"]
    assert await raw.smembers(f"{ns}:QUEUES") == {b"mine"}


async def test_push_of_nothing_stores_nothing(mine):
    assert await mine.push() == []
    assert await mine.info() == (0, 0)


async def test_push_takes_a_body_of_any_size(mine):
    await mine.push("x" * 200_000)

    assert len(bodies(await mine.pop())[0]) == 200_000


async def test_queue_that_exists_keeps_its_attributes(rsmq, mine):
    await rsmq.create_queue("mine", vt=20, maxsize=1024)
    await mine.push("x")

    await mine.pop()

    attributes = await mine.queue.attributes()
    assert (attributes.vt, attributes.maxsize) == (20, 1024)


async def test_popped_message_stays_until_it_is_acknowledged(mine, raw, ns):
    pushed = await mine.push("a", "b", "c")
    await mine.pop(2)

    assert await mine.info() == (1, 2)
    assert ids(await mine.inspect(0, 10)) == pushed[2:]
    assert ids(await mine.inspect(0, 10, pending=True)) == pushed[:2]
    assert await mine.ack(*pushed[:2]) == pushed[:2]
    assert await mine.info() == (1, 0)
    assert not [f for f in await raw.hkeys(f"{ns}:mine:Q") if f.startswith(pushed[0].encode())]


@pytest.mark.parametrize("vt", [7200, timedelta(hours=2)])
async def test_lease_is_as_long_as_asked_whatever_is_stored(rsmq, raw, ns, vt):
    await rsmq.create_queue("mine", vt=5)
    queue = ReliableQueue(rsmq, "mine", vt=vt, create=True)
    await queue.push("x")

    [(id, _)] = await queue.pop()
    popped = await raw.zscore(f"{ns}:mine", id)
    await queue.recover(1, 0)
    recovered = await raw.zscore(f"{ns}:mine", id)

    now = await server_ms(raw)
    assert now + 7_190_000 < popped <= recovered <= now + 7_200_000


async def test_lease_that_ends_puts_the_message_back(mine, theirs, raw, ns):
    await mine.push("x")
    await mine.pop()
    await pass_time(raw, f"{ns}:mine", 3600)

    assert await mine.info() == (1, 0)
    assert bodies(await theirs.pop()) == [b"x"]


async def test_pop_without_block_returns_at_once(mine):
    async with asyncio.timeout(30):  # and not for ever
        assert await mine.pop(5, block=None) == []
        assert await mine.pop(5, block=0) == []


@pytest.mark.parametrize("block", [0.2, timedelta(milliseconds=200)])
async def test_pop_that_blocks_gives_up_in_time(mine, block):
    started = time.monotonic()

    async with asyncio.timeout(30):
        assert await mine.pop(1, block) == []
    assert time.monotonic() - started > 0.19


@pytest.mark.parametrize("block", [30, math.inf, 10**12])
async def test_pop_that_blocks_is_woken_by_a_push(server_url, ns, theirs, block):
    # It hardly ever looks by itself.
    async with RSMQ(server_url, ns=ns, options=Options(poll_base=60, poll_cap=60)) as rsmq:
        mine = ReliableQueue(rsmq, "mine", create=True)
        waiting = asyncio.create_task(mine.pop(5, block=block))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        pushed = await theirs.push("x")

        async with asyncio.timeout(25):
            assert await waiting == [(pushed[0], b"x")]
        assert await mine.ack(*pushed) == pushed


async def test_pop_that_blocks_waits_on_when_a_single_wait_ends(mine, monkeypatch):
    monkeypatch.setattr(aiorsmq_ng.compat.redismq, "_LONGEST_WAIT_S", 0.02)
    waiting = asyncio.create_task(mine.pop(1, block=math.inf))
    await asyncio.sleep(0.15)
    assert not waiting.done()
    await mine.push("x")

    assert bodies(await waiting) == [b"x"]


@pytest.mark.parametrize("block", [-1, math.nan, -math.inf, "5", True])
async def test_pop_with_a_block_that_makes_no_sense_is_refused(mine, block):
    await mine.push("x")

    with pytest.raises(InvalidValue):
        await mine.pop(1, block)
    assert await mine.info() == (1, 0)


@pytest.mark.parametrize("count", [0, -1, 1.5])
async def test_count_that_makes_no_sense_is_refused(mine, count):
    await mine.push("x")

    for call in (mine.pop(count), mine.recover(count, 0), mine.inspect(0, count)):
        with pytest.raises(InvalidValue):
            await call


async def test_pop_that_is_cancelled_leaves_nothing_delivered(mine, rsmq, monkeypatch):
    await mine.push("a", "b")
    driver = await rsmq._transport.driver()
    # Runners make all calls: a first attempt is not a step that can be held.
    rsmq._transport._first_attempts.use(None)
    run, taken, gate = driver.run, asyncio.Event(), asyncio.Event()

    async def held(call):
        results = await run(call)
        if call.kind.undo:
            taken.set()
            await gate.wait()
        return results

    monkeypatch.setattr(driver, "run", held)
    task = asyncio.create_task(mine.pop(2))
    await taken.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await mine.info() == (0, 2)
    gate.set()

    async def given_back():
        return await mine.info() == (2, 0)

    await until(given_back)
    assert mine.held == {}


async def test_blocked_pops_cancelled_while_messages_come_lose_nothing(mine, theirs):
    for _ in range(10):
        waiting = [asyncio.create_task(mine.pop(1, block=30)) for _ in range(10)]
        await asyncio.sleep(0.01)
        pushing = asyncio.create_task(theirs.push(*"0123456789"))
        await asyncio.sleep(0.001)
        for task in waiting:
            task.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        await pushing
        got = [row for rows in results if isinstance(rows, list) for row in rows]
        await mine.ack(*ids(got))
        left = []
        # A look that was under way for the cancelled ones takes messages and gives them back, at
        # any time after the push.
        while len(got + left) < 10 and (more := await mine.pop(20, block=30)):
            left += more
        assert sorted(bodies(got + left)) == [b"%d" % n for n in range(10)]
        await mine.ack(*ids(left))


async def test_pop_any_takes_all_of_the_first_queue_then_of_the_next(rsmq):
    urgent, normal, empty = (
        ReliableQueue(rsmq, key, create=True) for key in ("urgent", "normal", "empty")
    )
    n1, n2, n3 = await normal.push("n1", "n2", "n3")
    u1, u2 = await urgent.push("u1", "u2")

    rows = await ReliableQueue.pop_any([empty, urgent, normal], 4)

    assert rows == [
        ("urgent", u1, b"u1"),
        ("urgent", u2, b"u2"),
        ("normal", n1, b"n1"),
        ("normal", n2, b"n2"),
    ]
    assert await urgent.ack(u1, n1) == [u1]
    assert await normal.ack(n1, n2, n3) == [n1, n2]
    assert await rsmq.list_queues() == ["normal", "urgent"]


async def test_pop_any_leases_for_the_longest_time_of_its_queues(rsmq):
    queues = [
        ReliableQueue(rsmq, "short", vt=10, create=True),
        ReliableQueue(rsmq, "long", vt=500, create=True),
    ]
    (id,) = await queues[0].push("x")

    await ReliableQueue.pop_any(queues)

    assert queues[0].held[id].lease.vt == 500


async def test_pop_any_waits_for_a_message_in_any_queue(rsmq):
    queues = [ReliableQueue(rsmq, key, create=True) for key in ("one", "two", "three")]
    waiting = asyncio.create_task(ReliableQueue.pop_any(queues, 5, block=30))
    await asyncio.sleep(0.05)
    (id,) = await queues[1].push("x")

    assert await waiting == [("two", id, b"x")]


async def test_pop_any_of_nothing_or_across_clients_is_refused(mine, theirs):
    with pytest.raises(InvalidValue):
        await ReliableQueue.pop_any([])
    with pytest.raises(InvalidValue, match="one client"):
        await ReliableQueue.pop_any([mine, theirs])


async def test_queue_deleted_under_a_blocked_pop_is_made_again(rsmq, mine):
    await mine.push("x")
    await mine.pop()
    waiting = asyncio.create_task(mine.pop(1, block=30))
    await asyncio.sleep(0.05)
    await rsmq.delete_queue("mine")
    pushed = await mine.push("again")

    assert ids(await waiting) == pushed


async def test_ack_returns_each_id_once_in_the_order_asked(mine):
    a, b, c = await mine.push("a", "b", "c")
    await mine.pop(3)

    assert await mine.ack(c, a, c) == [c, a]
    assert await mine.ack(a, b, c) == [b]
    assert await mine.ack(a, b, c) == []
    assert await mine.ack() == []
    assert mine.held == {}


async def test_acks_of_one_message_at_a_time_succeed_once(mine):
    pushed = await mine.push("a")
    await mine.pop()

    results = await asyncio.gather(*(mine.ack(*pushed) for _ in range(5)))

    assert sorted(results) == [[], [], [], [], pushed]
    assert mine.held == {}


async def test_ack_of_messages_not_delivered_leaves_them(mine, raw, ns):
    undelivered = await mine.push("a")
    delayed = await mine.queue.send("b", delay=60)
    before = await everything(raw, ns)

    assert await mine.ack(*undelivered, delayed, "z" * 32) == []
    assert await everything(raw, ns) == before


async def test_ack_of_something_that_cannot_be_an_id_acknowledges_nothing(mine):
    pushed = await mine.push("a")
    await mine.pop()

    with pytest.raises(InvalidValue):
        await mine.ack(*pushed, "totalsent")
    assert await mine.info() == (0, 1)


async def test_any_client_may_ack_what_was_delivered_elsewhere(mine, theirs):
    pushed = await mine.push("a", "b")
    await mine.pop(2)

    assert await theirs.ack(pushed[0]) == [pushed[0]]
    assert await mine.ack(*pushed) == [pushed[1]]


async def test_ack_elsewhere_after_the_lease_has_ended_is_not_taken(mine, theirs, raw, ns):
    pushed = await mine.push("a")
    await mine.pop()
    await pass_time(raw, f"{ns}:mine", 3600)

    assert await theirs.ack(*pushed) == []
    assert await mine.ack(*pushed) == pushed


async def test_former_owner_can_never_ack_what_was_recovered(mine, theirs):
    pushed = await mine.push("a")
    await mine.pop()
    await theirs.recover(1, 0)

    for _ in range(3):  # not even as a stranger
        assert await mine.ack(*pushed) == []
    assert await theirs.ack(*pushed) == pushed


async def test_former_owner_can_never_ack_what_another_client_received(mine, rsmq, raw, ns):
    pushed = await mine.push("a")
    await mine.pop()
    await pass_time(raw, f"{ns}:mine", 3600)
    foreign = await rsmq.queue("mine").receive(vt=100)

    for _ in range(3):
        assert await mine.ack(*pushed) == []
    await foreign.ack()


async def test_message_another_client_deleted_is_missing_from_the_ack(mine, rsmq):
    pushed = await mine.push("a", "b")
    await mine.pop(2)
    await rsmq.delete_message("mine", pushed[0])

    assert await mine.ack(*pushed) == pushed[1:]
    assert mine.held == {}


async def test_owner_that_recovers_its_own_message_can_ack_it(mine):
    pushed = await mine.push("a")
    await mine.pop()
    await mine.recover(1, 0)

    assert await mine.ack(*pushed) == pushed


async def test_held_message_can_be_extended_and_given_back(mine, raw, ns):
    (id,) = await mine.push("a")
    await mine.pop()

    await mine.held[id].extend(9000)
    assert await raw.zscore(f"{ns}:mine", id) > await server_ms(raw) + 8_900_000
    await mine.held[id].release()

    assert await mine.pop() == [(id, b"a")]


async def test_instance_forgets_what_it_lost_long_ago_when_there_is_too_much(mine, monkeypatch):
    monkeypatch.setattr(aiorsmq_ng.compat.redismq, "_REMEMBERED", 3)
    pushed = await mine.push(*"abcdef")
    await mine.pop(4)
    assert list(mine.held) == pushed[:4]  # their leases run, so nothing is forgotten
    for id in pushed[:3]:
        mine.held[id].lease.expires_at = 0.0

    await mine.pop(1)

    assert list(mine.held) == pushed[2:5]


async def test_instance_remembers_longest_what_it_recovered_last(mine):
    a, b, c = await mine.push("a", "b", "c")
    await mine.pop(3)
    await mine.recover(1, 0)

    assert list(mine.held) == [b, c, a]
    assert {delivery.body for delivery in mine.held.values()} == {b""}


async def test_recover_has_the_three_effects_of_redismq(mine, raw, ns):
    pushed = await mine.push("a", "b", "c")
    await mine.pop(3)
    await asyncio.sleep(0.03)
    before = await server_ms(raw)

    assert await mine.recover(1, 30) == [(pushed[0], b"a")]

    rows = await mine.inspect(0, 10, pending=True)
    assert ids(rows) == [pushed[1], pushed[2], pushed[0]]
    assert [row[4] for row in rows] == [1, 1, 2]
    assert rows[2][2] >= before > rows[0][2]
    assert rows[2][3] < rows[0][3]
    # The one that was taken over is the last of them; by now it may be idle for as long.
    assert bodies(await mine.recover(2, 30)) == [b"b", b"c"]


async def test_recover_of_more_than_is_pending_returns_each_once(mine):
    await mine.push("a", "b", "c")
    await mine.pop(3)

    assert bodies(await mine.recover(10, 0)) == [b"a", b"b", b"c"]
    assert [row[4] for row in await mine.inspect(0, 10, pending=True)] == [2, 2, 2]


async def test_recover_of_several_keeps_their_order_whatever_their_ids(mine):
    """As RedisMQ does: they go to the end of the delivered ones, the oldest delivery first."""
    pushed = await mine.push(*"abcde")
    await mine.pop(5)
    order = pushed
    for count in (2, 1, 3, 5, 4):
        recovered = ids(await mine.recover(count, 0))
        assert recovered == order[:count]
        order = order[count:] + order[:count]
        assert ids(await mine.inspect(0, 10, pending=True)) == order


async def test_recover_moves_behind_all_of_a_large_pop(mine):
    pushed = await mine.push(*(str(n) for n in range(300)))
    await mine.pop(300)
    moved = ids(await mine.recover(3, 0))
    rest = [id for id in pushed if id not in moved]

    assert ids(await mine.inspect(0, 400, pending=True)) == rest + moved


async def test_lease_of_half_a_second_is_that_and_the_queue_stores_a_whole_one(mine, rsmq, raw, ns):
    short = ReliableQueue(rsmq, "mine", vt=0.5, create=True)
    await short.push("a")

    [(id, _)] = await short.pop(1, block=0.1)
    assert await raw.hget(f"{ns}:mine:Q", "vt") == b"1"
    received_ms = int(await raw.hget(f"{ns}:mine:Q", f"{id}:fr"))
    assert await raw.zscore(f"{ns}:mine", id) == received_ms + 500


@pytest.mark.parametrize("key", ["mine", "mine:Q"])
@pytest.mark.parametrize("create", [True, False])
async def test_key_of_another_type_is_an_error_and_not_an_empty_queue(rsmq, raw, ns, key, create):
    await raw.set(f"{ns}:{key}", "foreign")
    odd = ReliableQueue(rsmq, "mine", create=create)

    for attempt in (
        odd.push("a"), odd.pop(), odd.pop(1, block=0.1), odd.recover(1, 0), odd.info(),
        odd.inspect(0, 1), odd.inspect(0, 1, pending=True),
    ):  # fmt: skip
        with pytest.raises(QueueCorrupt):
            await attempt
    assert await raw.get(f"{ns}:{key}") == b"foreign"


async def test_recover_leaves_what_was_delivered_lately(mine):
    await mine.push("a")
    await mine.pop()

    assert await mine.recover(10, 60_000) == []


@pytest.mark.parametrize("elapsed_ms", [-1, 1.5, "5", True, None])
async def test_recover_with_an_elapsed_time_that_makes_no_sense_is_refused(mine, elapsed_ms):
    with pytest.raises(InvalidValue):
        await mine.recover(1, elapsed_ms)


async def test_inspect_shows_the_rows_of_redismqs_transcript(mine, raw):
    pushed = await mine.push("msg1", "msg2", "msg3")
    before = await server_ms(raw)
    await mine.pop(1)
    await asyncio.sleep(0.02)

    assert await mine.inspect(-2, 2) == [(pushed[1], b"msg2"), (pushed[2], b"msg3")]
    [(id, body, last_ms, elapsed_ms, deliveries)] = await mine.inspect(0, 10, pending=True)
    now = await server_ms(raw)
    assert (id, body, deliveries) == (pushed[0], b"msg1", 1)
    assert before <= last_ms <= now
    assert 20 <= elapsed_ms <= now - last_ms


STARTS = [(0, 2), (3, 10), (4, 10), (5, 1), (99, 5), (-1, 1), (-2, 10), (-5, 2), (-5, 99)]
OUTSIDE = [(-6, 1), (-6, 99), (-99, 5), (-6, 3)]


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize(("start", "count"), STARTS + OUTSIDE)
async def test_inspect_from_any_start(mine, start, count, pending):
    pushed = await mine.push(*"abcde")
    if pending:
        await mine.pop(5)

    rows = await mine.inspect(start, count, pending=pending)

    expected = [] if (start, count) in OUTSIDE else pushed[start:][:count]
    assert ids(rows) == expected


async def test_inspect_changes_nothing(mine, raw, ns):
    await mine.push("a", "b")
    await mine.pop()
    before = await everything(raw, ns)

    await mine.inspect(0, 10)
    await mine.inspect(-1, 10, pending=True)
    await mine.info()

    assert await everything(raw, ns) == before


async def test_info_counts_delayed_messages_as_undelivered(mine):
    await mine.push("a", "b")
    await mine.queue.send("later", delay=60)
    await mine.pop()

    info = await mine.info()
    assert (info.undelivered, info.delivered) == (2, 1)


async def test_missing_queue_is_empty_and_stays_missing(rsmq, mine):
    assert await mine.pop(3) == []
    assert await mine.ack("z" * 32) == []
    assert await mine.recover(3, 0) == []
    assert await mine.inspect(0, 3) == []
    assert await mine.inspect(0, 3, pending=True) == []
    assert await mine.info() == (0, 0)
    assert await rsmq.list_queues() == []


async def test_missing_queue_that_may_not_be_created_is_an_error(rsmq):
    queue = ReliableQueue(rsmq, "mine")

    for call in (
        queue.push("x"),
        queue.pop(),
        queue.pop(1, block=5),
        queue.recover(1, 0),
        queue.inspect(0, 1),
        queue.inspect(0, 1, pending=True),
        queue.info(),
    ):
        with pytest.raises(QueueNotFound, match="create=True"):
            await call
    assert await rsmq.list_queues() == []


async def test_queue_that_exists_needs_no_right_to_create(rsmq, mine):
    await rsmq.create_queue("mine")
    queue = ReliableQueue(rsmq, "mine")

    pushed = await queue.push("x")
    assert ids(await queue.pop(1, block=5)) == pushed
    assert await queue.ack(*pushed) == pushed


async def test_key_of_another_type_is_said_to_be_damaged(mine, raw, ns):
    await raw.set(f"{ns}:mine:Q", "not a hash")

    for call in (mine.push("x"), mine.pop(), mine.recover(1, 0), mine.inspect(0, 1)):
        with pytest.raises(QueueCorrupt):
            await call


async def test_ack_that_cannot_reach_the_server_says_so(server_url, ns):
    async with RSMQ(server_url, ns=ns) as client:
        queue = ReliableQueue(client, "mine", create=True)
        pushed = await queue.push("x")
        await queue.pop()

    with pytest.raises(ClientClosed):
        await queue.ack(*pushed)
    assert list(queue.held) == pushed


@pytest.mark.parametrize("vt", ["5", True, None])
async def test_lease_that_is_no_duration_is_refused(rsmq, vt):
    with pytest.raises(InvalidValue):
        ReliableQueue(rsmq, "mine", vt=vt, create=True)


async def test_two_clients_share_a_queue_without_overlap(mine, theirs):
    pushed = await mine.push(*map(str, range(200)))

    shares = await asyncio.gather(*(q.pop(17) for _ in range(7) for q in (mine, theirs)))
    popped = [row[0] for share in shares for row in share]
    again = await mine.recover(200, 0)

    assert sorted(popped) == sorted(pushed)
    assert sorted(ids(again)) == sorted(pushed)
    assert await theirs.ack(*(id for id in pushed if id in theirs.held)) == []
    assert await mine.ack(*pushed) == pushed


async def test_delivery_of_the_queue_below_is_fenced_against_ours(mine):
    await mine.push("x")
    (delivery,) = await mine.queue.receive_many(1, vt=600)
    await mine.recover(1, 0)

    with pytest.raises(LeaseLost):
        await delivery.ack()


async def test_everything_works_without_a_server():
    async with RSMQ("memory://") as rsmq:
        queue = ReliableQueue(rsmq, "mine", create=True)
        pushed = await queue.push("a", "b", "c")
        assert ids(await queue.pop(2)) == pushed[:2]
        assert ids(await queue.recover(5, 0)) == pushed[:2]
        assert await queue.inspect(-1, 5) == [(pushed[2], b"c")]
        assert [row[4] for row in await queue.inspect(0, 5, pending=True)] == [2, 2]
        assert await queue.ack(*pushed) == pushed[:2]
        assert await queue.info() == (1, 0)
