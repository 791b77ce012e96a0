"""GOMQ's interface: its clients work unchanged, and lose nothing."""

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from aiorsmq_ng import Delivery, QueueNotFound, Subscription
from aiorsmq_ng.broker import Limits
from aiorsmq_ng.broker.broker_context import BrokerContext
from aiorsmq_ng.broker.caller_limits import Admission
from aiorsmq_ng.broker.idempotency import IdempotentCalls
from aiorsmq_ng.broker.receipts import ReceiptSigner
from aiorsmq_ng.broker.receive import BoundedReceiver
from aiorsmq_ng.compat.gomq import connections, peer_registry
from aiorsmq_ng.compat.gomq import peer as peer_module
from aiorsmq_ng.compat.gomq.connections import endpoint
from aiorsmq_ng.compat.gomq.records import LIMIT, name_of, record_size, text_of, timestamp
from aiorsmq_ng.compat.gomq.service import RouteGuideService, address
from aiorsmq_ng.compat.gomq.unacknowledged import UnacknowledgedReplies
from aiorsmq_ng.rpc import routeguide_pb2 as pb
from aiorsmq_ng.rpc import v1_pb2 as v1
from aiorsmq_ng.rpc.routeguide_pb2_grpc import RouteGuideStub
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub

from ..support.clock import pass_time
from ..support.streams import listening
from ..support.waiting import until
from .gomq_client import PUBLISHERS, TOTAL
from .support import connected

CLIENT = Path(__file__).with_name("gomq_client.py")
NEWS = pb.Subscription(key="news", consumerID="c")
WHO = pb.Identification(consumerID="c")


@pytest.fixture
async def guide(channel):
    return RouteGuideStub(channel)


async def run_client(address, mode):
    # A folder of its own, so that only what is installed can be imported.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", CLIENT, address, mode),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [[tuple(record) for record in peer] for peer in json.loads(out)]


def in_order(records):
    """Return True if the messages of every publisher came in the order of sending."""
    numbers = {n: [] for n in range(PUBLISHERS)}
    for _, _, payload in records:
        publisher, number = payload.split(":")
        numbers[int(publisher)].append(int(number))
    return all(list(seen) == sorted(seen) for seen in numbers.values())


async def test_a_client_of_gomq_loses_nothing_and_gets_everything_once(serve):
    async with serve(gomq="copy") as broker:
        readers = await run_client(broker.addresses[0], "copy")

    everything = {payload for records in readers for _, _, payload in records}
    assert len(everything) == TOTAL
    for records in readers:
        assert len({id for _, id, _ in records}) == len(records)
        assert in_order(records)
        # What was published while it was subscribed: all of it is there for every peer.
        assert {p for p in everything if 50 <= int(p.split(":")[1]) < 200} <= {
            payload for _, _, payload in records
        }


async def test_peers_that_share_get_every_message_once(serve):
    async with serve(gomq="share") as broker:
        readers = await run_client(broker.addresses[0], "share")

    records = [record for reader in readers for record in reader]
    assert len(records) == TOTAL
    assert len({payload for _, _, payload in records}) == TOTAL
    assert all(map(in_order, readers))


async def observed(guide, wanted, who=WHO):
    found = []
    while len(found) < wanted:
        found += (await guide.Observe(who)).records
    return found


async def test_what_was_observed_is_acknowledged_by_the_next_observe(guide, rsmq):
    await guide.Subscribe(NEWS)
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
    (record,) = await observed(guide, 1)
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions

    assert (record.key, record.value.payload) == ("news", b"x")
    assert subscription.attributes.leased == 1
    assert not (await guide.Observe(WHO)).records
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert subscription.attributes.msgs == 0


async def test_what_a_stopped_broker_had_handed_out_comes_again(serve, rsmq):
    async with serve() as broker, grpc.aio.insecure_channel(broker.addresses[0]) as channel:
        guide = RouteGuideStub(channel)
        await guide.Subscribe(NEWS)
        await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
        await observed(guide, 1)

    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert subscription.attributes.ready == 1


