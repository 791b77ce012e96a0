"""Redis is away: calls wait or say so, streams go on, and nothing is lost."""

import asyncio

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.compat.gomq import Gomq
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .support import connected

JOBS = [pb.Source(queue="jobs")]
LOCAL = BrokerOptions(listen=("127.0.0.1:0",), grace=0.3)


@pytest.fixture
async def server():
    async with PrivateServer(persistence="always") as server:
        yield server


async def test_calls_and_streams_live_through_five_seconds_without_redis(server):
    async with RSMQ(server.url, options=Options(deadline=30)) as rsmq:
        await rsmq.create_queue("jobs")
        async with Broker(rsmq, LOCAL, services=[Gomq()]) as broker, connected(broker) as channel:
            queues = QueuesStub(channel)
            stream = queues.Consume(pb.ConsumeRequest(sources=JOBS, vt_ms=60_000))
            got, acked = [], []

            async def consume():
                async for event in stream:
                    got.extend(d.body for d in event.deliveries)
                    receipts = [d.receipt for d in event.deliveries]
                    acked.extend((await queues.Ack(pb.AckRequest(receipts=receipts))).outcomes)

            consuming = asyncio.ensure_future(consume())
            sent = []

            async def send():
                for number in range(40):
                    sent.append(b"%d" % number)
                    await queues.Send(pb.SendRequest(queue="jobs", bodies=[sent[-1]]))
                    await asyncio.sleep(0.02)

            sending = asyncio.ensure_future(send())
            await until(lambda: asyncio.sleep(0, len(got) > 10))
            server.kill()
            await asyncio.sleep(5)
            await server.start()
            await sending
            await until(lambda: asyncio.sleep(0, len(set(got)) == 40 and len(acked) >= 40))
            consuming.cancel()

            assert (await rsmq.queue("jobs").attributes()).msgs == 0


async def test_a_call_that_cannot_wait_longer_fails_as_redis_is_away(server):
    async with RSMQ(server.url, options=Options(deadline=1)) as rsmq:
        await rsmq.create_queue("jobs")
        async with Broker(rsmq, LOCAL, services=[Gomq()]) as broker, connected(broker) as channel:
            queues = QueuesStub(channel)
            guide = routeguide_pb2_grpc.RouteGuideStub(channel)
            health = health_pb2_grpc.HealthStub(channel)
            serving = health_pb2.HealthCheckResponse.SERVING

            async def healthy():
                return (await health.Check(health_pb2.HealthCheckRequest())).status == serving

            await guide.Subscribe(routeguide_pb2.Subscription(key="k", consumerID="c"))
            await until(healthy)
            server.kill()
            for call in (
                queues.Receive(pb.ReceiveRequest(sources=JOBS)),
                queues.GetAttributes(pb.GetAttributesRequest(queue="jobs")),
                guide.Publish(routeguide_pb2.PublishRecord(key="k", payload=b"x")),
            ):
                with pytest.raises(grpc.RpcError) as away:
                    await call
                assert away.value.code() is grpc.StatusCode.UNAVAILABLE
                assert dict(tuple(away.value.trailing_metadata()))["rsmq-code"] == "unavailable"
            observed = await guide.Observe(routeguide_pb2.Identification(consumerID="c"))
            assert not observed.records
            await until(lambda: _not(healthy))

            await server.start()
            await until(healthy)
            await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"x"]))
            assert len((await queues.Receive(pb.ReceiveRequest(sources=JOBS))).deliveries) == 1


async def _not(condition):
    return not await condition()


async def test_a_broker_without_a_grace_period_stops_at_once(rsmq):
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0)
    broker = Broker(rsmq, options)
    await broker.start()
    async with connected(broker) as channel:
        stream = QueuesStub(channel).Watch(pb.WatchRequest(queues=["jobs"]))
        await stream.read()

        await broker.stop()

        with pytest.raises(grpc.aio.AioRpcError):
            while True:
                await stream.read()
    assert broker.under_way == 0


async def test_a_broker_without_a_grace_period_stops_while_calls_end(rsmq):
    await rsmq.create_queue("jobs")
    # The end of the grace period must not meet that of gRPC's own stop: it does in one of five.
    for _ in range(10):
        broker = Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0",), grace=0))
        await broker.start()
        async with connected(broker) as channel:
            queues = QueuesStub(channel)
            await queues.GetInfo(pb.GetInfoRequest(), wait_for_ready=True)
            sends = [
                asyncio.ensure_future(queues.Send(pb.SendRequest(queue="jobs", bodies=[b"x"])))
                for _ in range(30)
            ]
            await asyncio.sleep(0.002)

            await broker.stop()

            await asyncio.gather(*sends, return_exceptions=True)
        assert broker.under_way == 0
