"""Creating, listing, describing, changing, purging and deleting queues."""

import asyncio

import pytest

from aiorsmq_ng import (
    RSMQ,
    InvalidValue,
    NoAttributeSupplied,
    Options,
    QueueCorrupt,
    QueueExists,
    QueueNotFound,
)

from ..support.clock import pass_time
from ..support.keys import lasting_keys


async def test_create_stores_rsmqs_five_fields_and_lists_the_queue(rsmq, raw, ns):
    await rsmq.create_queue("jobs", vt=40, delay=5, maxsize=2048)

    stored = await raw.hgetall(f"{ns}:jobs:Q")
    seconds, _ = await raw.time()
    assert {k: v for k, v in stored.items() if k in (b"vt", b"delay", b"maxsize")} == {
        b"vt": b"40",
        b"delay": b"5",
        b"maxsize": b"2048",
    }
    assert set(stored) == {b"vt", b"delay", b"maxsize", b"created", b"modified"}
    assert abs(int(stored[b"created"]) - seconds) <= 5
    assert await raw.smembers(f"{ns}:QUEUES") == {b"jobs"}


async def test_create_twice_raises_by_default_and_keeps_what_is_stored(rsmq):
    await rsmq.create_queue("jobs", vt=40)

    with pytest.raises(QueueExists, match="'jobs' exists"):
        await rsmq.create_queue("jobs")
    queue = await rsmq.create_queue("jobs", vt=50, exist_ok=True)
    assert (await queue.attributes()).vt == 40


async def test_create_concurrently_makes_one_queue(rsmq):
    results = await asyncio.gather(
        *(rsmq.create_queue("jobs") for _ in range(20)), return_exceptions=True
    )

    assert sum(not isinstance(r, Exception) for r in results) == 1
    assert sum(isinstance(r, QueueExists) for r in results) == 19


async def test_create_completes_a_ghost_that_another_client_left(rsmq, raw, ns):
    """PyRSMQ's set on a missing queue leaves vt and modified only; no client can use that."""
    await raw.hset(f"{ns}:jobs:Q", mapping={"vt": 7, "modified": 1})
    with pytest.raises(QueueNotFound):
        await rsmq.queue("jobs").send("x")

    queue = await rsmq.create_queue("jobs")

    assert await rsmq.list_queues() == ["jobs"]
    assert (await queue.attributes()).vt == 7
    assert await queue.send("x")


async def test_create_lists_a_complete_queue_that_was_never_listed(rsmq, raw, ns):
    await raw.hset(f"{ns}:jobs:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536})

    await rsmq.create_queue("jobs", exist_ok=True)

    assert await rsmq.list_queues() == ["jobs"]


async def test_create_brings_back_the_messages_of_an_orphan(rsmq, raw, ns):
    id = "g73zkl38qz" + "x" * 22
    await raw.zadd(f"{ns}:jobs", {id: 1})
    await raw.hset(f"{ns}:jobs:Q", mapping={id: "lost", "totalsent": 1})

    queue = await rsmq.create_queue("jobs")

    assert (await queue.receive()).text == "lost"


@pytest.mark.parametrize("name", ["QUEUES", "jobs\n", "a:b", "", "ü"])
async def test_name_that_is_not_allowed_is_refused_by_every_call(rsmq, raw, ns, name):
    for call in (rsmq.create_queue, rsmq.delete_queue, rsmq.receive, rsmq.get_queue_attributes):
        with pytest.raises(InvalidValue):
            await call(name)

    assert await lasting_keys(raw, ns) == []


@pytest.mark.parametrize("settings", [{"vt": -1}, {"delay": 2.5}, {"maxsize": 10}, {"vt": "x"}])
async def test_create_with_a_value_out_of_range_creates_nothing(rsmq, settings):
    with pytest.raises(InvalidValue):
        await rsmq.create_queue("jobs", **settings)

    assert await rsmq.list_queues() == []


async def test_list_is_sorted_and_empty_without_queues(rsmq):
    assert await rsmq.list_queues() == []
    for name in ("b", "a", "c"):
        await rsmq.create_queue(name)

    assert await rsmq.list_queues() == ["a", "b", "c"]


async def test_list_shows_names_of_other_clients_and_options_open_them(server_url, ns, raw):
    await raw.sadd(f"{ns}:QUEUES", "a.b", "mit Ü", b"\xff")
    async with RSMQ(server_url, ns=ns, options=Options(foreign_names=True)) as rsmq:
        assert await rsmq.list_queues() == ["\\xff", "a.b", "mit Ü"]
        queue = await rsmq.create_queue("mit Ü", exist_ok=True)
        assert await queue.send("x")


async def test_delete_removes_every_key_of_the_queue(rsmq, queue, raw, ns):
    await queue.send("x")
    await queue.receive(vt=0)
    await queue.receive()  # a second delivery writes the side key

    await rsmq.delete_queue("jobs")

    assert await lasting_keys(raw, ns) == []
    with pytest.raises(QueueNotFound):
        await rsmq.delete_queue("jobs")


async def test_delete_clears_away_the_remains_of_a_queue(rsmq, raw, ns):
    await raw.zadd(f"{ns}:jobs", {"x": 1})

    await rsmq.delete_queue("jobs")

    assert await lasting_keys(raw, ns) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.send("x"),
        lambda q: q.send_many(["x"]),
        lambda q: q.receive(),
        lambda q: q.receive(wait=1),
        lambda q: q.pop(),
        lambda q: q.attributes(),
        lambda q: q.set_attributes(vt=1),
        lambda q: q.peek(),
        lambda q: q.pending(),
        lambda q: q.purge(),
        lambda q: q.purge(leased=True),
        lambda q: q.change_visibility("x" * 32, 1),
        lambda q: anext(q.consume()),
    ],
)
async def test_missing_queue_is_said_by_every_call(rsmq, raw, ns, call):
    with pytest.raises(QueueNotFound, match="'nope' does not exist in namespace"):
        await call(rsmq.queue("nope"))

    assert await lasting_keys(raw, ns) == []


