"""KEDA's external scaler, asked by a client that is generated from KEDA's own proto."""

import asyncio
import itertools
import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options
from aiorsmq_ng.broker import Broker, BrokerOptions, Keda, Tokens, keda
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import PATIENCE_S, until

CLIENT = Path(__file__).with_name("keda_client.py")
JOBS = {"queue": "jobs"}
TOKENS = """
[keda]
token = "token-of-the-scaler"
roles = ["consumer"]
queues = ["jobs"]

[other]
token = "token-of-another-one"
roles = ["admin"]
queues = ["mails"]
"""


class Client:
    """The client, a process of its own."""

    def __init__(self, process):
        self._process = process
        self._ids = itertools.count()
        self._replies = {}

    async def read(self):
        async for line in self._process.stdout:
            reply = json.loads(line)
            self._replies[reply.pop("id")].put_nowait(reply)

    def begin(self, broker, method, metadata, metric=""):
        """Begin a call; return the queue of its replies."""
        id, replies = next(self._ids), asyncio.Queue()
        self._replies[id] = replies
        call = {"address": broker.addresses[0], "method": method, "metadata": metadata}
        line = json.dumps({"id": id, "metric": metric, **call})
        self._process.stdin.write(line.encode() + b"\n")
        return replies

    async def call(self, *words):
        return await self.next(self.begin(*words))

    async def next(self, replies):
        async with asyncio.timeout(PATIENCE_S):
            return await replies.get()


@pytest.fixture(scope="module")
async def client():
    process = await asyncio.create_subprocess_exec(
        sys.executable, CLIENT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    client = Client(process)
    reading = asyncio.create_task(client.read())
    yield client
    process.stdin.close()
    await reading
    await process.wait()


@pytest.fixture
def serve(rsmq):
    @asynccontextmanager
    async def serve(tokens=None, rsmq=rsmq):
        options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.3)
        known = Tokens.read(tokens) if tokens else None
        async with Broker(rsmq, options, known, [Keda()]) as broker:
            yield broker

    return serve


@pytest.fixture
async def broker(serve):
    async with serve() as broker:
        yield broker


async def test_target_and_value_are_those_of_ready_and_leased_messages(client, broker, queue):
    await queue.send_many(["a", "b", "c"])
    await queue.receive(vt=60)
    await queue.send("late", delay=3600)
    metadata = JOBS | {"target": "2.5", "scalerAddress": "broker:10001"}

    (spec,) = (await client.call(broker, "GetMetricSpec", metadata))["metricSpecs"]
    found = await client.call(broker, "GetMetrics", metadata, spec["metricName"])

    # 64-bit integers are texts in protobuf's JSON.
    assert spec == {"metricName": "rsmq-jobs", "targetSize": "2", "targetSizeFloat": 2.5}
    assert found == {
        "metricValues": [{"metricName": "rsmq-jobs", "metricValue": "3", "metricValueFloat": 3.0}]
    }


@pytest.mark.parametrize(
    ("count", "value"), [("ready", 1), ("ready + leased", 2), ("ready+leased+delayed", 4)]
)
async def test_trigger_says_what_is_counted(client, broker, queue, count, value):
    await queue.send_many(["a", "b"])
    await queue.receive(vt=60)
    await queue.send_many(["c", "d"], delay=3600)

    found = await client.call(broker, "GetMetrics", JOBS | {"count": count}, "m")

    assert found["metricValues"][0]["metricValueFloat"] == value


async def test_queue_is_active_while_there_is_work_or_soon_will_be(client, broker, queue):
    async def active(**more):
        return (await client.call(broker, "IsActive", JOBS | more))["result"]

    assert not await active()
    await queue.send("late", delay=60)
    assert (await active(), await active(due="120"), await active(count="ready")) == (
        *(False, True, False),
    )
    await queue.send_many(["a", "b"])
    assert (await active(), await active(activation="2")) == (True, False)
    assert len(await queue.receive_many(2, vt=60)) == 2
    # What workers hold keeps them: pods are not taken away while they work.
    assert (await active(), await active(count="ready")) == (True, False)


async def test_send_activates_at_once(client, broker, queue, monkeypatch):
    # No look by the clock: what activates is the arrival.
    monkeypatch.setattr(keda, "LOOK_S", 3600)
    replies = client.begin(broker, "StreamIsActive", JOBS)
    assert await client.next(replies) == {"result": False}

    await queue.send("x")

    assert await client.next(replies) == {"result": True}
    assert replies.empty()


async def test_end_of_work_and_work_that_becomes_due_are_seen_by_looks(
    client, broker, queue, monkeypatch
):
    monkeypatch.setattr(keda, "LOOK_S", 0.05)
    await queue.send("x")
    replies = client.begin(broker, "StreamIsActive", JOBS)
    assert await client.next(replies) == {"result": True}
    assert await queue.pop() is not None
    assert await client.next(replies) == {"result": False}

    await queue.send("soon", delay=5)

    assert await client.next(replies) == {"result": True}


