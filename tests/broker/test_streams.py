"""Consume: flow control, leases, and what becomes of messages when a stream ends."""

import asyncio
import contextvars
import gc
import os
import random
import signal
import sys

import grpc
import grpc.aio
import pytest

from aiorsmq_ng.broker import Limits
from aiorsmq_ng.broker.broker_context import BrokerContext
from aiorsmq_ng.broker.caller_limits import Admission
from aiorsmq_ng.broker.idempotency import IdempotentCalls
from aiorsmq_ng.broker.receipts import ReceiptSigner
from aiorsmq_ng.broker.receive import BoundedReceiver
from aiorsmq_ng.broker.streams import Stream, run_until_stop
from aiorsmq_ng.broker.tokens import CALLER, ROLES, Caller
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub

from ..support.clock import pass_time
from ..support.streams import relayed
from ..support.waiting import until
from .support import connected

JOBS = [pb.Source(queue="jobs")]


@pytest.fixture
async def jobs(rsmq):
    return await rsmq.create_queue("jobs")


@pytest.fixture
def state(jobs):
    """Return a condition on the attributes of the queue."""

    def state(**wanted):
        async def holds():
            found = await jobs.attributes()
            return all(getattr(found, name) == value for name, value in wanted.items())

        return holds

    return state


class Consuming:
    """A stream that is read message by message."""

    def __init__(self, stream):
        self.stream = stream
        self.deliveries = []

    async def read(self):
        while not self.deliveries:
            self.deliveries += (await self.stream.read()).deliveries
        return self.deliveries.pop(0)

    async def lost(self):
        while not (lost := (await self.stream.read()).lost):
            pass
        return lost[0]

    def cancel(self):
        self.stream.cancel()


def consume(queues, **fields):
    return Consuming(queues.Consume(pb.ConsumeRequest(sources=JOBS, **fields)))


async def read(stream, count):
    return [await stream.read() for _ in range(count)]


async def test_what_is_consumed_comes_in_order_and_can_be_acked(queues, jobs, state):
    await jobs.send_many([str(n) for n in range(100)])
    stream = consume(queues, max_unsettled=7)

    for number in range(100):
        (delivery,) = await read(stream, 1)
        assert delivery.body == b"%d" % number
        await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))

    await until(state(msgs=0))
    stream.cancel()


async def test_no_more_than_wanted_are_in_the_clients_hands(queues, jobs, state):
    await jobs.send_many(["x"] * 50)
    stream = consume(queues, max_unsettled=20)
    held = await read(stream, 20)

    await until(state(leased=20))
    await queues.Ack(pb.AckRequest(receipts=[d.receipt for d in held[:3]]))
    await queues.Release(pb.ReleaseRequest(receipts=[held[3].receipt], delay_ms=60_000))
    await queues.Reject(pb.RejectRequest(receipts=[held[4].receipt]))
    await read(stream, 5)
    await until(state(leased=21))  # 20, and the one that was released with a delay
    stream.cancel()


async def test_a_cancelled_stream_gives_everything_back_at_once(queues, jobs, state):
    await jobs.send_many(["x"] * 30)
    stream = consume(queues, max_unsettled=25, vt_ms=600_000)
    await read(stream, 3)
    await until(state(leased=25))

    stream.cancel()

    await until(state(ready=30))


@pytest.mark.parametrize("seed", range(3))
async def test_streams_ended_at_any_moment_under_traffic_leave_nothing_leased(
    rsmq, serve, jobs, state, seed
):
    chance = random.Random(seed)

    async def send():
        while True:
            await jobs.send_many(["x"] * chance.randint(1, 6))
            await asyncio.sleep(chance.random() * 0.002)

    sending, rounds = asyncio.create_task(send()), 0
    async with (
        asyncio.timeout(60),
        serve() as broker,
        grpc.aio.insecure_channel(broker.addresses[0]) as channel,
    ):
        while rounds < 40 or (await jobs.attributes()).totalrecv < 40:
            streams = [
                consume(QueuesStub(channel), max_unsettled=8, vt_ms=600_000) for _ in range(3)
            ]
            reading = [asyncio.create_task(read(stream, 100)) for stream in streams]
            await asyncio.sleep(chance.random() * 0.02)
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
            rounds += 1
    sending.cancel()
    await asyncio.wait([sending])

    # The broker has ended, and every stream with it.
    await until(state(leased=0))
    assert rsmq._keeper.kept() == []


