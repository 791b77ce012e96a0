"""Taking over leased messages that another client holds."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, LeaseLost, QueueCorrupt, QueueNotFound, Retry
from aiorsmq_ng._protocol import redis_codecs as redis
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import recovery
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec

from ..support.clock import server_ms
from ..support.keys import lasting_keys


async def age(raw, ns, seconds, name="jobs"):
    """Make the last deliveries of all messages lie *seconds* further back."""
    fields = await raw.hgetall(f"{ns}:{name}:Q")
    for field, value in fields.items():
        if field.endswith(b":fr"):
            await raw.hset(f"{ns}:{name}:Q", field, int(value) - round(seconds * 1000))
    for id, note in (await raw.hgetall(f"{ns}:{name}:ng:deliveries")).items():
        rc, ms, rest = note.split(b" ", 2)
        aged = b"%d %d %b" % (int(rc), int(ms) - round(seconds * 1000), rest)
        await raw.hset(f"{ns}:{name}:ng:deliveries", id, aged)


async def leased(queue, *bodies, vt=600):
    await queue.send_many(bodies)
    return await queue.receive_many(len(bodies), vt=vt)


async def test_recover_that_finds_nothing_writes_nothing(queue, raw, ns):
    before = sorted(await raw.keys(f"{ns}:*"))

    assert await queue.recover(10, idle=60) == []
    assert sorted(await raw.keys(f"{ns}:*")) == before


async def test_recover_makes_a_new_delivery_of_a_message_left_idle(queue, raw, ns):
    (message,) = await leased(queue, "x")
    await age(raw, ns, 60)
    first = int(await raw.hget(f"{ns}:jobs:Q", f"{message.id}:fr"))
    before = await server_ms(raw)

    (again,) = await queue.recover(10, idle=60)

    after = await server_ms(raw)
    assert (again.id, again.text, again.rc, again.fr) == (message.id, "x", 2, first)
    assert again.queue == "jobs"
    assert before + 30_000 <= await raw.zscore(f"{ns}:jobs", again.id) <= after + 30_000
    rc, ms, *_ = (await raw.hget(f"{ns}:jobs:ng:deliveries", again.id)).split()
    assert rc == b"2"
    assert before <= int(ms) <= after
    assert await raw.ttl(f"{ns}:jobs:ng:deliveries") > 13 * 86400
    assert (await queue.attributes()).totalrecv == 2
    (row,) = await queue.pending()
    assert (row.deliveries, round(row.delivered_at.timestamp() * 1000)) == (2, int(ms))
    await again.ack()
    assert (await queue.attributes()).msgs == 0


async def test_recover_leases_for_as_long_as_asked(queue, raw, ns):
    await leased(queue, "x")

    (again,) = await queue.recover(1, idle=0, vt=300)

    now = await server_ms(raw)
    assert again.lease.vt == 300
    assert now + 299_000 < await raw.zscore(f"{ns}:jobs", again.id) <= now + 300_000


async def test_recover_without_a_lease_leaves_the_message_visible(queue):
    await leased(queue, "x")

    assert [m.rc for m in await queue.recover(5, idle=0, vt=0)] == [2]
    assert (await queue.receive()).rc == 3


async def test_recover_leaves_what_is_not_idle_that_long(queue, raw, ns):
    await leased(queue, "old")
    await age(raw, ns, 59)
    await leased(queue, "new")
    before = {k: await raw.dump(k) for k in await lasting_keys(raw, ns)}

    assert await queue.recover(10, idle=61) == []
    assert {k: await raw.dump(k) for k in await lasting_keys(raw, ns)} == before
    assert [m.text for m in await queue.recover(10, idle=59)] == ["old"]


async def test_recover_takes_neither_ready_nor_delayed_messages(queue):
    await queue.send("delayed", delay=60)
    await leased(queue, "expired", vt=0)
    await queue.send("ready")

    assert await queue.recover(10, idle=0) == []


async def test_recover_takes_the_oldest_delivery_first_whatever_its_lease(queue, raw, ns):
    for body, vt in (("first", 500), ("second", 20), ("third", 100)):
        await leased(queue, body, vt=vt)
        await age(raw, ns, 10)

    assert [m.text for m in await queue.recover(2, idle=1)] == ["first", "second"]
    assert [m.text for m in await queue.recover(2, idle=1)] == ["third"]


async def test_recover_of_a_later_delivery_goes_by_its_own_time(queue, raw, ns):
    await leased(queue, "x", vt=0)
    await age(raw, ns, 1000)
    await queue.receive(vt=600)

    assert await queue.recover(1, idle=1) == []
    await age(raw, ns, 5)
    assert [m.rc for m in await queue.recover(1, idle=1)] == [3]


async def test_recover_of_more_than_there_is_returns_each_once(queue):
    held = await leased(queue, "a", "b", "c")

    again = await queue.recover(10, idle=0)

    assert [m.id for m in again] == [m.id for m in held]
    assert [m.rc for m in again] == [2, 2, 2]


async def test_recover_puts_what_it_took_behind_the_others(queue, raw, ns):
    await leased(queue, "a", "b", "c", vt=30)
    await age(raw, ns, 10)

    await queue.recover(1, idle=5, vt=31)  # the ends of leases are spread by some milliseconds

    assert [m.text for m in await queue.pending()] == ["b", "c", "a"]
    assert [m.text for m in await queue.recover(1, idle=5)] == ["b"]


@pytest.mark.parametrize("verb", ["ack", "release", "reject"])
async def test_former_holder_has_lost_its_lease(queue, verb):
    (former,) = await leased(queue, "x")
    (again,) = await queue.recover(1, idle=0)

    with pytest.raises(LeaseLost) as caught:
        await getattr(former, verb)()
    assert not caught.value.gone
    await again.ack()


async def test_foreign_redelivery_is_recovered_by_its_lease(queue, raw, ns):
    (message,) = await leased(queue, "x", vt=0)
    now = await server_ms(raw)
    await raw.hset(
        f"{ns}:jobs:Q", mapping={f"{message.id}:rc": 2, f"{message.id}:fr": now - 99_000}
    )
    await raw.zadd(f"{ns}:jobs", {message.id: now + 10_000})  # of the queue's 30 s, 20 are gone

    assert await queue.recover(1, idle=25) == []
    assert [m.rc for m in await queue.recover(1, idle=19)] == [3]


async def test_note_about_an_earlier_delivery_is_not_taken_for_the_last(queue, raw, ns):
    await leased(queue, "x")
    (message,) = await queue.recover(1, idle=0)
    await age(raw, ns, 100)
    now = await server_ms(raw)
    await raw.hset(f"{ns}:jobs:Q", f"{message.id}:rc", 3)  # another client receives it
    await raw.zadd(f"{ns}:jobs", {message.id: now + 30_000})

    assert await queue.recover(1, idle=50) == []
    assert (await queue.pending())[0].idle < 50


async def test_foreign_first_receive_is_recovered_by_its_time(queue, raw, ns):
    id = await queue.send("x")
    now = await server_ms(raw)
    await raw.hset(f"{ns}:jobs:Q", mapping={f"{id}:rc": 1, f"{id}:fr": now - 40_000})
    await raw.zadd(f"{ns}:jobs", {id: now + 500_000})

    assert await queue.recover(1, idle=50) == []
    assert [(m.rc, m.fr) for m in await queue.recover(1, idle=40)] == [(2, now - 40_000)]


async def test_message_without_fr_gets_one_and_can_be_settled(queue, raw, ns):
    id = await queue.send("x", delay=60)
    await raw.hset(f"{ns}:jobs:Q", f"{id}:rc", 1)

    (row,) = await queue.pending()
    (again,) = await queue.recover(1, idle=0)

    assert row.idle < 60
    assert (again.rc, again.fr > 0) == (2, True)
    await again.ack()


async def test_message_another_client_deleted_is_not_recovered(queue, raw, ns):
    first, second = await leased(queue, "a", "b")
    await raw.zrem(f"{ns}:jobs", first.id)
    await raw.hdel(f"{ns}:jobs:Q", first.id, f"{first.id}:rc", f"{first.id}:fr")

    assert [m.id for m in await queue.recover(5, idle=0)] == [second.id]


async def test_id_without_a_body_is_cleared_away(queue, raw, ns):
    first, second = await leased(queue, "a", "b")
    await raw.hdel(f"{ns}:jobs:Q", first.id)

    assert [m.id for m in await queue.recover(1, idle=0)] == [second.id]
    assert (await queue.attributes()).msgs == 1
    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(first.id.encode())]


async def test_entries_of_messages_that_are_gone_leave_the_side_key(queue, raw, ns):
    held = await leased(queue, *"abcdef")
    await queue.recover(6, idle=0)
    assert await raw.hlen(f"{ns}:jobs:ng:deliveries") == 6
    for message in held[:5]:  # what another client's delete does
        await raw.zrem(f"{ns}:jobs", message.id)
        await raw.hdel(f"{ns}:jobs:Q", message.id, f"{message.id}:rc", f"{message.id}:fr")

    assert await queue.recover(1, idle=60) == []

    assert await raw.hkeys(f"{ns}:jobs:ng:deliveries") == [held[5].id.encode()]


async def test_side_key_does_not_grow_with_what_other_clients_delete(queue, raw, ns):
    """Delivered twice here, then deleted by a client that does not know the side key."""
    for _ in range(40):
        await queue.send_many(["x"] * 10)
        await queue.receive_many(10, vt=0)
        for message in await queue.receive_many(10, vt=60):
            await raw.zrem(f"{ns}:jobs", message.id)
            await raw.hdel(f"{ns}:jobs:Q", message.id, f"{message.id}:rc", f"{message.id}:fr")

    assert await raw.hlen(f"{ns}:jobs:ng:deliveries") <= 20


async def test_side_key_keeps_what_is_there(queue, raw, ns):
    await queue.send_many(["x"] * 300)
    for _ in range(3):
        await queue.receive_many(300, vt=0)

    assert await raw.hlen(f"{ns}:jobs:ng:deliveries") == 300


async def test_side_key_of_the_wrong_type_does_not_stand_in_the_way(queue, raw, ns):
    await raw.set(f"{ns}:jobs:ng:deliveries", "not a hash")
    (message,) = await leased(queue, "x")

    (again,) = await queue.recover(1, idle=0)

    assert (again.id, again.rc) == (message.id, 2)
    assert await raw.get(f"{ns}:jobs:ng:deliveries") == b"not a hash"
    await again.ack()


async def test_message_received_too_often_goes_to_the_dead_letters_instead(rsmq, raw, ns):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(max_receives=2))
    await leased(queue, "poison", "fine")
    again = await queue.recover(1, idle=0)
    assert [(m.text, m.rc) for m in again] == [("poison", 2)]
    await asyncio.sleep(0.002)

    assert [(m.text, m.rc) for m in await queue.recover(5, idle=0)] == [("fine", 2)]

    (dead,) = await rsmq.queue("jobs-dead").peek()
    assert (dead.text, dead.rc, dead.fr) == ("poison", 2, again[0].fr)
    assert (await queue.attributes()).msgs == 1
    with pytest.raises(LeaseLost):
        await again[0].ack()


async def test_dead_letter_queue_that_is_damaged_leaves_everything_as_it_is(rsmq, raw, ns):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", retry=Retry(max_receives=1))
    await leased(queue, "x")
    await raw.hset(f"{ns}:jobs-dead:Q", "totalsent", "many")
    before = {k: await raw.dump(k) for k in await raw.keys(f"{ns}:jobs*")}

    with pytest.raises(QueueCorrupt):
        await queue.recover(1, idle=0)
    assert {k: await raw.dump(k) for k in await raw.keys(f"{ns}:jobs*")} == before


async def test_recovers_of_two_clients_share_without_overlap(server_url, ns, queue, raw):
    held = await leased(queue, *map(str, range(300)))
    await age(raw, ns, 60)
    async with RSMQ(server_url, ns=ns) as other:
        shares = await asyncio.gather(
            *(q.recover(40, idle=30) for _ in range(5) for q in (queue, other.queue("jobs")))
        )

    ids = [m.id for share in shares for m in share]
    assert len(ids) == len(set(ids)) == 300
    assert set(ids) == {m.id for m in held}


async def test_recover_looks_past_thousands_of_delayed_messages(queue):
    await queue.send_many(["delayed"] * 4500, delay=60)
    held = await leased(queue, "a", "b", vt=600)

    assert [m.id for m in await queue.recover(5, idle=0)] == [m.id for m in held]


@pytest.mark.parametrize("vt", [0, 1, 600])
async def test_recover_of_thousands_returns_each_once(queue, vt):
    held = await leased(queue, *["x"] * 9000, vt=300)

    again = await queue.recover(20_000, idle=0, vt=vt)

    assert len(again) == 9000
    assert {m.id for m in again} == {m.id for m in held}
    assert {m.rc for m in again} == {2}


def test_recover_looks_at_a_bounded_number_of_messages():
    receive_spec = ReceiveSpec(Namespace("rsmq").queue("jobs"))
    operation = recovery.recover(receive_spec, 5, idle_ms=60_000, vt_ms=-1)

    reply = [30_000, 4090, 17, b"a" * 32, b"body", 2, 5]
    [page] = redis.decode([operation], reply, repeated=False)
    following = recovery.recover(receive_spec, 4, idle_ms=60_000, vt_ms=-1, after=page)

    first, second = (redis.encode([o], None, bytes) for o in (operation, following))
    assert b"at + 4095" in first.script.source
    assert first.args == ["", 0, "", "", 5, 60_000, -1, 0, 0]
    assert second.args == ["", 0, "", "", 4, 60_000, -1, 4090, 17]
    assert not operation.kind.repeatable


async def test_recover_that_is_cancelled_makes_what_it_took_visible(queue, raw):
    await leased(queue, "a", "b")
    await raw.execute_command("CLIENT", "PAUSE", "150", "ALL")
    task = asyncio.create_task(queue.recover(2, idle=0, vt=600))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    for _ in range(300):
        attributes = await queue.attributes()
        if attributes.ready == 2:
            break
        await asyncio.sleep(0.01)
    assert (attributes.ready, attributes.leased) == (2, 0)


async def test_recover_that_is_cancelled_between_pages_makes_all_visible(queue, monkeypatch):
    # More than one page of a server, and more than one reply of a broker.
    await leased(queue, *["x" * 1000] * 5000)
    transport = queue._context.transport
    run, pages, taken = transport.run, [], []

    async def run_once(operation):
        pages.append(operation)
        if len(pages) == 2:
            raise asyncio.CancelledError
        page = await run(operation)
        taken.append(len(page.received.messages))
        return page

    monkeypatch.setattr(transport, "run", run_once)
    with pytest.raises(asyncio.CancelledError):
        await queue.recover(5000, idle=0, vt=600)
    monkeypatch.undo()
    assert 0 < taken[0] <= 4096

    for _ in range(300):
        attributes = await queue.attributes()
        if attributes.ready == taken[0]:
            break
        await asyncio.sleep(0.01)
    assert (attributes.ready, attributes.msgs) == (taken[0], 5000)


@pytest.mark.parametrize(
    ("count", "idle", "vt"), [(0, 1, None), (1, -1, None), (1, "5", None), (1, 1, -1)]
)
async def test_recover_with_a_value_that_makes_no_sense_is_refused(queue, count, idle, vt):
    await leased(queue, "x")

    with pytest.raises(InvalidValue):
        await queue.recover(count, idle, vt=vt)
    assert (await queue.pending())[0].deliveries == 1


async def test_recover_from_a_missing_queue_says_so(rsmq):
    with pytest.raises(QueueNotFound):
        await rsmq.queue("nowhere").recover(1, idle=0)


@pytest.mark.parametrize(("field", "value"), [("vt", "soon"), ("totalrecv", "many")])
async def test_recover_from_a_damaged_queue_changes_nothing(queue, raw, ns, field, value):
    await leased(queue, "x")
    await raw.hset(f"{ns}:jobs:Q", field, value)
    before = {k: await raw.dump(k) for k in await lasting_keys(raw, ns)}

    with pytest.raises(QueueCorrupt):
        await queue.recover(1, idle=0)
    assert {k: await raw.dump(k) for k in await lasting_keys(raw, ns)} == before


async def test_delete_of_leased_messages_only(queue, raw, ns):
    held, expired = await leased(queue, "held"), await leased(queue, "expired", vt=0)
    ready, delayed = await queue.send("ready"), await queue.send("delayed", delay=60)
    ids = [held[0].id, expired[0].id, ready, delayed, "z" * 32]

    assert await queue.delete_many(ids, only_leased=True) == [held[0].id]
    assert (await queue.attributes()).msgs == 3
    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(ids[0].encode())]
    assert await queue.delete_many(ids) == [expired[0].id, ready, delayed]


async def test_recover_without_a_server():
    async with RSMQ("memory://") as rsmq:
        queue = await rsmq.create_queue("jobs")
        held = await leased(queue, "a", "b")

        again = await queue.recover(5, idle=0)

        assert [(m.id, m.rc) for m in again] == [(m.id, 2) for m in held]
        assert await queue.delete_many([held[0].id], only_leased=True) == [held[0].id]
