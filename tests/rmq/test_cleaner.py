"""Heartbeats, lost connections, statistics and the cleaner."""

from __future__ import annotations

import asyncio
import json

import pytest
from redis.asyncio import RedisCluster

from aiorsmq_ng import AccessDenied, InvalidValue, LeaseLost
from aiorsmq_ng.cli import main
from aiorsmq_ng.rmq import Rmq, RmqConnectionStats
from aiorsmq_ng.rmq import connection as connections

from ..support.deadlines import PATIENT
from ..support.waiting import until
from .test_client import READY, listed, taken

DEAD = "gone-abcdef"


async def dead_connection(redis, *payloads, queue="things", name=DEAD):
    """Leave what a killed program leaves: names and an unacked list, and no heartbeat.

    In one step: a cleaner that runs meanwhile finds all of it, or nothing.
    """
    async with redis.pipeline(transaction=True) as step:
        step.sadd("rmq::connections", name)
        step.sadd(f"rmq::connection::{name}::queues", queue)
        step.sadd(f"rmq::connection::{name}::queue::[{queue}]::consumers", "gone-consumer")
        if payloads:
            step.lpush(f"rmq::connection::{name}::queue::[{queue}]::unacked", *payloads)
        await step.execute()


async def keys_of(redis, name):
    return await redis.keys(f"rmq::connection::{name}::*")


async def test_cleaner_gives_back_what_a_dead_connection_held(rmq, redis):
    await rmq.queue("things").publish("new")
    await dead_connection(redis, *(f"m{n}" for n in range(250)))

    assert await rmq.clean() == 250

    assert await listed(redis, READY) == [b"new", *(b"m%d" % n for n in range(250))]
    assert await keys_of(redis, DEAD) == []
    assert await redis.smembers("rmq::connections") == set()
    assert await rmq.clean() == 0


async def test_cleaner_lists_the_queue_of_a_dead_connection(rmq, redis):
    await dead_connection(redis, "a", queue="forgotten")
    await rmq.clean()
    assert await rmq.list_queues() == ["forgotten"]


async def test_cleaner_leaves_living_connections_alone(rmq, redis, url):
    things = await rmq.queue("things")
    await things.publish("a")
    [first], _ = await taken(things, 1)
    async with Rmq(url) as other:
        assert await other.clean() == 0
    await first.ack()


async def test_connection_that_is_alive_again_is_left_alone_by_each_step(rmq, redis):
    """The heartbeat may come back between the look and the move: the script looks again."""
    from aiorsmq_ng._protocol.operations.rmq import messages, registry
    from aiorsmq_ng._protocol.rmq_keys import RmqLayout

    await dead_connection(redis, "a")
    await redis.set(f"rmq::connection::{DEAD}::heartbeat", "1", ex=60)
    layout = RmqLayout()

    step = await rmq._transport.run(messages.retire(layout.queue("things"), DEAD, dead=True))
    left = await rmq._transport.run(
        registry.remove(layout.connections, DEAD, unless=layout.heartbeat(DEAD))
    )

    assert step.alive
    assert left == -1
    assert await redis.exists(READY) == 0
    assert await redis.sismember("rmq::connections", DEAD)


async def test_many_cleaners_at_once_move_each_payload_once(url, redis):
    for n in range(5):
        await dead_connection(redis, *(f"{n}-{i}" for i in range(200)), name=f"gone-{n}")
    clients = [Rmq(url) for _ in range(4)]
    moved = await asyncio.gather(*(client.clean() for client in clients))
    await asyncio.gather(*(client.aclose() for client in clients))

    assert sum(moved) == 1000
    ready = await listed(redis, READY)
    assert len(ready) == len(set(ready)) == 1000
    assert await redis.smembers("rmq::connections") == set()


async def test_cleaner_runs_now_and_then_while_its_block_does(rmq, redis):
    async def cleaned():
        return await keys_of(redis, DEAD) == []

    async with rmq.cleaner(every=0.05):
        for _ in range(2):
            await dead_connection(redis, "a")
            await until(cleaned)
    await dead_connection(redis, "a")
    await asyncio.sleep(0.2)
    assert await keys_of(redis, DEAD) != []
    with pytest.raises(InvalidValue):
        async with rmq.cleaner(every=0):
            pass


