"""Authentication, roles, and what no caller gets to see."""

import hashlib
import logging
import socket

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aiorsmq_ng import InvalidValue
from aiorsmq_ng.broker import Broker, BrokerOptions, Limits, Tls, Tokens
from aiorsmq_ng.broker.error_to_status import STATUS, error_status
from aiorsmq_ng.broker.interceptor import RULES as OWN_RULES
from aiorsmq_ng.cli.app import EXIT_STATUS
from aiorsmq_ng.compat.gomq import Gomq
from aiorsmq_ng.rpc import routeguide_pb2, routeguide_pb2_grpc, v1_pb2
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub

from ..support.tls import Authority
from .support import connected

RULES = OWN_RULES | {f"/{Gomq.name}/{method}": rule for method, rule in Gomq.rules.items()}
PRODUCER, CONSUMER, ADMIN = "producer-token-0123", "consumer-token-0123", "admin-token-0123456"
OTHER = "consumer-of-other-queues"
TOKENS = f"""
[shop]
token = "{PRODUCER}"
roles = ["producer"]
queues = ["jobs"]
topics = ["news"]

[worker]
sha256 = "{hashlib.sha256(CONSUMER.encode()).hexdigest()}"
roles = ["consumer"]
queues = ["jobs", "jobs-*"]

[elsewhere]
token = "{OTHER}"
roles = ["consumer"]
queues = ["else-*"]
topics = []

[boss]
token = "{ADMIN}"
roles = ["admin"]
"""
TWICE = """
[a]
token = "0123456789abcdef"
roles = ["admin"]
[b]
token = "0123456789abcdef"
roles = ["producer"]
"""


def bearer(token):
    return [("authorization", f"Bearer {token}")]


@pytest.fixture
async def guarded(serve, rsmq):
    await rsmq.create_queue("jobs")
    async with serve(tokens=TOKENS) as broker:
        yield broker


@pytest.fixture
async def open_channel(guarded):
    async with grpc.aio.insecure_channel(guarded.addresses[0]) as channel:
        yield channel


async def status(call):
    try:
        await call
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def everything(channel):
    """Every call of every service, with an empty request."""
    for module, stubs in (
        (v1_pb2, {"Queues": QueuesStub, "Topics": TopicsStub}),
        (routeguide_pb2, {"RouteGuide": routeguide_pb2_grpc.RouteGuideStub}),
    ):
        for name, stub in stubs.items():
            for method in module.DESCRIPTOR.services_by_name[name].methods:
                call = getattr(stub(channel), method.name)
                request = getattr(module, method.input_type.name)()
                rule = RULES[f"/{method.containing_service.full_name}/{method.name}"]
                yield (
                    method,
                    rule,
                    lambda metadata, call=call, request=request, method=method: (
                        call(request, metadata=metadata).read()
                        if method.server_streaming
                        else call(request, metadata=metadata)
                    ),
                )


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        bearer("wrong-token-0123456"),
        bearer(""),
        [("authorization", PRODUCER)],
        [("authorization", f"Basic {PRODUCER}")],
        [*bearer(PRODUCER), *bearer(PRODUCER)],
        bearer(PRODUCER[:-1]),
    ],
    ids=["none", "wrong", "empty", "bare", "basic", "twice", "short"],
)
async def test_no_call_is_answered_without_a_good_token(open_channel, metadata):
    answers = {m.full_name: await status(call(metadata)) for m, _, call in everything(open_channel)}

    assert len(answers) == len(RULES)
    assert set(answers.values()) == {grpc.StatusCode.UNAUTHENTICATED}


@pytest.mark.parametrize(("role", "token"), [("producer", PRODUCER), ("consumer", CONSUMER)])
async def test_every_call_needs_its_role(open_channel, role, token):
    for method, rule, call in everything(open_channel):
        if role not in rule.roles:
            assert await status(call(bearer(token))) is grpc.StatusCode.PERMISSION_DENIED, method
        elif not rule.waits:
            refused = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INTERNAL)
            assert await status(call(bearer(token))) not in refused, method


