"""Redis gone, deaf, full, locked, restarted, forgetful: a clear answer, and nothing lost."""

import asyncio
import os
import signal

import pytest

from aiorsmq_ng import RSMQ, AccessDenied, ClientClosed, Options, ServerOutOfMemory, Unavailable
from aiorsmq_ng.embedded import status
from aiorsmq_ng.testing import FaultProxy

from ..support.deadlines import hurrying

QUICK = Options(deadline=0.5, connect_timeout=0.3)


@pytest.fixture
async def proxied(server_url, ns):
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=Options(deadline=30, connect_timeout=5)) as rsmq,
    ):
        yield proxy, await rsmq.create_queue("jobs"), rsmq


async def test_server_that_is_not_there_is_said_at_open(tmp_path):
    with pytest.raises(Unavailable, match="redis cannot be reached") as caught:
        await RSMQ(f"unix://{tmp_path}/none.sock", options=QUICK).open()

    assert caught.value.executed is False
    assert "\n" not in str(caught.value)


async def test_closed_port_is_said_by_the_first_call_without_open():
    rsmq = RSMQ("redis://127.0.0.1:1", options=QUICK)
    try:
        with pytest.raises(Unavailable, match=r"gave up after 0\.5 s"):
            await rsmq.queue("jobs").send("x")
    finally:
        await rsmq.aclose()


async def test_server_gone_ends_every_call_at_its_deadline(proxied):
    proxy, queue, rsmq = proxied
    await queue.send("x")
    await proxy.refuse()

    for call in (queue.send("y"), queue.receive(), queue.pop(), rsmq.list_queues()):
        with hurrying(rsmq), pytest.raises(Unavailable) as caught:
            await call
        assert caught.value.transient


async def test_server_back_within_the_deadline_is_not_noticed(proxied):
    proxy, queue, _ = proxied
    await proxy.refuse()
    sending = asyncio.create_task(queue.send("x"))
    await asyncio.sleep(0.2)
    await proxy.resume()

    assert await sending
    assert (await queue.receive()).text == "x"


async def test_idle_connections_that_were_cut_are_not_noticed(proxied):
    proxy, queue, _ = proxied
    await asyncio.gather(*(queue.attributes() for _ in range(10)))
    await proxy.cut()
    await asyncio.sleep(0.05)

    assert await queue.send("x")
    assert (await queue.attributes()).totalsent == 1


async def test_pop_finds_idle_connections_that_were_cut_before_it_uses_one(proxied):
    """It is never repeated, so it must not be written to a connection that has ended."""
    proxy, queue, _ = proxied
    await queue.send("x")
    await asyncio.gather(*(queue.attributes() for _ in range(10)))
    await proxy.cut()
    await asyncio.sleep(0.2)

    assert (await queue.pop()).text == "x"


async def test_look_whose_reply_is_lost_is_answered_all_the_same(proxied):
    proxy, queue, rsmq = proxied
    await rsmq.list_queues()
    proxy.drop_reply(b"EVALSHA")

    assert await rsmq.list_queues() == ["jobs"]


async def test_pop_whose_reply_is_lost_is_never_repeated(proxied):
    proxy, queue, _ = proxied
    await queue.send_many(["a", "b"])
    await queue.pop()
    await queue.send("c")
    proxy.drop_reply(b"EVALSHA")

    with pytest.raises(Unavailable) as caught:
        await queue.pop()
    assert caught.value.executed is None
    assert (await queue.attributes()).msgs == 1


async def test_deaf_server_ends_the_call_and_the_connection_is_never_used_again(proxied):
    proxy, queue, rsmq = proxied
    await queue.send("x")
    proxy.half_open()
    with hurrying(rsmq), pytest.raises(Unavailable):
        await queue.receive()
    await proxy.resume()

    for _ in range(20):
        assert await rsmq.list_queues() == ["jobs"]
        assert (await queue.attributes()).vt == 30


