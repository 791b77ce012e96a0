"""Members of the sorted set that are no ids: no verb returns them or changes the queue by them.

Every verb runs on a queue with one such member, and on a twin that has the same hash and no such
member. Afterwards both have the same hashes and the same messages, and the verb returned the same.
"""

from contextlib import suppress

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, LeaseLost, Retry
from aiorsmq_ng._protocol import argument_checks, scripts
from aiorsmq_ng._protocol.operations import messages, recovery
from aiorsmq_ng._protocol.operations.message_values import Receipt
from aiorsmq_ng._protocol.operations.spark import claims, reasons, snapshots
from aiorsmq_ng._protocol.operations.spark.claims import Ledger, Terms

IDS = [f"g73zkl38q{letter}SBNq2NcnVVlCldqwqFXRJ{letter}" for letter in "abcdefgh"]
HOSTILE = [
    *(b"vt", b"delay", b"maxsize", b"totalsent", b"totalrecv", b"created", b"modified"),
    *(b"ng:incarnation", b"", b":rc", b"x:rc", b"to:x"),
    *(f"{IDS[0]}:{tail}".encode() for tail in ("rc", "fr", "meta")),
    *(b"a" * 19, b"a" * 65, b"a" * 10_240, b"\0" * 32, b"a" * 31 + b"\n", b"a" * 31 + b"\xff"),
    b"g73zkl38qa-SBNq2NcnVVlCldqwqFXRJ",
]
LONG_AGO, HOUR_MS = 1, 3_600_000


ATTRIBUTES = {"vt": 30, "delay": 0, "maxsize": 65536, "created": 1, "modified": 1}


async def build(raw, keys, member: bytes | None, fields: bytes, *, hidden: bool) -> None:
    """Store messages of every state, the fields of a message *fields*, and perhaps a *member*."""
    now = int((await raw.time())[0]) * 1000
    # Two fresh ones, one that came back, three leased ones, one delayed.
    scores = (5, 6, 7, *(now + HOUR_MS + n for n in range(4)))
    stored = ATTRIBUTES | {"totalsent": 7, "totalrecv": 3, "ng:incarnation": "abc"}
    for n, id in enumerate(IDS[:7]):
        stored[id] = f"body {n}"
        if n in (2, 3, 4, 5):
            stored |= {f"{id}:rc": 1, f"{id}:fr": LONG_AGO}
    async with raw.pipeline() as pipeline:
        pipeline.hset(keys.hash, mapping=stored)
        pipeline.zadd(keys.zset, dict(zip(IDS, scores, strict=False)))
        for tail, value in ((b"", b"planted"), (b":rc", b"1"), (b":fr", b"1"), (b":meta", b"{}")):
            pipeline.hsetnx(keys.hash, fields + tail, value)
        if member is not None:
            pipeline.zadd(keys.zset, {member: now + HOUR_MS - 1 if hidden else 1})
        await pipeline.execute()


async def stored(raw, *queues) -> list:
    """Return the hashes and the messages of queues; times that a verb writes are left out."""
    found = []
    for keys in queues:
        values = await raw.hgetall(keys.hash)
        for field in values:
            if field.endswith(b":fr") or field in (b"created", b"modified"):
                values[field] = b"*"
        members = await raw.zrange(keys.zset, 0, -1)
        found.append((values, {m for m in members if m.decode(errors="replace") in IDS}))
    return found


def run(queue, operation):
    return queue._context.transport.run(operation)


def receipt(id: str) -> Receipt:
    return Receipt(id, 1, 1)


