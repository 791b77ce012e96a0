"""Connections: none leaks, none out of step is used, and one bad call is one bad call."""

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import BlockingConnectionPool, Redis

from aiorsmq_ng import RSMQ, Options, RSMQError, ServerOutOfMemory, Unavailable
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.testing import FaultProxy, operation

from ..support.deadlines import hurrying
from ..support.driver import ScriptedDriver, transport_on

KEYS = Namespace("rsmq").queue("jobs")
ID = b"g73zkl38qz" + b"x" * 22


@pytest.fixture
async def proxied(server_url, ns):
    options = Options(deadline=30, connect_timeout=5, max_connections=2)
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=options) as rsmq,
    ):
        yield proxy, await rsmq.create_queue("jobs"), rsmq


def send(body=b"x", keys=KEYS):
    return messages.send(keys, [body], delay_ms=-1, channel="w")


def echo(command):
    """Answer a send with one id per part."""
    return [[ID] for _ in command.requests]


@asynccontextmanager
async def running(answer, **settings):
    driver = ScriptedDriver(answer)
    transport = transport_on(driver, **settings)
    await transport.start()
    try:
        yield driver, transport
    finally:
        await transport.aclose()


async def test_kept_connection_that_was_idle_for_long_is_asked_before_it_is_used(rsmq, queue, raw):
    await queue.attributes()
    before = (await raw.info("commandstats"))["cmdstat_ping"]["calls"]
    for connection in rsmq._transport._driver._idle:
        connection.next_health_check = 0  # as if it had been idle for long
    await queue.attributes()

    assert (await raw.info("commandstats"))["cmdstat_ping"]["calls"] == before + 1


async def test_kept_connection_whose_health_check_hangs_does_not_leak(proxied):
    proxy, queue, rsmq = proxied
    driver = rsmq._transport._driver
    for _ in range(5):  # more often than there are connections
        for connection in driver._idle:
            connection.next_health_check = 0
        proxy.half_open()
        with hurrying(rsmq), pytest.raises(Unavailable):
            await queue.attributes()
        await proxy.resume()
        await proxy.cut()

        assert (await queue.attributes()).msgs == 0
    assert len(driver._pool._in_use_connections) == len(driver._idle)


async def test_server_that_became_a_replica_is_left_for_the_one_behind_its_address(
    private_server, admin, tmp_path
):
    with EmbeddedServer.acquire(tmp_path / "promoted") as promoted:
        async with RSMQ(promoted.url) as there:
            await there.create_queue("jobs")
            async with (
                FaultProxy(private_server.url) as proxy,
                RSMQ(proxy.url, options=Options(deadline=5)) as rsmq,
            ):
                queue = await rsmq.create_queue("jobs")
                await queue.send("before")
                await admin.execute_command("REPLICAOF", "127.0.0.1", "1")
                proxy.target = promoted.url

                await queue.send("after")

            assert [m.text for m in await there.queue("jobs").peek()] == ["after"]


async def test_number_of_connections_is_ours_whatever_the_url_says(server_url, ns):
    url = f"{server_url}{'&' if '?' in server_url else '?'}max_connections=1"
    async with RSMQ(url, ns=ns, options=Options(deadline=5)) as rsmq:
        names = [await rsmq.create_queue(f"q{i}") for i in range(10)]
        outcomes = await asyncio.gather(
            *(queue.attributes() for queue in names for _ in range(3)), return_exceptions=True
        )

    assert not [o for o in outcomes if isinstance(o, Exception)]


async def test_waiting_receive_leaves_the_only_connection_of_a_callers_client_to_others(
    server_url, ns, raw
):
    pool = BlockingConnectionPool.from_url(server_url, max_connections=1, timeout=1)
    client = Redis(connection_pool=pool)
    async with RSMQ(client=client, ns=ns, options=Options(deadline=2)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=100))
        async with asyncio.timeout(10):
            while not (await raw.pubsub_numsub(f"{ns}:rt:jobs"))[0][1]:
                await asyncio.sleep(0.005)
        await queue.send("x")

        async with asyncio.timeout(10):
            assert (await waiting).text == "x"
    assert await client.ping()
    await client.aclose()
    await pool.aclose()


async def test_release_whose_reply_is_lost_is_asked_for_again(proxied):
    proxy, queue, _ = proxied
    await queue.send("x")
    message = await queue.receive(vt=600)
    proxy.drop_reply(operation("visibility"))

    await message.release()

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (1, 0)


async def test_send_of_a_user_who_may_not_publish_is_stored(private_server, admin):
    await admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~rsmq:*", "resetchannels")
    await admin.execute_command("ACL", "SETUSER", "app", "+@all")
    async with RSMQ(f"unix://app:pw@{private_server.socket}") as rsmq:
        queue = await rsmq.create_queue("jobs")

        assert await queue.send("x")
        assert [m.text for m in await queue.peek()] == ["x"]


