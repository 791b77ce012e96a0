"""The wake-up connection: it comes back, it misses nothing, it is never a burden."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng._transport.call_retries import RetryBudget
from aiorsmq_ng._transport.subscribed_connection import ConnectionListener
from aiorsmq_ng.testing import FaultProxy

from ..support.waiting import until

#: No client polls within a test: a waiter gets a wake-up, or no message.
RARELY = Options(poll_base=60, poll_cap=60, deadline=30, connect_timeout=5)


@pytest.fixture
async def patient(server_url, ns):
    """A client that hardly ever looks without being told."""
    async with RSMQ(server_url, ns=ns, options=RARELY) as rsmq:
        yield rsmq


@pytest.fixture
async def proxied(server_url, ns):
    """Such a client behind a proxy."""
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=RARELY) as rsmq,
    ):
        yield proxy, rsmq


async def listening(raw, ns, *queues):
    """Wait until a client has subscribed to the wake-ups of every one of *queues*."""

    async def heard():
        return all(n for _, n in await raw.pubsub_numsub(*(f"{ns}:rt:{q}" for q in queues)))

    await until(heard)


async def looked(queue):
    """Wait until the look that follows a subscription is over: the next one is far away."""

    async def far():
        receiver, soon = queue._long_poll, asyncio.get_running_loop().time() + 10
        return receiver._waiters and not receiver._woken_on and receiver._due > soon

    await until(far)


async def kill(raw):
    """Cut all wake-up connections."""
    await raw.execute_command("CLIENT", "KILL", "TYPE", "pubsub")


async def stats(raw, command):
    return (await raw.info("commandstats")).get(f"cmdstat_{command}", {}).get("calls", 0)


async def leave(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def held_subscription(monkeypatch):
    """Subscriptions are asked for, and wait until they are let go."""
    asked, go = asyncio.Event(), asyncio.Event()
    subscribe = ConnectionListener.subscribe

    async def held(self, *channels):
        asked.set()
        await go.wait()
        await subscribe(self, *channels)

    monkeypatch.setattr(ConnectionListener, "subscribe", held)
    return asked, go


async def test_message_sent_before_the_subscription_stands_is_seen(patient, held_subscription):
    asked, go = held_subscription
    queue = await patient.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=100))
    async with asyncio.timeout(10):
        await asked.wait()
    await queue.send("x")
    go.set()

    async with asyncio.timeout(10):
        assert (await waiting).text == "x"


async def test_message_sent_before_a_later_subscription_stands_is_seen(
    patient, raw, ns, held_subscription
):
    asked, go = held_subscription
    a, b = await patient.create_queue("a"), await patient.create_queue("b")
    go.set()
    first = asyncio.create_task(a.receive(wait=100))
    await listening(raw, ns, "a")
    go.clear()
    asked.clear()
    waiting = asyncio.create_task(b.receive(wait=100))
    async with asyncio.timeout(10):
        await asked.wait()
    await b.send("x")
    go.set()

    async with asyncio.timeout(10):
        assert (await waiting).text == "x"
    await leave(first)


async def test_queue_that_is_waited_on_later_is_listened_for_too(patient, raw, ns):
    a, b = await patient.create_queue("a"), await patient.create_queue("b")
    first = asyncio.create_task(a.receive(wait=100))
    await listening(raw, ns, "a")
    waiting = asyncio.create_task(b.receive(wait=100))
    await listening(raw, ns, "b")
    await looked(b)
    await b.send("x")

    async with asyncio.timeout(10):
        assert (await waiting).text == "x"
    await leave(first)


async def test_wake_up_connection_that_was_cut_comes_back(patient, raw, ns):
    queue = await patient.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")
    await kill(raw)
    await listening(raw, ns, "jobs")
    await looked(queue)
    await queue.send("x")

    async with asyncio.timeout(10):
        assert (await waiting).text == "x"


async def test_message_sent_while_the_wake_up_connection_is_down_is_seen_when_it_is_back(
    patient, raw, ns, held_subscription
):
    asked, go = held_subscription
    go.set()
    queue = await patient.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")
    await looked(queue)
    go.clear()
    asked.clear()
    await kill(raw)
    async with asyncio.timeout(10):
        await asked.wait()
    await queue.send("x")
    go.set()

    async with asyncio.timeout(10):
        assert (await waiting).text == "x"


@pytest.fixture
async def forgetful(server_url, ns, monkeypatch):
    """A client that notices soon when its last waiter is gone."""
    monkeypatch.setattr("aiorsmq_ng._runtime.long_poll._LINGER_S", 0.01)
    options = Options(poll_base=0.05, poll_cap=0.05)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        yield rsmq


async def test_queue_without_waiters_is_no_longer_listened_for(forgetful, raw, ns):
    a, b = await forgetful.create_queue("a"), await forgetful.create_queue("b")
    staying, leaving = (asyncio.create_task(q.receive(wait=100)) for q in (a, b))
    await listening(raw, ns, "a", "b")
    await leave(leaving)

    async def quiet():
        return (await raw.pubsub_numsub(f"{ns}:rt:b"))[0][1] == 0

    await until(quiet)
    assert (await raw.pubsub_numsub(f"{ns}:rt:a"))[0][1] == 1
    await leave(staying)


async def test_wake_up_connection_is_closed_after_the_last_waiter(forgetful, raw, ns):
    queue = await forgetful.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")
    await leave(waiting)

    async def closed():
        return not await raw.client_list(_type="pubsub")

    assert not await closed()
    await until(closed)


async def test_silent_wake_up_connection_is_given_up_and_replaced(
    proxied, raw, ns, server_url, monkeypatch
):
    monkeypatch.setattr("aiorsmq_ng._transport.subscribed_connection._SILENCE_S", 0.1)
    proxy, rsmq = proxied
    queue = await rsmq.create_queue("jobs")
    for_calls = proxy.connections
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")
    await looked(queue)
    before = proxy.accepted
    for connection in set(proxy.connections).difference(for_calls):
        connection.mute()

    async def replaced():
        return proxy.accepted > before

    await until(replaced)
    async with RSMQ(server_url, ns=ns) as other:
        await other.queue("jobs").send("x")
    async with asyncio.timeout(15):
        assert (await waiting).text == "x"


async def test_quiet_wake_up_connection_that_answers_is_kept(proxied, raw, ns, monkeypatch):
    monkeypatch.setattr("aiorsmq_ng._transport.subscribed_connection._SILENCE_S", 0.02)
    proxy, rsmq = proxied
    queue = await rsmq.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")

    async def probed():
        return await stats(raw, "ping") >= pings + 5

    # A machine that stalls makes the connection look dead; not again and again, though.
    for _ in range(20):
        before, pings = proxy.accepted, await stats(raw, "ping")
        await until(probed)
        if kept := proxy.accepted == before:
            break
    await leave(waiting)

    assert kept


async def test_wake_up_connection_that_is_cut_at_once_is_not_hammered(rsmq, queue, raw, ns):
    waiting = asyncio.create_task(queue.receive(wait=100))
    await listening(raw, ns, "jobs")
    subscribes, looks = await stats(raw, "subscribe"), await stats(raw, "evalsha")
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 1.5
    while loop.time() < until_s:
        await kill(raw)
        await asyncio.sleep(0.005)
    subscribes = await stats(raw, "subscribe") - subscribes
    looks = await stats(raw, "evalsha") - looks
    await leave(waiting)

    assert subscribes <= 12  # about 5; without a growing pause it is dozens
    assert looks <= 40


async def test_storm_on_the_wake_up_connection_leaks_nothing_and_ends_well(
    server_url, raw, ns, monkeypatch
):
    """Queues come and go while the connection is cut again and again."""
    monkeypatch.setattr("aiorsmq_ng._transport.notifier.RECONNECT_CAP_S", 0.05)
    async with RSMQ(server_url, ns=ns, options=RARELY) as rsmq:
        names = [f"q{i}" for i in range(60)]
        queues = [await rsmq.create_queue(name) for name in names]
        before = int((await raw.info("clients"))["connected_clients"])
        waiting = {}
        for i, queue in enumerate(queues):
            waiting[queue.name] = asyncio.create_task(queue.receive(wait=100))
            if i % 3 == 2:
                await leave(waiting.pop(f"q{i - 1}"))
            await kill(raw)
            await asyncio.sleep(0.004)
        await listening(raw, ns, *waiting)
        for name in waiting:
            await looked(rsmq.queue(name))
        for name in waiting:
            await rsmq.queue(name).send(name)
        async with asyncio.timeout(15):
            received = await asyncio.gather(*waiting.values())
        clients = await raw.client_list()
        driver = rsmq._transport._driver

        assert [m.text for m in received] == list(waiting)
        # Ours are the wake-up connection and up to 16 for calls.
        assert len([c for c in clients if int(c["sub"]) > 0]) == 1
        assert len(clients) <= before + 17
        assert len(driver._pool._in_use_connections) == len(driver._idle)


async def test_wake_up_connections_that_are_lost_wait_for_their_turn(patient, raw, ns, monkeypatch):
    """All clients of a process lose theirs at once; the server must not be run over."""
    turns = []
    reserve = RetryBudget.reserve

    def counted(self, *terms):
        turns.append(self)
        return reserve(self, *terms)

    monkeypatch.setattr(RetryBudget, "reserve", counted)
    queue = await patient.create_queue("jobs")
    waiting = asyncio.create_task(queue.receive(wait=60))
    await listening(raw, ns, "jobs")
    await kill(raw)
    await until(lambda: _true(turns))
    await listening(raw, ns, "jobs")
    await leave(waiting)


async def _true(value):
    return bool(value)
