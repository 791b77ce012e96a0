"""Sending, receiving, popping, deleting, looking."""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Compressed, InvalidValue, MessageTooLong, QueueNotFound

from ..support.clock import pass_time, server_ms
from ..support.keys import lasting_keys

BODIES = [
    b"ascii",
    "snowman \u2603".encode(),
    b"nul \x00 inside",
    b"",
    b"\xff\xfe\x00invalid utf-8",
    b'{"json": [1, 2.5, null]}',
    b"x" * 65536,
    b"\r\n$3\r\n",
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
async def test_body_comes_back_byte_for_byte(queue, raw, ns, body):
    id = await queue.send(body)

    message = await queue.receive()

    assert (message.id, message.body) == (id, body)
    assert await raw.hget(f"{ns}:jobs:Q", id) == body


async def test_send_stores_id_score_body_and_count(queue, raw, ns):
    before = await server_ms(raw)
    id = await queue.send("hello")
    after = await server_ms(raw)

    assert len(id) == 32
    assert id.isalnum()
    [(member, score)] = await raw.zrange(f"{ns}:jobs", 0, -1, withscores=True)
    assert member == id.encode()
    assert before <= score <= after
    assert await raw.hget(f"{ns}:jobs:Q", "totalsent") == b"1"
    message = await queue.receive()
    assert before <= int(message.sent) <= after


async def test_send_of_a_value_is_json(queue):
    await queue.send({"order": 7})

    assert (await queue.receive()).body == b'{"order":7}'


async def test_send_by_a_codec_of_ones_own(server_url, ns):
    class Upper:
        def encode(self, value):
            return str(value).upper().encode()

        def decode(self, body, type):
            return body

    async with RSMQ(server_url, ns=ns, codec=Upper()) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send(("a", 1))
        await queue.send("a")

        assert [m.text for m in await queue.receive_many(2)] == ["('A', 1)", "a"]


async def test_send_with_delay_is_hidden_until_then(queue, raw, ns):
    await queue.send("later", delay=timedelta(seconds=30))

    assert await queue.receive() is None
    await pass_time(raw, f"{ns}:jobs", 30)
    assert (await queue.receive()).text == "later"


async def test_send_takes_the_queues_delay_by_default(queue, raw, ns):
    await queue.set_attributes(delay=60)
    await queue.send("by default")
    await queue.send("now", delay=0)

    assert [m.text for m in await queue.receive_many(5)] == ["now"]


async def test_delay_of_a_fraction_of_a_second_is_kept_to_the_millisecond(queue, raw, ns):
    id = await queue.send("x", delay=0.25)
    score = await raw.zscore(f"{ns}:jobs", id)

    sent_ms = (await queue.receive(wait=5)).sent
    assert score == int(sent_ms) + 250


async def test_body_of_exactly_maxsize_is_sent_and_one_more_is_not(queue, raw, ns):
    await queue.set_attributes(maxsize=1024)
    await queue.send("x" * 1024)
    before = await raw.hgetall(f"{ns}:jobs:Q")

    with pytest.raises(MessageTooLong, match="1025 bytes exceeds the maxsize of 1024 bytes"):
        await queue.send("x" * 1025)
    assert await raw.hgetall(f"{ns}:jobs:Q") == before


async def test_size_is_counted_in_bytes(queue):
    await queue.set_attributes(maxsize=1024)

    with pytest.raises(MessageTooLong) as caught:
        await queue.send("\u2603" * 400)
    assert (caught.value.size, caught.value.maxsize) == (1200, 1024)


async def test_maxsize_of_minus_one_takes_any_body(queue):
    await queue.set_attributes(maxsize=-1)
    await queue.send(b"x" * 1_000_000)

    assert len((await queue.receive()).body) == 1_000_000


async def test_body_too_long_among_concurrent_sends_fails_alone(queue):
    results = await asyncio.gather(
        *(queue.send("x" * (70_000 if i == 5 else 10)) for i in range(10)), return_exceptions=True
    )

    assert [isinstance(r, MessageTooLong) for r in results] == [i == 5 for i in range(10)]
    assert (await queue.attributes()).msgs == 9


async def test_send_many_keeps_order_on_receive(queue):
    bodies = [str(i) for i in range(5000)]

    ids = await queue.send_many(bodies)

    assert len(set(ids)) == 5000
    assert ids == sorted(ids)
    received = await queue.receive_many(5000)
    assert [m.text for m in received] == bodies
    assert [m.id for m in received] == ids


async def test_send_many_is_all_or_nothing(queue):
    with pytest.raises(MessageTooLong):
        await queue.send_many(["a", "x" * 70_000, "b"])

    assert (await queue.attributes()).msgs == 0


async def test_send_many_of_nothing_sends_nothing(queue):
    assert await queue.send_many([]) == []


async def test_send_many_of_a_string_is_a_mistake(queue):
    with pytest.raises(InvalidValue, match="list of bodies"):
        await queue.send_many("abc")


async def test_sends_one_after_the_other_are_received_in_order(queue):
    for i in range(200):
        await queue.send(str(i))

    assert [m.text for m in await queue.receive_many(200)] == [str(i) for i in range(200)]


async def test_receive_leases_counts_and_stamps(queue, raw, ns):
    id = await queue.send("x")
    before = await server_ms(raw)
    message = await queue.receive(vt=10)
    after = await server_ms(raw)

    assert (message.rc, message.lease.vt) == (1, 10)
    assert before <= message.fr <= after
    stored = await raw.hgetall(f"{ns}:jobs:Q")
    assert stored[f"{id}:rc".encode()] == b"1"
    assert stored[f"{id}:fr".encode()] == str(message.fr).encode()
    assert stored[b"totalrecv"] == b"1"
    assert await raw.zscore(f"{ns}:jobs", id) == message.fr + 10_000
    assert await queue.receive() is None


async def test_receive_again_after_the_lease_counts_up_and_keeps_the_first_time(queue, raw, ns):
    await queue.send("x")
    first = await queue.receive(vt=1)
    await pass_time(raw, f"{ns}:jobs", 1)

    second = await queue.receive()

    assert (second.id, second.rc, second.fr) == (first.id, 2, first.fr)


async def test_receive_with_no_lease_leaves_the_message_visible(queue):
    await queue.send("x")

    assert [(await queue.receive(vt=0)).rc for _ in range(3)] == [1, 2, 3]


async def test_receive_many_with_no_lease_never_returns_one_twice(queue):
    await queue.send_many(["a", "b"])

    assert [m.text for m in await queue.receive_many(10, vt=0)] == ["a", "b"]


async def test_receive_many_takes_what_is_there(queue):
    await queue.send_many(["a", "b", "c"])

    assert [m.text for m in await queue.receive_many(2)] == ["a", "b"]
    assert [m.text for m in await queue.receive_many(2)] == ["c"]
    assert await queue.receive_many(2) == []


async def test_concurrent_receives_get_different_messages(queue):
    await queue.send_many([str(i) for i in range(100)])

    received = await asyncio.gather(*(queue.receive(vt=5 + i % 3) for i in range(120)))

    texts = [m.text for m in received if m is not None]
    assert sorted(texts, key=int) == [str(i) for i in range(100)]
    assert {m.lease.vt for m in received if m} == {5, 6, 7}


@pytest.mark.parametrize("vt", [-1, 10_000_000, "5"])
async def test_receive_with_a_vt_out_of_range_takes_nothing(queue, vt):
    await queue.send("x")

    with pytest.raises(InvalidValue, match="vt must be"):
        await queue.receive(vt=vt)
    assert (await queue.attributes()).ready == 1


async def test_receive_drops_phantoms_and_returns_what_is_behind(queue, raw, ns):
    await raw.zadd(f"{ns}:jobs", {f"phantom{i:025d}": 1 for i in range(50)})
    await queue.send("real")

    message = await queue.receive()

    assert message.text == "real"
    assert await raw.zcard(f"{ns}:jobs") == 1


async def test_receive_gets_past_more_phantoms_than_one_call_clears(queue, raw, ns):
    await raw.zadd(f"{ns}:jobs", {f"phantom{i:025d}": 1 for i in range(2500)})
    await queue.send("real")

    assert (await queue.receive()).text == "real"
    assert (await queue.attributes()).msgs == 1


async def test_receive_of_a_message_without_fr_gives_it_one(queue, raw, ns):
    id = await queue.send("x")
    await raw.hset(f"{ns}:jobs:Q", f"{id}:rc", 3)

    message = await queue.receive()

    assert message.rc == 4
    assert message.fr > 0
    await message.ack()


@pytest.mark.parametrize("damage", ["abc", "1.5", "", "-1", "-5", "-0.5", "9" * 400])
async def test_receive_heals_a_damaged_count(queue, raw, ns, damage):
    id = await queue.send("x")
    await raw.hset(f"{ns}:jobs:Q", mapping={f"{id}:rc": damage, f"{id}:fr": damage})

    message = await queue.receive()

    assert message.rc in (1, 2)
    await message.extend(10)
    await message.ack()


async def test_foreign_id_of_30_characters_is_a_full_citizen(queue, raw, ns):
    id = "m4f8xk2a" + "R" * 22
    await raw.zadd(f"{ns}:jobs", {id: 1})
    await raw.hset(f"{ns}:jobs:Q", id, "from rust")

    message = await queue.receive()

    assert (message.text, message.sent) == ("from rust", None)
    await message.extend(5)
    assert await queue.change_visibility(id, 1)
    assert await queue.delete(id)


async def test_pop_takes_and_deletes(queue, raw, ns):
    id = await queue.send("x")

    message = await queue.pop()

    assert (message.id, message.text, message.rc) == (id, "x", 1)
    assert await queue.pop() is None
    assert await raw.exists(f"{ns}:jobs") == 0
    stored = await raw.hgetall(f"{ns}:jobs:Q")
    assert not [f for f in stored if f.startswith(id.encode())]
    assert stored[b"totalrecv"] == b"1"


async def test_pop_many_keeps_order_and_leaves_the_rest(queue):
    await queue.send_many([str(i) for i in range(10)])

    assert [m.text for m in await queue.pop_many(4)] == ["0", "1", "2", "3"]
    assert (await queue.attributes()).msgs == 6


async def test_delete_removes_every_field_of_a_message(queue, raw, ns):
    id = await queue.send("x")
    await queue.receive()
    await raw.hset(f"{ns}:jobs:Q", f"{id}:meta", "{}")

    assert await queue.delete(id) is True
    assert await queue.delete(id) is False
    assert not [f for f in await raw.hkeys(f"{ns}:jobs:Q") if f.startswith(id.encode())]


async def test_delete_of_a_message_never_received_works(queue):
    assert await queue.delete(await queue.send("x")) is True


async def test_delete_many_tells_which_were_there(queue):
    ids = await queue.send_many(["a", "b", "c"])

    assert await queue.delete_many([ids[2], "z" * 32, ids[0], ids[0]]) == [ids[2], ids[0]]
    assert await queue.delete_many([]) == []


async def test_delete_of_one_message_by_many_tasks_succeeds_once(queue):
    id = await queue.send("x")

    assert sorted(await asyncio.gather(*(queue.delete(id) for _ in range(10)))) == [False] * 9 + [
        True
    ]


async def test_delete_by_the_name_of_an_attribute_is_refused(queue):
    with pytest.raises(InvalidValue):
        await queue.delete("vt")

    assert (await queue.attributes()).vt == 30


async def test_change_visibility_hides_shows_and_says_if_it_was_there(queue):
    id = await queue.send("x")

    assert await queue.change_visibility(id, 60) is True
    assert await queue.receive() is None
    assert await queue.change_visibility(id, 0) is True
    assert (await queue.receive()).id == id
    assert await queue.change_visibility("z" * 32, 5) is False


async def test_peek_shows_ready_messages_and_changes_nothing(queue, raw, ns):
    await queue.send_many(list("abcde"))
    await queue.send("delayed", delay=60)
    await queue.receive()
    before = await raw.hgetall(f"{ns}:jobs:Q")

    assert [m.text for m in await queue.peek()] == list("bcde")
    assert [m.text for m in await queue.peek(1, 2)] == ["c", "d"]
    assert [m.text for m in await queue.peek(-2)] == ["d", "e"]
    assert [m.text for m in await queue.peek(-10, 8)] == ["b", "c"]
    assert await queue.peek(4) == []
    assert (await queue.peek(0, 1))[0].rc == 0
    assert await raw.hgetall(f"{ns}:jobs:Q") == before


async def test_pending_shows_leased_messages_with_their_last_delivery(queue, raw, ns):
    await queue.send_many(["a", "b"])
    await queue.send("delayed", delay=60)
    first = await queue.receive(vt=0)
    again = await queue.receive(vt=100)
    other = await queue.receive(vt=50)

    rows = await queue.pending()

    assert again.id == first.id or other.id == first.id
    assert [(m.id, m.deliveries) for m in rows] == [(other.id, other.rc), (again.id, again.rc)]
    now = await server_ms(raw)
    for row in rows:
        delivered_ms = row.delivered_at.timestamp() * 1000
        assert row.first_received_at <= row.delivered_at
        assert delivered_ms <= now
        assert 0 <= row.idle * 1000 <= now - delivered_ms + 0.5


async def test_pending_after_a_foreign_redelivery_is_estimated_from_its_lease(queue, raw, ns):
    id = await queue.send("x")
    message = await queue.receive(vt=0)
    now = await server_ms(raw)
    await raw.hset(f"{ns}:jobs:Q", f"{id}:rc", 2)
    await raw.zadd(f"{ns}:jobs", {id: now + 30_000})

    (row,) = await queue.pending()

    assert row.deliveries == 2
    assert max(now, message.fr) == round(row.delivered_at.timestamp() * 1000)


async def test_pending_pages_through_long_queues_both_ways(queue, raw, ns):
    await queue.send_many([str(i) for i in range(2300)])
    held = await queue.receive_many(2300, vt=100)
    await queue.send_many(["delayed"] * 1500, delay=50)

    ids = [m.id for m in await queue.pending(0, 3000)]
    leased = {m.id for m in held}
    by_end = [id.decode() for id in await raw.zrange(f"{ns}:jobs", 0, -1)]
    assert ids == [id for id in by_end if id in leased]
    assert len(ids) == 2300
    assert [m.id for m in await queue.pending(2290, 20)] == ids[2290:]
    assert [m.id for m in await queue.pending(-3, 10)] == ids[-3:]
    assert [m.id for m in await queue.pending(-3, 2)] == ids[-3:-1]
    assert [m.id for m in await queue.pending(-2400, 102)] == ids[:2]


async def test_receive_from_several_queues_takes_the_first_that_has_one(rsmq):
    high, low = await rsmq.create_queue("high"), await rsmq.create_queue("low")
    await low.send("low 1")
    await high.send("high 1")
    await low.send("low 2")

    texts = [(await rsmq.receive("high", low)).text for _ in range(3)]

    assert texts == ["high 1", "low 1", "low 2"]
    assert await rsmq.receive("high", "low") is None


async def test_receive_from_several_queues_waits_for_any_of_them(rsmq):
    await rsmq.create_queue("high")
    low = await rsmq.create_queue("low")
    waiting = asyncio.create_task(rsmq.receive("high", "low", wait=10))
    await asyncio.sleep(0.1)

    await low.send("x")

    message = await waiting
    assert (message.queue, message.text) == ("low", "x")
    await message.ack()


async def test_receive_from_several_queues_names_the_one_that_is_missing(rsmq):
    await rsmq.create_queue("high")

    with pytest.raises(QueueNotFound, match="'low'"):
        await rsmq.receive("high", "low")


async def test_rsmqs_own_verbs_do_what_they_say(rsmq):
    await rsmq.create_queue("jobs")
    id = await rsmq.send_message("jobs", "hello", delay=0)
    message = await rsmq.receive_message("jobs", vt=20)
    assert (message.id, message.text) == (id, "hello")
    assert await rsmq.change_message_visibility("jobs", id, 0) is True
    assert (await rsmq.pop_message("jobs")).id == id
    assert await rsmq.delete_message("jobs", id) is False
    assert (await rsmq.set_queue_attributes("jobs", vt=5)).vt == 5
    assert (await rsmq.get_queue_attributes("jobs")).totalrecv == 2
    await rsmq.delete_queue("jobs")
    assert await rsmq.list_queues() == []
    await rsmq.quit()


@pytest.mark.parametrize("decode", [True, False])
@pytest.mark.parametrize("protocol", [2, 3])
async def test_callers_client_works_whatever_its_settings(server_url, ns, decode, protocol):
    client = Redis.from_url(server_url, decode_responses=decode, protocol=protocol)
    try:
        async with RSMQ(client=client, ns=ns) as rsmq:
            queue = await rsmq.create_queue("jobs")
            waiting = asyncio.create_task(queue.receive(wait=10))
            await asyncio.sleep(0.05)
            await queue.send(b"\xff\x00")
            message = await waiting
            assert message.body == b"\xff\x00"
            await message.ack()
            assert await rsmq.list_queues() == ["jobs"]
        assert await client.ping()
    finally:
        await client.aclose()


async def test_send_racing_delete_queue_leaves_no_orphan(rsmq, raw, ns):
    for _ in range(30):
        queue = await rsmq.create_queue("jobs", exist_ok=True)
        sends = [asyncio.create_task(queue.send("x")) for _ in range(5)]
        await asyncio.gather(rsmq.delete_queue("jobs"), *sends, return_exceptions=True)
        keys = await lasting_keys(raw, ns)
        assert keys == [] or (
            f"{ns}:jobs:Q".encode() in keys and await raw.hexists(f"{ns}:jobs:Q", "vt")
        )


async def test_send_publishes_the_number_of_messages_on_rsmqs_channel(server_url, ns, raw):
    async with RSMQ(server_url, ns=ns, realtime=True) as rsmq:
        queue = await rsmq.create_queue("jobs")
        pubsub = raw.pubsub(ignore_subscribe_messages=True)
        await pubsub.subscribe(f"{ns}:rt:jobs")
        await pubsub.get_message(timeout=5)
        await queue.send("a", delay=60)
        await queue.send_many(["b", "c"])
        counts = []
        started = time.monotonic()
        while len(counts) < 2 and time.monotonic() - started < 10:
            if message := await pubsub.get_message(timeout=1):
                counts.append(message["data"])
        await pubsub.aclose()

    assert counts == [b"1", b"3"]


async def test_send_without_realtime_stays_off_rsmqs_channel(rsmq, queue, ns, raw):
    pubsub = raw.pubsub(ignore_subscribe_messages=True)
    await pubsub.subscribe(f"{ns}:rt:jobs", f"{ns}:jobs:ng:wake")
    await pubsub.get_message(timeout=5)
    await queue.send("x")
    message = None
    while message is None:
        message = await pubsub.get_message(timeout=5)
    await pubsub.aclose()

    assert message["channel"] == f"{ns}:jobs:ng:wake".encode()


@dataclass
class Parcel:
    number: int
    to: str = "root"


@pytest.mark.parametrize("codec", [None, Compressed(min_size=0)])
async def test_message_is_decoded_by_the_clients_codec_however_it_was_had(server_url, ns, codec):
    parcel = Parcel(7, "x" * 100)
    async with RSMQ(server_url, ns=ns, codec=codec) as rsmq:
        queue = await rsmq.create_queue("jobs", vt=0)
        await queue.send_many([parcel] * 2)
        peeked = await queue.peek(count=1)
        scanned = [message async for message in queue.scan()][:1]
        received = await queue.receive(vt=30)
        pending = await queue.pending()
        popped = await queue.pop()
        await received.reject("no use")
        seen = []
        await queue.redrive(where=lambda message: seen.append(message) or True)

        for message in (*peeked, *scanned, received, *pending, popped, *seen):
            assert message.decode(Parcel) == parcel
        assert len(seen) == len(pending) == 1
        if codec is not None:
            with pytest.raises(InvalidValue, match="not JSON"):
                received.json()