async def test_attributes_count_every_state_exactly(rsmq, queue, raw, ns):
    for body in ("ready", "leased", "expired"):
        await queue.send(body)
    await queue.send("delayed", delay=60)
    first = await queue.receive(vt=60)
    await queue.receive(vt=0)
    attributes = await queue.attributes()

    assert first.text == "ready"
    assert (attributes.msgs, attributes.ready, attributes.delayed, attributes.leased) == (
        4,
        2,
        1,
        1,
    )
    assert attributes.hiddenmsgs == 2
    assert (attributes.totalsent, attributes.totalrecv) == (4, 2)
    assert attributes.exact
    assert attributes.oldest_age >= 0
    assert (attributes.vt, attributes.delay, attributes.maxsize) == (30, 0, 65536)
    assert attributes.created == attributes.modified > 0


async def test_attributes_of_an_empty_queue_are_zero(queue):
    attributes = await queue.attributes()

    assert (attributes.msgs, attributes.totalsent, attributes.totalrecv) == (0, 0, 0)
    assert attributes.oldest_age is None


async def test_attributes_with_very_many_hidden_messages_say_they_are_a_bound(queue):
    await queue.send_many(["x"] * 6000, delay=60)
    await queue.send_many(["y"] * 100)
    await queue.receive_many(100)

    attributes = await queue.attributes()

    assert not attributes.exact
    assert (attributes.leased, attributes.delayed) == (100, 6000)


async def test_attributes_of_a_queue_without_created_or_totals_are_read(rsmq, raw, ns):
    """The Elixir client writes three fields only."""
    await raw.hset(f"{ns}:jobs:Q", mapping={"vt": "2.5", "delay": 0, "maxsize": 65565})
    await raw.sadd(f"{ns}:QUEUES", "jobs")

    attributes = await rsmq.queue("jobs").attributes()

    assert (attributes.vt, attributes.maxsize, attributes.created) == (2.5, 65565, 0)


async def test_set_changes_what_is_given_and_touches_modified(rsmq, queue, raw, ns):
    await raw.hset(f"{ns}:jobs:Q", "modified", 1)

    attributes = await queue.set_attributes(vt=7, maxsize=-1)

    assert (attributes.vt, attributes.delay, attributes.maxsize) == (7, 0, -1)
    assert attributes.modified > 1
    assert await raw.hget(f"{ns}:jobs:Q", "vt") == b"7"


async def test_set_without_anything_to_set_is_refused(queue):
    with pytest.raises(NoAttributeSupplied, match="at least one of vt"):
        await queue.set_attributes()


async def test_set_takes_whole_seconds_only(queue):
    with pytest.raises(InvalidValue, match="whole seconds"):
        await queue.set_attributes(delay=0.5)


