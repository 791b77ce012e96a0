"""A token is for queues, topics and consumers; a subscription has the names of two of them."""

import grpc
import pytest

from aiorsmq_ng._protocol.topic_names import queue_name
from aiorsmq_ng.broker import Tokens, broker_context
from aiorsmq_ng.broker.receipts import BadReceipt, ReceiptContent, ReceiptSigner
from aiorsmq_ng.broker.tokens import UNKNOWN, Owner, owner_of
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub

from .support import connected
from .test_security import bearer, status

DENIED, OK = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK
LONG = "a consumer with a name that is much too long for the name of a queue, so it is cut"
KEYS = {
    "everything": "",
    "queues": 'queues = ["orders-*", "secret*"]',
    "every queue": 'queues = ["*"]',
    "topic": 'topics = ["secret"]',
    "other topic": 'topics = ["public"]\nconsumers = ["*"]',
    "billing": 'topics = ["secret"]\nconsumers = ["billing"]',
    "mail": 'topics = ["secret"]\nconsumers = ["mail"]',
    "long": f'topics = ["secret"]\nconsumers = ["{LONG}"]',
}


def token(name):
    return f"the token of {name}".replace(" ", "-")


TOKENS = "".join(
    f'["{name}"]\ntoken = "{token(name)}"\nroles = ["producer", "consumer"]\n{lists}\n'
    for name, lists in KEYS.items()
)


@pytest.fixture
async def broker(serve, rsmq):
    for consumer in ("billing", LONG):
        await rsmq.topic("secret").subscribe(consumer)
    await rsmq.topic("secret").publish_many(["a", "b", "c"])
    await rsmq.create_queue("orders-eu")
    async with serve(tokens=TOKENS) as broker:
        yield broker


@pytest.fixture
async def channel(broker):
    async with connected(broker) as channel:
        yield channel


def test_names_of_subscriptions_tell_whose_they_are():
    for topic, consumer in (("a", "b"), ("A b/ü", "x_y"), ("a-dead", "b-dead"), ("t", "c_31")):
        for peer in ((), ("p",), ("127.0.0.1:99",), ("x-dead",)):
            name = queue_name(topic, consumer, *peer)
            for suffix in ("", "-dead", "-dead-dead"):
                assert owner_of(name + suffix) == Owner(topic, consumer)
    assert owner_of(queue_name("a")) == Owner("a", "")
    assert owner_of(queue_name("a") + "-dead") == Owner("a", "")
    assert owner_of(queue_name("a", LONG)) is UNKNOWN
    for ordinary in ("jobs", "jobs-dead", "a_b", "a__b__c__d"):
        assert owner_of(ordinary) is None


#: Every call that takes the name of a queue, as a consumer or producer would make it.
def by_queue(queue):
    source = [pb.Source(queue=queue)]
    return {
        "Receive": pb.ReceiveRequest(sources=source, vt_ms=0),
        "Recover": pb.RecoverRequest(source=source[0], vt_ms=0),
        "Pop": pb.PopRequest(queue=queue),
        "Send": pb.SendRequest(queue=queue, bodies=[b"forged"]),
        "GetAttributes": pb.GetAttributesRequest(queue=queue),
        "GetStats": pb.GetStatsRequest(queue=queue),
        "GetReason": pb.GetReasonRequest(queue=queue, id="x" * 32),
        "Announce": pb.AnnounceRequest(queue=queue, name="x", consumers=1),
        "Consume": pb.ConsumeRequest(sources=source),
        "Watch": pb.WatchRequest(queues=[queue]),
        "Forward": pb.ForwardRequest(target=queue, receipts=["x"]),
        "Reject": pb.RejectRequest(dead_letter=queue, receipts=["x"]),
    }