async def test_a_token_opens_only_the_queues_and_topics_it_names(open_channel, rsmq):
    await rsmq.create_queue("else-where")
    queues, topics = QueuesStub(open_channel), TopicsStub(open_channel)
    denied = grpc.StatusCode.PERMISSION_DENIED
    sources = [pb.Source(queue="jobs")]

    for metadata, call, request in (
        (bearer(PRODUCER), queues.Send, pb.SendRequest(queue="other", bodies=[b"x"])),
        (bearer(PRODUCER), topics.Publish, pb.PublishRequest(topic="other", bodies=[b"x"])),
        (bearer(OTHER), queues.Receive, pb.ReceiveRequest(sources=sources)),
        (bearer(OTHER), queues.Pop, pb.PopRequest(queue="jobs")),
        (
            bearer(CONSUMER),
            queues.Receive,
            pb.ReceiveRequest(sources=[pb.Source(queue="jobs", dead_letter="secret")]),
        ),
        (
            bearer(OTHER),
            queues.Receive,
            pb.ReceiveRequest(
                sources=[pb.Source(subscriber=pb.Subscriber(topic="news", consumer="c"))]
            ),
        ),
    ):
        assert await status(call(request, metadata=metadata)) is denied, request
    watch = queues.Watch(pb.WatchRequest(queues=["jobs"]), metadata=bearer(OTHER))
    assert await status(watch.read()) is denied
    listed = await queues.ListQueues(pb.ListQueuesRequest(), metadata=bearer(OTHER))
    assert list(listed.queues) == ["else-where"]
    sent = queues.Send(pb.SendRequest(queue="jobs", bodies=[b"x"]), metadata=bearer(PRODUCER))
    assert len((await sent).ids) == 1


async def test_every_refusal_is_logged_with_the_name_of_the_token(open_channel, caplog):
    caplog.set_level(logging.INFO)
    queues = QueuesStub(open_channel)
    for queue, metadata in (("jobs", bearer(CONSUMER)), ("other", bearer(PRODUCER))):
        await status(queues.Send(pb.SendRequest(queue=queue, bodies=[b"x"]), metadata=metadata))

    refused = [r.getMessage() for r in caplog.records if "refused" in r.getMessage()]
    assert [text.partition(": ")[2] for text in refused] == [
        "token 'worker' lacks the role producer, which Send needs",
        "token 'shop' is not for queue 'other'",
    ]


async def test_a_consumer_moves_messages_to_the_queues_own_dead_letters_only(open_channel, rsmq):
    queues, denied = QueuesStub(open_channel), grpc.StatusCode.PERMISSION_DENIED
    await rsmq.queue("jobs").send("x")
    source = pb.Source(queue="jobs", max_receives=1, dead_letter="jobs-other")
    receive = queues.Receive(pb.ReceiveRequest(sources=[source]), metadata=bearer(CONSUMER))
    assert await status(receive) is denied

    source.dead_letter = "jobs-dead"
    request = pb.ReceiveRequest(sources=[source])
    (delivery,) = (await queues.Receive(request, metadata=bearer(CONSUMER))).deliveries
    reject = pb.RejectRequest(receipts=[delivery.receipt], dead_letter="jobs-other")
    assert await status(queues.Reject(reject, metadata=bearer(CONSUMER))) is denied
    reject.dead_letter = ""
    done = await queues.Reject(reject, metadata=bearer(CONSUMER))
    assert list(done.outcomes) == [pb.OUTCOME_DONE]
    assert (await rsmq.queue("jobs-dead").attributes()).msgs == 1


async def test_a_receipt_is_of_no_use_to_another_identity(open_channel, rsmq):
    queues = QueuesStub(open_channel)
    await rsmq.queue("jobs").send("x")
    request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")])
    got = await queues.Receive(request, metadata=bearer(CONSUMER))
    ack = pb.AckRequest(receipts=[got.deliveries[0].receipt])

    assert list((await queues.Ack(ack, metadata=bearer(ADMIN))).outcomes) == [
        pb.OUTCOME_BAD_RECEIPT
    ]
    assert list((await queues.Ack(ack, metadata=bearer(CONSUMER))).outcomes) == [pb.OUTCOME_DONE]