async def test_arrivals_in_an_active_queue_cost_no_looks(client, broker, queue, monkeypatch):
    looks = []
    look = keda.scale_of

    async def counted(*words, **more):
        looks.append(1)
        return await look(*words, **more)

    monkeypatch.setattr(keda, "scale_of", counted)
    await queue.send("x")
    replies = client.begin(broker, "StreamIsActive", JOBS)
    assert await client.next(replies) == {"result": True}
    before = len(looks)
    for number in range(50):
        await queue.send(str(number))

    assert len(looks) <= before + 1


async def test_stream_survives_an_outage_of_the_server(client, serve, monkeypatch):
    monkeypatch.setattr(keda, "LOOK_S", 0.05)
    quick = Options(poll_cap=0.2, deadline=0.5)
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=quick) as rsmq,
        serve(rsmq=rsmq) as broker,
    ):
        queue = await rsmq.create_queue("jobs")
        replies = client.begin(broker, "StreamIsActive", JOBS)
        assert await client.next(replies) == {"result": False}
        server.kill()
        await until(lambda: rsmq.server_status.away)
        await server.start()
        await queue.send("x")

        assert await client.next(replies) == {"result": True}


async def test_stop_ends_streams(client, serve, queue):
    async with serve() as broker:
        replies = client.begin(broker, "StreamIsActive", JOBS)
        assert await client.next(replies) == {"result": False}

    assert (await client.next(replies))["status"] == "UNAVAILABLE"


async def test_new_targets_are_not_pushed(client, broker, queue):
    assert (await client.call(broker, "StreamMetricSpec", JOBS))["status"] == "UNIMPLEMENTED"


@pytest.mark.parametrize("method", ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"])
async def test_token_is_that_of_the_trigger(client, serve, queue, method):
    async with serve(TOKENS) as broker:

        async def status(**more):
            return (await client.call(broker, method, JOBS | more)).get("status")

        assert await status() == "UNAUTHENTICATED"
        assert await status(token="wrong-token-with-16") == "UNAUTHENTICATED"
        assert await status(token="token-of-another-one") == "PERMISSION_DENIED"
        assert await status(token="token-of-the-scaler") is None
        assert await status(tokenFromEnv="token-of-the-scaler") is None


async def test_stream_is_counted_with_those_of_its_caller(client, serve, queue):
    async with serve(TOKENS) as broker:
        replies = client.begin(broker, "StreamIsActive", JOBS | {"token": "token-of-the-scaler"})
        assert await client.next(replies) == {"result": False}

        assert broker.under_way == 1
        assert broker._admission._probes.taken == 0


@pytest.mark.parametrize(
    ("metadata", "status", "sentence"),
    [
        ({}, "INVALID_ARGUMENT", "the trigger names no queue; add 'queue' to its metadata"),
        (
            JOBS | {"target": "0"},
            "INVALID_ARGUMENT",
            "'target' of the trigger must be more than 0",
        ),
        (
            JOBS | {"activation": "-1"},
            "INVALID_ARGUMENT",
            "'activation' of the trigger must be a number from 0 on, not '-1'",
        ),
        (
            JOBS | {"count": "ready+ready"},
            "INVALID_ARGUMENT",
            "'count' of the trigger is 'ready+ready'; it joins some of ready, leased, delayed, due",
        ),
        ({"queue": "missing"}, "NOT_FOUND", "queue 'missing' does not exist"),
        ({"queue": "a b"}, "INVALID_ARGUMENT", "a b"),
    ],
)
@pytest.mark.parametrize("method", ["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"])
async def test_metadata_that_cannot_be_meant_is_named(
    client, broker, queue, method, metadata, status, sentence
):
    reply = await client.call(broker, method, metadata)

    assert reply["status"] == status
    assert sentence in reply["sentence"]


async def test_unknown_key_is_ignored_and_logged(client, broker, queue, caplog):
    metadata = JOBS | {"taget": "5"}
    (spec,) = (await client.call(broker, "GetMetricSpec", metadata))["metricSpecs"]

    assert spec["targetSizeFloat"] == keda.TARGET
    assert (await client.call(broker, "IsActive", metadata)) == {"result": False}
    (line,) = [r.getMessage() for r in caplog.records if "taget" in r.getMessage()]
    assert "'jobs' has the unknown key 'taget', which is ignored; known are queue, ns" in line


async def test_namespace_must_be_that_of_the_broker(client, broker, queue, ns):
    assert "result" in await client.call(broker, "IsActive", JOBS | {"ns": ns})
    reply = await client.call(broker, "IsActive", JOBS | {"ns": "another"})

    assert reply["sentence"] == f"this broker serves namespace {ns!r}, not 'another'"


def test_name_of_a_metric_has_no_characters_that_metrics_lack():
    assert keda.Trigger.read({"queue": "Shop.EU_orders"}).metric == "rsmq-shop-eu-orders"
    with pytest.raises(InvalidValue):
        keda.Trigger.read({"queue": "jobs", "due": "soon"})
