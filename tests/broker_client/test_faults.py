"""Lost replies, brokers that come and go, Redis that is away: nothing is lost or doubled."""

import asyncio
import time
from contextlib import aclosing, suppress

import pytest

from aiorsmq_ng import RSMQ, LeaseLost, Options, SendUnknown, Unavailable, Worker
from aiorsmq_ng.broker import Broker, BrokerOptions, Limits
from aiorsmq_ng.testing import FaultProxy

from ..support.streams import relayed
from ..support.waiting import until

LOCAL = BrokerOptions(listen=("127.0.0.1:0",), grace=0.5)
KEYED = BrokerOptions(listen=("127.0.0.1:0",), grace=0.5, receipt_key=b"k" * 32)
#: Attempts are given up after a third of this.
HASTY = Options(deadline=3)
PATIENT = Options(deadline=30)


@pytest.fixture
async def relay(broker):
    async with relayed(broker) as relay:
        yield relay


async def client(relay, ns, options=PATIENT):
    return await RSMQ(relay.url, ns=ns, options=options).open()


async def test_send_whose_reply_is_lost_is_stored_once(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns) as rsmq:
        relay.muted = True
        sending = asyncio.create_task(rsmq.queue("jobs").send("once"))
        await until(stored.peek)
        relay.cut()
        id = await sending

    assert [(m.id, m.text) for m in await stored.peek()] == [(id, "once")]


async def test_sends_that_share_a_call_are_each_stored_once_after_a_lost_reply(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns) as rsmq:
        queue = rsmq.queue("jobs")
        relay.muted = True
        ways = [{}, {"delay": 0}, {"dedup_key": "k"}]
        sending = asyncio.gather(*(queue.send(f"{n}", **ways[n % 3]) for n in range(12)))

        async def all_there():
            return (await stored.attributes()).msgs == 9

        await until(all_there)
        relay.cut()
        ids = await sending

    assert len(set(ids)) == 9
    assert {m.id for m in await stored.peek(count=20)} == set(ids)


async def test_message_that_is_too_long_does_not_hurt_those_it_shares_a_call_with(rsmq):
    queue = await rsmq.create_queue("jobs", maxsize=1024)

    outcomes = await asyncio.gather(
        *(queue.send("x" * size) for size in (1, 2000, 2)), return_exceptions=True
    )

    assert [getattr(o, "size", None) for o in outcomes] == [None, 2000, None]
    assert sorted(len(m.body) for m in await queue.peek()) == [1, 2]


async def test_send_whose_outcome_is_not_known_can_be_asked_for_again(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns, HASTY) as rsmq:
        relay.muted = True
        with pytest.raises(SendUnknown) as unknown:
            await rsmq.queue("jobs").send("once")
        relay.cut()
        (id,) = await rsmq.queue("jobs").resend(unknown.value.token)

    assert [m.id for m in await stored.peek()] == [id]


async def test_another_broker_does_not_repeat_what_the_first_may_have_done(
    relay, ns, inner, broker
):
    stored = await inner.create_queue("jobs")
    async with Broker(inner, LOCAL) as second, await client(relay, ns, HASTY) as rsmq:
        queue = rsmq.queue("jobs")
        relay.muted = True
        sending = asyncio.create_task(queue.send("once"))
        await until(stored.peek)
        relay.lead_to(second)

        with pytest.raises(SendUnknown, match="does not remember") as unknown:
            await sending
        with pytest.raises(SendUnknown):
            await queue.resend(unknown.value.token)
        assert (await stored.attributes()).msgs == 1
        # The same client goes on.
        await queue.send("next")
        assert (await stored.attributes()).msgs == 2


async def test_dedup_key_lets_another_broker_finish_a_send(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    async with Broker(inner, LOCAL) as second, await client(relay, ns) as rsmq:
        relay.muted = True
        sending = asyncio.create_task(rsmq.queue("jobs").send("once", dedup_key="order-1"))
        await until(stored.peek)
        relay.lead_to(second)
        id = await sending

    assert [m.id for m in await stored.peek()] == [id]
    assert not id.duplicate


async def test_send_is_not_repeated_when_the_broker_may_have_forgotten_it(
    relay, ns, inner, monkeypatch
):
    monkeypatch.setattr("aiorsmq_ng._broker_client.attempt.REMEMBERED_S", -1)
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns, HASTY) as rsmq:
        relay.muted = True
        sending = asyncio.create_task(rsmq.queue("jobs").send("once"))
        await until(stored.peek)
        relay.cut()
        with pytest.raises(SendUnknown):
            await sending

    assert (await stored.attributes()).msgs == 1


async def test_call_that_cannot_have_arrived_is_reported_so_and_the_client_recovers(
    relay, ns, inner, broker
):
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns, Options(deadline=1)) as rsmq:
        relay.lead_to(None)
        with suppress(Unavailable):  # the connection may break after the request was written
            await rsmq.queue("jobs").send("lost")
        with pytest.raises(Unavailable, match="cannot be reached") as away:
            await rsmq.queue("jobs").send("lost")
        assert (away.value.executed, away.value.transient) == (False, True)
        assert (await stored.attributes()).msgs == 0

        relay.lead_to(broker)
        await until(lambda: _works(rsmq))
        await rsmq.queue("jobs").send("there")

    assert [m.text for m in await stored.peek()] == ["there"]


