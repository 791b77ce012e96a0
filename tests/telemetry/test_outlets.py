"""Both outlets count what was really done: messages, errors, outcomes, durations."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, LeaseLost, Options, Retry, SendUnknown, Worker
from aiorsmq_ng.telemetry import OpenTelemetryMetrics, PrometheusMetrics, Telemetry
from aiorsmq_ng.telemetry.environment import VARIABLE
from aiorsmq_ng.telemetry.instruments import ATTRIBUTES, DURATIONS, Process, instruments
from aiorsmq_ng.telemetry.measurements import MAX_QUEUES, OTHER
from aiorsmq_ng.testing import FaultProxy
from aiorsmq_ng.worker import handler_execution

from ..support.waiting import until

QUICK = Retry(2, base=0.01, cap=0.02)
BACKENDS = ("server", "broker")


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def reader():
    return InMemoryMetricReader()


@pytest.fixture
def telemetry(registry, reader):
    provider = MeterProvider([reader], shutdown_on_exit=False)
    return [PrometheusMetrics(registry), OpenTelemetryMetrics(provider)]


def by_prometheus(registry, instrument):
    """Return the series of an instrument: labels in the order of the table, and value or count."""
    suffix = "_count" if instrument.kind == "histogram" else ""
    return {
        tuple(sample.labels[name] for name in instrument.labels): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == instrument.name + suffix
    }


def by_opentelemetry(reader, instrument):
    data = reader.get_metrics_data()
    if data is None:
        return {}
    found = {}
    for scope in data.resource_metrics[0].scope_metrics:
        for metric in scope.metrics:
            if metric.name != instrument.otel:
                continue
            assert metric.unit == instrument.unit
            assert metric.description == instrument.help
            for point in metric.data.data_points:
                assert point.attributes["messaging.system"] == "rsmq"
                labels = [point.attributes.get(ATTRIBUTES[name], "") for name in instrument.labels]
                value = getattr(point, "value", None)
                found[tuple(labels)] = point.count if value is None else value
    return found


async def test_both_outlets_count_the_same_of_a_worker(rsmq, registry, reader):
    worker = Worker(rsmq, concurrency=2)
    seen = Counter()

    @worker.handler("jobs", retry=QUICK)
    async def handle(body: str, message: Delivery) -> None:
        seen[body] += 1
        if body == "fail":
            raise ZeroDivisionError
        if body == "lose" and seen[body] == 1:
            await rsmq.queue("jobs").delete(message.id)
        if body == "release" and seen[body] == 1:
            await message.release()
        if body == "reject":
            await message.reject()

    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["ok"] * 5 + ["fail", "lose", "release", "reject"])
    running = asyncio.create_task(worker.run(signals=False))
    # 5 acked, "fail" failed and rejected, 1 lost, "release" released and acked, 1 rejected.
    await until(lambda: sum(by_prometheus(registry, Process.handled).values()) == 11)
    gauges = by_prometheus(registry, Process.running)
    assert gauges == {(rsmq.ns, "jobs"): 0}
    assert by_prometheus(registry, Process.connected) == {(rsmq.ns,): 1}
    worker.stop()
    await running

    place = (rsmq.ns, "jobs")
    expected = {
        Process.handled: {
            (*place, "acked"): 6, (*place, "failed"): 1, (*place, "released"): 1,
            (*place, "rejected"): 2, (*place, "lost"): 1,
        },
        Process.handler_duration: {(*place, ""): 9, (*place, "ZeroDivisionError"): 2},
        Process.wait: {place: 9},
        Process.lease_lost: {place: 1},
        Process.sent: {(*place, "send", ""): 9},
        Process.received: {(*place, "receive"): 11},
    }  # fmt: skip
    for instrument, series in expected.items():
        assert by_prometheus(registry, instrument) == series, instrument.name
    for instrument in instruments(Process):
        if instrument.kind != "gauge":
            found = by_opentelemetry(reader, instrument)
            assert found == by_prometheus(registry, instrument), instrument.name


async def test_attributes_are_those_of_the_conventions(rsmq, reader):
    queue = await rsmq.create_queue("jobs")
    await queue.send("x")
    async with await queue.receive():
        pass
    points = {
        metric.name: [(dict(p.attributes), p) for p in metric.data.data_points]
        for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
        for metric in scope.metrics
    }
    durations = {
        attributes["messaging.operation.name"]: (attributes, point)
        for attributes, point in points["messaging.client.operation.duration"]
    }
    for operation, type_ in (("send", "send"), ("receive", "receive"), ("ack", "settle")):
        attributes, point = durations[operation]
        assert attributes == {
            "messaging.system": "rsmq",
            "messaging.operation.name": operation,
            "messaging.operation.type": type_,
        }
        assert tuple(point.explicit_bounds) == DURATIONS
    ((attributes, _),) = points["messaging.process.duration"]
    assert attributes == {
        "messaging.system": "rsmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "jobs",
        "messaging.rsmq.namespace": rsmq.ns,
    }


async def test_lost_replies_retries_and_unknown_sends(server_url, ns, registry):
    async with FaultProxy(server_url) as proxy:
        options = Options(deadline=0.6, connect_timeout=0.2)
        outlet = PrometheusMetrics(registry)
        async with RSMQ(proxy.url, ns=ns, options=options, telemetry=[outlet]) as rsmq:
            queue = await rsmq.create_queue("jobs")
            await queue.send("first")
            proxy.half_open()
            with pytest.raises(SendUnknown) as unknown:
                await queue.send("second")
            await proxy.resume()
            assert by_prometheus(registry, Process.retries)[("send",)] >= 1
            assert len(await queue.resend(unknown.value.token)) == 1
            assert (await queue.attributes()).msgs == 2
    sent = by_prometheus(registry, Process.sent)
    assert sent == {
        (ns, "jobs", "send", ""): 1,
        (ns, "jobs", "send", "sendUnknown"): 1,
        (ns, "jobs", "resend", ""): 1,
    }
    assert by_prometheus(registry, Process.open) == {}


async def test_labels_have_no_ids_and_queues_have_a_limit(rsmq, telemetry, registry):
    queue = await rsmq.create_queue("jobs")
    id = await queue.send("x")
    message = await queue.receive()
    await message.ack()
    with pytest.raises(LeaseLost):
        await message.ack()
    values = {v for f in registry.collect() for s in f.samples for v in s.labels.values()}
    assert id not in values
    for number in range(MAX_QUEUES + 10):
        telemetry[0].on_lease_lost("elsewhere", f"queue-{number}")
    telemetry[0].on_lease_lost("elsewhere", "news__mail__peer-1")
    lost = by_prometheus(registry, Process.lease_lost)
    assert len([queue for _, queue in lost]) <= MAX_QUEUES + 1
    assert lost["elsewhere", OTHER] >= 10


def test_queues_of_the_peers_of_a_consumer_share_their_series(registry):
    outlet = PrometheusMetrics(registry)
    for peer in ("one", "two"):
        outlet.on_lease_lost("shop", f"news__mail__{peer}")
    outlet.on_lease_lost("shop", "news__mail")
    assert by_prometheus(registry, Process.lease_lost) == {
        ("shop", "news__mail__{peer}"): 2,
        ("shop", "news__mail"): 1,
    }


def test_clients_of_one_registry_share_an_outlet(registry):
    assert PrometheusMetrics(registry) is PrometheusMetrics(registry)
    assert PrometheusMetrics(registry) is not PrometheusMetrics(CollectorRegistry())


async def test_the_environment_names_outlets(monkeypatch):
    monkeypatch.setenv(VARIABLE, "prometheus, otel")
    outlets = RSMQ("redis://127.0.0.1:1")._recorder.outlets
    assert [type(o) for o in outlets] == [PrometheusMetrics, OpenTelemetryMetrics]
    assert RSMQ("redis://127.0.0.1:1")._recorder.outlets == outlets
    assert RSMQ("redis://127.0.0.1:1", telemetry=())._recorder is None
    monkeypatch.setenv(VARIABLE, "statsd")
    with pytest.raises(InvalidValue, match=r"'statsd' .* are prometheus, otel, otel-traces"):
        RSMQ("redis://127.0.0.1:1")
    monkeypatch.delenv(VARIABLE)
    assert RSMQ("redis://127.0.0.1:1")._recorder is None


async def test_the_environment_adds_outlets_to_those_of_the_program(monkeypatch, registry):
    monkeypatch.setenv(VARIABLE, "prometheus,otel")
    own = PrometheusMetrics(registry)
    outlets = RSMQ("redis://127.0.0.1:1", telemetry=[own])._recorder.outlets
    assert outlets[0] is own
    assert [type(o) for o in outlets] == [PrometheusMetrics, OpenTelemetryMetrics]


@pytest.mark.parametrize(
    "wrong",
    ["prometheus", ["prometheus"], Telemetry(), [Telemetry]],
    ids=["a name", "names", "no list", "classes"],
)
def test_what_is_no_list_of_outlets_is_refused(wrong):
    with pytest.raises(InvalidValue, match="telemetry must be"):
        RSMQ("redis://127.0.0.1:1", telemetry=wrong)


class Broken(Telemetry):
    def on_call(self, call):
        raise ZeroDivisionError

    def on_process(self, process):
        return self

    def __enter__(self):
        raise LookupError

    def __exit__(self, *_):
        raise AssertionError("its block was not entered")


async def test_faults_of_outlets_do_not_reach_the_program(server_url, ns, caplog):
    async with RSMQ(server_url, ns=ns, telemetry=[Broken()]) as rsmq:
        queue = await rsmq.create_queue("jobs")
        for _ in range(2):
            await queue.send("x")
            async with await queue.receive():
                pass
        assert (await queue.attributes()).msgs == 0
    logged = [r for r in caplog.records if r.name == "aiorsmq_ng.telemetry"]
    assert [r.exc_info[0] for r in logged] == [ZeroDivisionError, LookupError]
    assert "telemetry: Broken failed" in caplog.text


class Receives(Telemetry):
    def __init__(self):
        self.queues = []

    def on_receive(self, receive):
        self.queues.append(tuple(receive.queues))


async def test_every_receive_of_the_program_is_reported_once(server_url, ns):
    outlet = Receives()
    async with RSMQ(server_url, ns=ns, telemetry=[outlet]) as rsmq:
        queue, topic = await rsmq.create_queue("jobs"), rsmq.topic("news")
        shared = await topic.subscribe("mail")
        peer = await topic.subscribe("screens", mode="broadcast", peer="a")
        for receive, *args in (
            (queue.receive,), (queue.receive_many, 2),
            (rsmq.receive, "jobs"), (rsmq.receive_many, ["jobs"], 2),
            (shared.receive,), (shared.receive_many, 2), (shared.observe, 2),
            (peer.receive,), (peer.receive_many, 2), (peer.observe, 2),
        ):  # fmt: skip
            outlet.queues.clear()
            await receive(*args)
            assert outlet.queues == [(getattr(receive.__self__, "name", "jobs"),)], receive


async def test_what_a_worker_leases_ahead_is_not_reported_but_receives_of_its_handlers_are(
    server_url, ns
):
    outlet = Receives()
    async with RSMQ(server_url, ns=ns, telemetry=[outlet]) as rsmq:
        queue, other = await rsmq.create_queue("jobs"), await rsmq.create_queue("other")
        worker, done = Worker(rsmq), asyncio.Event()

        @worker.on_dead_letter
        async def look(letter) -> None:
            await other.receive()
            done.set()

        @worker.handler("jobs", retry=Retry(1))
        async def handle(body: str) -> None:
            raise LookupError(body)

        await queue.send("x")
        # Delivered once already, so the receive of the worker moves it to the dead letters.
        await (await queue.receive()).release()
        outlet.queues.clear()
        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(20):
            await done.wait()
        worker.stop()
        await running
    assert outlet.queues == [("other",)]


async def test_messages_of_a_handler_that_is_left_behind_are_counted_once(
    server_url, ns, registry, monkeypatch
):
    monkeypatch.setattr(handler_execution, "_ABANDON_S", 0.05)
    monkeypatch.setattr(handler_execution, "_CANCEL_S", 0.05)
    began, leave = asyncio.Event(), asyncio.Event()
    async with RSMQ(server_url, ns=ns, telemetry=[PrometheusMetrics(registry)]) as rsmq:
        worker = Worker(rsmq, grace=0.05)

        @worker.handler("jobs")
        async def handle(body: str) -> None:
            began.set()
            while not leave.is_set():
                with suppress(asyncio.CancelledError):
                    await leave.wait()
            await asyncio.Event().wait()

        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        running = asyncio.create_task(worker.run(signals=False))
        await began.wait()
        (execution,) = worker._executions.running
        worker.stop()
        await running
        # As asyncio.run does at its end.
        leave.set()
        await asyncio.sleep(0)
        execution.task.cancel()
        await asyncio.wait([execution.task])
        assert execution.task.cancelled()
    assert by_prometheus(registry, Process.handled) == {(ns, "jobs", "lost"): 1}