class Verbs:
    """What is tried. A verb that takes an id is given the member."""

    async def receive(self, rsmq, queue, other, id):
        return (await queue.receive()).text

    async def receive_many(self, rsmq, queue, other, id):
        return [m.text for m in await queue.receive_many(10)]

    async def receive_all_and_ack(self, rsmq, queue, other, id):
        while found := await queue.receive_many(10):
            assert await queue.ack_many(found) == found

    async def receive_with_limit(self, rsmq, queue, other, id):
        limited = rsmq.queue(queue.name, retry=Retry(max_receives=1))
        return [m.text for m in await limited.receive_many(10)]

    async def receive_of_several(self, rsmq, queue, other, id):
        return [m.text for m in await rsmq.receive_many([queue, other], 10)]

    async def pop(self, rsmq, queue, other, id):
        return (await queue.pop()).text

    async def pop_many(self, rsmq, queue, other, id):
        return [m.text for m in await queue.pop_many(10)]

    async def peek(self, rsmq, queue, other, id):
        return [m.text for m in await queue.peek(0, 1)], [m.text for m in await queue.peek(0, 10)]

    async def pending(self, rsmq, queue, other, id):
        return [m.text for m in await queue.pending(0, 1)], [
            m.text for m in await queue.pending(0, 10)
        ]

    async def scan(self, rsmq, queue, other, id):
        return [m.text async for m in queue.scan()]

    async def recover(self, rsmq, queue, other, id):
        return [m.text for m in await queue.recover(10, idle=1)]

    async def recover_with_limit(self, rsmq, queue, other, id):
        limited = rsmq.queue(queue.name, retry=Retry(max_receives=1))
        return [m.text for m in await limited.recover(10, idle=1)]

    async def redrive(self, rsmq, queue, other, id):
        return await other.redrive(queue)

    async def redrive_one(self, rsmq, queue, other, id):
        return await other.redrive(queue, count=1)

    async def redrive_some(self, rsmq, queue, other, id):
        return await other.redrive(queue, where=lambda m: m.text == "body 1")

    async def redrive_it(self, rsmq, queue, other, id):
        return await run(
            queue, messages.redrive(queue._keys, other._keys, 9, ids=[id], channel="x")
        )

    async def purge(self, rsmq, queue, other, id):
        await queue.purge()

    async def purge_all(self, rsmq, queue, other, id):
        await queue.purge(leased=True)

    async def delete(self, rsmq, queue, other, id):
        return await run(queue, messages.delete(queue._keys, [id]))

    async def delete_leased(self, rsmq, queue, other, id):
        return await run(queue, recovery.delete_leased(queue._keys, [id]))

    async def ack(self, rsmq, queue, other, id):
        with suppress(LeaseLost):
            await run(queue, messages.ack(queue._keys, receipt(id)))

    async def ack_many(self, rsmq, queue, other, id):
        found = await run(queue, messages.ack_many(queue._keys, [receipt(id)]))
        return [repr(lost) for lost in found]

    async def visibility(self, rsmq, queue, other, id):
        return await run(queue, messages.visibility(queue._keys, id, vt_ms=5000, channel="x"))

    async def give_back(self, rsmq, queue, other, id):
        back = {"vt_ms": 0, "channel": "x", "receipt": receipt(id), "how": "r"}
        with suppress(LeaseLost):
            await run(queue, messages.visibility(queue._keys, id, **back))

    async def forward(self, rsmq, queue, other, id):
        with suppress(LeaseLost):
            move = messages.forward(queue._keys, receipt(id), other._keys, delay_ms=0, channel="x")
            await run(queue, move)

    async def reject(self, rsmq, queue, other, id):
        dead = rsmq.queue(queue.dead_letter)._keys
        with suppress(LeaseLost):
            move = messages.reject(queue._keys, receipt(id), dead, reason="no", channel="x")
            await run(queue, move)

    async def claim_and_acknowledge(self, rsmq, queue, other, id):
        ledger = Ledger(queue._keys, "spark", "lease")
        claimed = await run(queue, claims.claim(ledger, 1, Terms(9, 9, 9000, 60), create=True))
        page = await run(queue, claims.read(ledger, 1, 0, claimed.messages, bodies=True))
        assert await run(queue, claims.acknowledge(ledger, 1, count=9)) == 0
        return claimed, page.bodies

    async def claim_one_and_release(self, rsmq, queue, other, id):
        ledger = Ledger(queue._keys, "spark", "lease")
        claimed = await run(queue, claims.claim(ledger, 1, Terms(1, 1, 9000, 60), create=True))
        renew = claims.renew(ledger, 1, 0, count=9, lease_ms=9000, ttl_s=60)
        return (
            claimed,
            await run(queue, renew),
            await run(queue, claims.release(ledger, 1, count=9)),
        )

    async def claim_by_moving(self, rsmq, queue, other, id):
        ledger = Ledger(queue._keys, "spark", "move")
        claimed = await run(queue, claims.claim(ledger, 1, Terms(9, 9, 9000, 60), create=True))
        page = await run(queue, claims.read(ledger, 1, 0, claimed.messages, bodies=True))
        return claimed, page.bodies, await run(queue, claims.release(ledger, 1, count=9))

    async def claim_and_dead_letter(self, rsmq, queue, other, id):
        ledger = Ledger(queue._keys, "spark", "lease")
        claimed = await run(queue, claims.claim(ledger, 1, Terms(9, 9, 9000, 60), create=True))
        page = await run(queue, claims.read(ledger, 1, 0, claimed.messages, bodies=True))
        letters = [
            claims.DeadLetter(n, id, body, "no")
            for n, (id, body) in enumerate(zip(page.ids, page.bodies, strict=True))
        ]
        dead = rsmq.queue(queue.dead_letter)._keys
        moved = await run(queue, claims.dead_letter(ledger, 1, letters, dead)) if letters else 0
        return claimed, moved

    async def snapshot(self, rsmq, queue, other, id):
        state = await run(
            queue,
            snapshots.take_snapshot(
                queue._keys, "s", snapshots.SnapshotState(), visibility="all", ttl_s=60, step=100
            ),
        )
        part = snapshots.SnapshotRange("s", 1, 0, 0, state.sizes[0])
        page = await run(
            queue, snapshots.read_snapshot(queue._keys, part, ttl_s=60, bodies=True, counts=True)
        )
        return page.range[::2], page.bodies, page.counts

    async def attributes_and_stats(self, rsmq, queue, other, id):
        assert (await queue.attributes()).vt == (await queue.stats()).attributes.vt == 30

    async def reason(self, rsmq, queue, other, id):
        return await run(queue, reasons.read_reasons(queue._keys, [id]))


