"""A call that reaches the server twice, in any order, has one effect and one answer."""

import asyncio

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, OutOfMemoryError

from aiorsmq_ng import RSMQ, InvalidValue, MessageTooLong, QueueNotFound, Sent
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues, recovery
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec
from aiorsmq_ng._transport.call import Call
from aiorsmq_ng._transport.call_numbers import CallNumber
from aiorsmq_ng._transport.script_calls import RedisDriver, ScriptMissing
from aiorsmq_ng.testing import PrivateServer

from ..support.clock import pass_time, server_ms


class TooLate(Exception):
    """The attempt arrived after later calls of its series."""


class Repeater(RedisDriver):
    """Runs commands on a client of redis-py."""

    def __init__(self, raw, merge):
        self.raw = raw
        self.merge = merge

    async def execute(self, command):
        try:
            reply = await self.raw.execute_command(*command.words)
        except NoScriptError:
            raise ScriptMissing from None
        if self.merge and reply == []:
            raise TooLate
        return reply


class Line:
    """A series of calls, each of which can be sent to the server again at any time."""

    def __init__(self, raw, name="series"):
        self.raw = raw
        self.name = name
        # A repetition has the ids of the first attempt.
        self.encoded = {}

    async def call(self, number, *operations, again=False, recall=False, attempt=None):
        """Send a call and return the result of every operation."""
        numbered = operations[0].kind.numbered
        call = Call(operations, CallNumber(self.name, number) if numbered else None)
        call.in_doubt = again
        call.attempt = attempt or (2 if again else 1)
        call.recall = recall
        call.encoded = self.encoded.get(key := tuple(map(id, operations)), (None, None))[1]
        try:
            results = await Repeater(self.raw, call.kind.merge).run(call)
        except TooLate:
            return []
        finally:
            self.encoded[key] = (operations, call.encoded)
        return [call.finish(place, result) for place, result in enumerate(results)]


@pytest.fixture
def line(raw):
    return Line(raw)


@pytest.fixture
def keys(queue, ns):
    return Namespace(ns).queue("jobs")


def sending(keys, *bodies, dedup=None):
    return messages.send(keys, bodies, delay_ms=-1, channel="w", dedup=dedup)


def receiving(keys, count=1, vt_ms=-1, **limit):
    return messages.receive(ReceiveSpec(keys, **limit), count, vt_ms=vt_ms)


async def test_send_repeated_stores_nothing_and_tells_the_first_ids(line, keys, queue):
    parts = [sending(keys, b"a", b"b"), sending(keys, b"c")]
    first = await line.call(1, *parts)

    assert await line.call(1, *parts, again=True) == first
    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.totalsent) == (3, 3)
    assert [m.text for m in await queue.receive_many(5)] == ["a", "b", "c"]


async def test_send_repeated_tells_again_who_was_refused(line, keys, queue):
    parts = [sending(keys, b"x" * 70_000), sending(keys, b"a")]
    for again in (False, True):
        with pytest.raises(MessageTooLong):
            await line.call(1, *parts, again=again)

    assert [m.text for m in await queue.receive_many(5)] == ["a"]


async def test_send_repeated_after_its_message_was_consumed_brings_nothing_back(line, keys, queue):
    operation = sending(keys, b"a")
    first = await line.call(1, operation)
    await (await queue.receive()).ack()

    assert await line.call(1, operation, again=True) == first
    assert (await queue.attributes()).msgs == 0


async def test_send_repeated_with_another_limit_by_now_tells_the_first_answer(line, keys, queue):
    operation = sending(keys, b"x" * 2000)
    first = await line.call(1, operation)
    await queue.set_attributes(maxsize=1024)

    assert await line.call(1, operation, again=True) == first


def limited(keys, ns):
    dead = Namespace(ns).queue("jobs-dead")
    return {"max_receives": 1, "dead": dead, "channel": dead.wake}