async def test_an_observe_while_the_broker_stops_acknowledges_and_brings_nothing(serve, rsmq):
    await rsmq.create_queue("jobs")
    await rsmq.queue("jobs").send("x")
    async with serve(grace=600) as broker, connected(broker) as channel:
        guide, queues = RouteGuideStub(channel), QueuesStub(channel)
        await guide.Subscribe(NEWS)
        await guide.Publish(pb.PublishRecord(key="news", payload=b"a"))
        await observed(guide, 1)
        await guide.Publish(pb.PublishRecord(key="news", payload=b"b"))
        stream = queues.Consume(v1.ConsumeRequest(sources=[v1.Source(queue="jobs")]))
        (held,) = (await stream.read()).deliveries  # so the stop waits
        stopping = asyncio.ensure_future(broker.stop())
        await until(lambda: asyncio.sleep(0, broker.stopping))

        assert not (await guide.Observe(WHO)).records
        (subscription,) = (await rsmq.topic("news").describe()).subscriptions
        assert (subscription.attributes.ready, subscription.attributes.leased) == (1, 0)
        await queues.Ack(v1.AckRequest(receipts=[held.receipt]))
        await stopping


async def test_an_observe_without_room_is_answered_with_nothing(serve, rsmq):
    await rsmq.create_queue("jobs")
    async with serve(limits=Limits(streams=1)) as broker, connected(broker) as channel:
        watch = QueuesStub(channel).Watch(v1.WatchRequest(queues=["jobs"]))
        await watch.read()

        assert not (await RouteGuideStub(channel).Observe(WHO)).records
        watch.cancel()


async def test_a_peer_that_comes_back_from_a_new_address_gets_what_is_new(serve, rsmq):
    async with serve() as broker:
        async with grpc.aio.insecure_channel(broker.addresses[0]) as first:
            await RouteGuideStub(first).Subscribe(NEWS)
        async with grpc.aio.insecure_channel(
            broker.addresses[0], [("grpc.use_local_subchannel_pool", 1)]
        ) as second:
            guide = RouteGuideStub(second)

            async def joined():
                await guide.Observe(WHO)  # without a Subscribe of its own
                return len((await rsmq.topic("news").describe()).subscriptions) == 2

            await until(joined)
            await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))

            assert [r.value.payload for r in await observed(guide, 1)] == [b"x"]


async def test_clients_that_cannot_be_distinguished_are_not_served(serve, tmp_path):
    async with (
        serve(listen=(f"unix:{tmp_path}/socket",)) as broker,
        grpc.aio.insecure_channel(broker.addresses[0]) as channel,
    ):
        guide = RouteGuideStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            await guide.Subscribe(NEWS)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
        assert not (await guide.Observe(WHO)).records


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("ipv4:127.0.0.1:34150", "127.0.0.1:34150"),
        ("ipv6:%5B::1%5D:34150", "[::1]:34150"),
        ("ipv6:%5Bfe80::1%25eth0%5D:34150", "[fe80::1]:34150"),
        ("ipv6:%5B::ffff:10.0.0.1%5D:1", "10.0.0.1:1"),
    ],
)
def test_a_peer_is_named_as_gomq_does(told, name):
    assert address(SimpleNamespace(peer=lambda: told)) == name


async def test_peers_of_a_consumer_have_its_keys_whichever_subscribed(serve):
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with (
        serve() as broker,
        grpc.aio.insecure_channel(broker.addresses[0], options) as one,
        grpc.aio.insecure_channel(broker.addresses[0], options) as two,
    ):
        first, second = RouteGuideStub(one), RouteGuideStub(two)
        await first.Subscribe(pb.Subscription(key="a", consumerID="c"))
        await second.Subscribe(pb.Subscription(key="b", consumerID="c"))
        await asyncio.gather(first.Observe(WHO), second.Observe(WHO))
        for key in ("a", "b"):
            await first.Publish(pb.PublishRecord(key=key, payload=key.encode()))

        for guide in (first, second):
            assert sorted(r.key for r in await observed(guide, 2)) == ["a", "b"]


