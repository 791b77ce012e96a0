"""Queues shared with real Go programs on rmq v5.2.0, on a server and on a cluster."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster

from aiorsmq_ng import LeaseLost
from aiorsmq_ng.rmq import Rmq
from tools.lab.topologies import Cluster

from ..support.deadlines import PATIENT
from ..support.waiting import until
from .go_program import GoProgram, NotBuilt, Refused, build, go_program

VICTIM = "tests.rmq.victim"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="package")
def program() -> Path:
    try:
        return build()
    except NotBuilt as reason:
        pytest.skip(f"Go's rmq cannot be had: {reason}")


@dataclass
class Place:
    """Where the queues are: a server, or a cluster with rmq's layout for clusters."""

    mode: str
    url: str
    addresses: list[str]
    redis: Any
    start_go: Callable[[str], AbstractAsyncContextManager[GoProgram]]

    def key(self, text: str) -> str:
        """Return a key with the name of its queue in the brackets of this layout."""
        return text.replace("[", "{").replace("]", "}") if self.mode == "cluster" else text

    async def length(self, key: str) -> int:
        return await self.redis.llen(self.key(key))

    async def ready(self, queue: str = "things") -> list[bytes]:
        key = self.key(f"rmq::queue::[{queue}]::ready")
        return [*reversed(await self.redis.lrange(key, 0, -1))]

    async def names(self) -> list[str]:
        return sorted(name.decode() for name in await self.redis.smembers("rmq::connections"))

    async def bury(self, tag: str) -> None:
        """Let the heartbeats of a killed program expire now, and not in a minute."""
        for name in await self.names():
            if name.startswith(f"{tag}-"):
                await self.redis.delete(f"rmq::connection::{name}::heartbeat")

    async def keys(self) -> list[str]:
        return sorted([key.decode() async for key in self.redis.scan_iter(count=1000)])


@pytest.fixture(params=["server", "cluster"])
def nodes(request) -> tuple[str, str, list[Any]]:
    """Mode, URL and servers; not async: pytest makes the fixture that is asked for by name."""
    if request.param == "cluster":
        group: Cluster = request.getfixturevalue("cluster")
        return "cluster", group.url, group.masters
    server = request.getfixturevalue("rmq_server")
    return "server", server.url, [server]


@pytest.fixture
async def place(nodes, program) -> AsyncIterator[Place]:
    mode, url, servers = nodes
    for server in servers:
        await server.command("FLUSHALL")
    ports = [server.port for server in servers]
    redis: Any = (
        RedisCluster(host="127.0.0.1", port=ports[0])
        if mode == "cluster"
        else Redis(host="127.0.0.1", port=ports[0])
    )
    addresses = [f"127.0.0.1:{port}" for port in ports]

    def start_go(tag: str) -> AbstractAsyncContextManager[GoProgram]:
        return go_program(program, tag, mode, addresses)

    yield Place(mode, url, addresses, redis, start_go)
    await redis.aclose()


@pytest.fixture
async def go(place: Place) -> AsyncIterator[GoProgram]:
    async with place.start_go("go") as peer:
        yield peer


@pytest.fixture
async def ours(place: Place) -> AsyncIterator[Rmq]:
    async with Rmq(place.url, tag="py", options=PATIENT) as client:
        yield client


async def test_what_go_publishes_is_consumed_here_in_order_with_headers(go, ours):
    await go.publish("things", b"a", b"\x00\xff", b"")
    await go.publish("things", b"traced", header={"Traceparent": ["00-<&>"], "X": ["1", "2"]})
    things = await ours.queue("things")
    got = []
    async with things.consume(prefetch=2) as deliveries:
        async for delivery in deliveries:
            async with delivery:
                got.append((delivery.body, delivery.header("traceparent")))
            if len(got) == 4:
                break
    assert got == [(b"a", None), (b"\x00\xff", None), (b"", None), (b"traced", "00-<&>")]
    assert (await go.ask("stats"))["json"] == {"queues": {"things": {"ready": 0, "rejected": 0}}}


