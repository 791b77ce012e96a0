"""Clients that want to harm: what they can take, and what is left for the others."""

import asyncio
import gc
import itertools
import logging
import tracemalloc

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aiorsmq_ng.broker import Limits
from aiorsmq_ng.broker.memory_budget import CallBudget
from aiorsmq_ng.rpc import routeguide_pb2
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.routeguide_pb2_grpc import RouteGuideStub
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub

from ..support.http2 import raw_client
from ..support.waiting import until
from .support import connected
from .test_security import bearer, status

HOSTILE, HONEST = "token-of-a-hostile-client", "token-of-an-honest-client"
TOKENS = f"""
[hostile]
token = "{HOSTILE}"
roles = ["producer", "consumer"]

[honest]
token = "{HONEST}"
roles = ["producer", "consumer"]
"""
MIB = 1024 * 1024
#: What is received of a call before the door has let it in.
AHEAD = 64 * 1024
JOBS = [pb.Source(queue="jobs")]


@pytest.mark.parametrize(
    "method",
    [
        "/aiorsmq.v1.Queues/Send",
        "/aiorsmq.v1.Queues/Consume",
        "/aiorsmq.v1.Queues/Purge",
        "/routeguide.RouteGuide/Publish",
        "/no.such.Service/Call",
    ],
)
async def test_nothing_is_received_of_a_call_that_is_refused(serve, method):
    """Half-sent messages of 4 MiB, by a caller without the right token or role."""
    tokens = f'[shop]\ntoken = "{HOSTILE}"\nroles = []\n'.replace("[]", '["consumer"]')
    refused = {12} if "no.such" in method else {16}
    for headers in ((), bearer("a-wrong-token-0123")):
        async with serve(tokens=tokens) as broker, raw_client(broker.addresses[0]) as client:
            for _ in range(50):
                client.push(client.open(method, missing=4 * MIB, headers=headers), 4 * MIB - 1)
            await client.until(lambda client=client: len(client.statuses) == 50)
            await client.quiet()

        assert set(client.statuses.values()) == refused
        assert max(client.accepted.values()) <= AHEAD