@pytest.mark.parametrize("mode", ["copy", "share"])
async def test_what_waited_goes_to_every_consumer_that_subscribes_in_time(
    serve, monkeypatch, rsmq, mode
):
    # As if all of it happened within GOMQ's second.
    monkeypatch.setattr(peer_registry, "_NOTICED_S", 60.0)
    sent = [str(number).encode() for number in range(60)]
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with serve(gomq=mode) as broker, AsyncExitStack() as stack:
        for payload in sent:
            await rsmq.topic("news").publish(payload)
        for consumer in ("a", "b", "c"):
            channel = grpc.aio.insecure_channel(broker.addresses[0], options)
            guide = RouteGuideStub(await stack.enter_async_context(channel))
            await guide.Subscribe(pb.Subscription(key="news", consumerID=consumer))

            found = await observed(guide, len(sent), pb.Identification(consumerID=consumer))
            assert [record.value.payload for record in found] == sent
            assert not (await guide.Observe(pb.Identification(consumerID=consumer))).records


async def test_an_observe_without_a_subscription_waits_and_returns_nothing(guide):
    assert not (await guide.Observe(pb.Identification(consumerID="unknown"))).records
    assert not (await guide.Observe(pb.Identification())).records


async def test_observes_at_the_same_time_on_one_connection_lose_and_double_nothing(guide):
    await guide.Subscribe(NEWS)
    for number in range(300):
        await guide.Publish(pb.PublishRecord(key="news", payload=b"%d" % number))
    found = []

    async def observe():
        while len(found) < 300:
            found.extend(r.value.payload for r in (await guide.Observe(WHO)).records)

    await asyncio.gather(*(observe() for _ in range(5)))

    assert sorted(map(int, found)) == list(range(300))


async def test_observes_that_acknowledge_the_same_reply_do_it_once(guide, rsmq, monkeypatch):
    real = Delivery.ack

    async def slow_ack(delivery):
        await asyncio.sleep(0.05)
        await real(delivery)

    monkeypatch.setattr(Delivery, "ack", slow_ack)
    await guide.Subscribe(NEWS)
    for _ in range(3):
        await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
        assert len(await observed(guide, 1)) == 1
        await asyncio.gather(guide.Observe(WHO), guide.Observe(WHO))
    await guide.Observe(WHO)
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions

    assert subscription.attributes.msgs == 0


async def test_a_reply_that_a_concurrent_observe_did_not_see_is_not_acknowledged(
    guide, rsmq, monkeypatch
):
    arrived = []
    arrive, take = UnacknowledgedReplies.arrive, peer_module.Peer.take

    def counted(replies):
        arrived.append(replies)
        return arrive(replies)

    async def when_both_are_there(peer, wait_s):
        await until(lambda: len(arrived) == 2)
        return await take(peer, wait_s)

    monkeypatch.setattr(UnacknowledgedReplies, "arrive", counted)
    monkeypatch.setattr(peer_module.Peer, "take", when_both_are_there)
    await guide.Subscribe(NEWS)
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
    # Two at once: neither was sent after the other's reply, so neither acknowledges it.
    await asyncio.gather(guide.Observe(WHO), guide.Observe(WHO))

    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert subscription.attributes.leased == 1


async def test_replies_stay_under_4_mib_and_keep_the_order(guide):
    await guide.Subscribe(NEWS)
    # A small one first: the broker expects more of those, and takes more than fits.
    sizes = [10, 1_500_000, 1_500_000, 3_000_000, 20, 1_500_000, 30]
    for number, size in enumerate(sizes):
        payload = b"%d " % number + bytes(size)
        await guide.Publish(pb.PublishRecord(key="news", payload=payload))

    found = await observed(guide, len(sizes))

    assert [int(r.value.payload.split()[0]) for r in found] == list(range(len(sizes)))


