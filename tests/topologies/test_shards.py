"""Several namespaces used as one, on a cluster of three nodes."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, QueueNotFound, Retry, Worker
from aiorsmq_ng.testing import TimeMachine
from tools.lab import Cluster

from ..security.test_tls import every_operation

# Braces that lie on the first, second and third node of a cluster of three.
NS = ["{jobs-1}", "{jobs-0}", "{jobs-2}"]
NAMES = [f"queue-{i}" for i in range(12)]


def place(rsmq, name):
    return rsmq.queue(name)._context.keys.namespace.name


def apart(rsmq):
    """Return two queues that lie in different namespaces."""
    return NAMES[0], next(n for n in NAMES if place(rsmq, n) != place(rsmq, NAMES[0]))


async def test_queues_spread_over_the_nodes_of_a_cluster():
    async with Cluster() as cluster:
        async with RSMQ(cluster.url, ns=NS) as rsmq:
            await every_operation(rsmq)
            for name in NAMES:
                queue = await rsmq.create_queue(name)
                await queue.send(name)
                await (await queue.receive()).reject("why")
            assert await rsmq.list_queues() == sorted([*NAMES, *(f"{n}-dead" for n in NAMES)])
            await exercise_worker(rsmq)
        stored = [await node.command("DBSIZE") for node in cluster.masters]
    assert min(stored) > 0


async def exercise_worker(rsmq):
    """Redrive what was rejected, and let one worker serve all queues."""
    for name in NAMES:
        assert await rsmq.queue(name).redrive() == 1
    worker, seen = Worker(rsmq), set()
    for name in NAMES:

        @worker.handler(name, retry=Retry())
        async def handle(body: str) -> None:
            seen.add(body)
            if seen == set(NAMES):
                worker.stop()

    async with asyncio.timeout(60):
        await worker.run()


@pytest.fixture
async def sharded(server_url, ns):
    async with RSMQ(server_url, ns=[f"{ns}-{i}" for i in range(3)]) as rsmq:
        yield rsmq


async def test_what_needs_two_queues_that_lie_apart_is_refused_and_changes_nothing(sharded):
    one, other = apart(sharded)
    source, target = await sharded.create_queue(one), await sharded.create_queue(other)
    await source.send("x")
    message = await source.receive()
    for refused in (
        message.forward(target),
        message.forward(other),
        source.redrive(target),
        sharded.receive(source, target),
        sharded.receive(one, other, wait=60),
    ):
        with pytest.raises(
            InvalidValue, match=r"lie in different namespaces .* receive here and send"
        ):
            await refused
    with pytest.raises(InvalidValue, match="lie in different namespaces"):
        sharded.queue(one, dead_letter=other)

    await message.ack()
    assert (await source.attributes()).msgs == 0


async def test_clients_with_the_same_list_meet_and_one_namespace_is_plain_rsmq(sharded, server_url):
    queue = await sharded.create_queue("mail")
    await queue.send("hello")
    async with RSMQ(server_url, ns=sharded.ns.split(",")) as again:
        assert [m.text for m in await again.queue("mail").peek()] == ["hello"]
    async with RSMQ(server_url, ns=place(sharded, "mail")) as plain:
        assert await plain.list_queues() == ["mail"]
        assert (await plain.queue("mail").pop()).text == "hello"


async def test_error_names_the_namespace_that_was_looked_into(sharded):
    with pytest.raises(QueueNotFound) as caught:
        await sharded.queue("missing").send("x")

    assert caught.value.ns == place(sharded, "missing")


async def test_time_passes_for_queues_of_all_namespaces(sharded):
    clock = TimeMachine(sharded)
    for name in apart(sharded):
        await (await sharded.create_queue(name)).send("later", delay=100)

    assert await clock.pass_time(101) == 2


async def test_doctor_looks_into_all_namespaces_and_names_dangers_once(sharded, raw):
    names = [f"q{i}" for i in range(12)]
    keys = [(await sharded.create_queue(name))._context.keys for name in names]
    for key in keys:
        await raw.zadd(key.zset, {"g73zkl38qz" + "x" * 22: 1})

    report = await sharded.doctor(fix=True)
    assert report.queues == sorted(names)
    assert sorted(f.queue for f in report.findings if f.kind == "phantom") == sorted(names)
    dangers = [f.kind for f in report.findings if f.queue is None]
    assert len(dangers) == len(set(dangers))
    assert (await sharded.doctor("q3", "q4")).queues == ["q3", "q4"]