async def test_no_more_is_received_of_one_caller_than_its_share(serve, rsmq):
    """With a token: what is announced is counted before it is read."""
    await rsmq.create_queue("jobs")
    limits = Limits(message_bytes=MIB, receiving_bytes=8 * MIB)
    async with (
        serve(tokens=TOKENS, limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        for _ in range(60):
            stream = client.open("/aiorsmq.v1.Queues/Send", missing=MIB, headers=bearer(HOSTILE))
            client.push(stream, MIB - 1)
        await client.quiet()

        assert 3 * MIB < sum(client.accepted.values()) < 4 * MIB + 60 * AHEAD
        large = [n for n in client.accepted.values() if n > AHEAD]
        assert len(large) == 4  # half of the eight that are taken altogether
        request = pb.SendRequest(queue="jobs", bodies=[bytes(60_000)])
        for _ in range(20):
            await QueuesStub(channel).Send(request, metadata=bearer(HONEST))
        await until(lambda: asyncio.sleep(0, broker._admission.requests.taken == 4 * MIB))
        client.abort()
        await until(lambda: asyncio.sleep(0, not broker.under_way))

    assert broker._admission.requests.taken == 0


async def test_a_request_that_takes_too_long_to_arrive_is_given_up(serve, rsmq):
    await rsmq.create_queue("jobs")
    limits = Limits(arrival=0.3, message_bytes=MIB, receiving_bytes=8 * MIB)
    async with serve(limits=limits) as broker, raw_client(broker.addresses[0]) as client:
        for _ in range(10):
            client.push(client.open("/aiorsmq.v1.Queues/Send", missing=MIB), MIB - 1)
        await client.until(lambda: len(client.statuses) == 10)

        # Eight were received in part, the others got no place in time.
        assert set(client.statuses.values()) <= {4, 8}
        await until(lambda: asyncio.sleep(0, not broker.under_way))
        assert broker._admission.requests.taken == 0


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_probes_are_counted_and_take_nothing_from_callers(serve, rsmq, method):
    await rsmq.create_queue("jobs")
    limits = Limits(message_bytes=MIB, probes=20)
    async with (
        serve(tokens=TOKENS, limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        for _ in range(40):
            stream = client.open(f"/grpc.health.v1.Health/{method}", missing=MIB)
            client.push(stream, MIB - 1)
        await client.quiet()

        # All of one address: half of the places, and half of the four requests that are received.
        assert list(client.statuses.values()) == [8] * 30
        assert sum(client.accepted.values()) < 2 * MIB + 40 * AHEAD
        info = QueuesStub(channel).GetInfo(pb.GetInfoRequest(), metadata=bearer(HONEST))
        assert (await info).identity == "honest"
        client.abort()
        health = health_pb2_grpc.HealthStub(channel)
        check = health_pb2.HealthCheckRequest()
        await until(lambda: answered(health.Check(check)))


async def answered(call):
    return await status(call) is grpc.StatusCode.OK


async def test_a_connection_has_no_more_streams_than_it_may(serve):
    async with (
        serve(limits=Limits(connection_streams=7)) as broker,
        raw_client(broker.addresses[0]) as client,
    ):
        assert client.most_streams == 7


async def test_one_token_cannot_take_all_streams(serve, rsmq):
    await rsmq.create_queue("jobs")
    watch = pb.WatchRequest(queues=["jobs"])
    async with (
        serve(tokens=TOKENS, limits=Limits(streams=20)) as broker,
        connected(broker) as channel,
        connected(broker) as other,
    ):
        queues, hostile = QueuesStub(other), QueuesStub(channel)
        streams = [hostile.Watch(watch, metadata=bearer(HOSTILE)) for _ in range(20)]
        outcomes = [await status(stream.read()) for stream in streams]
        assert outcomes.count(grpc.StatusCode.OK) == 10
        assert outcomes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 10
        request = pb.ReceiveRequest(sources=JOBS, wait_ms=1)
        assert await status(queues.Receive(request, metadata=bearer(HONEST))) is grpc.StatusCode.OK


async def test_the_log_tells_of_the_first_refusals_and_counts_the_others(serve, caplog):
    caplog.set_level(logging.INFO)
    async with serve(tokens=TOKENS) as broker, connected(broker) as channel:
        queues = QueuesStub(channel)
        for _ in range(200):
            await status(queues.GetInfo(pb.GetInfoRequest()))
        await status(queues.Purge(pb.PurgeRequest(queue="jobs"), metadata=bearer(HONEST)))

    refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert len(refused) <= 40
    assert "'honest' lacks the role" in refused[-1]


async def filled(rsmq, count=40, size=60_000):
    queue = await rsmq.create_queue("jobs", vt=300)
    await queue.send_many([bytes(size)] * count)
    return queue


async def test_replies_that_are_not_read_are_bounded_for_each_caller(serve, rsmq):
    """Small requests for the same large reply again and again, and none of them read."""
    await filled(rsmq)
    limits = Limits(
        reply_bytes=MIB, message_bytes=MIB, unread_bytes=8 * MIB, receiving_bytes=64 * MIB
    )
    request = pb.ReceiveRequest(sources=JOBS, count=1000, vt_ms=0, max_bytes=64 * MIB)
    async with (
        serve(tokens=TOKENS, limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        client.reads = False
        for _ in range(100):
            client.open(
                "/aiorsmq.v1.Queues/Receive", request.SerializeToString(), headers=bearer(HOSTILE)
            )
        await until(lambda: asyncio.sleep(0, broker._admission.replies.taken > 3 * MIB))
        await client.quiet()

        assert broker._admission.replies.taken <= 4 * MIB
        queues = QueuesStub(channel)
        got = await queues.Receive(request, metadata=bearer(HONEST))
        assert 0 < sum(len(d.body) for d in got.deliveries) <= MIB
        client.abort()
        await until(lambda: asyncio.sleep(0, not broker.under_way))

    assert broker._admission.replies.taken == 0


async def test_streams_that_are_not_read_are_bounded_for_each_caller(serve, rsmq):
    queue = await filled(rsmq, count=400)
    limits = Limits(
        reply_bytes=MIB, message_bytes=MIB, unread_bytes=8 * MIB, receiving_bytes=64 * MIB
    )
    request = pb.ConsumeRequest(sources=JOBS, max_unsettled=100)
    async with (
        serve(tokens=TOKENS, limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        client.reads = False
        for _ in range(40):
            client.open(
                "/aiorsmq.v1.Queues/Consume", request.SerializeToString(), headers=bearer(HOSTILE)
            )
        await until(lambda: asyncio.sleep(0, broker._admission.replies.taken > 2 * MIB))
        await client.quiet()

        assert broker._admission.replies.taken <= 4 * MIB
        assert (await queue.attributes()).leased * 60_000 < 5 * MIB
        stream = QueuesStub(channel).Consume(request, metadata=bearer(HONEST))
        assert (await stream.read()).deliveries
        stream.cancel()
        client.abort()
        await until(lambda: asyncio.sleep(0, not broker.under_way))

    assert broker._admission.replies.taken == 0
    assert (await queue.attributes()).msgs == 400


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("Receive", pb.ReceiveRequest(sources=JOBS, count=8, wait_ms=30_000)),
        ("Consume", pb.ConsumeRequest(sources=JOBS, max_unsettled=8)),
    ],
)
async def test_what_comes_for_many_who_wait_and_do_not_read_is_given_back(
    serve, rsmq, method, request_
):
    """No room is kept for what a wait may bring, so it is looked at when it comes."""
    queue = await rsmq.create_queue("jobs", vt=300)
    limits = Limits(
        reply_bytes=MIB, message_bytes=MIB, unread_bytes=4 * MIB, receiving_bytes=64 * MIB
    )
    async with (
        serve(tokens=TOKENS, limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
    ):
        client.reads = False
        for _ in range(100):
            path, message = f"/aiorsmq.v1.Queues/{method}", request_.SerializeToString()
            client.open(path, message, headers=bearer(HOSTILE))
        await until(lambda: asyncio.sleep(0, broker.under_way == 100))
        await client.quiet()
        await queue.send_many([bytes(60_000)] * 200)
        await until(lambda: asyncio.sleep(0, broker._admission.replies.taken > MIB))
        await client.quiet()

        assert broker._admission.replies.taken <= 2 * MIB
        # And what is on the wire: 64 KiB.
        assert (await queue.attributes()).leased * 60_000 <= 2 * MIB + 4 * 60_000


@pytest.mark.parametrize("peer_timeout_ms", [1, 249])
async def test_a_peer_cannot_ask_for_a_hot_loop(serve, rsmq, peer_timeout_ms):
    who = pb.Subscriber(topic="news", consumer="c", mode=pb.MODE_BROADCAST, peer="p")
    await rsmq.topic("news").subscribe("c", mode="broadcast", peer="p")
    who.peer_timeout_ms = peer_timeout_ms
    source, invalid = pb.Source(subscriber=who), grpc.StatusCode.INVALID_ARGUMENT
    async with serve() as broker, connected(broker) as channel:
        queues, topics = QueuesStub(channel), TopicsStub(channel)
        stream = queues.Consume(pb.ConsumeRequest(sources=[source]))
        assert await status(stream.read()) is invalid
        assert await status(queues.Receive(pb.ReceiveRequest(sources=[source]))) is invalid
        assert await status(topics.Subscribe(pb.SubscribeRequest(subscriber=who))) is invalid
        assert await status(topics.KeepAlive(pb.KeepAliveRequest(subscriber=who))) is invalid


async def test_the_description_of_a_queue_fits_into_a_reply(serve, rsmq):
    """Whatever its consumers said of themselves, a client takes 4 MiB."""
    queue = await rsmq.create_queue("jobs")
    ids = ["h" * 64] * 100
    for start in range(0, 1000, 100):
        names = [f"{start + n} {'n' * 240}" for n in range(100)]
        await asyncio.gather(*(rsmq.gateway.announce(queue, name, 1, ids) for name in names))
    async with serve() as broker, connected(broker) as channel:
        stats = await QueuesStub(channel).GetStats(pb.GetStatsRequest(queue="jobs"))

    assert len(stats.consumers) == 1000
    assert stats.ByteSize() < 4 * MIB


async def test_a_stream_goes_on_with_little_when_much_does_not_fit(serve, rsmq):
    """Small messages, then large ones, while another stream of the same caller is not read."""
    queue = await rsmq.create_queue("jobs", vt=300, maxsize=-1)
    stock = await rsmq.create_queue("stock", vt=300, maxsize=-1)
    await stock.send_many([bytes(MIB // 2)] * 20)
    await queue.send_many(["small"] * 40)
    limits = Limits(reply_bytes=MIB, message_bytes=MIB, unread_bytes=4 * MIB)
    async with (
        serve(limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        client.reads = False
        idle = pb.ConsumeRequest(sources=[pb.Source(queue="stock")], max_unsettled=3)
        for _ in range(5):
            client.open("/aiorsmq.v1.Queues/Consume", idle.SerializeToString())
        await until(lambda: asyncio.sleep(0, broker._admission.replies.taken > 2 * MIB))
        queues, got = QueuesStub(channel), []
        stream = queues.Consume(pb.ConsumeRequest(sources=JOBS, max_unsettled=100))
        async with asyncio.timeout(60):
            while len(got) < 60:
                for delivery in (await stream.read()).deliveries:
                    got.append(delivery.rc)
                    await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))
                if len(got) == 40:
                    await queue.send_many([bytes(500_000)] * 20)

    assert len(got) == 60
    assert max(got) <= 5


async def test_a_receive_takes_less_where_there_is_room_for_less(serve, rsmq, monkeypatch):
    await filled(rsmq)
    sizes, count = [], CallBudget.replies

    def counted(budget, size):
        count(budget, size)
        sizes.append(size)

    monkeypatch.setattr(CallBudget, "replies", counted)
    limits = Limits(arrival=1, reply_bytes=MIB, message_bytes=MIB, unread_bytes=4 * MIB)
    request = pb.ReceiveRequest(sources=JOBS, count=1000, vt_ms=0, max_bytes=MIB)
    async with (
        serve(limits=limits) as broker,
        raw_client(broker.addresses[0]) as client,
        connected(broker) as channel,
    ):
        client.reads = False
        small = pb.ReceiveRequest(sources=JOBS, count=10, vt_ms=0)
        for each in (request, request, request, small):
            had = len(sizes)
            client.open("/aiorsmq.v1.Queues/Receive", each.SerializeToString())
            # Until its size is known, a reply counts as an estimate, and the next one gets less.
            await until(lambda had=had: len(sizes) > had)
        assert 3.2 * MIB < broker._admission.replies.taken < 4 * MIB
        got = await QueuesStub(channel).Receive(request)

    assert 0 < len(got.deliveries) < MIB // 65536


def _with_unknown_field(source: pb.Source, filler: str) -> pb.Source:
    """Return *source* with a field that no version of the interface has."""
    extra = pb.SetAttributesRequest(queue=filler).SerializeToString()  # field 1, a text
    return pb.Source.FromString(source.SerializeToString() + b"\xfa\x3e" + extra[1:])


def _large_calls(channel, filler):
    """Yield every call that names a consumer, or a subscription, with as much as fits."""
    queues, topics, guide = QueuesStub(channel), TopicsStub(channel), RouteGuideStub(channel)
    who = pb.Subscriber(topic="news", consumer="c")
    long = pb.Subscriber(topic="news", consumer=filler)
    peer = pb.Subscriber(topic="news", consumer="c", peer=filler)
    gomq = routeguide_pb2.Subscription(key="news", consumerID=filler)
    sources = [pb.Source(subscriber=one) for one in (long, peer)]
    sources += [_with_unknown_field(pb.Source(subscriber=who), filler)]
    sources += [pb.Source(subscriber=who, dead_letter=filler), pb.Source(queue=filler)]
    for source in sources:
        yield queues.Receive, pb.ReceiveRequest(sources=[source])
        yield queues.Recover, pb.RecoverRequest(source=source, idle_ms=1000)
    for one in (long, peer):
        yield topics.Subscribe, pb.SubscribeRequest(subscriber=one)
        yield topics.KeepAlive, pb.KeepAliveRequest(subscriber=one)
    yield topics.Unsubscribe, pb.UnsubscribeRequest(topic="news", consumer=filler)
    yield topics.DescribeTopic, pb.DescribeTopicRequest(topic=filler)
    yield guide.Subscribe, gomq
    yield guide.Subscribe, routeguide_pb2.Subscription(key=filler, consumerID="c")
    yield guide.Unsubscribe, gomq
    yield guide.Observe, routeguide_pb2.Identification(consumerID=filler)
    yield queues.Ack, pb.AckRequest(receipts=[filler])


async def test_nothing_that_a_call_names_stays_when_it_is_over(serve, rsmq):
    """Names that are refused, and unknown fields."""
    await rsmq.topic("news").subscribe("c")
    kept = {}
    async with serve() as broker, connected(broker) as channel:
        for number, (method, _) in enumerate([*_large_calls(channel, "x")]):
            tracemalloc.start()
            try:
                for again in range(3):
                    filler = f"{again}" + "x" * MIB
                    calls = itertools.islice(_large_calls(channel, filler), number, None)
                    await status(method(next(calls)[1]))
                    del calls
                gc.collect()
                kept[number] = tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()

    assert not {number: size for number, size in kept.items() if size > 2 * MIB}


@pytest.mark.parametrize("method", ["Watch", "Consume", "Receive"])
async def test_queues_that_calls_wait_for_are_counted(serve, rsmq, method):
    """Many short names are few bytes of a request, and much more of the broker's memory."""
    names = [f"q{number}" for number in range(10)]
    for name in names:
        await rsmq.create_queue(name)
    sources = [pb.Source(queue=name) for name in names]
    request = {
        "Watch": pb.WatchRequest(queues=names),
        "Consume": pb.ConsumeRequest(sources=sources),
        "Receive": pb.ReceiveRequest(sources=sources, wait_ms=60_000),
    }[method]
    # Four batches of ten, of which one of several callers may have half.
    limits = Limits(batch=10, message_bytes=4096, receiving_bytes=1)
    async with serve(tokens=TOKENS, limits=limits) as broker:
        async with connected(broker) as channel, connected(broker) as other:

            def wait(channel, name):
                call = getattr(QueuesStub(channel), method)(request, metadata=bearer(name))
                return asyncio.ensure_future(status(call if method == "Receive" else drained(call)))

            waiting = [wait(channel, HOSTILE) for _ in range(5)]
            await until(lambda: asyncio.sleep(0, sum(one.done() for one in waiting) == 3))
            honest = wait(other, HONEST)
            await asyncio.sleep(0.2)
            left, refused = honest.done(), {one.result() for one in waiting if one.done()}
            for one in (*waiting, honest):
                one.cancel()
        await until(lambda: asyncio.sleep(0, not broker._admission.sources.taken))

    assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert not left


async def drained(stream):
    """Read a stream to its end."""
    async for _ in stream:
        pass