@pytest.mark.parametrize("name", ["queues", "every queue", "topic", "other topic", "mail", "long"])
@pytest.mark.parametrize(
    "queue", ["secret__billing", "secret__billing-dead", "secret__billing__p", "secret__"]
)
async def test_a_subscription_is_closed_by_both_of_its_names(channel, rsmq, name, queue):
    stub = QueuesStub(channel)
    for method, request in by_queue(queue).items():
        call = getattr(stub, method)(request, metadata=bearer(token(name)))
        outcome = await status(call.read() if method in ("Consume", "Watch") else call)
        assert outcome is DENIED, method
    listed = await stub.ListQueues(pb.ListQueuesRequest(), metadata=bearer(token(name)))
    assert queue not in listed.queues
    assert (await rsmq.queue("secret__billing").attributes()).msgs == 3


async def test_a_subscription_is_open_to_its_consumer_by_both_of_its_names(channel):
    stub = QueuesStub(channel)
    own = pb.Subscriber(topic="secret", consumer="billing")
    for source in (pb.Source(queue="secret__billing"), pb.Source(subscriber=own)):
        request = pb.ReceiveRequest(sources=[source])
        got = await stub.Receive(request, metadata=bearer(token("billing")))
        ack = pb.AckRequest(receipts=[got.deliveries[0].receipt])
        done = await stub.Ack(ack, metadata=bearer(token("billing")))
        assert list(done.outcomes) == [pb.OUTCOME_DONE]
    listed = await stub.ListQueues(pb.ListQueuesRequest(), metadata=bearer(token("billing")))
    assert list(listed.queues) == ["secret__billing"]


async def test_a_name_that_was_cut_is_its_consumers_all_the_same(channel):
    stub, who = QueuesStub(channel), pb.Subscriber(topic="secret", consumer=LONG)
    request = pb.ReceiveRequest(sources=[pb.Source(subscriber=who)])
    assert await status(stub.Receive(request, metadata=bearer(token("mail")))) is DENIED
    got = await stub.Receive(request, metadata=bearer(token("long")))
    ack = pb.AckRequest(receipts=[got.deliveries[0].receipt])
    done = await stub.Ack(ack, metadata=bearer(token("long")))
    assert list(done.outcomes) == [pb.OUTCOME_DONE]


async def test_no_other_token_makes_a_receipt_of_a_cut_name_void(channel, monkeypatch):
    monkeypatch.setattr(broker_context, "_SUBSCRIPTIONS", 3)
    stub, who = QueuesStub(channel), pb.Subscriber(topic="secret", consumer=LONG)
    request = pb.ConsumeRequest(sources=[pb.Source(subscriber=who)], max_unsettled=1)
    stream, outcomes = stub.Consume(request, metadata=bearer(token("long"))), []
    for _ in range(2):
        for number in range(1, 6):
            other = pb.Subscriber(topic="secret", consumer="billing")
            source = pb.Source(subscriber=other, max_receives=number)
            flood = pb.ReceiveRequest(sources=[source], vt_ms=0)
            await stub.Receive(flood, metadata=bearer(token("billing")))
        (delivery,) = (await stream.read()).deliveries
        ack = pb.AckRequest(receipts=[delivery.receipt])
        outcomes += (await stub.Ack(ack, metadata=bearer(token("long")))).outcomes

    assert outcomes == [pb.OUTCOME_DONE] * 2


@pytest.mark.parametrize("name", ["queues", "topic", "other topic", "mail", "every queue"])
async def test_no_caller_takes_or_ends_the_subscription_of_another(channel, rsmq, name):
    queues, topics, metadata = QueuesStub(channel), TopicsStub(channel), bearer(token(name))
    who = pb.Subscriber(topic="secret", consumer="billing")
    for call, request in (
        (queues.Receive, pb.ReceiveRequest(sources=[pb.Source(subscriber=who)])),
        (queues.Recover, pb.RecoverRequest(source=pb.Source(subscriber=who))),
        (topics.Subscribe, pb.SubscribeRequest(subscriber=who)),
        (topics.Unsubscribe, pb.UnsubscribeRequest(topic="secret", consumer="billing")),
        (topics.KeepAlive, pb.KeepAliveRequest(subscriber=who)),
    ):
        assert await status(call(request, metadata=metadata)) is DENIED, request
    stream = queues.Consume(
        pb.ConsumeRequest(sources=[pb.Source(subscriber=who)]), metadata=metadata
    )
    assert await status(stream.read()) is DENIED
    guide = routeguide_pb2_grpc.RouteGuideStub(channel)
    subscription = routeguide_pb2.Subscription(key="secret", consumerID="billing")
    assert await status(guide.Subscribe(subscription, metadata=metadata)) is DENIED
    assert await status(guide.Unsubscribe(subscription, metadata=metadata)) is DENIED
    assert (await rsmq.queue("secret__billing").attributes()).msgs == 3