async def test_receive_repeated_tells_again_what_it_put_aside(line, keys, queue, raw, ns):
    await queue.send_many(["poison", "next"])
    await queue.receive(vt=10)
    await pass_time(raw, keys.zset, 12)
    operation = receiving(keys, count=5, **limited(keys, ns))
    [first] = await line.call(1, operation)
    assert [b.message.text for b in first.dead_lettered] == ["poison"]
    assert [m.body for m in first.messages] == [b"next"]

    for attempt in (2, 3):
        [again] = await line.call(1, operation, again=True, attempt=attempt)
        assert [(b.message.text, b.message.rc) for b in again.dead_lettered] == [("poison", 1)]
        assert again.dead_lettered[0].reason == first.dead_lettered[0].reason
        assert [m.body for m in again.messages] == [b"next"]
    assert (await queue.attributes()).msgs == 1


async def test_receive_that_only_put_something_aside_tells_of_it_when_recalled(
    line, keys, queue, raw, ns
):
    await queue.send("poison")
    await queue.receive(vt=10)
    await pass_time(raw, keys.zset, 12)
    operation = receiving(keys, count=5, **limited(keys, ns))
    await line.call(1, operation)

    [recalled] = await line.call(1, operation, recall=True)
    assert [b.message.text for b in recalled.dead_lettered] == ["poison"]
    assert recalled.messages == []


async def test_receive_of_several_queues_repeated_tells_again_what_it_put_aside(
    line, keys, queue, rsmq, raw, ns
):
    await rsmq.create_queue("first")
    await queue.send_many(["poison", "next"])
    await queue.receive(vt=10)
    await pass_time(raw, keys.zset, 12)
    specs = [ReceiveSpec(Namespace(ns).queue("first")), ReceiveSpec(keys, **limited(keys, ns))]
    operation = messages.receive_first(specs, 5, vt_ms=-1)
    [first] = await line.call(1, operation)

    [again] = await line.call(1, operation, again=True)

    assert [b.message.text for b in first.dead_lettered] == ["poison"]
    assert again.dead_lettered[0].reason == first.dead_lettered[0].reason
    assert [m.body for m in again.messages] == [m.body for m in first.messages] == [b"next"]


async def test_recover_repeated_tells_again_what_it_put_aside(line, keys, queue, ns):
    await queue.send("poison")
    await queue.receive(vt=60)
    operation = recovery.recover(ReceiveSpec(keys, **limited(keys, ns)), 5, idle_ms=0, vt_ms=-1)
    [first] = await line.call(1, operation)

    [again] = await line.call(1, operation, again=True)

    assert [b.message.text for b in first.received.dead_lettered] == ["poison"]
    assert again.received.dead_lettered[0].reason == first.received.dead_lettered[0].reason


async def test_receive_repeated_knows_its_suspect_still(line, keys, queue, raw):
    await queue.send("a")
    await queue.receive(vt=10)
    await pass_time(raw, keys.zset, 12)
    operation = receiving(keys, count=5)
    [first] = await line.call(1, operation)

    [again] = await line.call(1, operation, again=True)

    assert [(m.strikes, m.excused) for m in first.messages + again.messages] == [(1, 0), (1, 0)]


async def test_receive_recalled_excuses_its_deliveries(line, keys, queue):
    await queue.send_many(["a", "b"])
    operation = receiving(keys, count=2)
    await line.call(1, operation)

    await line.call(1, operation, recall=True)

    held = await queue.receive_many(2)
    assert [(m.rc, m.attempt, m.suspect) for m in held] == [(2, 1, False)] * 2


async def test_attempt_that_arrives_after_later_calls_of_its_series_does_nothing(line, keys, queue):
    late = sending(keys, b"late")
    await line.call(1, late)
    await line.call(2, receiving(keys))

    assert await line.call(1, late) == []
    assert (await queue.attributes()).totalsent == 1
    await queue.send("ready")
    [received] = await line.call(1, receiving(keys, count=5))
    assert received.messages == []
    assert (await queue.attributes()).totalrecv == 1


async def test_series_do_not_know_each_other(raw, keys, queue):
    operation = sending(keys, b"a")
    await Line(raw, "one").call(1, operation)
    await Line(raw, "two").call(1, operation)

    assert (await queue.attributes()).totalsent == 2


async def test_send_to_a_damaged_queue_is_not_remembered_as_done(line, keys, queue, raw):
    operation = sending(keys, b"a")
    await raw.set(keys.zset, "no zset")
    with pytest.raises(Exception, match="WRONGTYPE"):
        await line.call(1, operation)
    await raw.delete(keys.zset)

    await line.call(1, operation, again=True)
    assert (await queue.receive()).text == "a"