async def test_purge_removes_messages_without_a_holder(queue, raw, ns):
    await queue.send_many([str(i) for i in range(2500)])
    await queue.send_many(["later"] * 1200, delay=60)
    held = await queue.receive_many(300)

    assert await queue.purge() == 3400
    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.leased) == (300, 300)
    await held[0].ack()
    assert await raw.hlen(f"{ns}:jobs:Q") == 7 + 3 * 299


async def test_purge_of_everything_keeps_the_attributes(queue, raw, ns):
    await queue.set_attributes(vt=11)
    await queue.send_many(["x"] * 10)
    await queue.receive_many(4)

    assert await queue.purge(leased=True) == 10
    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.vt, attributes.totalsent, attributes.totalrecv) == (
        0,
        11,
        10,
        4,
    )
    assert await raw.hlen(f"{ns}:jobs:Q") == 7


@pytest.mark.parametrize("key", ["jobs", "jobs:Q"])
async def test_key_of_the_wrong_type_is_a_corrupt_queue(rsmq, queue, raw, ns, key):
    await queue.send("x")
    await raw.delete(f"{ns}:{key}")
    await raw.set(f"{ns}:{key}", "not a queue")
    before = await raw.dump(f"{ns}:jobs:Q"), await raw.dump(f"{ns}:jobs")

    for call in (
        queue.send("y"),
        queue.send_many(["y", "z"]),
        queue.receive(),
        queue.pop(),
        queue.peek(),
        queue.pending(),
        queue.attributes(),
        queue.set_attributes(vt=1),
        queue.purge(),
        queue.purge(leased=True),
        queue.delete("x" * 32),
        queue.change_visibility("x" * 32, 1),
        rsmq.create_queue("jobs", exist_ok=True),
    ):
        with pytest.raises(QueueCorrupt, match="'jobs' is not a sound RSMQ queue"):
            await call
    assert (await raw.dump(f"{ns}:jobs:Q"), await raw.dump(f"{ns}:jobs")) == before


async def test_index_of_the_wrong_type_is_corrupt(rsmq, raw, ns):
    await raw.set(f"{ns}:QUEUES", "x")

    with pytest.raises(QueueCorrupt):
        await rsmq.list_queues()
    with pytest.raises(QueueCorrupt):
        await rsmq.create_queue("jobs")
    assert await lasting_keys(raw, ns) == [f"{ns}:QUEUES".encode()]


@pytest.mark.parametrize("field", ["vt", "delay", "maxsize", "totalsent", "totalrecv"])
@pytest.mark.parametrize("value", ["abc", "", "nan"])
async def test_attribute_that_is_no_number_is_corrupt_and_changes_nothing(
    queue, raw, ns, field, value
):
    await queue.send("x")
    await raw.hset(f"{ns}:jobs:Q", field, value)
    before = await raw.hgetall(f"{ns}:jobs:Q")

    for call in (queue.send("y"), queue.receive(), queue.pop()):
        with pytest.raises(QueueCorrupt):
            await call
    assert await raw.hgetall(f"{ns}:jobs:Q") == before


async def test_fractional_vt_of_another_client_is_honoured(queue, raw, ns):
    await raw.hset(f"{ns}:jobs:Q", "vt", "2.5")
    await queue.send("x")

    message = await queue.receive()

    assert message.lease.vt == 2.5
    await pass_time(raw, f"{ns}:jobs", 2.5)
    assert (await queue.receive()).rc == 2