async def test_what_is_published_here_is_consumed_by_go_in_order_with_headers(go, ours, place):
    things = await ours.queue("things")
    await things.publish("a", b"\x00\xff", {"n": 1})
    await things.publish("traced", headers={"traceparent": "00-<&>", "x": ["1", "2"]})
    # What looks like a header is a body here, and arrives there as one.
    await things.publish(b"\xff\x00\xbe\xbeJ")
    await go.ask("consume", "things", count=10, poll_ms=5, then="ack")
    await until(lambda: len(go.deliveries) == 5)

    assert go.payloads == [b"a", b"\x00\xff", b'{"n":1}', b"traced", b"\xff\x00\xbe\xbeJ"]
    assert go.deliveries[3]["header"] == {"Traceparent": ["00-<&>"], "X": ["1", "2"]}
    assert [d.get("settled") for d in go.deliveries] == [None] * 5
    stats = await ours.stats()
    [connection] = stats.queues["things"].connections.values()
    assert (connection.active, connection.unacked, len(connection.consumers)) == (True, 0, 1)


async def test_rejected_pushed_and_returned_on_either_side(go, ours, place):
    things = await ours.queue("things", push="retry")
    await things.publish("reject-me")
    async with things.consume() as deliveries:
        await (await anext(deliveries)).reject()
        assert await go.ask("return_rejected", "things", count=10) == 1
        delivery = await anext(deliveries)
        assert delivery.body == b"reject-me"
        await delivery.push()
    assert await place.ready("retry") == [b"reject-me"]

    await go.ask("consume", "retry", count=10, poll_ms=5, then="push", push="things")
    await until(lambda: len(go.deliveries) == 1)
    assert await place.ready() == [b"reject-me"]
    await ours.queue("other").publish("x")
    await go.ask("consume", "other", count=10, poll_ms=5, then="reject")
    await until(lambda: len(go.deliveries) == 2)
    assert await ours.queue("other").return_rejected() == 1
    await until(lambda: len(go.deliveries) == 3)


async def test_batches_on_either_side(go, ours, place):
    things = await ours.queue("things")
    await go.publish("things", *(b"%d" % n for n in range(10)))
    sizes = []
    async with things.consume_batches(size=4, wait=0.2) as batches:
        async for batch in batches:
            sizes.append(len(batch))
            async with batch:
                pass
            if sum(sizes) == 10:
                break
    assert sizes == [4, 4, 2]
    await things.publish(*map(str, range(10)))
    await go.ask("consume", "things", count=10, poll_ms=5, size=5, wait_ms=100, then="ack")
    await until(lambda: len(go.deliveries) == 10)
    assert {d["batch"] for d in go.deliveries} == {5}


async def test_prefetch_of_both_sides_is_what_each_holds(go, ours):
    things = await ours.queue("things")
    await things.publish(*map(str, range(20)))
    await go.ask("consume", "things", count=3, poll_ms=5, then="")
    consumer = things.consume(prefetch=4)
    held = [await anext(consumer) for _ in range(4)]

    async def all_hold():
        stats = (await ours.stats()).queues["things"]
        return stats.unacked == 7 and stats.ready == 13

    await until(all_hold)
    counts = (await go.ask("stats"))["counts"]["things"]
    assert counts == [13, 0, 7, 2, 2]
    for delivery in held:
        await delivery.ack()
    await consumer.aclose()


async def test_purge_drain_and_destroy_on_either_side(go, ours):
    things = await ours.queue("things")
    await things.publish(*map(str, range(250)))
    assert await go.ask("purge_ready", "things") == 250
    await go.publish("things", b"a", b"b", b"c")
    assert await things.drain(2) == [b"a", b"b"]
    assert await things.purge_ready() == 1
    await things.publish("d")
    assert await go.ask("drain", "things", count=1) == ["ZA=="]
    await things.publish("e", "f")
    assert await go.ask("destroy", "things") == [2, 0]
    assert await ours.list_queues() == []
    await go.ask("open", "fresh")
    assert await ours.list_queues() == ["fresh"]