@pytest.mark.parametrize("damaged", ["queue::[things]::unacked", "queues"])
async def test_damaged_key_of_a_dead_connection_does_not_keep_the_others_waiting(
    rmq, redis, caplog, damaged
):
    for n in range(5):
        await dead_connection(redis, f"m{n}", name=f"gone-{n}")
        await dead_connection(redis, f"o{n}", name=f"gone-{n}", queue="widgets")
    key = f"rmq::connection::gone-2::{damaged}"
    await redis.set(key, "not of rmq")

    async with rmq.cleaner(every=0.05):
        await until(lambda: caplog.text.count("'gone-2'") >= 2)  # it goes on to the next round

    assert sorted(await listed(redis, READY)) == [b"m0", b"m1", b"m3", b"m4"]
    others = await listed(redis, "rmq::queue::[widgets]::ready")
    assert (b"o2" in others) is (damaged != "queues")
    assert await redis.smembers("rmq::connections") == {b"gone-2"}

    await redis.delete(key)
    await dead_connection(redis, "m2", name="gone-2")
    assert await rmq.clean() == (2 if damaged == "queues" else 1)
    assert await redis.smembers("rmq::connections") == set()


async def test_stats_are_those_of_go(rmq, redis):
    things = await rmq.queue("things")
    await things.publish("a", "b", "c")
    [a, b], consumer = await taken(things, 2, prefetch=2)
    await a.reject()
    await dead_connection(redis, "x", "y")
    await redis.sadd("rmq::connections", "idle-abcdef")

    stats = await rmq.stats()

    queue = stats.queues["things"]
    own = queue.connections[rmq.connection]
    assert (own.active, len(own.consumers)) == (True, 1)
    assert queue.connections[DEAD] == RmqConnectionStats(False, 2, ("gone-consumer",))
    assert queue.ready + own.unacked == 2
    assert (queue.rejected, queue.consumers) == (1, 2)
    assert stats.other_connections == {"idle-abcdef": False}
    assert stats.as_go() == {"queues": {"things": {"ready": queue.ready, "rejected": 1}}}
    await b.ack()
    await consumer.aclose()


@pytest.mark.parametrize(
    ("damaged", "queue", "connection", "shown"),
    [
        ("rmq::queues", None, None, []),
        ("rmq::connections", None, None, ["things", "widgets"]),
        ("rmq::queue::[things]::ready", "things", None, ["widgets"]),
        ("rmq::queue::[things]::rejected", "things", None, ["widgets"]),
        (f"rmq::connection::{DEAD}::queues", None, DEAD, ["things", "widgets"]),
        *(
            (f"rmq::connection::{DEAD}::queue::[things]::{key}", "things", DEAD, None)
            for key in ("unacked", "consumers")
        ),
    ],
)
async def test_stats_name_what_is_damaged_and_show_the_rest(
    rmq, redis, url, capsys, damaged, queue, connection, shown
):
    await rmq.queue("things").publish("a")
    await rmq.queue("widgets").publish("b")
    await dead_connection(redis, "x", queue="things")
    await dead_connection(redis, "y", queue="widgets")
    await dead_connection(redis, "z", queue="widgets", name="gone-2")
    await redis.set(damaged, "not of rmq")

    stats = await rmq.stats()

    [damage] = stats.damaged
    assert (damage.queue, damage.connection) == (queue, connection)
    assert (queue or damaged) in damage.reason
    assert sorted(stats.queues) == (["things", "widgets"] if shown is None else shown)
    if "widgets" in stats.queues and damaged != "rmq::connections":
        assert stats.queues["widgets"].connections["gone-2"].unacked == 1
        assert (DEAD in stats.queues["widgets"].connections) is (connection is None or bool(queue))
    if shown is None:
        assert stats.queues["things"].ready == 1
        assert stats.queues["things"].connections == {}
    for words in ((), ("--connections",)):
        status = await asyncio.to_thread(main, ("-r", url, "rmq", "stats", *words))
        out, err = capsys.readouterr()
        assert (status, err.count("\n"), err.startswith("rsmqctl: ")) == (1, 1, True)
        assert (queue or damaged) in err
        assert (connection or "") in err
        assert isinstance(json.loads(out), list)
    status = await asyncio.to_thread(
        main, ("-r", url, "rmq", "return", "-n", "things", "--unacked", DEAD)
    )
    _, err = capsys.readouterr()
    assert status == 0 or err.count("\n") == 1
    assert "doctor" not in err