VERBS = [name for name in vars(Verbs) if not name.startswith("_")]


@pytest.mark.parametrize("hidden", [False, True], ids=["ready", "hidden"])
@pytest.mark.parametrize("verb", VERBS)
async def test_verb_leaves_the_queue_as_that_of_a_twin(server_url, raw, ns, verb, hidden):
    outcomes = []
    for side in ("planted", "twin"):
        async with RSMQ(server_url, ns=f"{ns}-{side}") as rsmq:
            for number, member in enumerate(HOSTILE):
                queue, other = rsmq.queue(f"jobs{number}"), rsmq.queue(f"jobs{number}-other")
                dead = rsmq.queue(f"jobs{number}-dead")
                await raw.hset(other._keys.hash, mapping=ATTRIBUTES)
                await raw.hset(dead._keys.hash, mapping=ATTRIBUTES)
                planted = member if side == "planted" else None
                await build(raw, queue._keys, planted, member, hidden=hidden)
                id = member.decode(errors="replace")
                result = await getattr(Verbs(), verb)(rsmq, queue, other, id)
                state = await stored(raw, queue._keys, other._keys, dead._keys)
                outcomes.append((member[:40], result, state))
    half = len(HOSTILE)
    for planted, twin in zip(outcomes[:half], outcomes[half:], strict=True):
        assert planted == twin


class Topics:
    """Verbs that move the messages of a topic's own queue."""

    async def subscribe(self, rsmq, topic):
        """Rename the queue into an empty one."""
        return [await topic.subscribe("one")]

    async def retain_the_backlog(self, rsmq, topic):
        """Copy the queue for a second consumer."""
        kept = rsmq.topic(topic.name, keep_backlog=60)
        return [await kept.subscribe("one"), await kept.subscribe("two")]

    async def trim(self, rsmq, topic):
        """Remove the oldest messages."""
        await topic.set_backlog(max_length=3)
        await topic.publish("new")
        await rsmq.queue(topic._keys.own.queue).purge(leased=True)
        return []


TOPIC_VERBS = [name for name in vars(Topics) if not name.startswith("_")]


@pytest.mark.parametrize("verb", TOPIC_VERBS)
async def test_verb_of_a_topic_leaves_its_queues_as_those_of_a_twin(server_url, raw, ns, verb):
    outcomes = []
    for side in ("planted", "twin"):
        async with RSMQ(server_url, ns=f"{ns}-{side}") as rsmq:
            for number, member in enumerate(HOSTILE):
                topic = rsmq.topic(f"news{number}")
                await topic.set_backlog(max_length=100)
                planted = member if side == "planted" else None
                await build(raw, topic._keys.own, planted, member, hidden=False)
                queues = await getattr(Topics(), verb)(rsmq, topic)
                state = await stored(raw, topic._keys.own, *(queue._keys for queue in queues))
                for hash, _ in state[1:]:
                    # Renaming a queue counts its members, whatever they are.
                    assert int(hash.pop(b"totalsent")) in (7, 8)
                outcomes.append((member[:40], state))
    half = len(HOSTILE)
    for planted, twin in zip(outcomes[:half], outcomes[half:], strict=True):
        assert planted == twin