async def test_delivery_of_a_connection_that_go_cleaned_is_lost_here(go, ours, place):
    things = await ours.queue("things")
    await things.publish("a")
    consumer = things.consume()
    delivery = await anext(consumer)
    name = ours.connection
    await place.redis.delete(f"rmq::connection::{name}::heartbeat")
    # In a cluster only the next beat notices; on a server the next take does, too.
    await until(lambda: delivery.lease_lost)
    with suppress(Refused):  # ours may remove the name under its hands
        await go.ask("clean")
    with pytest.raises(LeaseLost):
        await delivery.ack()
    again = await anext(consumer)
    assert (again.body, ours.connection != name) == (b"a", True)
    await again.ack()
    await consumer.aclose()
    assert await place.ready() == []


async def start_victim(place, tag, prefetch, mark):
    """Start a consumer of ours; without a *mark* it holds what it takes."""
    victim = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", VICTIM, place.url, tag, "things", str(prefetch), mark),
        cwd=ROOT,
        stdout=PIPE,
    )
    assert await victim.stdout.readline() == b"ready\n"
    return victim


async def kill(victim):
    """End a consumer of ours as a power cut would; one that has ended by itself is a failure."""
    ended_with = victim.returncode
    if ended_with is None:
        victim.kill()
    await victim.wait()
    assert ended_with is None, f"the consumer ended by itself, with {ended_with}"


async def test_go_consumer_that_was_killed_is_cleaned_by_ours(place, ours):
    things = await ours.queue("things")
    await things.publish(*map(str, range(30)))
    async with place.start_go("doomed") as doomed:
        await doomed.ask("consume", "things", count=10, poll_ms=5, then="")
        await until(lambda: len(doomed.deliveries) == 10)

        async def holds_ten():
            return (await ours.stats()).queues["things"].unacked == 10

        await until(holds_ten)
    assert await ours.clean() == 0  # its heartbeat is there for a minute
    await place.bury("doomed")

    assert await ours.clean() == 10

    assert sorted(await place.ready()) == sorted(b"%d" % n for n in range(30))
    assert await place.names() == []
    assert [key for key in await place.keys() if "doomed" in key] == []


async def test_consumer_of_ours_that_was_killed_is_cleaned_by_go(place, go):
    await go.publish("things", *(b"%d" % n for n in range(30)))
    victim = await start_victim(place, "doomed", 20, mark="")

    async def holds_twenty():
        return (await go.ask("stats"))["counts"]["things"][2] == 20

    try:
        await until(holds_twenty)
    finally:
        await kill(victim)
    await place.bury("doomed")

    assert await go.ask("clean") == 20

    assert sorted(await place.ready()) == sorted(b"%d" % n for n in range(30))
    assert [key for key in await place.keys() if "doomed" in key] == []
    assert [name.partition("-")[0] for name in await place.names()] == ["go"]


async def test_cleaners_of_both_at_once_lose_and_double_nothing(place, go, ours):
    names = [f"gone-{n}" for n in range(8)]
    for name in names:
        await place.redis.sadd("rmq::connections", name)
        await place.redis.sadd(f"rmq::connection::{name}::queues", "things")
        key = place.key(f"rmq::connection::{name}::queue::[things]::unacked")
        await place.redis.lpush(key, *(f"{name}-{i}" for i in range(150)))

    async def go_cleans():
        while True:
            try:
                return await go.ask("clean")
            except Refused:  # ours has removed a name under its hands
                continue

    async with Rmq(place.url) as second:
        moved = await asyncio.gather(go_cleans(), ours.clean(), second.clean())

    ready = await place.ready()
    assert sorted(ready) == sorted(f"{n}-{i}".encode() for n in names for i in range(150))
    assert len(ready) >= sum(moved[1:])
    assert [name for name in await place.names() if name.startswith("gone")] == []