async def test_receive_repeated_tells_the_same_leases_and_takes_no_more(line, keys, queue, raw):
    await queue.send_many(["a", "b", "c", "d"])
    parts = [receiving(keys, 2), receiving(keys, 1)]
    first = await line.call(1, *parts)
    again = await line.call(1, *parts, again=True)

    assert [r.messages for r in again] == [r.messages for r in first]
    attributes = await queue.attributes()
    assert (attributes.totalrecv, attributes.ready, attributes.leased) == (3, 1, 3)


async def test_receive_repeated_renews_the_lease_that_ran_out_meanwhile(line, keys, queue, raw):
    await queue.send("a")
    operation = receiving(keys, vt_ms=30_000)
    [first] = await line.call(1, operation)
    await pass_time(raw, keys.zset, 60)

    [again] = await line.call(1, operation, again=True)
    assert again.messages == first.messages
    assert await raw.zscore(keys.zset, first.messages[0].id) > await server_ms(raw) + 20_000


async def test_receive_repeated_leaves_out_what_another_client_received_or_deleted(
    line, keys, queue, raw
):
    await queue.send_many(["a", "b", "c"])
    operation = receiving(keys, 3)
    [first] = await line.call(1, operation)
    await queue.change_visibility(first.messages[0].id, 0)
    other = await queue.receive()
    await queue.delete(first.messages[1].id)

    [again] = await line.call(1, operation, again=True)
    assert [m.id for m in again.messages] == [first.messages[2].id]
    await other.ack()


async def test_receive_recalled_before_it_ran_can_never_take_anything(line, keys, queue):
    await queue.send("a")
    operation = receiving(keys)

    [recalled] = await line.call(1, operation, recall=True)
    [late] = await line.call(1, operation)
    assert recalled.messages == late.messages == []
    assert (await queue.attributes()).totalrecv == 0


async def test_receive_repeated_in_vain_cannot_be_overtaken_by_its_first_attempt(line, keys, queue):
    operation = receiving(keys)
    await line.call(1, operation, again=True)
    await queue.send("a")

    [late] = await line.call(1, operation)
    assert late.messages == []


async def test_receive_over_queues_repeated_tells_the_same_leases(line, keys, queue, rsmq, ns):
    other = await rsmq.create_queue("other")
    await queue.send("a")
    await other.send_many(["b", "c"])
    operation = messages.receive_first(
        [ReceiveSpec(keys), ReceiveSpec(Namespace(ns).queue("other"))], 2, vt_ms=-1
    )
    [first] = await line.call(1, operation)

    [again] = await line.call(1, operation, again=True)
    assert [(m.keys.queue, m.body) for m in first.messages] == [("jobs", b"a"), ("other", b"b")]
    assert again.messages == first.messages
    [recalled] = await line.call(2, operation, recall=True)
    assert recalled.messages == []
    assert (await other.attributes()).totalrecv == 1


async def test_poison_buried_by_a_receive_stays_buried_when_it_is_repeated(line, keys, queue, ns):
    dead = Namespace(ns).queue("jobs-dead")
    await queue.send_many(["poison", "b"])
    await queue.receive(vt=0)
    operation = receiving(keys, 2, max_receives=1, dead=dead, channel="w")
    [first] = await line.call(1, operation)

    [again] = await line.call(1, operation, again=True)
    assert [m.body for m in again.messages] == [m.body for m in first.messages] == [b"b"]
    assert (await queue.stats()).dead == 1


async def test_recover_repeated_tells_the_same_leases(line, keys, queue):
    await queue.send_many(["a", "b"])
    await queue.receive_many(2)
    operation = recovery.recover(ReceiveSpec(keys), 1, idle_ms=0, vt_ms=-1)
    [first] = await line.call(1, operation)
    [again] = await line.call(1, operation, again=True)

    assert again.received.messages == first.received.messages
    assert (again.next_at, again.started_ms) == (first.next_at, first.started_ms)
    assert (await queue.attributes()).totalrecv == 3