async def test_the_largest_payload_that_is_taken_can_be_observed(guide):
    await guide.Subscribe(NEWS)
    size = LIMIT
    while record_size("news", size) > LIMIT:
        size -= 1

    with pytest.raises(grpc.RpcError) as refused:
        await guide.Publish(pb.PublishRecord(key="news", payload=bytes(size + 1)))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    await guide.Publish(pb.PublishRecord(key="news", payload=bytes(size)))
    (record,) = await observed(guide, 1)
    assert len(record.value.payload) == size


async def test_a_large_payload_waits_for_its_first_subscriber_too(guide):
    await guide.Publish(pb.PublishRecord(key="news", payload=bytes(1_000_000)))
    await guide.Subscribe(NEWS)

    (record,) = await observed(guide, 1)
    assert len(record.value.payload) == 1_000_000


async def test_a_limit_that_was_set_is_not_lifted_by_a_publisher(guide, rsmq):
    await rsmq.topic("news").set_backlog(maxsize=1024, max_length=10)

    with pytest.raises(grpc.RpcError) as refused:
        await guide.Publish(pb.PublishRecord(key="news", payload=bytes(2000)))

    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert (await rsmq.topic("news").backlog.attributes()).maxsize == 1024


async def test_a_message_that_no_client_could_receive_goes_to_the_dead_letters(guide, rsmq):
    await guide.Subscribe(NEWS)
    await rsmq.topic("news").publish(bytes(LIMIT))  # past the broker
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))

    assert [r.value.payload for r in await observed(guide, 1)] == [b"x"]
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert (await rsmq.queue(f"{subscription.queue}-dead").attributes()).msgs == 1


async def test_a_busy_key_does_not_starve_the_others(guide):
    for key in ("busy", "calm"):
        await guide.Subscribe(pb.Subscription(key=key, consumerID="c"))
    for number in range(200):
        await guide.Publish(pb.PublishRecord(key="busy", payload=b"%d" % number))
    await guide.Publish(pb.PublishRecord(key="calm", payload=b"x"))

    assert "calm" in {r.key for r in (await guide.Observe(WHO)).records}


async def test_an_observe_is_never_answered_with_an_error(guide, monkeypatch, rsmq):
    from aiorsmq_ng import Topic, Unavailable

    await guide.Subscribe(NEWS)

    async def away(*_, **__):
        raise Unavailable("away", transient=True)

    with monkeypatch.context() as patch:
        patch.setattr(type(rsmq.topic("news").subscription("c")), "_receive", away)
        patch.setattr(Topic, "subscribe", away)
        assert not (await guide.Observe(WHO)).records
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
    assert await observed(guide, 1)


async def test_an_unsubscribe_while_keys_are_looked_through_is_no_error(guide, rsmq, monkeypatch):
    for key in ("a", "b", "c"):
        await guide.Subscribe(pb.Subscription(key=key, consumerID="c"))
        await guide.Publish(pb.PublishRecord(key=key, payload=key.encode()))
    real, ended = BoundedReceiver.take_roughly, []

    async def about(taking, queues, *more):
        taken = await real(taking, queues, *more)
        if not ended:
            # This key, after something was taken of it, and one whose turn is still to come.
            ended.append(queues[0].topic)
            for key in {"a", "b", "c"} - {chr(ord("a") + (ord(ended[0]) - ord("a") + 1) % 3)}:
                await guide.Unsubscribe(pb.Subscription(key=key, consumerID="c"))
        return taken

    monkeypatch.setattr(BoundedReceiver, "take_roughly", about)
    (record,) = (await guide.Observe(WHO)).records

    async def given_back():
        (found,) = (await rsmq.topic(ended[0]).describe()).subscriptions
        return found.attributes and found.attributes.ready == 1

    assert record.key != ended[0]
    await until(given_back)