async def test_an_observer_gets_nothing_of_another_consumer(serve, rsmq):
    topic = rsmq.topic("secret")
    async with serve(tokens=TOKENS, gomq="share") as broker, connected(broker) as channel:
        guide = routeguide_pb2_grpc.RouteGuideStub(channel)
        subscription = routeguide_pb2.Subscription(key="secret", consumerID="billing")
        await guide.Subscribe(subscription, metadata=bearer(token("billing")))
        await topic.publish("x")
        observe = routeguide_pb2.Identification(consumerID="billing")
        stolen = await guide.Observe(observe, metadata=bearer(token("mail")))
        assert not stolen.records
        got = await guide.Observe(observe, metadata=bearer(token("billing")))
        assert [record.value.payload for record in got.records] == [b"x"]


async def test_a_topic_tells_a_caller_of_its_own_subscriptions_only(serve, rsmq):
    producer = TOKENS + '[pub]\ntoken = "a-token-that-publishes"\nroles = ["producer"]\n'
    producer += 'topics = ["secret"]\n'
    for consumer in ("billing", "mail"):
        await rsmq.topic("secret").subscribe(consumer)
    request = pb.DescribeTopicRequest(topic="secret")
    told = {}
    async with serve(tokens=producer) as broker, connected(broker) as channel:
        topics = TopicsStub(channel)
        for name, key in (
            ("all", token("everything")),
            ("mail", token("mail")),
            ("pub", "a-token-that-publishes"),
        ):
            found = await topics.DescribeTopic(request, metadata=bearer(key))
            told[name] = {one.subscriber.consumer for one in found.subscriptions}

    assert told == {"all": {"billing", "mail"}, "mail": {"mail"}, "pub": set()}


async def test_a_receipt_ends_with_the_right_to_its_queue(serve, rsmq):
    await rsmq.create_queue("orders-eu")
    await rsmq.queue("orders-eu").send("x")
    await rsmq.topic("secret").subscribe("billing")
    await rsmq.topic("secret").publish("x")
    key = b"0123456789abcdef"
    entry = f'[shop]\ntoken = "{token("shop")}"\nroles = ["consumer"]\n'
    both = entry + 'queues = ["orders-*"]\ntopics = ["secret"]\nconsumers = ["billing"]\n'
    none = entry + 'queues = ["other"]\ntopics = ["secret"]\nconsumers = ["mail"]\n'
    own = pb.Source(subscriber=pb.Subscriber(topic="secret", consumer="billing"))
    receipts, metadata = [], bearer(token("shop"))
    async with serve(tokens=both, receipt_key=key) as broker, connected(broker) as channel:
        for source in (pb.Source(queue="orders-eu"), own):
            got = QueuesStub(channel).Receive(
                pb.ReceiveRequest(sources=[source]), metadata=metadata
            )
            receipts += [d.receipt for d in (await got).deliveries]
    outcomes = []
    for tokens in (none, both):
        async with serve(tokens=tokens, receipt_key=key) as broker, connected(broker) as channel:
            ack = pb.AckRequest(receipts=receipts)
            outcomes.append(list((await QueuesStub(channel).Ack(ack, metadata=metadata)).outcomes))

    assert outcomes == [[pb.OUTCOME_BAD_RECEIPT] * 2, [pb.OUTCOME_DONE] * 2]