async def test_a_receipt_outlives_the_broker_only_with_a_key(serve, rsmq):
    await rsmq.create_queue("jobs")
    outcomes = []
    for key in (None, b"0123456789abcdef"):
        await rsmq.queue("jobs").send("x")
        async with serve(receipt_key=key) as one, connected(one) as channel:
            request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")])
            got = await QueuesStub(channel).Receive(request)
        async with serve(receipt_key=key) as two, connected(two) as channel:
            ack = pb.AckRequest(receipts=[got.deliveries[0].receipt])
            outcomes += (await QueuesStub(channel).Ack(ack)).outcomes

    assert outcomes == [pb.OUTCOME_BAD_RECEIPT, pb.OUTCOME_DONE]


async def test_health_is_public_and_reflection_is_not(guarded, open_channel):
    health = health_pb2_grpc.HealthStub(open_channel)
    request = health_pb2.HealthCheckRequest(service="aiorsmq.v1.Queues")
    while (await health.Check(request)).status != health_pb2.HealthCheckResponse.SERVING:
        pass

    name = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    reflect = open_channel.stream_stream(name)(iter([b""]), metadata=bearer(ADMIN))
    assert await status(reflect.read()) is grpc.StatusCode.UNIMPLEMENTED


async def test_reflection_describes_the_interface_to_those_who_may_call(serve):
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

    async with serve(tokens=TOKENS, reflection=True) as broker, connected(broker) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
        refused = stub.ServerReflectionInfo(iter(ask))
        assert await status(refused.read()) is grpc.StatusCode.UNAUTHENTICATED
        told = await stub.ServerReflectionInfo(iter(ask), metadata=bearer(PRODUCER)).read()

    names = {service.name for service in told.list_services_response.service}
    assert {"aiorsmq.v1.Queues", "aiorsmq.v1.Topics", "routeguide.RouteGuide"} <= names


async def test_requests_over_the_limit_are_refused_by_their_size(serve, rsmq):
    await rsmq.create_queue("big", maxsize=-1)
    async with serve() as broker, grpc.aio.insecure_channel(broker.addresses[0]) as channel:
        queues = QueuesStub(channel)
        five = pb.SendRequest(queue="big", bodies=[bytes(5_000_000)])
        assert await status(queues.Send(five)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        four = pb.SendRequest(queue="big", bodies=[bytes(4_190_000)])
        assert await status(queues.Send(four)) is grpc.StatusCode.OK

    assert (await rsmq.queue("big").attributes()).msgs == 1


async def test_more_calls_than_allowed_are_refused_and_the_others_answered(serve, rsmq):
    await rsmq.create_queue("jobs")
    async with serve(limits=Limits(streams=3)) as broker, connected(broker) as channel:
        queues = QueuesStub(channel)
        watches = [queues.Watch(pb.WatchRequest(queues=["jobs"])) for _ in range(3)]
        for watch in watches:
            await watch.read()
        fourth = queues.Watch(pb.WatchRequest(queues=["jobs"]))
        assert await status(fourth.read()) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await status(queues.GetInfo(pb.GetInfoRequest())) is grpc.StatusCode.OK
        watches[0].cancel()
        while True:  # until the broker has noticed
            watch = queues.Watch(pb.WatchRequest(queues=["jobs"]))
            if await status(watch.read()) is grpc.StatusCode.OK:
                break


async def test_no_token_and_no_body_is_logged(guarded, open_channel, caplog, rsmq, monkeypatch):
    caplog.set_level(logging.DEBUG)
    queues = QueuesStub(open_channel)
    secret = b"a-very-private-body"
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[secret]), metadata=bearer(ADMIN))
    await status(queues.Send(pb.SendRequest(queue="no", bodies=[secret]), metadata=bearer(ADMIN)))
    await status(queues.GetInfo(pb.GetInfoRequest(), metadata=bearer("a-guess-at-a-token")))

    async def broken(*_, **__):
        raise RuntimeError("something broke")

    monkeypatch.setattr(type(rsmq.queue("jobs")), "send", broken)
    request = pb.SendRequest(queue="jobs", bodies=[secret])
    assert await status(queues.Send(request, metadata=bearer(ADMIN))) is grpc.StatusCode.INTERNAL

    assert "something broke" in caplog.text
    for word in (secret.decode(), ADMIN, "a-guess-at-a-token"):
        assert word not in caplog.text