async def test_what_a_wait_took_of_an_ended_subscription_is_given_back(guide, rsmq, monkeypatch):
    await guide.Subscribe(NEWS)
    real = BoundedReceiver.wait

    async def wait(taking, *args):
        await rsmq.topic("news").publish(b"x")
        taken = await real(taking, *args)
        await guide.Unsubscribe(NEWS)
        return taken

    with monkeypatch.context() as patch:
        patch.setattr(BoundedReceiver, "wait", wait)
        assert not (await guide.Observe(WHO)).records
    await guide.Subscribe(NEWS)

    assert [r.value.payload for r in await observed(guide, 1)] == [b"x"]


async def test_an_unexpected_fault_of_an_observe_is_logged_and_not_sent(guide, monkeypatch, caplog):
    await guide.Subscribe(NEWS)

    async def broken(*_):
        raise KeyError("something")

    monkeypatch.setattr(BoundedReceiver, "take_roughly", broken)

    assert not (await guide.Observe(WHO)).records
    assert "unexpected" in caplog.text


@pytest.fixture
def service(rsmq):
    shared = BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls())
    return RouteGuideService(shared, BoundedReceiver(shared, Admission(Limits())), "copy")


async def test_an_observe_that_cannot_begin_in_time_is_answered_with_nothing(service, peer):
    async with asyncio.timeout(30):
        async with peer.lock:  # another Observe
            assert not (await service._observe(peer, bool, 0.31)).records
        assert len((await service._observe(peer, bool, 60)).records) == 1


@pytest.fixture
async def peer(service):
    """A peer that is subscribed, and for which there is a message."""
    await service._peers.subscribe("c", "peer", "news")
    await service.Publish(pb.PublishRecord(key="news", payload=b"x"), None)
    yield await service._peers.find("c", "peer")
    await service.close()


@pytest.fixture
def left(rsmq):
    async def left():
        (subscription,) = (await rsmq.topic("news").describe()).subscriptions
        return subscription.attributes.msgs, subscription.attributes.ready

    return left


async def test_an_observe_that_is_broken_off_acknowledges_nothing(service, peer, left, monkeypatch):
    waits = asyncio.Event()

    async def wait(*_):
        waits.set()
        await asyncio.Event().wait()

    assert len((await service._observe(peer, bool, None)).records) == 1
    with monkeypatch.context() as patch:
        patch.setattr(BoundedReceiver, "wait", wait)
        # Sent while the reply was on its way, with which the connection breaks.
        second = asyncio.ensure_future(service._observe(peer, bool, None))
        await waits.wait()
        second.cancel()
        await asyncio.wait([second])
    assert await left() == (1, 0)

    await service._observe(peer, bool, None)
    assert await left() == (0, 0)


async def test_a_reply_whose_client_asks_again_at_its_deadline_comes_once_more(peer, left):
    for place, expected in enumerate([(1, 1), (0, 0)]):
        taken = await peer.take(10)
        assert len(taken) == 1
        peer.reply(taken, deadline=1000.0)
        await peer.unacknowledged.acknowledge(place + 1, 1000.01)
        assert await left() == expected


@pytest.mark.parametrize("arrived", [999.9, 1000.2])
async def test_a_reply_whose_client_asks_again_at_another_time_is_acknowledged(peer, left, arrived):
    peer.reply(await peer.take(10), deadline=1000.0)
    await peer.unacknowledged.acknowledge(1, arrived)

    assert await left() == (0, 0)