async def test_heartbeat_is_renewed(rmq, redis):
    consumer = rmq.queue("things").consume()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(consumer), 0.05)
    heartbeat = f"rmq::connection::{rmq.connection}::heartbeat"
    await redis.expire(heartbeat, 30)

    async def renewed():
        return await redis.ttl(heartbeat) > 50

    await until(renewed)
    await consumer.aclose()


async def test_connection_without_heartbeat_takes_nothing_and_goes_on_under_a_new_name(
    rmq, redis, monkeypatch
):
    monkeypatch.setattr(connections, "BEAT_S", 3600)  # the script notices, not the beat
    things = await rmq.queue("things")
    await things.publish("a")
    [first], consumer = await taken(things, 1)
    name = rmq.connection
    lost = asyncio.Event()
    first.lease.on_lost = lost.set

    await redis.delete(f"rmq::connection::{name}::heartbeat")
    await things.publish("b")
    second = await anext(consumer)

    assert rmq.connection != name
    assert lost.is_set()
    assert first.lease_lost
    # What the old name held is back, and is delivered again.
    third = second if second.body == b"a" else await anext(consumer)
    assert third.body == b"a"
    with pytest.raises(LeaseLost):
        await first.ack()
    await third.ack()
    await consumer.aclose()


async def test_heartbeat_that_expired_is_noticed_without_any_message(rmq, redis, monkeypatch):
    monkeypatch.setattr(connections, "BEAT_S", 0.05)
    things = await rmq.queue("things")
    await things.publish("a")
    [first], consumer = await taken(things, 1)
    lost = asyncio.Event()
    first.lease.on_lost = lost.set

    await redis.delete(f"rmq::connection::{rmq.connection}::heartbeat")

    await asyncio.wait_for(lost.wait(), 30)
    assert await redis.exists(f"rmq::connection::{first.id.rpartition('#')[0]}::heartbeat") == 0
    await consumer.aclose()