async def test_create_and_delete_repeated_tell_the_first_answer(line, keys, queue, ns, rsmq):
    fresh = Namespace(ns).queue("fresh")
    create = queues.create(fresh, vt=1, delay=0, maxsize=1024)
    assert await line.call(1, create) == [True]
    assert await line.call(1, create, again=True) == [True]
    assert await line.call(2, create) == [False]

    delete = queues.delete(fresh)
    await line.call(3, delete)
    await line.call(3, delete, again=True)
    with pytest.raises(QueueNotFound):
        await line.call(4, delete)


async def test_queue_that_was_found_and_then_deleted_is_not_created_by_a_late_attempt(
    line, keys, queue, rsmq
):
    create = queues.create(keys, vt=30, delay=0, maxsize=65536)
    assert await line.call(1, create, again=True) == [False]
    await rsmq.delete_queue("jobs")

    assert await line.call(1, create) == [False]
    assert await rsmq.list_queues() == []


async def test_purge_repeated_tells_the_first_number(line, keys, queue):
    await queue.send_many(["a", "b"])
    first = await line.call(1, queues.purge(keys, 0))
    await queue.send("new")

    assert first[0][0] == 2
    assert await line.call(1, queues.purge(keys, 0), again=True) == first
    assert await line.call(2, queues.purge_all(keys)) == [1]
    await queue.send("newer")
    assert await line.call(2, queues.purge_all(keys), again=True) == [1]
    assert (await queue.attributes()).msgs == 1


async def test_redrive_repeated_moves_nothing_more(line, keys, queue, rsmq, ns):
    dead = await rsmq.create_queue("jobs-dead")
    await dead.send_many(["a", "b", "c"])
    operation = messages.redrive(Namespace(ns).queue("jobs-dead"), keys, 2, ids=[], channel="w")
    first = await line.call(1, operation)

    assert first[0] == 2
    assert await line.call(1, operation, again=True) == first
    assert (await dead.attributes()).msgs == 1


async def test_dedup_key_allows_one_copy_also_after_it_was_consumed(queue):
    first = await queue.send("a", dedup_key="order-1")
    assert await queue.send("a", dedup_key="order-1") == first
    await (await queue.receive()).ack()

    assert await queue.send("a", dedup_key="order-1") == first
    assert await queue.send("b", dedup_key="order-2") != first
    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.totalsent) == (1, 2)


async def test_dedup_key_holds_among_sends_that_share_a_call(queue):
    ids = await asyncio.gather(
        *(queue.send(f"{i}", dedup_key=f"key-{i % 3}") for i in range(30)), queue.send("free")
    )

    assert len(set(ids[:30])) == 3
    assert sorted(m.text for m in await queue.receive_many(40)) == ["0", "1", "2", "free"]


async def test_dedup_key_is_free_again_when_its_window_ends(queue, raw, ns):
    await queue.send("a", dedup_key="order-1")
    [marker] = await raw.keys(f"{ns}:jobs:ng:dedup:*")
    assert 290_000 < await raw.pttl(marker) <= 300_000
    assert b"order" not in marker
    await raw.delete(marker)  # as its TTL does

    await queue.send("a", dedup_key="order-1")
    assert (await queue.attributes()).totalsent == 2


async def test_dedup_key_of_a_message_that_was_refused_is_still_free(rsmq):
    queue = await rsmq.create_queue("small", maxsize=1024)
    with pytest.raises(MessageTooLong):
        await queue.send("x" * 2000, dedup_key="order-1")

    assert await queue.send("x", dedup_key="order-1")
    assert (await queue.attributes()).msgs == 1


async def test_dedup_keys_of_two_queues_do_not_meet(queue, rsmq):
    other = await rsmq.create_queue("other")

    assert await queue.send("a", dedup_key="k") != await other.send("a", dedup_key="k")


async def test_send_with_a_dedup_key_repeated_tells_the_first_id(line, keys, queue):
    dedup = messages.Dedup("d" * 32, 60_000)
    parts = [sending(keys, b"a"), sending(keys, b"b", dedup=dedup), sending(keys, b"c")]
    first = await line.call(1, *parts)
    again = await line.call(1, *parts, again=True)

    assert again == first
    assert (again[1][0].duplicate, first[1][0].duplicate) == (False, False)
    assert (await queue.attributes()).totalsent == 3


@pytest.mark.parametrize("key", ["", 7, b"x"])
async def test_dedup_key_that_is_no_text_is_refused(queue, key):
    with pytest.raises(InvalidValue, match="dedup_key"):
        await queue.send("a", dedup_key=key)