async def test_merging_two_queues_stores_no_attribute_by_a_member(rsmq, raw):
    """The queue of a subscription that was left is merged into one that has messages."""
    source, target = await rsmq.create_queue("old", vt=77), await rsmq.create_queue("new", vt=33)
    await target.send("here already")
    await build(raw, source._keys, None, b"vt", hidden=False)
    await raw.zadd(source._keys.zset, dict.fromkeys(HOSTILE, 2))
    text = scripts.load("topic_join").source.split(b"local topic, heard, topics, index")[0]
    merge = text + (
        b"return merge_queues({KEYS[1], KEYS[2], KEYS[3]}, {KEYS[4], KEYS[5], KEYS[6]}, 1000) and 1"
    )
    before, there = await raw.hgetall(source._keys.hash), await raw.hgetall(target._keys.hash)

    ends = (source._keys, target._keys)
    keys = [key for end in ends for key in (end.zset, end.hash, end.deliveries)]
    assert await raw.eval(merge, 6, *keys) == 1

    after, now = await raw.hgetall(source._keys.hash), await raw.hgetall(target._keys.hash)
    mine = {name for name in before if name.decode()[:32] in IDS}
    assert {k: v for k, v in after.items() if k not in mine} == {
        k: v for k, v in before.items() if k not in mine
    }
    assert {k: now[k] for k in there if k != b"totalsent"} == {
        k: v for k, v in there.items() if k != b"totalsent"
    }
    assert now[b"totalsent"] == b"8"
    assert set(await raw.zrange(source._keys.zset, 0, -1)) == set()


@pytest.mark.parametrize("count", [1, 10])
async def test_a_thousand_of_them_block_no_message(rsmq, raw, count):
    """Whatever a verb takes at a time."""
    for verb in ("receive", "pop", "redrive", "claim", "peek"):
        queue = await rsmq.create_queue(verb)
        # One call removes or reads a thousand at most.
        strangers = 999 if verb == "peek" else 1500
        await raw.zadd(queue._keys.zset, {f"no id {n}": 1 for n in range(strangers)})
        await queue.send("behind them")
        if verb == "receive":
            assert (await queue.receive_many(count, wait=30))[0].text == "behind them"
        elif verb == "pop":
            assert (await queue.pop_many(count))[0].text == "behind them"
        elif verb == "redrive":
            target = await rsmq.create_queue("target")
            assert await target.redrive(queue, count=count) == 1
        elif verb == "claim":
            ledger, terms = Ledger(queue._keys, "spark", "lease"), Terms(count, count, 9000, 60)
            claimed = await run(queue, claims.claim(ledger, 1, terms, create=True))
            assert claimed == (0, False, False)
            claimed = await run(queue, claims.claim(ledger, 1, terms, create=True))
            assert claimed.messages == 1
        else:
            assert [m.text for m in await queue.peek(0, count)] == ["behind them"]


async def test_the_rule_is_that_of_the_public_verbs(raw):
    """What a script takes for an id, argument_checks.check_id accepts, and nothing else."""
    text = scripts.load("delete_leased").source.split(b"local zset, hash")[0]
    ask = text + b"return is_id(ARGV[1]) and 1 or 0"
    real = [
        *(IDS[0], "k" * 28, "k" * 30, "k" * 31, "0123456789abcdef" * 2, "g73zkl38qz:" + "x" * 21),
        *("a" * 20, "a" * 64, "a" * 30 + ":x", "a" * 30 + ":rcs", "a" * 30 + ":", ":" * 20),
    ]
    for member in [*HOSTILE, *(id.encode() for id in real)]:
        try:
            argument_checks.check_id(member.decode(errors="replace"))
            accepted = 1
        except InvalidValue:
            accepted = 0
        assert await raw.eval(ask, 0, member) == accepted, member[:40]
        assert accepted == (member.decode(errors="replace") in real)