async def test_iteration_lives_through_an_outage(proxied):
    proxy, queue, rsmq = proxied
    seen = asyncio.Queue()

    async def iterate():
        async for message in queue:
            async with message:
                seen.put_nowait(message.text)

    task = asyncio.create_task(iterate())
    await queue.send("before")
    assert await seen.get() == "before"
    while (await queue.attributes()).msgs:
        await asyncio.sleep(0.01)
    await proxy.refuse()
    with hurrying(rsmq):
        await asyncio.sleep(1.5)  # longer than the deadline of a call
    await proxy.resume()
    await queue.send("after")
    async with asyncio.timeout(20):
        assert await seen.get() == "after"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_losing_the_wake_up_connection_loses_no_message(rsmq, queue, raw):
    for i in range(5):
        waiting = asyncio.create_task(queue.receive(wait=30))
        await asyncio.sleep(0.1)
        await raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        await queue.send(str(i))
        async with asyncio.timeout(15):
            async with await waiting as message:
                assert message.text == str(i)


async def test_flushed_script_cache_is_not_noticed(rsmq, queue, raw):
    finished = asyncio.Event()

    async def flush():
        # Not cancelled but told to stop: on 3.11 redis-py's wait_for may swallow a cancellation.
        while not finished.is_set():
            await raw.script_flush()
            await asyncio.sleep(0.005)

    flushing = asyncio.create_task(flush())
    try:
        for i in range(100):
            await asyncio.gather(*(queue.send(f"{i}.{j}") for j in range(5)))
            for message in await queue.receive_many(5):
                await message.ack()
    finally:
        finished.set()
        await flushing

    attributes = await queue.attributes()
    assert (attributes.totalsent, attributes.totalrecv, attributes.msgs) == (500, 500, 0)


async def test_restarted_server_is_not_noticed_and_has_lost_nothing(private_server):
    async with RSMQ(f"embedded://{private_server.folder}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        for i in range(3):
            await queue.send_many([f"{i}.{j}" for j in range(100)])
            os.kill(status(private_server.folder).pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
            await queue.send(f"after kill {i}")

        assert (await queue.attributes()).msgs == 303
        assert len(await queue.receive_many(1000)) == 303


async def test_wrong_password_is_refused_at_once_and_not_shown(private_server, admin):
    await admin.config_set("requirepass", "right")
    try:
        for url in (
            f"unix://:sesame@{private_server.socket}",
            f"unix://{private_server.socket}",
        ):
            with pytest.raises(AccessDenied, match="refused access") as caught:
                await RSMQ(url).open()
            assert "sesame" not in str(caught.value)
        async with RSMQ(f"unix://:right@{private_server.socket}") as rsmq:
            assert await rsmq.list_queues() == []
    finally:
        await admin.execute_command("AUTH", "right")
        await admin.config_set("requirepass", "")


async def test_user_without_the_right_is_refused_with_a_sentence(private_server, admin):
    await admin.execute_command(
        "ACL", "SETUSER", "reader", "on", ">pw", "~*", "&*", "+@all", "-zadd"
    )
    async with RSMQ(private_server.url) as rsmq:
        await rsmq.create_queue("jobs")
    async with RSMQ(f"unix://reader:pw@{private_server.socket}") as rsmq:
        with pytest.raises(AccessDenied, match="refused access"):
            await rsmq.queue("jobs").send("x")
        assert (await rsmq.queue("jobs").attributes()).msgs == 0


async def test_full_server_refuses_sends_and_stores_nothing(private_server, admin):
    async with RSMQ(private_server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        await admin.config_set("maxmemory", "1")
        before = await admin.hgetall("rsmq:jobs:Q")
        with pytest.raises(ServerOutOfMemory, match="out of memory"):
            await queue.send("y")
        with pytest.raises(ServerOutOfMemory):
            await queue.send_many(["y"] * 5000)

        assert await admin.hgetall("rsmq:jobs:Q") == before
        await admin.config_set("maxmemory", "0")
        assert await queue.send("y")


async def test_busy_server_is_waited_for(private_server, admin):
    await admin.config_set("lua-time-limit", 10)
    async with RSMQ(private_server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        spin = "local t = redis.call('TIME') repeat local n = redis.call('TIME') until n[1]-t[1]>1"
        blocking = asyncio.create_task(admin.eval(spin, 0))
        await asyncio.sleep(0.3)
        assert await queue.send("x")
        await blocking


async def test_calls_of_a_closed_client_say_so(server_url, ns):
    rsmq = await RSMQ(server_url, ns=ns).open()
    queue = await rsmq.create_queue("jobs")
    await rsmq.aclose()
    await rsmq.aclose()

    for call in (queue.send("x"), queue.receive(), queue.receive(wait=1), rsmq.open()):
        with pytest.raises(ClientClosed, match="closed"):
            await call