async def test_tls_is_spoken_and_nothing_else(rsmq, tmp_path):
    authority = Authority(tmp_path)
    issued = authority._ca.issue_cert("localhost")
    tls = Tls(
        certificate=b"".join(c.bytes() for c in issued.cert_chain_pems),
        key=issued.private_key_pem.bytes(),
    )
    options = BrokerOptions(listen=("127.0.0.1:0",), tls=tls)
    async with Broker(rsmq, options, Tokens.read(TOKENS)) as broker:
        port = broker.addresses[0].rpartition(":")[2]
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            info = QueuesStub(channel).GetInfo(pb.GetInfoRequest(), metadata=bearer(ADMIN))
            assert (await info).identity == "boss"
        async with grpc.aio.insecure_channel(broker.addresses[0]) as channel:
            plain = QueuesStub(channel).GetInfo(pb.GetInfoRequest(), timeout=10)
            assert await status(plain) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("options", "tokens", "complaint"),
    [
        ({"listen": ("0.0.0.0:0",)}, None, "needs TLS and tokens, and both are missing"),
        ({"listen": ("[::]:0",)}, TOKENS, "a certificate is missing"),
        (
            {"listen": ("192.0.2.1:0",), "tls": Tls(certificate=b"", key=b"")},
            None,
            "tokens are missing",
        ),
        ({"listen": ("example.org:1",)}, None, "both are missing"),
        ({"listen": ("10001",)}, None, "not of the form host:port"),
        ({"listen": ("localhost:x",)}, None, "not of the form host:port"),
        ({"listen": ("unix:",)}, None, "not of the form host:port"),
        ({"listen": ()}, None, "needs an address"),
        ({"receipt_key": b"short"}, None, "less than 16 bytes"),
    ],
)
def test_anonymous_callers_are_refused_unless_allowed(rsmq, options, tokens, complaint):
    with pytest.raises(InvalidValue, match=complaint):
        Broker(rsmq, BrokerOptions(**options), Tokens.read(tokens) if tokens else None)


def test_insecure_must_be_said(rsmq):
    Broker(rsmq, BrokerOptions(listen=("0.0.0.0:0",), insecure=True))
    Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0", "[::1]:0", "localhost:0", "unix:/x")))


async def test_an_address_in_use_is_said_in_one_sentence(rsmq):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidValue, match=f"^cannot listen on .*:{port}: address already in"):
            await Broker(rsmq, BrokerOptions(listen=(f"127.0.0.1:{port}",))).start()


async def test_a_socket_that_cannot_be_made_is_said_in_one_sentence(rsmq, tmp_path):
    with pytest.raises(InvalidValue, match=r"^cannot listen on unix:.*: no such file or"):
        await Broker(rsmq, BrokerOptions(listen=(f"unix:{tmp_path}/missing/socket",))).start()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no tokens"),
        ("[a", "is not TOML"),
        ("token = 'x'", "outside of a table"),
        ("[a]\nroles = ['admin']", "needs either 'token' or 'sha256'"),
        ("[a]\ntoken = 'short'\nroles = ['admin']", "at least 16"),
        ("[a]\nsha256 = 'zz'\nroles = ['admin']", "64 hexadecimal digits"),
        ("[a]\ntoken = '0123456789abcdef'", "needs 'roles'"),
        ("[a]\ntoken = '0123456789abcdef'\nroles = ['king']", "needs 'roles'.*, not 'king'"),
        ("[a]\ntoken = '0123456789abcdef'\nroles = 'admin'", "not a list"),
        ("[a]\ntoken = '0123456789abcdef'\nroles = ['admin']\nqueue = ['x']", "unknown field"),
        (TWICE, "are the same"),
    ],
)
def test_a_token_file_that_could_open_too_much_is_refused(text, complaint):
    with pytest.raises(InvalidValue, match=complaint) as refused:
        Tokens.read(text)

    assert "0123456789abcdef" not in str(refused.value)


def test_every_error_of_the_library_has_a_status():
    assert set(EXIT_STATUS) <= set(STATUS)


def test_details_that_are_too_long_are_left_out():
    from aiorsmq_ng import DurabilityUnmet

    said = error_status(DurabilityUnmet("fsynced", "memory", ["x" * 32] * 1000))

    assert dict(said.metadata) == {"rsmq-code": "durabilityUnmet"}