async def test_marker_of_another_type_is_replaced(queue, raw, ns):
    await queue.send("a", dedup_key="k")
    [marker] = await raw.keys(f"{ns}:jobs:ng:dedup:*")
    await raw.delete(marker)
    await raw.hset(marker, "f", "v")

    assert await queue.send("b", dedup_key="k") == await queue.send("c", dedup_key="k")


async def test_id_is_a_plain_text_that_goes_into_any_message(queue):
    id = await queue.send("a")

    assert type(id) is str
    await queue.send({"reply_to": id, "level": Sent(id).at("fsynced")})
    assert (await queue.peek(1))[0].json() == {"reply_to": id, "level": id}


async def test_memories_are_small_and_expire(queue, raw, ns):
    for _ in range(20):
        await queue.send("x" * 1000)
    await queue.receive_many(20)

    memories = await raw.keys(f"{ns}:jobs:ng:call:*")
    assert len(memories) == 1
    assert 0 < await raw.pttl(memories[0]) <= 3_600_000
    assert await raw.strlen(memories[0]) < 20 * 60


async def test_late_purge_spares_what_was_sent_since(line, keys, queue):
    await queue.send("old")
    await line.call(1, queues.purge(keys, 0), again=True)
    await queue.send("new")

    await line.call(1, queues.purge(keys, 0))  # the first attempt, overtaken
    assert (await queue.attributes()).msgs == 1
    await line.call(2, queues.purge(keys, 0), again=True)
    await line.call(3, queues.purge(keys, 0), again=True)  # finds nothing
    await queue.send("newer")
    await line.call(2, queues.purge(keys, 0))
    await line.call(3, queues.purge(keys, 0))
    assert (await queue.attributes()).msgs == 1


async def test_late_receive_renews_nothing_that_its_holder_settled_or_extended(
    line, keys, queue, raw
):
    await queue.send_many(["released", "extended"])
    operation = receiving(keys, 2, vt_ms=60_000)
    [received] = await line.call(1, operation, again=True)
    released, extended = received.messages
    for message, vt_ms in ((released, 0), (extended, 600_000)):
        receipt = message.receipt
        await line.call(
            2 + vt_ms,
            messages.visibility(keys, message.id, vt_ms=vt_ms, channel="w", receipt=receipt),
        )
    before = await raw.zrange(keys.zset, 0, -1, withscores=True)

    await line.call(1, operation)
    assert await raw.zrange(keys.zset, 0, -1, withscores=True) == before


async def test_late_attempt_of_the_call_itself_renews_nothing(line, keys, queue, raw):
    await queue.send("a")
    operation = receiving(keys, vt_ms=60_000)
    await line.call(1, operation, attempt=3)
    [id] = await raw.zrange(keys.zset, 0, -1)
    await raw.zadd(keys.zset, {id: 1})  # given back by its holder

    for attempt in (1, 2):
        [late] = await line.call(1, operation, attempt=attempt)
        assert late.messages == []
    assert await raw.zscore(keys.zset, id) == 1


async def test_receive_repeated_leaves_out_a_message_that_started_again(line, keys, queue, raw):
    await queue.send("a")
    operation = receiving(keys)
    [first] = await line.call(1, operation)
    id = first.messages[0].id
    await raw.hset(keys.hash, f"{id}:fr", 1)  # redriven, and received once by another client

    [again] = await line.call(1, operation, again=True)
    assert again.messages == []


async def test_receive_recalled_is_given_back_for_good(line, keys, queue, raw):
    await queue.send("a")
    operation = receiving(keys)
    [first] = await line.call(1, operation)
    for _ in range(2):  # the reply to a recall may get lost, too
        [recalled] = await line.call(1, operation, recall=True)
        assert recalled.messages == []
    assert (await queue.attributes()).ready == 1

    [late] = await line.call(1, operation, attempt=5)
    assert late.messages == []
    assert (await queue.attributes()).ready == 1
    assert (await queue.receive()).rc == 2


