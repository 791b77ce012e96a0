"""Queue.scan: all messages, in order, while the queue is in use."""

import itertools

import pytest

import aiorsmq_ng.queue
from aiorsmq_ng import RSMQ, InvalidValue, QueueNotFound


@pytest.fixture
def read_by(monkeypatch):
    """Let one round trip of a scan read a number of messages."""
    return lambda page: monkeypatch.setattr(aiorsmq_ng.queue, "_SCAN_PAGE", page)


async def scanned(queue, **how):
    return [message async for message in queue.scan(**how)]


async def test_scan_shows_every_state_in_order_and_changes_nothing(queue):
    ids = await queue.send_many(["leased", "ready", b"\xff"])
    await queue.send("delayed", delay=600)
    await queue.receive(vt=60)
    before = await queue.attributes()

    found = await scanned(queue)

    assert [(m.body, m.state, m.rc) for m in found] == [
        (b"ready", "ready", 0),
        (b"\xff", "ready", 0),
        (b"leased", "leased", 1),
        (b"delayed", "delayed", 0),
    ]
    assert found[2].id == ids[0]
    assert [m.visible_at for m in found] == sorted(m.visible_at for m in found)
    after = await queue.attributes()
    assert (after.ready, after.leased, after.totalrecv) == (before.ready, before.leased, 1)


@pytest.mark.parametrize("page", [1, 2, 99, 100, 101, 250, 1000])
async def test_scan_by_any_page_shows_each_once(queue, read_by, page):
    # One call stores all with the same visible-at, so pages end among equals.
    ids = await queue.send_many([str(i) for i in range(250)])
    read_by(page)

    assert [m.id for m in await scanned(queue)] == ids


@pytest.mark.parametrize("count", [1, 2, 100, 101, 250, 300])
@pytest.mark.parametrize("page", [100, 1000])
async def test_scan_shows_as_many_as_asked_for_and_goes_on_behind_the_last(
    queue, read_by, page, count
):
    ids = await queue.send_many([str(i) for i in range(250)])
    read_by(page)

    first = await scanned(queue, count=count)
    assert [m.id for m in first] == ids[:count]
    assert [m.id for m in await scanned(queue, after=first[-1], count=7)] == ids[count:][:7]
    assert [m.id for m in await scanned(queue, start=-3, count=2)] == ids[-3:-1]


async def test_scan_of_a_few_asks_once_for_no_more_than_these(queue, monkeypatch):
    await queue.send_many([str(i) for i in range(50)])
    run, asked = queue._context.transport.run, []

    async def watched(operation):
        asked.append(operation.request.count)
        return await run(operation)

    monkeypatch.setattr(queue._context.transport, "run", watched)

    assert len(await scanned(queue, count=10)) == 10
    assert asked == [10]


async def test_scan_goes_on_behind_messages_that_are_removed_meanwhile(queue, read_by):
    ids = await queue.send_many([str(i) for i in range(300)])
    seen = []
    read_by(10)
    async for message in queue.scan():
        seen.append(message.id)
        # Everything up to and including the last one seen, so that ranks shift by a page.
        if len(seen) % 10 == 0:
            assert await queue.delete_many(seen[-10:]) == seen[-10:]

    assert seen == ids


async def test_scan_during_receives_misses_none(queue, read_by):
    ids = await queue.send_many([str(i) for i in range(300)])
    seen = []
    read_by(10)
    async for message in queue.scan():
        seen.append(message.id)
        if len(seen) % 10 == 0:
            await queue.receive_many(7, vt=60)

    assert set(seen) == set(ids)


async def test_scan_after_a_message_goes_on_there(queue):
    ids = await queue.send_many([str(i) for i in range(5)])
    found = await scanned(queue)
    await queue.delete(ids[2])

    assert [m.id for m in await scanned(queue, after=found[2])] == ids[3:]
    assert await scanned(queue, after=found[-1]) == []


@pytest.mark.parametrize(("start", "first"), [(0, 0), (2, 2), (-2, 3), (-9, 0), (6, 6)])
async def test_scan_from_a_start_counts_as_peek_does(queue, start, first):
    ids = await queue.send_many([str(i) for i in range(5)])
    ids += [await queue.send("delayed", delay=60)]

    assert [m.id for m in await scanned(queue, start=start)] == ids[first:]


async def test_scan_of_large_bodies_reads_them_in_bounded_pages(queue, backend, monkeypatch):
    await queue.send_many(["x" * 60_000] * 300)
    run, pages = queue._context.transport.run, []

    async def watched(operation):
        pages.append(await run(operation))
        return pages[-1]

    monkeypatch.setattr(queue._context.transport, "run", watched)

    assert len(await scanned(queue)) == 300
    # The script reads a hundred at a time and stops after 1 MiB; a reply of a broker has less than
    # 4 MiB, and marks the last one.
    sizes = [len(page.messages) for page in pages]
    assert sizes == ([66, 66, 66, 66, 36] if backend == "broker" else [100, 100, 100, 0])


async def test_scan_passes_over_ids_without_a_body(queue, read_by, raw, ns):
    read_by(100)
    await raw.zadd(f"{ns}:jobs", {f"{n:032}": n for n in range(250)})
    (id,) = await queue.send_many(["x"])

    assert [m.id for m in await scanned(queue)] == [id]


async def test_scan_orders_equal_scores_by_bytes(queue, read_by, raw, ns):
    read_by(1)
    names = ["".join(pair) * 16 for pair in itertools.product("aAzZ09", repeat=2)]
    await raw.zadd(f"{ns}:jobs", dict.fromkeys(names, 5))
    await raw.hset(f"{ns}:jobs:Q", mapping=dict.fromkeys(names, "x"))

    assert [m.id for m in await scanned(queue)] == sorted(names)


async def test_scan_of_an_empty_or_a_missing_queue(queue, rsmq):
    assert await scanned(queue) == []
    with pytest.raises(QueueNotFound):
        await scanned(rsmq.queue("absent"))
    with pytest.raises(InvalidValue):
        await scanned(queue, count=0)


async def test_scan_works_in_memory(read_by):
    read_by(2)
    async with RSMQ("memory://") as rsmq:
        queue = await rsmq.create_queue("jobs")
        ids = await queue.send_many(["a", "b", "c"])

        assert [m.id for m in await scanned(queue)] == ids


async def test_find_shows_a_message_of_each_state_and_changes_nothing(queue):
    first, second = await queue.send_many(["a", "b"])
    later = await queue.send("c", delay=60)
    await queue.receive()

    found = [await queue.find(id) for id in (first, second, later)]

    assert [(m.id, m.body, m.state, m.rc) for m in found] == [
        (first, b"a", "leased", 1),
        (second, b"b", "ready", 0),
        (later, b"c", "delayed", 0),
    ]
    assert [m.score for m in found] == [
        one.score for id in (first, second, later) for one in await scanned(queue) if one.id == id
    ]


async def test_find_of_a_message_that_is_gone_is_none(queue):
    id = await queue.send("a")
    await queue.delete(id)

    assert await queue.find(id) is None


async def test_find_in_a_missing_queue_says_so(rsmq):
    with pytest.raises(QueueNotFound):
        await rsmq.queue("missing").find("g73zkl38qzSBNq2NcnVVlCldqwqFXRJd")