async def test_receive_whose_reply_is_lost_is_answered_with_the_same_message(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    await stored.send_many(["a", "b"])
    async with await client(relay, ns) as rsmq:
        relay.muted = True
        receiving = asyncio.create_task(rsmq.queue("jobs").receive(vt=600))

        async def taken():
            return (await stored.attributes()).leased == 1

        await until(taken)
        await asyncio.sleep(0.1)
        relay.cut()
        repeated_ms = time.time() * 1000
        message = await receiving
        assert (message.text, message.rc) == ("a", 1)
        # The lease counts from the attempt that was answered.
        (held,) = [m async for m in stored.scan() if m.state == "leased"]
        assert held.score >= repeated_ms + 600_000
        assert (await stored.attributes()).leased == 1
        await message.ack()

    assert [m.text for m in await stored.peek()] == ["b"]


async def test_what_a_lost_receive_took_is_given_back(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    await stored.send("x")
    async with await client(relay, ns, HASTY) as rsmq:
        relay.muted = True
        with pytest.raises(Unavailable) as lost:
            await rsmq.queue("jobs").receive(vt=600)
        assert lost.value.executed is None
        relay.cut()

        async def ready():
            return (await stored.attributes()).ready == 1

        await until(ready)


async def test_receive_that_is_cancelled_leaves_nothing_leased(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    async with await client(relay, ns) as rsmq:
        for _ in range(5):
            receiving = asyncio.create_task(rsmq.queue("jobs").receive(vt=600, wait=30))
            await stored.send("x")
            await asyncio.sleep(0)
            receiving.cancel()
            (outcome,) = await asyncio.gather(receiving, return_exceptions=True)
            if not isinstance(outcome, asyncio.CancelledError):
                await outcome.release()  # it was quicker

        async def all_ready():
            return (await stored.attributes()).ready == 5

        await until(all_ready)


async def test_consumer_that_is_cancelled_gives_back_what_it_took(rsmq, inner):
    queue = await rsmq.create_queue("jobs")
    stored = inner.queue("jobs")
    await queue.send_many([str(n) for n in range(10)])
    started = asyncio.Event()

    async def iterate():
        async for message in queue.consume(prefetch=5, vt=600):
            async with message:
                started.set()
                await asyncio.sleep(60)

    async def all_ready():
        return (await stored.attributes()).ready == 10

    consuming = asyncio.create_task(iterate())
    await started.wait()
    consuming.cancel()
    await asyncio.gather(consuming, return_exceptions=True)
    await until(all_ready)


async def test_wake_ups_go_on_with_the_broker_that_comes_next(relay, ns, inner, broker):
    stored = await inner.create_queue("jobs")
    # Without wake-ups it would look again after ten minutes.
    rare = Options(deadline=30, poll_base=600, poll_cap=600)
    async with Broker(inner, LOCAL) as second, await client(relay, ns, rare) as rsmq:
        for text, target in (("one", None), ("two", second)):
            receiving = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
            await asyncio.sleep(0.2)
            if target:
                relay.lead_to(target)
            await stored.send(text)
            async with asyncio.timeout(30):
                message = await receiving
            assert message.text == text
            await message.ack()


async def test_restarted_broker_knows_receipts_by_its_key_only(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    await stored.send_many(["a", "b"])
    async with Broker(inner, KEYED) as first:
        relay.lead_to(first)
        # Opened here: a receive on a connection that was just cut may have been executed.
        rsmq = await client(relay, ns)
        kept, lost = await rsmq.queue("jobs").receive_many(2, vt=600)
    async with aclosing(rsmq):
        async with Broker(inner, KEYED) as second:
            relay.lead_to(second)
            await kept.ack()
        async with Broker(inner, LOCAL) as third:
            relay.lead_to(third)
            with pytest.raises(LeaseLost, match="does not know its receipt"):
                await lost.ack()

    assert (await stored.attributes()).leased == 1


async def test_worker_settles_what_it_works_on_while_its_broker_stops(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    await stored.send_many(["a", "b", "c"])
    begun, go_on = asyncio.Semaphore(0), asyncio.Event()
    async with await client(relay, ns) as rsmq:
        worker = Worker(rsmq, concurrency=3)

        @worker.handler("jobs", vt=600)
        async def handle(_: str) -> None:
            begun.release()
            await go_on.wait()

        patient = BrokerOptions(listen=("127.0.0.1:0",), grace=600)
        async with asyncio.TaskGroup() as tasks, Broker(inner, patient) as broker:
            relay.lead_to(broker)
            running = tasks.create_task(worker.run())
            for _ in range(3):
                await begun.acquire()
            stopping = tasks.create_task(broker.stop())
            await until(lambda: asyncio.sleep(0, broker.stopping))
            go_on.set()
            await stopping
            worker.stop()
            await running

    attributes = await stored.attributes()
    assert (attributes.msgs, attributes.totalrecv) == (0, 3)


async def test_worker_goes_on_while_brokers_come_and_go(relay, ns, inner):
    stored = await inner.create_queue("jobs")
    done = set()
    async with await client(relay, ns) as rsmq:
        worker = Worker(rsmq)

        # What a reply held that was lost with its broker comes back when its lease ends.
        @worker.handler("jobs", vt=3)
        async def handle(body: str) -> None:
            done.add(body)

        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(worker.run())
            await stored.send("first")
            await until(lambda: asyncio.sleep(0, "first" in done))
            for least in (11, 31, 51):
                async with Broker(inner, KEYED) as broker:
                    relay.lead_to(broker)
                    await stored.send_many([f"{least}-{n}" for n in range(20)])
                    await until(lambda least=least: asyncio.sleep(0, len(done) >= least))
            async with Broker(inner, KEYED) as broker:
                relay.lead_to(broker)
                await until(lambda: asyncio.sleep(0, len(done) == 61))

                async def empty():
                    return (await stored.attributes()).msgs == 0

                await until(empty)
                worker.stop()
                await running


async def test_redis_behind_the_broker_is_away_and_comes_back(server_url, ns):
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=Options(deadline=0.3)) as behind,
        Broker(behind, LOCAL) as broker,
        RSMQ(f"grpc://{broker.addresses[0]}", ns=ns, options=HASTY) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        await proxy.refuse()
        for call in (queue.attributes, queue.receive):
            with pytest.raises(Unavailable) as away:
                await call()
            assert away.value.transient
        await proxy.resume()
        await until(lambda: _works(rsmq))
        await queue.send("x")
        assert (await queue.receive()).text == "x"


async def _works(rsmq):
    try:
        await rsmq.list_queues()
    except Unavailable:
        return False
    return True


async def test_send_with_a_dedup_key_is_finished_by_another_broker_beside_plain_sends(
    relay, ns, inner
):
    stored = await inner.create_queue("jobs")
    async with Broker(inner, LOCAL) as second, await client(relay, ns, HASTY) as rsmq:
        queue = rsmq.queue("jobs")
        relay.muted = True
        sending = asyncio.gather(
            queue.send("plain"), queue.send("keyed", dedup_key="k"), return_exceptions=True
        )

        async def all_there():
            return (await stored.attributes()).msgs == 2

        await until(all_there)
        relay.lead_to(second)
        plain, keyed = await sending

    assert isinstance(plain, SendUnknown)
    assert {m.id: m.text for m in await stored.peek(count=3)}[keyed] == "keyed"
    assert not keyed.duplicate
    assert (await stored.attributes()).msgs == 2


async def test_receives_that_share_a_call_all_get_a_message_though_one_reply_has_no_room(inner, ns):
    limits = Limits(message_bytes=65536, reply_bytes=65536)
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.5, limits=limits)
    stored = await inner.create_queue("jobs")
    await stored.send_many([b"x" * 30_000] * 7)
    async with (
        Broker(inner, options) as broker,
        RSMQ(f"grpc://{broker.addresses[0]}", ns=ns) as rsmq,
    ):
        found = await asyncio.gather(*(rsmq.queue("jobs").receive() for _ in range(8)))

    assert [message is None for message in found].count(True) == 1
    assert len({message.id for message in found if message}) == 7


async def test_text_of_an_outage_names_the_broker(relay, ns, inner, caplog):
    await inner.create_queue("jobs")
    async with await client(relay, ns, HASTY) as rsmq:
        relay.muted = True
        with pytest.raises(Unavailable) as lost:
            await rsmq.queue("jobs").receive(vt=600)
        relay.lead_to(None)
        with suppress(Unavailable):
            await rsmq.queue("jobs").attributes()
        with pytest.raises(Unavailable) as away:
            await rsmq.queue("jobs").attributes()
        relay.muted = True

    for text in (str(lost.value), str(away.value), *caplog.messages):
        assert "the broker" in text
        assert "redis" not in text
        assert "the server" not in text


async def test_wake_ups_that_go_and_come_back_are_two_lines_of_the_log(
    relay, ns, inner, broker, caplog
):
    caplog.set_level("INFO", "aiorsmq_ng.notifier")
    stored = await inner.create_queue("jobs")
    rare = Options(deadline=30, poll_base=600, poll_cap=600)
    async with await client(relay, ns, rare) as rsmq:
        receiving = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
        await asyncio.sleep(0.2)
        relay.lead_to(None)
        await asyncio.sleep(1)  # several tries
        relay.lead_to(broker)
        await until(lambda: asyncio.sleep(0, len(caplog.messages) > 1))
        await stored.send("x")
        await (await receiving).ack()

    lost, back = caplog.messages
    assert "lost" in lost
    assert "back" in back


async def test_watch_through_a_broker_ends_with_its_client(broker_url, ns, inner):
    await inner.create_queue("jobs")
    rsmq = await RSMQ(broker_url, ns=ns).open()

    async def watch():
        return [names async for names in rsmq.watch("jobs")]

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.1)
    await rsmq.aclose()
    async with asyncio.timeout(30):
        assert {"jobs"} in await watching