async def test_late_extend_does_not_hide_a_released_message(line, keys, queue, raw):
    await queue.send("a")
    message = await queue.receive()
    extend, release = (
        messages.visibility(keys, message.id, vt_ms=ms, channel="w", receipt=message.receipt)
        for ms in (600_000, 0)
    )
    assert await line.call(1, extend, again=True) == [True]
    assert await line.call(2, release) == [True]

    assert await line.call(1, extend) == []
    assert (await queue.attributes()).ready == 1


async def test_late_change_of_attributes_does_not_undo_the_next_one(line, keys, queue):
    first, second = (
        queues.set_attributes(keys, vt=vt, delay=None, maxsize=None) for vt in (10, 20)
    )
    await line.call(1, first, again=True)
    await line.call(2, second)
    await line.call(1, first)

    assert (await queue.attributes()).vt == 20


async def test_delete_of_leased_ones_repeated_names_no_message_that_stayed(line, keys, queue):
    gone = await queue.send("gone")
    await queue.delete(gone)
    await queue.send("leased")
    taken = await queue.receive()
    ready = await queue.send("ready")
    operation = recovery.delete_leased(keys, [gone, ready, taken.id])

    assert await line.call(0, operation, again=True) == [[gone, taken.id]]
    assert [m.id for m in await queue.peek()] == [ready]


async def test_dedup_hit_repeated_after_its_marker_ended_tells_the_id_that_is_stored(
    line, keys, queue, raw
):
    dedup = messages.Dedup("d" * 32, 60_000)
    [[id]] = await line.call(1, sending(keys, b"a", dedup=dedup))
    parts = [sending(keys, b"b"), sending(keys, b"a", dedup=dedup), sending(keys, b"c")]
    first = await line.call(2, *parts)
    await raw.delete(keys.marker(dedup.digest))

    again = await line.call(2, *parts, again=True)
    assert first[1] == [id]
    assert again == first
    assert (again[1][0].duplicate, first[1][0].duplicate, id.duplicate) == (True, True, False)
    assert (await queue.attributes()).totalsent == 3


async def test_send_refused_when_repeated_cannot_be_stored_by_its_late_attempt(
    line, keys, queue, rsmq
):
    operation = sending(keys, b"a")
    await rsmq.delete_queue("jobs")
    with pytest.raises(QueueNotFound):
        await line.call(1, operation, again=True)
    await rsmq.create_queue("jobs")

    assert await line.call(1, operation) == []
    assert (await queue.attributes()).msgs == 0


async def test_receive_refused_when_repeated_takes_nothing_by_its_late_attempt(
    line, keys, queue, rsmq
):
    operation = receiving(keys)
    await rsmq.delete_queue("jobs")
    with pytest.raises(QueueNotFound):
        await line.call(1, operation, again=True)
    await (await rsmq.create_queue("jobs")).send("a")

    [late] = await line.call(1, operation)
    assert late.messages == []


async def test_send_repeated_on_a_server_that_is_full_by_now_tells_the_first_ids():
    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        Redis.from_url(server.url) as admin,
    ):
        queue = await rsmq.create_queue("jobs")
        line, operation = Line(admin), sending(queue._context.keys, b"a")
        first = await line.call(1, operation)
        await admin.config_set("maxmemory", 1)

        assert await line.call(1, operation, again=True) == first
        with pytest.raises(OutOfMemoryError):
            await line.call(2, operation)


@pytest.mark.parametrize("damage", ["9" * 1000, "garbage", "-1", ""])
async def test_a_damaged_memory_counts_as_none(line, keys, raw, damage):
    for number, operation in enumerate((sending(keys, b"a"), receiving(keys)), 1):
        await raw.set(keys.call_record(line.name), damage)
        assert await line.call(number, operation)

    assert await raw.zcard(keys.zset) == 1


async def test_damaged_memory_of_a_receive_ends_the_repeated_call(line, keys, queue, raw, ns):
    """Whatever is written into it: the script must end."""
    await queue.send("x")
    await line.call(1, receiving(keys))
    (memory,) = await raw.keys(f"{ns}:jobs:ng:call:series*")
    for head in ("1\n0\n-1", "1\n0\n-1e9", "x\ny\nz"):
        number, _, _ = (await raw.get(memory)).partition(b" ")
        await raw.set(memory, number + b" 1 " + head.encode(), keepttl=True)
        (repeated,) = await line.call(1, receiving(keys), again=True)
        assert repeated.messages == []