def test_a_receipt_has_one_spelling():
    receipts = ReceiptSigner(b"0123456789abcdef")
    proof = ReceiptContent("jobs", "x" * 32, 1, 2, 3)
    receipt = receipts.sign(proof, "me")
    assert receipts.verify(receipt, "me") == proof
    for other in (f"{receipt[:4]}!{receipt[4:]}", f"{receipt}\n", f" {receipt}", f"{receipt}*"):
        with pytest.raises(BadReceipt):
            receipts.verify(other, "me")


@pytest.mark.parametrize("taken", ["the queue", "the role"])
async def test_a_reject_goes_nowhere_that_the_token_is_not_for_any_more(serve, rsmq, taken):
    for name in ("jobs", "aside"):
        await rsmq.create_queue(name)
    await rsmq.queue("jobs").send_many(["a", "b"])
    key, metadata = b"0123456789abcdef", bearer(token("shop"))
    entry = f'[shop]\ntoken = "{token("shop")}"\nroles = ["producer", "consumer"]\n'
    sources = [pb.Source(queue="jobs", dead_letter="aside")]
    tokens = entry + 'queues = ["jobs", "aside"]\n'
    async with serve(tokens=tokens, receipt_key=key) as broker, connected(broker) as channel:
        request = pb.ReceiveRequest(sources=sources, count=2)
        got = await QueuesStub(channel).Receive(request, metadata=metadata)
    receipts = [delivery.receipt for delivery in got.deliveries]
    tokens = {
        "the queue": entry + 'queues = ["jobs"]\n',
        "the role": entry.replace('"producer", ', ""),
    }[taken]
    async with serve(tokens=tokens, receipt_key=key) as broker, connected(broker) as channel:
        stub = QueuesStub(channel)
        rejected = await stub.Reject(pb.RejectRequest(receipts=receipts[:1]), metadata=metadata)
        acked = await stub.Ack(pb.AckRequest(receipts=receipts[1:]), metadata=metadata)

    assert list(rejected.outcomes) == [pb.OUTCOME_BAD_RECEIPT]
    assert list(acked.outcomes) == [pb.OUTCOME_DONE]
    assert (await rsmq.queue("aside").attributes()).msgs == 0


async def test_a_receipt_is_of_no_use_in_another_namespace(server_url, ns, rsmq, serve):
    from aiorsmq_ng import RSMQ
    from aiorsmq_ng.broker import Broker, BrokerOptions

    key, outcomes = b"0123456789abcdef", []
    await rsmq.create_queue("jobs")
    await rsmq.queue("jobs").send("x")
    async with serve(receipt_key=key) as broker, connected(broker) as channel:
        request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")])
        receipt = (await QueuesStub(channel).Receive(request)).deliveries[0].receipt
    options = BrokerOptions(listen=("127.0.0.1:0",), receipt_key=key, grace=0.3)
    async with (
        RSMQ(server_url, ns=f"{ns}-other") as other,
        Broker(other, options) as broker,
        connected(broker) as channel,
    ):
        ack = pb.AckRequest(receipts=[receipt])
        outcomes += (await QueuesStub(channel).Ack(ack)).outcomes

    assert outcomes == [pb.OUTCOME_BAD_RECEIPT]


async def test_a_socket_is_for_its_user_only(serve, tmp_path):
    file = tmp_path / "socket"
    async with serve(listen=(f"unix:{file}",)):
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_missing_list_means_none_once_another_is_given():
    def caller(lists):
        text = f'[x]\ntoken = "0123456789abcdef"\nroles = ["admin"]\n{lists}'
        return Tokens.read(text).caller([("authorization", "Bearer 0123456789abcdef")])

    assert caller("").sees_queue("any")
    assert caller("").sees_subscription("any", "one")
    assert not caller('topics = ["a"]').sees_queue("any")
    assert not caller('topics = ["a"]').sees_subscription("a", "one")
    assert not caller('queues = ["a"]').sees_topic("a")
    assert not caller('consumers = ["a"]').sees_topic("a")
    assert not caller("queues = []").sees_topic("a")