async def test_keys_after_a_graceful_end_are_fewer_than_those_of_go(place):
    async def left_by(side: str) -> set[str]:
        return {
            key.replace(name, side)
            for name in {k.split("::")[2] for k in await place.keys() if "connection::" in k}
            for key in await place.keys()
            if name in key
        }

    async with place.start_go("go") as peer:
        await peer.publish("things", *(b"%d" % n for n in range(30)))
        await peer.ask("consume", "things", count=10, poll_ms=5, wait_ms=20, then="ack")
        await until(lambda: len(peer.deliveries) > 2)
        await peer.ask("stop")
        go_left = await left_by("side")
        go_unacked = (await peer.ask("stats"))["counts"]["things"][2]
        assert len(await place.names()) == 1
    assert go_unacked > 0  # a graceful end of Go leaves its prefetched deliveries to a cleaner

    async with Rmq(place.url, tag="py") as ours:
        await place.bury("go")
        await ours.clean()
        things = await ours.queue("things")
        async with things.consume(prefetch=10) as deliveries:
            await (await anext(deliveries)).ack()
            held = await anext(deliveries)
        name = ours.connection
    assert held.outcome is None
    ours_left = await left_by("side")

    assert ours_left == {"rmq::connection::side::heartbeat"}
    assert ours_left < go_left
    assert await place.names() == []
    assert [key for key in await place.keys() if name in key] == [
        f"rmq::connection::{name}::heartbeat"
    ]


async def storm(place: Place, messages: int, kills: int) -> int:
    """Consume on both sides with kills on both; return how many messages were handled twice."""
    dice = random.Random(7)
    concurrency = 8
    async with AsyncExitStack() as stack, Rmq(place.url, tag="boss", options=PATIENT) as ours:
        boss = await stack.enter_async_context(place.start_go("boss"))
        things = await ours.queue("things")
        living: dict[str, Any] = {}

        async def start(tag: str) -> None:
            if tag.startswith("go"):
                peer = await stack.enter_async_context(place.start_go(tag))
                await peer.ask(
                    *("consume", "things"), count=20, poll_ms=2, wait_ms=1, then="ack",
                    workers=concurrency, quiet=True, mark="marks",
                )  # fmt: skip
                living[tag] = peer
            else:
                victim = await start_victim(place, tag, concurrency, "marks")
                living[tag] = victim
                stack.push_async_callback(kill_if_living, tag, victim)

        async def kill_if_living(tag: str, victim: Any) -> None:
            if tag in living:
                await kill(victim)

        async def clean() -> None:
            with suppress(Refused):  # ours has removed a name under its hands
                await asyncio.gather(ours.clean(), boss.ask("clean"))

        for tag in ("go0", "go1", "py0", "py1"):
            await start(tag)
        for at in range(0, messages, 100):
            body = [b"m%d" % n for n in range(at, min(messages, at + 100))]
            await (boss.publish("things", *body) if at % 200 else things.publish(*body))
        for n in range(kills):
            handled = messages * (n + 1) // (kills + 2)

            async def far_enough(handled: int = handled) -> bool:
                return await place.redis.hlen("marks") >= handled

            await until(far_enough)
            tag = dice.choice([t for t in living if t.startswith(("go", "py")[n % 2])])
            victim = living.pop(tag)
            await (victim.kill() if isinstance(victim, GoProgram) else kill(victim))
            await place.bury(tag)
            await asyncio.gather(clean(), start(f"{tag[:2]}{n + 2}"))

        async def all_done() -> bool:
            await clean()
            stats = (await ours.stats()).queues["things"]
            return stats.ready == stats.unacked == 0

        async with asyncio.timeout(300):
            while not await all_done():
                await asyncio.sleep(0.05)
        marks = await place.redis.hgetall("marks")
    assert len(marks) == messages  # none lost
    assert await place.length("rmq::queue::[things]::rejected") == 0
    doubles = sum(int(count) - 1 for count in marks.values())
    # A killed process had marked at most what it was at work on, and not acked it.
    assert doubles <= kills * concurrency
    return doubles


async def test_kills_on_both_sides_lose_nothing(place):
    await storm(place, 2000, kills=4)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_many_kills_on_both_sides_lose_nothing(place):
    doubles = await storm(place, 20_000, kills=20)
    print(f"{place.mode}: {doubles} of 20000 handled twice, after 20 kills")  # noqa: T201