async def test_a_connection_that_is_cut_gives_everything_back_at_once(broker, jobs, state):
    await jobs.send_many(["x"] * 30)
    async with relayed(broker) as relay, grpc.aio.insecure_channel(relay.address) as channel:
        stream = consume(QueuesStub(channel), max_unsettled=25, vt_ms=600_000)
        await read(stream, 3)
        await until(state(leased=25))

        relay.cut()

        await until(state(ready=30))


CLIENT = """
import sys, grpc
from aiorsmq_ng.rpc import v1_pb2 as pb, v1_pb2_grpc
stub = v1_pb2_grpc.QueuesStub(grpc.insecure_channel(sys.argv[1]))
sources = [pb.Source(queue="jobs")]
if sys.argv[2] == "consume":
    for _ in stub.Consume(pb.ConsumeRequest(sources=sources, vt_ms=600_000)):
        pass
while True:
    stub.Receive(pb.ReceiveRequest(sources=sources, wait_ms=50_000, vt_ms=600_000))
"""


async def test_a_client_that_is_killed_in_mid_stream_gives_everything_back(broker, jobs, state):
    await jobs.send_many(["x"] * 30)
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, broker.addresses[0], "consume"
    )
    await until(state(leased=10))

    os.kill(client.pid, signal.SIGKILL)
    await client.wait()

    await until(state(ready=30))


async def test_nothing_is_taken_for_a_receive_whose_client_is_gone(broker, queues, jobs, state):
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, broker.addresses[0], "receive"
    )
    await until(lambda: asyncio.sleep(0, broker.under_way))
    os.kill(client.pid, signal.SIGKILL)
    await client.wait()
    await until(lambda: asyncio.sleep(0, not broker.under_way))

    await jobs.send_many(["x"] * 5)

    assert await state(ready=5)()


async def test_a_receive_cancelled_in_the_moment_of_success_gives_back(
    queues, jobs, state, rsmq, monkeypatch
):
    real, calls = rsmq.receive_many, []

    async def receive_many(*args, **options):
        found = await real(*args, **options)
        calls[0].cancel()  # the message is taken, and its receiver does not know yet
        return found

    monkeypatch.setattr(rsmq, "receive_many", receive_many)
    taking = BoundedReceiver(
        BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls()),
        Admission(Limits()),
    )
    calls.append(asyncio.ensure_future(taking.take([jobs], 5, 600.0, 1000, 20.0)))
    await asyncio.sleep(0.1)
    await jobs.send("x")
    with pytest.raises(asyncio.CancelledError):
        await calls[0]

    await until(state(ready=1))


async def test_a_slow_reader_does_not_grow_the_brokers_memory(broker, queues, jobs):
    await jobs.send_many([bytes(60_000)] * 700)
    async with connected(broker) as channel:
        stream = consume(QueuesStub(channel), max_unsettled=700)
        await read(stream, 1)  # and no more
        before = -1
        while (leased := (await jobs.attributes()).leased) != before:
            before = leased
            await asyncio.sleep(0.5)

        assert leased < 350  # what the connection takes by itself, and one step
        stream.cancel()


async def test_leases_are_renewed_for_as_long_as_the_stream_is_open(queues, jobs, state):
    await jobs.send("x")
    stream = consume(queues, vt_ms=900)
    await read(stream, 1)

    for _ in range(5):
        await asyncio.sleep(0.5)
        assert await state(leased=1, totalrecv=1)()
    stream.cancel()
    await until(state(ready=1))


async def test_without_renewal_a_message_is_free_when_its_lease_ends(queues, jobs):
    await jobs.send("x")
    stream = consume(queues, vt_ms=300, no_renewal=True, max_unsettled=1)

    (first,) = await read(stream, 1)
    assert (await stream.lost()).receipt == first.receipt
    (second,) = await read(stream, 1)
    assert (first.rc, second.rc) == (1, 2)
    stream.cancel()