async def test_a_slow_client_gets_every_message_once(guide, rsmq, monkeypatch):
    """The leases of what it has are renewed, and it is no silent peer, while it is connected."""
    monkeypatch.setattr(peer_registry, "PEER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(peer_module, "PEER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(peer_registry, "_CONNECTION_CHECK_S", 0.1)
    await guide.Subscribe(NEWS)
    await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
    await observed(guide, 1)
    raw = await rsmq.topic("news").describe()
    await asyncio.sleep(2.5)

    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert (subscription.state, subscription.attributes.leased) == ("on", 1)
    assert subscription.queue == raw.subscriptions[0].queue
    assert not (await guide.Observe(WHO)).records
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert subscription.attributes.msgs == 0


async def test_what_a_client_had_is_ready_again_when_its_connection_ends(serve, rsmq, monkeypatch):
    monkeypatch.setattr(peer_registry, "_CONNECTION_CHECK_S", 0.1)

    async def ready():
        (subscription,) = (await rsmq.topic("news").describe()).subscriptions
        return subscription.attributes.ready == 1

    async with serve() as broker:
        async with connected(broker) as channel:
            guide = RouteGuideStub(channel)
            await guide.Subscribe(NEWS)
            await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
            await observed(guide, 1)
            assert not await ready()
        await until(ready)


async def test_what_a_client_has_is_acknowledged_before_it_can_be_received_again(
    service, peer, left, rsmq, raw
):
    """After an outage in which leases could not be renewed."""
    (subscription,) = (await rsmq.topic("news").describe()).subscriptions
    assert len((await service._observe(peer, bool, None)).records) == 1
    for reply in peer.unacknowledged._replies:
        for _, delivery in reply.taken:
            delivery.let_go()
            delivery.lease.expires_at = 0.0
    await pass_time(raw, f"{rsmq.ns}:{subscription.queue}", 60)

    assert not (await service._observe(peer, bool, None)).records
    assert await left() == (0, 0)


async def test_a_connection_has_so_many_consumers_and_no_more(serve, monkeypatch):
    monkeypatch.setattr(peer_registry, "_MOST_CONSUMERS", 3)
    async with serve() as broker, connected(broker) as channel, connected(broker) as second:
        guide, other = RouteGuideStub(channel), RouteGuideStub(second)
        with pytest.raises(grpc.RpcError):  # takes no place
            await guide.Subscribe(pb.Subscription(key="news", consumerID="x" * 2000))
        for consumer in ("a", "b", "c", "c"):
            await guide.Subscribe(pb.Subscription(key="news", consumerID=consumer))
        await guide.Subscribe(pb.Subscription(key="sport", consumerID="a"))
        refused = []
        for consumer in ("d", "e"):
            with pytest.raises(grpc.RpcError) as caught:
                await guide.Subscribe(pb.Subscription(key="news", consumerID=consumer))
            refused.append(caught.value.code())
            await other.Subscribe(pb.Subscription(key="news", consumerID=consumer))
        await guide.Publish(pb.PublishRecord(key="news", payload=b"x"))
        assert not (await guide.Observe(pb.Identification(consumerID="d"))).records
        for stub, consumer in ((guide, "c"), (other, "d")):
            assert await observed(stub, 1, pb.Identification(consumerID=consumer))

    assert refused == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2


async def test_many_quiet_peers_are_kept_alive_a_few_at_a_time(service, monkeypatch):
    under_way, most, kept = 0, 0, []

    async def keep_alive(subscription):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        kept.append(subscription.consumer)

    monkeypatch.setattr(Subscription, "keep_alive", keep_alive)
    consumers = [f"c{number}" for number in range(40)]
    for consumer in consumers:
        await service._peers.subscribe(consumer, "peer", "news")
        (await service._peers.find(consumer, "peer")).seen_at = -1000.0
    for _ in range(2):  # the second finds all of them kept alive
        await service._peers._check_connections({"peer"})
    await service.close()

    assert sorted(kept) == sorted(consumers)
    assert 1 < most <= 16


@pytest.mark.parametrize("full", [False, True])
async def test_what_waits_for_the_next_reply_is_counted(rsmq, full):
    shared, room = (
        BrokerContext(rsmq, Limits(), ReceiptSigner(), IdempotentCalls()),
        Admission(Limits()),
    )
    service = RouteGuideService(shared, BoundedReceiver(shared, room), "copy")
    for key in ("a", "b"):
        await service._peers.subscribe("c", "peer", key)
        payload = b"x" * 2_500_000
        await service.Publish(pb.PublishRecord(key=key, payload=payload), None)
    if full:
        room.replies.add("another", room.replies.most - 2 * LIMIT)
    before = room.replies.taken
    peer = await service._peers.find("c", "peer")
    counted = []
    for _ in range(2):
        reply = await service._observe(peer, bool, None)
        assert len(reply.records) == 1
        counted.append(room.replies.taken - before)
    await service._observe(peer, bool, None)
    for topic in ("a", "b"):
        (found,) = (await rsmq.topic(topic).describe()).subscriptions
        assert found.attributes.msgs == 0
    await service.close()

    assert counted == [0 if full else 2_500_000, 0]
    assert room.replies.taken == before


async def test_a_consumer_id_that_is_refused_reaches_no_peer(guide, monkeypatch):
    reached = []

    async def join(_, *who):
        reached.append(who)

    monkeypatch.setattr(peer_registry.Peers, "_join", join)
    with pytest.raises(grpc.RpcError) as refused:
        await guide.Subscribe(pb.Subscription(key="news", consumerID="c" * 2000))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reached == []


async def test_of_a_subscription_that_fails_no_peer_is_kept(service, monkeypatch):
    async def join(*_):
        raise QueueNotFound("news", "rsmq")

    monkeypatch.setattr(peer_registry.Peers, "_join", join)
    with pytest.raises(QueueNotFound):
        await service._peers.subscribe("c", "127.0.0.1:1", "news")

    assert not service._peers._peers
    assert not service._peers._consumers
    await service.close()


@pytest.mark.parametrize(("key", "consumer"), [("", ""), ("", "c"), ("k", ""), ("\0", "\0\0")])
async def test_empty_keys_and_ids_are_taken(guide, key, consumer):
    await guide.Subscribe(pb.Subscription(key=key, consumerID=consumer))
    await guide.Publish(pb.PublishRecord(key=key, payload=b"x"))
    found = []
    while not found:
        found = (await guide.Observe(pb.Identification(consumerID=consumer))).records

    assert [(record.key, record.value.payload) for record in found] == [(key, b"x")]
    await guide.Unsubscribe(pb.Subscription(key=key, consumerID=consumer))


def test_names_for_gomq_are_different_for_different_texts():
    texts = ["", "\0", "\0\0", "a", "a\0", "\0a"]

    assert len({name_of(text) for text in texts}) == len(texts)
    assert [text_of(name_of(text)) for text in texts] == texts


def test_an_address_is_written_the_same_way_whichever_family_it_came_by():
    assert endpoint("127.0.0.1", 5467) == endpoint("::ffff:127.0.0.1", 5467) == "127.0.0.1:5467"
    assert endpoint("::1", 5467) == "[::1]:5467"
    assert endpoint("fe80::1%eth0", 1) == "[fe80::1]:1"


async def test_connections_of_this_process_are_seen_while_they_stand():
    async def serve(reader, _writer):
        await reader.read()

    async with listening(serve) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        there = endpoint(*writer.get_extra_info("sockname"))

        assert there in connections.connected()
        writer.close()
        await writer.wait_closed()
        await until(lambda: asyncio.sleep(0, there not in connections.connected()))


def test_times_are_written_as_go_does():
    assert timestamp(1_794_787_294_000.0) == "Mon Nov 16 00:01:34 UTC 2026"
    assert timestamp(1_793_491_200_000.0) == "Sun Nov  1 00:00:00 UTC 2026"


@pytest.mark.parametrize("payload", [0, 1, 127, 128, 16_383, 16_384, 2_097_152, 4_000_000])
def test_the_size_of_a_record_is_not_underestimated(payload):
    told = pb.Message(id="x" * 32, timestamp=timestamp(0), payload=bytes(payload))
    real = pb.RecordSet(records=[pb.Record(key="kéy", value=told)]).ByteSize()

    assert real <= record_size("kéy", payload) <= real + 40