async def test_release_by_a_user_who_may_not_publish_is_done(private_server, admin):
    await admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~rsmq:*", "resetchannels")
    await admin.execute_command("ACL", "SETUSER", "app", "+@all")
    async with RSMQ(f"unix://app:pw@{private_server.socket}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        await (await queue.receive(vt=600)).release()

        assert (await queue.receive()).rc == 2


@pytest.fixture
async def full(private_server, admin):
    """A queue with messages on a server that is out of memory."""
    async with RSMQ(private_server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await rsmq.create_queue("jobs-dead")
        await queue.send_many(["a", "b", "c"])
        held = await queue.receive(vt=600)
        await admin.config_set("maxmemory", "1")
        with pytest.raises(ServerOutOfMemory):
            await queue.send("one too many")
        yield queue, held
        await admin.config_set("maxmemory", "0")


# What each verb does to one held and two ready messages: (ready, leased) afterwards.
DRAINING = {
    "receive": (lambda queue, held: queue.receive(), (1, 2)),
    "receive again": (lambda queue, held: queue.receive_many(2, vt=0), (2, 1)),
    "pop": (lambda queue, held: queue.pop(), (1, 1)),
    "ack": (lambda queue, held: held.ack(), (2, 0)),
    "extend": (lambda queue, held: held.extend(60), (2, 1)),
    "release": (lambda queue, held: held.release(), (3, 0)),
    "reject": (lambda queue, held: held.reject("a reason"), (2, 0)),
    "delete": (lambda queue, held: queue.delete(held.id), (2, 0)),
}


@pytest.mark.parametrize("verb", DRAINING)
async def test_full_server_lets_messages_be_worked_off(full, verb):
    call, expected = DRAINING[verb]
    queue, held = full

    await call(queue, held)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == expected


async def test_calls_of_several_queues_are_made_in_the_order_in_which_they_came():
    first = asyncio.get_running_loop().create_future()
    names = ["a", "b", "c", "d"]
    async with running(
        lambda c: first if len(driver.commands) == 1 else echo(c), connections=1
    ) as (driver, transport):
        tasks = []
        for name in ["first", *names]:
            operation = send(keys=Namespace("rsmq").queue(name))
            tasks.append(asyncio.create_task(transport.run(operation)))
            await asyncio.sleep(0)
        while not driver.commands:
            await asyncio.sleep(0)
        first.set_result([[ID]])
        await asyncio.gather(*tasks)

    assert [c.key for c in driver.commands] == [f"rsmq:{n}" for n in ["first", *names]]


async def test_busy_queue_lines_up_again_behind_the_others():
    other = Namespace("rsmq").queue("other")
    async with running(echo, connections=1) as (driver, transport):
        await asyncio.gather(
            *(transport.run(send()) for _ in range(1200)), transport.run(send(keys=other))
        )

    order = [c.key for c in driver.commands]
    assert order.index(other.zset) < order.index(KEYS.zset) + 3
    assert order.count(KEYS.zset) == 7


async def test_call_that_waited_out_its_deadline_in_line_is_not_made():
    def answer(command):
        time.sleep(0.2)  # the loop stands still, and with it the line
        return echo(command)

    async with running(answer, deadline_s=0.1, connections=1) as (driver, transport):
        _, late = await asyncio.gather(
            transport.run(send()),
            transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1)),
            return_exceptions=True,
        )

    assert isinstance(late, Unavailable)
    assert late.executed is False
    assert not [c for c in driver.commands if c.kind is messages.RECEIVE]


async def test_unexpected_error_in_one_call_fails_that_call_only():
    failures = [OverflowError("a fault of the driver")]

    def answer(command):
        if failures:
            raise failures.pop()
        return echo(command)

    async with running(answer) as (_, transport):
        with pytest.raises(RSMQError, match="OverflowError"):
            await transport.run(send())

        assert await transport.run(send()) == [ID.decode()]


@pytest.mark.parametrize("reply", [[[ID]], 7, None], ids=["too short", "number", "nothing"])
async def test_reply_of_the_wrong_shape_fails_the_callers_of_that_call_only(reply):
    replies = [reply]
    async with running(lambda c: replies.pop() if replies else echo(c)) as (_, transport):
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(
                transport.run(send(b"1")), transport.run(send(b"2")), return_exceptions=True
            )

        assert [o for o in outcomes if isinstance(o, RSMQError)]
        assert await transport.run(send()) == [ID.decode()]


async def test_part_of_a_reply_of_the_wrong_shape_fails_its_caller_only():
    async with running(lambda _: [7, [ID]]) as (_, transport):
        async with asyncio.timeout(10):
            bad, good = await asyncio.gather(
                transport.run(send(b"1")), transport.run(send(b"2")), return_exceptions=True
            )

    assert isinstance(bad, Exception)
    assert good == [ID.decode()]


async def test_silence_on_one_connection_is_not_met_again_on_the_others(server_url, ns):
    """All that were kept lead to the same silent peer; a new one may lead elsewhere."""
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=Options(deadline=6)) as rsmq,
    ):
        queues = [await rsmq.create_queue(f"jobs-{n}") for n in range(8)]
        held, sends = [], []
        # One after the other: calls of the same moment would share a connection.
        for queue in queues:
            held.append(proxy.hold_request(operation("send")))
            sends.append(asyncio.create_task(queue.send("a")))
            await held[-1].caught()
        for trap in held:
            await trap.release()
        await asyncio.gather(*sends)
        assert len(proxy.connections) >= len(queues)
        for connection in proxy.connections:
            connection.mute()

        await queues[0].send("b")
        assert (await queues[0].attributes()).totalsent == 2