async def test_without_renewal_an_extended_lease_is_not_reported_lost(queues, jobs):
    await jobs.send_many(["a", "b"])
    stream = consume(queues, vt_ms=1500, no_renewal=True, max_unsettled=2)
    first, second = await read(stream, 2)
    extended = pb.ExtendRequest(receipts=[first.receipt], vt_ms=600_000)
    assert list((await queues.Extend(extended)).outcomes) == [pb.OUTCOME_DONE]

    # Both leases began together, so the end of the first would be reported no later.
    assert (await stream.lost()).receipt == second.receipt
    stream.cancel()


async def test_a_stream_is_informed_when_another_consumer_takes_a_message_over(queues, jobs):
    await jobs.send("x")
    stream = consume(queues, vt_ms=600)
    (first,) = await read(stream, 1)

    await queues.Recover(pb.RecoverRequest(source=JOBS[0], count=1, idle_ms=0, vt_ms=600_000))

    assert (await stream.lost()).receipt == first.receipt
    stream.cancel()


async def test_a_message_too_large_for_a_reply_is_consumed_without_its_body(queues, rsmq):
    big = await rsmq.create_queue("big", maxsize=-1)
    await big.send(bytes(5_000_000))
    stream = Consuming(queues.Consume(pb.ConsumeRequest(sources=[pb.Source(queue="big")])))

    (delivery,) = await read(stream, 1)
    assert (delivery.body, delivery.omitted_bytes) == (b"", 5_000_000)
    stream.cancel()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"sources": [pb.Source(queue="missing")]}, grpc.StatusCode.NOT_FOUND),
        ({"sources": []}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"sources": JOBS, "max_unsettled": 5000}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"sources": JOBS, "max_bytes": -5}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"sources": JOBS, "max_bytes": 10**12}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_stream_that_cannot_be_is_refused(queues, jobs, fields, status):
    with pytest.raises(grpc.RpcError) as refused:
        await queues.Consume(pb.ConsumeRequest(**fields)).read()

    assert refused.value.code() is status


async def test_two_hundred_streams_at_once_share_the_messages(broker, jobs, state):
    async with connected(broker) as channel:
        queues = QueuesStub(channel)
        streams = [consume(queues, max_unsettled=1) for _ in range(200)]
        reading = [asyncio.ensure_future(stream.read()) for stream in streams]
        await until(lambda: asyncio.sleep(0, broker.under_way == 200))
        await jobs.send_many([str(n) for n in range(200)])

        got = await asyncio.gather(*reading)
        assert sorted(int(d.body) for d in got) == list(range(200))
        await queues.Ack(pb.AckRequest(receipts=[d.receipt for d in got]))
        assert await state(msgs=0)()
        for stream in streams:
            stream.cancel()


async def test_a_stop_waits_for_what_is_in_the_clients_hands(serve, jobs, state):
    async with serve(grace=20) as broker, connected(broker) as channel:
        queues = QueuesStub(channel)
        await jobs.send_many(["a", "b"])
        stream = consume(queues, max_unsettled=1)
        (delivery,) = await read(stream, 1)
        waiting = queues.Receive(pb.ReceiveRequest(sources=[pb.Source(queue="jobs")], vt_ms=0))
        await waiting
        stopping = asyncio.ensure_future(broker.stop())
        await until(lambda: asyncio.sleep(0, broker.stopping))

        with pytest.raises(grpc.RpcError) as refused:
            await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"x"]))
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert dict(tuple(refused.value.trailing_metadata()))["rsmq-code"] == "stopping"
        done = await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))
        assert list(done.outcomes) == [pb.OUTCOME_DONE]
        with pytest.raises(grpc.RpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping

    assert await state(ready=1, leased=0)()


async def test_a_stop_waits_for_what_a_receive_has_handed_out(serve, jobs, state):
    async with serve(grace=600) as broker, connected(broker) as channel:
        queues = QueuesStub(channel)
        await jobs.send_many(["a", "b", "c"])
        request = pb.ReceiveRequest(sources=JOBS, count=2, vt_ms=600_000)
        first, second = (await queues.Receive(request)).deliveries
        short = pb.ReceiveRequest(sources=JOBS, vt_ms=300)
        await queues.Receive(short)  # and it is never heard of again
        stopping = asyncio.ensure_future(broker.stop())
        await until(lambda: asyncio.sleep(0, broker.stopping))

        for delivery in (first, second):
            await queues.Extend(pb.ExtendRequest(receipts=[delivery.receipt], vt_ms=500_000))
            assert not stopping.done()
            done = await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))
            assert list(done.outcomes) == [pb.OUTCOME_DONE]
        await asyncio.wait_for(stopping, 30)

    await until(state(ready=1))


