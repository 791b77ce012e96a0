"""The life of one message as redis-cli shows it in the description of the protocol."""

from __future__ import annotations

from redis.asyncio import Redis

from .peers import Peer
from .wire import FIRST_FIELDS, Wire, sent_ms

QUEUE = "test-queue"


async def test_pass_message_through_its_life_stores_what_protocol_says(
    maker: Peer, wire: Wire, raw: Redis
) -> None:
    """Whatever I do, redis-cli shows the keys, types, fields and values of the protocol."""
    # Before: no queues, no key.
    assert await wire.keys() == {}
    assert await maker.list() == []

    # rsmqctl queue create
    created_from = await wire.now_ms() // 1000
    await maker.create(QUEUE, vt=30, delay=0, maxsize=65535)
    created_until = await wire.now_ms() // 1000
    assert await maker.list() == [QUEUE]
    assert await wire.keys() == {"QUEUES": "set", f"{QUEUE}:Q": "hash"}
    assert await raw.smembers(wire.key("QUEUES")) == {QUEUE.encode()}
    queue = await wire.hash(QUEUE)
    assert queue.keys() == FIRST_FIELDS
    assert (queue["vt"], queue["delay"], queue["maxsize"]) == ("30", "0", "65535")
    assert queue["created"] == queue["modified"]
    # PyRSMQ writes its own clock, which need not be the server's.
    if maker.name != "pyrsmq":
        assert created_from <= int(queue["created"]) <= created_until

    # rsmqctl message send
    sent_from = await wire.now_ms()
    id = await maker.send(QUEUE, "Hello, World")
    sent_until = await wire.now_ms()
    assert await wire.keys() == {"QUEUES": "set", f"{QUEUE}:Q": "hash", QUEUE: "zset"}
    assert await wire.ids(QUEUE) == [id]
    assert len(id) == 32
    assert id.isalnum()
    assert sent_from <= sent_ms(id) <= sent_until
    assert await wire.score(QUEUE, id) == str(sent_ms(id))
    after_send = queue | {id: "Hello, World", "totalsent": "1"}
    assert await wire.hash(QUEUE) == after_send

    # rsmqctl message receive
    received_from = await wire.now_ms()
    got = await maker.receive(QUEUE)
    received_until = await wire.now_ms()
    assert got
    assert (got.id, got.body, got.rc) == (id, "Hello, World", 1)
    assert received_from <= got.fr <= received_until
    assert await wire.score(QUEUE, id) == str(got.fr + 30_000)
    after_receive = after_send | {"totalrecv": "1", f"{id}:rc": "1", f"{id}:fr": str(got.fr)}
    assert await wire.hash(QUEUE) == after_receive

    # rsmqctl message visibility -t 600
    changed_from = await wire.now_ms()
    assert await maker.change_visibility(QUEUE, id, 600)
    changed_until = await wire.now_ms()
    score = await wire.score(QUEUE, id)
    assert score.isdecimal()
    assert changed_from <= int(score) - 600_000 <= changed_until
    assert await wire.hash(QUEUE) == after_receive

    # rsmqctl message delete
    assert await maker.delete(QUEUE, id)
    assert await wire.keys() == {"QUEUES": "set", f"{QUEUE}:Q": "hash"}
    assert await wire.hash(QUEUE) == queue | {"totalsent": "1", "totalrecv": "1"}

    # rsmqctl queue delete
    await maker.delete_queue(QUEUE)
    assert await wire.keys() == {}