async def test_namespace_in_braces_keeps_all_keys_in_one_slot(server_url, ns, raw):
    async with RSMQ(server_url, ns=f"{{{ns}}}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        async with await queue.receive() as message:
            assert message.text == "x"
        keys = await raw.keys(f"{{{ns}}}*")

    assert keys
    assert all(key.startswith(f"{{{ns}}}:".encode()) for key in keys)


async def test_what_clients_tell_of_themselves_is_bounded(rsmq):
    queue = await rsmq.create_queue("jobs")
    ids = [await queue.send("x") for _ in range(3)]
    await rsmq.gateway.announce(queue, "n" * 5000, 1, [*ids, "h" * 40_000])
    (told,) = (await queue.stats()).consumers
    assert told.name.endswith("n" * 200)  # behind the identity, through a broker
    assert len(told.name) <= 250
    assert len(told.holding) == 3

    await rsmq.gateway.announce(queue, "many", 1, ids * 1000)
    assert {len(one.holding) for one in (await queue.stats()).consumers} == {3, 100}


async def test_names_of_clients_are_bounded_in_number(rsmq):
    queue = await rsmq.create_queue("jobs")
    for start in range(0, 1100, 100):
        names = [f"client {start + number}" for number in range(100)]
        await asyncio.gather(*(rsmq.gateway.announce(queue, name, 1) for name in names))

    consumers = {one.name.rpartition("/")[2] for one in (await queue.stats()).consumers}
    assert consumers == {f"client {number}" for number in range(1000, 1100)}


async def test_many_names_are_listed_in_pages_and_no_other_client_waits_for_all(rsmq, raw, ns):
    """Names that are there all the time are listed, whatever is created and deleted meanwhile."""
    there = {f"q{number}" for number in range(30_000)}
    await raw.sadd(f"{ns}:QUEUES", *there)
    changing = asyncio.Event()

    async def change():
        number = 0
        while not changing.is_set():
            number += 1
            await raw.sadd(f"{ns}:QUEUES", *(f"new{number}-{i}" for i in range(500)))
            await raw.srem(f"{ns}:QUEUES", *(f"new{number - 1}-{i}" for i in range(500)))

    before = (await raw.info("commandstats")).get("cmdstat_sscan", {"calls": 0})["calls"]
    changes = asyncio.create_task(change())
    listed = await rsmq.list_queues()
    changing.set()
    await changes
    stats = await raw.info("commandstats")

    assert there <= set(listed)
    assert listed == sorted(set(listed))
    # In steps of some thousand, so that others come in between.
    assert stats["cmdstat_sscan"]["calls"] - before >= 5


async def test_few_names_are_listed_by_one_call(rsmq, raw, ns):
    await raw.sadd(f"{ns}:QUEUES", *(f"q{number}" for number in range(1000)))
    await rsmq.list_queues()  # so that the server has the script
    before = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]
    assert len(await rsmq.list_queues()) == 1000
    calls = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]

    assert calls - before == 1


async def test_program_with_a_loop_of_its_own_is_seen_while_it_is_present(rsmq, queue):
    async def consumers():
        return [consumer.consumers for consumer in (await queue.stats()).consumers]

    with queue.present(), queue.present():
        await until_async(consumers, [2])
    await until_async(consumers, [])


async def until_async(ask, expected):
    async with asyncio.timeout(30):
        while await ask() != expected:
            await asyncio.sleep(0.01)


async def test_close_hook_runs_while_calls_can_be_made_unless_removed(server_url, ns):
    rsmq = RSMQ(server_url, ns=ns)
    queue = await rsmq.create_queue("jobs")
    sent = []

    async def hook():
        sent.append(await queue.send("the last one"))

    async def removed():
        sent.append(await queue.send("not this"))

    rsmq.add_close_hook(hook)
    rsmq.add_close_hook(removed)
    rsmq.remove_close_hook(removed)
    await rsmq.wait_idle(1)
    await rsmq.aclose()

    async with RSMQ(server_url, ns=ns) as other:
        assert [m.text for m in await other.queue("jobs").peek()] == ["the last one"]
    assert len(sent) == 1


async def test_move_page_moves_those_that_are_ready(rsmq):
    source, target = [await rsmq.create_queue(name) for name in ("jobs", "others")]
    leased, chosen, other = await source.send_many(["a", "b", "c"])
    later = await source.send("d", delay=60)
    await source.receive()

    moved = await rsmq.gateway.move_page(source, target, [leased, chosen, later])

    assert moved == 1
    assert [(m.id, m.body, m.rc) for m in await target.peek()] == [(chosen, b"b", 0)]
    assert {m.id async for m in source.scan()} == {leased, other, later}


async def test_move_page_of_none_moves_none(rsmq):
    source, target = [await rsmq.create_queue(name) for name in ("jobs", "others")]
    await source.send("a")

    assert await rsmq.gateway.move_page(source, target, []) == 0
    assert (await source.attributes()).msgs == 1


async def test_move_page_refuses_too_many_and_the_same_queue(rsmq):
    source, target = [await rsmq.create_queue(name) for name in ("jobs", "others")]
    ids = await source.send_many(["a"] * 101)

    with pytest.raises(InvalidValue, match="up to 100 ids"):
        await rsmq.gateway.move_page(source, target, ids)
    with pytest.raises(InvalidValue, match="into itself"):
        await rsmq.gateway.move_page(source, source, ids[:1])