async def test_a_stop_gives_back_what_is_not_settled_in_time(serve, jobs, state):
    async with serve(grace=0.5) as broker, connected(broker) as channel:
        await jobs.send("a")
        stream = consume(QueuesStub(channel), vt_ms=600_000)
        await read(stream, 1)
        waiting = QueuesStub(channel).Receive(pb.ReceiveRequest(sources=JOBS, wait_ms=50_000))
        await until(lambda: asyncio.sleep(0, broker.under_way == 2))
        await broker.stop()
        assert not (await waiting).deliveries

    await until(state(ready=1))


async def test_a_subscription_is_consumed_and_its_peer_kept_alive(queues, channel, rsmq):
    topics = TopicsStub(channel)
    who = pb.Subscriber(
        topic="news", consumer="c", mode=pb.MODE_BROADCAST, peer="p", peer_timeout_ms=1000
    )
    await topics.Subscribe(pb.SubscribeRequest(subscriber=who))
    request = pb.ConsumeRequest(sources=[pb.Source(subscriber=who)], max_unsettled=1)
    stream = Consuming(queues.Consume(request))
    await topics.Publish(pb.PublishRequest(topic="news", bodies=[b"a", b"b"]))
    (first,) = await read(stream, 1)
    await asyncio.sleep(2)  # it works on that one, and asks for no other

    described = await topics.DescribeTopic(pb.DescribeTopicRequest(topic="news"))
    (subscription,) = described.subscriptions
    assert (subscription.state, subscription.peers[0].idle_ms < 1000) == ("on", True)
    await queues.Ack(pb.AckRequest(receipts=[first.receipt]))
    (second,) = await read(stream, 1)
    assert (first.body, second.body) == (b"a", b"b")
    stream.cancel()


async def test_a_message_that_comes_when_its_stream_has_just_ended_is_given_back(
    rsmq, jobs, state, monkeypatch
):
    shared = BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls())
    stream = Stream(shared, [jobs], 10, pb.ConsumeRequest(sources=JOBS, vt_ms=600_000))
    real = rsmq.receive_many

    async def receive_many(*args, **options):
        found = await real(*args, **options)
        stream.close()  # it is taken, and the stream does not know yet
        return found

    monkeypatch.setattr(rsmq, "receive_many", receive_many)
    running = asyncio.ensure_future(stream.run(None))
    await jobs.send("x")

    await until(state(ready=1, totalrecv=1))
    assert len(shared.streamed) == 0
    running.cancel()


class Written:
    """Stands for the way to a client."""

    def __init__(self):
        self.responses = asyncio.Queue()

    async def write(self, response):
        await self.responses.put(response)


class Stuck:
    """Stands for a client that reads one response and no more."""

    def __init__(self):
        self.stuck = asyncio.Event()
        self._read = 0

    async def write(self, response):
        if self._read:
            self.stuck.set()
            await asyncio.Event().wait()
        self._read += len(response.deliveries)


async def test_large_bodies_are_leased_by_their_size_for_a_client_that_does_not_read(rsmq):
    big = await rsmq.create_queue("big", maxsize=-1)
    await big.send_many([bytes(100_000)] * 40)
    shared = BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls())
    request = pb.ConsumeRequest(sources=[pb.Source(queue="big")])
    stream, client = Stream(shared, [big], 1000, request), Stuck()
    running = asyncio.ensure_future(stream.run(client))

    await asyncio.wait_for(client.stuck.wait(), 30)
    assert (await big.attributes()).leased == 6  # one that was read, and a step of 500 kB
    running.cancel()
    stream.close()