async def test_server_that_is_away_for_long_ends_the_connection(rmq_server, url, monkeypatch):
    monkeypatch.setattr(connections, "BEAT_S", 0.05)
    monkeypatch.setattr(connections, "BEAT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(connections, "LOST_AFTER_S", 1.0)
    async with Rmq(url, tag="svc") as rmq:
        things = await rmq.queue("things")
        await things.publish("a")
        [first], consumer = await taken(things, 1)
        lost = asyncio.Event()
        first.lease.on_lost = lost.set
        rmq_server.pause()
        try:
            await asyncio.wait_for(lost.wait(), 30)
        finally:
            rmq_server.resume()
        again = await asyncio.wait_for(anext(consumer), 30)
        assert again.body == b"a"
        await again.ack()
        await consumer.aclose()


async def test_names_that_are_not_utf8_are_cleaned_and_can_be_used(rmq, redis):
    name, queue = b"go\xffne-abcdef", b"th\xffings"
    connection = b"rmq::connection::" + name
    await redis.sadd("rmq::connections", name)
    await redis.sadd(connection + b"::queues", queue, "plain")
    await redis.lpush(connection + b"::queue::[" + queue + b"]::unacked", "a", "b")
    await redis.lpush(connection + b"::queue::[plain]::unacked", "c")
    await redis.sadd(connection + b"::queue::[" + queue + b"]::consumers", b"\xfe")

    assert await rmq.clean() == 3

    ready = b"rmq::queue::[" + queue + b"]::ready"
    assert await redis.smembers("rmq::queues") == {queue, b"plain"}
    assert await listed(redis, ready) == [b"a", b"b"]
    assert await redis.keys(b"rmq::connection*") == []
    # As names of files: surrogate escapes stand for the bytes.
    assert await rmq.list_queues() == ["plain", "th\udcffings"]
    things = await rmq.queue("th\udcffings", push="plain")
    async with things.consume(prefetch=1) as deliveries:
        await (await anext(deliveries)).ack()
        await (await anext(deliveries)).push()
        waiting = asyncio.create_task(anext(deliveries))
        await things.publish("d")
        await (await asyncio.wait_for(waiting, 30)).reject()
    assert await redis.llen("rmq::queue::[plain]::ready") == 2
    assert (await rmq.stats()).queues["th\udcffings"].rejected == 1
    assert await things.destroy() == (0, 1)


async def test_names_that_split_a_queue_of_a_cluster_do_not_keep_the_others_waiting(
    cluster, caplog
):
    for node in cluster.masters:
        await node.command("FLUSHALL")
    redis = RedisCluster(host="127.0.0.1", port=cluster.masters[0].port)
    held = {
        "gone-1": ("things", b"a"),
        "gone-{2}": ("things", b"lost in no slot"),
        "gone-3": ("", b"of no name"),
        "gone-4": ("th\udcffings", b"b"),
    }
    for name, (queue, payload) in held.items():
        raw_queue = queue.encode("utf-8", "surrogateescape")
        await redis.sadd("rmq::connections", name)
        await redis.sadd(f"rmq::connection::{name}::queues", raw_queue)
        unacked = f"rmq::connection::{name}::queue::{{".encode() + raw_queue + b"}::unacked"
        await redis.lpush(unacked, payload)

    async with Rmq(cluster.url, options=PATIENT) as rmq:
        assert await rmq.clean() == 2

    assert await redis.lrange("rmq::queue::{things}::ready", 0, -1) == [b"a"]
    assert await redis.lrange(b"rmq::queue::{th\xffings}::ready", 0, -1) == [b"b"]
    assert await redis.smembers("rmq::connections") == {b"gone-{2}", b"gone-3"}
    for name in ("gone-{2}", "gone-3"):
        assert f"{name!r} keeps what it held" in caplog.text
    await redis.aclose()


@pytest.mark.parametrize("damaged", ["ready", "unacked"])
async def test_damaged_queue_keeps_nothing_of_the_others_at_a_graceful_end(
    redis, url, caplog, damaged
):
    rmq = Rmq(url, tag="svc", options=PATIENT)
    held = {}
    for name in ("things", "widgets"):
        queue = await rmq.queue(name)
        await queue.publish("a", "b")
        held[name], _ = await taken(queue, 1)
    unacked = f"rmq::connection::{rmq.connection}::queue::[things]::unacked"
    key = READY if damaged == "ready" else unacked
    await redis.delete(key)
    await redis.hset(key, "not", "of rmq")

    await rmq.aclose()

    assert await listed(redis, "rmq::queue::[widgets]::ready") == [b"a", b"b"]
    assert await redis.keys("rmq::connection*[[]widgets]*") == []
    # A cleaner finds what could not be given back.
    assert await redis.smembers("rmq::connections") == {rmq.connection.encode()}
    assert await redis.smembers(f"rmq::connection::{rmq.connection}::queues") == {b"things"}
    assert "'things' is not a sound rmq queue" in caplog.text


async def test_damaged_queue_does_not_keep_what_a_lost_connection_held_of_the_others(rmq, redis):
    consumers = {}
    for name in ("things", "widgets"):
        queue = await rmq.queue(name)
        await queue.publish("a")
        _, consumers[name] = await taken(queue, 1)
    lost = rmq.connection
    await redis.delete(READY)
    await redis.hset(READY, "not", "of rmq")

    await redis.delete(f"rmq::connection::{lost}::heartbeat")
    await rmq.queue("widgets").publish("b")

    again = [await asyncio.wait_for(anext(consumers["widgets"]), 30) for _ in "ab"]
    assert sorted(delivery.body for delivery in again) == [b"a", b"b"]
    for delivery in again:
        await delivery.ack()
    assert rmq.connection != lost
    for consumer in consumers.values():
        await consumer.aclose()


async def test_cleaner_goes_on_if_the_names_of_connections_are_damaged(rmq, redis, caplog):
    await redis.set("rmq::connections", "not of rmq")

    async with rmq.cleaner(every=0.05):
        await until(lambda: caplog.text.count("tried again") >= 2)
        await redis.delete("rmq::connections")
        await dead_connection(redis, "a")

        async def cleaned():
            return await keys_of(redis, DEAD) == []

        await until(cleaned)


async def test_error_of_the_block_of_a_cleaner_is_raised_as_it_is(rmq):
    with pytest.raises(LookupError):
        async with rmq.cleaner():
            raise LookupError


async def test_cleaner_that_is_refused_ends_its_block_with_the_reason(redis, url):
    rules = ("on", ">secret", "~*", "+@all", "-smembers")
    await redis.execute_command("ACL", "SETUSER", "limited", *rules)
    async with Rmq(url.replace("://", "://limited:secret@")) as rmq:
        with pytest.raises(AccessDenied, match="smembers"):
            async with rmq.cleaner():
                await asyncio.sleep(3600)
    await redis.execute_command("ACL", "DELUSER", "limited")