async def test_a_lost_lease_is_reported_with_the_receipt_of_the_streams_identity(rsmq, jobs):
    shared = BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls())
    CALLER.set(Caller("worker", ROLES))
    stream = Stream(shared, [jobs], 10, pb.ConsumeRequest(sources=JOBS, vt_ms=600_000))
    written = Written()
    running = asyncio.ensure_future(stream.run(written))
    await jobs.send("x")
    (delivery,) = (await written.responses.get()).deliveries
    (held,) = stream._unsettled.values()

    # Leases are renewed by a task that began in the call of another caller.
    contextvars.Context().run(held.lease.on_lost)

    (lost,) = (await written.responses.get()).lost
    assert lost.receipt == delivery.receipt
    running.cancel()
    stream.close()


async def test_a_stream_that_fails_after_its_client_is_gone_fails_in_peace():
    began, told = asyncio.Event(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: told.append(what["message"]))

    async def work():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the client is gone")

    calling = asyncio.ensure_future(run_until_stop(work(), asyncio.Event()))
    await began.wait()
    calling.cancel()
    await asyncio.wait([calling])
    await asyncio.sleep(0)
    del calling
    gc.collect()

    assert told == []


async def vanished(jobs, raw, ns, count=1):
    """Lease messages for a holder that is never heard of again."""
    await jobs.receive_many(count, vt=10)
    await pass_time(raw, f"{ns}:jobs", 12)


async def test_what_a_client_had_when_its_stream_ended_has_vanished_with_it(queues, jobs, state):
    await jobs.send_many(["x"] * 3)
    stream = consume(queues, max_unsettled=3)
    await read(stream, 3)
    stream.cancel()
    await until(state(leased=0))

    held = [await jobs.receive() for _ in range(3)]
    assert [(m.strikes, m.attempt) for m in held] == [(1, 2)] * 3


async def test_what_a_client_released_before_its_stream_ended_is_no_suspect(queues, jobs, state):
    await jobs.send_many(["x"] * 3)
    stream = consume(queues, max_unsettled=3)
    held = await read(stream, 3)
    stream.cancel()
    await queues.Release(pb.ReleaseRequest(receipts=[d.receipt for d in held], unseen=True))

    await until(state(leased=0))
    again = await jobs.receive_many(3)
    assert [(m.strikes, m.attempt) for m in again] == [(0, 1)] * 3


async def test_suspect_comes_to_a_stream_when_nothing_else_is_unsettled(
    queues, jobs, state, raw, ns
):
    await jobs.send_many(["struck 1", "struck 2"])
    await vanished(jobs, raw, ns, 2)
    await jobs.send_many(["fresh 1", "fresh 2"])
    stream = consume(queues, max_unsettled=10)
    unsettled, most, seen = set(), 0, []

    while len(seen) < 4:
        delivery = await stream.read()
        unsettled.add(delivery.receipt)
        seen.append(delivery.body.decode())
        if delivery.strikes:
            most = max(most, len(unsettled))
            assert stream.deliveries == []
        await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))
        unsettled.discard(delivery.receipt)

    assert most == 1
    assert sorted(seen) == ["fresh 1", "fresh 2", "struck 1", "struck 2"]
    await until(state(msgs=0))
    stream.cancel()


async def test_stream_tells_of_what_was_put_aside(queues, jobs, raw, ns):
    await jobs.send("poison")
    await vanished(jobs, raw, ns)
    source = pb.Source(queue="jobs", max_receives=1)
    stream = queues.Consume(pb.ConsumeRequest(sources=[source]))
    await jobs.send("fresh")

    letters = []
    while not letters:
        letters += (await stream.read()).dead_letters
    stream.cancel()

    assert [(x.queue, x.body, x.rc) for x in letters] == [("jobs", b"poison", 1)]
    assert letters[0].reason.startswith("received once without being settled")
