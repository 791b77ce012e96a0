"""Traces: the spans of a journey are those of the conventions for messaging, on every backend."""

import asyncio
import subprocess
import sys
from contextlib import contextmanager

import pytest
from opentelemetry.baggage import set_baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from aiorsmq_ng import (
    RSMQ,
    InvalidValue,
    LeaseLost,
    Options,
    QueueNotFound,
    Retry,
    Worker,
)
from aiorsmq_ng.telemetry.opentelemetry_traces import OpenTelemetryTraces

from ..support.waiting import until

#: Of the table of spans, by type of the operation: their kinds.
KINDS = {
    "send": SpanKind.PRODUCER,
    "receive": SpanKind.CLIENT,
    "process": SpanKind.CONSUMER,
    "settle": SpanKind.CLIENT,
}
#: Attributes that every span must have, and those that it may have besides.
REQUIRED = {"messaging.system", "messaging.operation.name"}
CONDITIONAL = {
    "error.type",
    "messaging.batch.message_count",
    "messaging.destination.name",
    "messaging.destination.subscription.name",
    "messaging.destination.template",
    "messaging.operation.type",
}
RECOMMENDED = {"messaging.message.id"}
OWN = {"messaging.rsmq.namespace", "messaging.rsmq.handler", "messaging.rsmq.receive_count"}


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


@pytest.fixture
def telemetry(provider):
    return [OpenTelemetryTraces(provider)]


@pytest.fixture(autouse=True)
def no_outlet_fails(caplog):
    """What an outlet raises is logged only."""
    yield
    assert not [r for r in caplog.records if r.name == "aiorsmq_ng.telemetry"]


def spans(exporter, name=None):
    """Return finished spans, in the order in which they began."""
    found = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time)
    return [span for span in found if name is None or span.name == name]


def one(exporter, name):
    (found,) = spans(exporter, name)
    return found


def links(span):
    return [link.context.span_id for link in span.links]


def check_conventions(span):
    """Compare a span of the library with the tables of the conventions."""
    attributes = span.attributes
    assert attributes.keys() >= REQUIRED
    assert attributes.keys() <= REQUIRED | CONDITIONAL | RECOMMENDED | OWN
    assert attributes["messaging.system"] == "rsmq"
    place = attributes.get("messaging.destination.template") or attributes.get(
        "messaging.destination.name", ""
    )
    assert span.name == f"{attributes['messaging.operation.name']} {place}".rstrip()
    if "messaging.operation.type" in attributes:
        assert span.kind is KINDS[attributes["messaging.operation.type"]]
    assert ("error.type" in attributes) == (span.status.status_code is StatusCode.ERROR)
    assert not {"messaging.message.id", "messaging.batch.message_count"} <= attributes.keys()
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


async def test_journey_from_service_to_dead_letters_and_back(rsmq, provider, exporter):
    """A service, a queue, a worker, a topic, a worker, dead letters, a redrive."""
    queue, topic = await rsmq.create_queue("jobs"), rsmq.topic("news")
    subscription = await topic.subscribe("billing")
    worker, failing = Worker(rsmq), True
    done = asyncio.Event()

    @worker.handler("jobs")
    async def forward(body: str) -> None:
        await topic.publish(body)

    @worker.handler(subscription.name, retry=Retry(1))
    async def bill(body: str) -> None:
        if failing:
            raise LookupError(body)
        done.set()

    exporter.clear()
    with provider.get_tracer("service").start_as_current_span("GET /order"):
        id = await queue.send("order 7")
    running = asyncio.create_task(worker.run(signals=False))
    dead = rsmq.queue(subscription.dead_letter)
    await until(lambda: bool(spans(exporter, f"reject {subscription.name}")))
    failing = False
    assert await subscription.redrive() == 1
    async with asyncio.timeout(20):
        await done.wait()
    await until(lambda: bool(spans(exporter, f"ack {subscription.name}")))
    worker.stop()
    await running

    for span in spans(exporter):
        if span.instrumentation_scope.name == "aiorsmq_ng":
            check_conventions(span)
    service, send = one(exporter, "GET /order"), one(exporter, "send jobs")
    assert send.parent.span_id == service.context.span_id
    assert send.attributes["messaging.message.id"] == id
    process = one(exporter, "process jobs")
    assert process.parent is None
    assert links(process) == [send.context.span_id]
    publish = one(exporter, "publish news")
    assert publish.parent.span_id == process.context.span_id
    assert publish.attributes["messaging.destination.name"] == "news"
    assert one(exporter, "ack jobs").parent.span_id == process.context.span_id
    first, second = spans(exporter, f"process {subscription.name}")
    for work in (first, second):
        assert links(work) == [publish.context.span_id]
        assert work.attributes["messaging.destination.subscription.name"] == "billing"
        assert work.attributes["messaging.message.id"] == publish.attributes["messaging.message.id"]
    assert first.attributes["error.type"] == "LookupError"
    assert first.status.status_code is StatusCode.ERROR
    reject = one(exporter, f"reject {subscription.name}")
    assert reject.parent.span_id == first.context.span_id
    redrive = one(exporter, f"redrive {dead.name}")
    assert redrive.attributes["messaging.batch.message_count"] == 1
    ack = one(exporter, f"ack {subscription.name}")
    assert ack.parent.span_id == second.context.span_id
    # Messages that a worker leases ahead have no receive span.
    assert not [s for s in spans(exporter) if s.name.split()[0] == "receive"]


async def test_receive_links_to_each_sender(rsmq, exporter):
    queue = await rsmq.create_queue("jobs")
    await queue.send("a")
    await queue.send_many(["b", "c"])
    await queue.receive_many(5)
    await queue.receive()

    sent = [span.context.span_id for span in spans(exporter, "send jobs")]
    many, none = spans(exporter, "receive jobs")
    assert links(many) == sent
    assert many.attributes["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in none.attributes
    for span in spans(exporter):
        check_conventions(span)


async def test_block_links_to_its_sender_and_its_verbs_are_inside(rsmq, exporter, provider):
    queue = await rsmq.create_queue("jobs")
    await queue.send("a")
    async with await queue.receive() as message:
        with provider.get_tracer("app").start_as_current_span("inside"):
            await message.extend(60)

    send, process = one(exporter, "send jobs"), one(exporter, "process jobs")
    assert links(process) == [send.context.span_id]
    inside = one(exporter, "inside")
    assert inside.parent.span_id == process.context.span_id
    assert one(exporter, "extend jobs").parent.span_id == inside.context.span_id
    assert one(exporter, "ack jobs").parent.span_id == process.context.span_id


async def test_renewals_are_spans_of_their_work_and_not_of_the_first_request(
    rsmq, exporter, provider
):
    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["a", "b"])
    tracer = provider.get_tracer("app")
    with tracer.start_as_current_span("first request"):
        async with await queue.receive(vt=0.5):
            await until(lambda: bool(spans(exporter, "extend jobs")))
    # The keeper of leases may still have the task that the first block has started.
    exporter.clear()
    with tracer.start_as_current_span("second request"):
        async with await queue.receive(vt=0.5):
            await until(lambda: bool(spans(exporter, "extend jobs")))

    work = one(exporter, "process jobs").context
    for renewal in spans(exporter, "extend jobs"):
        assert (renewal.context.trace_id, renewal.parent.span_id) == (work.trace_id, work.span_id)


async def test_acks_in_the_background_are_spans_of_their_work(rsmq, exporter, provider):
    queue = await rsmq.create_queue("jobs")
    await queue.send("a")
    with provider.get_tracer("app").start_as_current_span("request"):
        async with queue.consume(settle="background") as consumer, await anext(consumer):
            pass

    work = one(exporter, "process jobs").context
    assert one(exporter, "ack jobs").parent.span_id == work.span_id


async def test_pop_and_takeover_link_to_their_senders(rsmq, exporter):
    queue = await rsmq.create_queue("jobs")
    await queue.send("a")
    await queue.receive()
    await queue.recover(1, 0)
    await queue.send("b")
    await queue.pop()

    first, second = spans(exporter, "send jobs")
    assert links(one(exporter, "recover jobs")) == [first.context.span_id]
    assert links(one(exporter, "pop jobs")) == [second.context.span_id]
    for span in spans(exporter):
        check_conventions(span)


async def test_errors_have_the_codes_of_the_library(rsmq, exporter):
    queue = await rsmq.create_queue("jobs")
    await queue.send("a")
    held = await queue.receive()
    await queue.recover(1, 0)
    with pytest.raises(LeaseLost):
        await held.ack()
    with pytest.raises(QueueNotFound):
        await rsmq.queue("nowhere").send("x")

    assert one(exporter, "ack jobs").attributes["error.type"] == "leaseLost"
    assert one(exporter, "send nowhere").attributes["error.type"] == "queueNotFound"
    for span in spans(exporter):
        check_conventions(span)


async def test_context_that_the_program_has_put_there_stays(rsmq, exporter):
    own = {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}
    queue = await rsmq.create_queue("jobs")
    await queue.send_many(["a", "b"], headers=[own, {"tenant": "acme"}])
    first, second = await queue.receive_many(2)

    assert first.headers == own
    assert second.headers["tenant"] == "acme"
    sent = one(exporter, "send jobs").context
    assert f"-{sent.trace_id:032x}-{sent.span_id:016x}-" in second.headers["traceparent"]
    assert links(one(exporter, "receive jobs")) == [0x2222222222222222, sent.span_id]


async def test_nothing_is_put_beside_a_context_of_the_program(rsmq):
    own = {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}
    queue = await rsmq.create_queue("jobs")
    token = attach(set_baggage("k", "v"))
    try:
        await queue.send("a", headers=own)
        await queue.send("b", headers={"tenant": "acme"})
    finally:
        detach(token)
    first, second = await queue.receive_many(2)

    assert first.headers == own
    assert second.headers.keys() == {"traceparent", "baggage", "tenant"}


async def test_baggage_that_is_too_large_is_left_out_and_the_trace_goes_on(rsmq):
    queue = await rsmq.create_queue("jobs")
    token = attach(set_baggage("k", "v" * 8100))
    try:
        await queue.send("a")
        await queue.send("b", headers={"tenant": "acme"})
        await queue.send("c", headers={"n": "x" * 8191})
    finally:
        detach(token)
    first, second, third = await queue.receive_many(3)

    assert first.headers.keys() == {"traceparent"}
    assert second.headers.keys() == {"traceparent", "tenant"}
    assert third.headers.keys() == {"n"}


async def test_headers_of_the_largest_size_stay_as_they_are(rsmq):
    queue = await rsmq.create_queue("jobs")
    largest = {"n": "x" * 8191}
    await queue.send("a", headers=largest)

    assert (await queue.receive()).headers == largest


class TestParent:
    @pytest.fixture
    def telemetry(self, provider):
        return [OpenTelemetryTraces(provider, parent="producer")]

    async def test_sender_is_the_parent_of_a_single_message(self, rsmq, exporter, provider):
        queue = await rsmq.create_queue("jobs")
        await queue.send("a")
        await queue.send("b")
        async with await queue.receive():
            pass
        with provider.get_tracer("app").start_as_current_span("ambient"):
            async with await queue.receive():
                pass

        (first, second), (one_, two) = spans(exporter, "send jobs"), spans(exporter, "process jobs")
        assert one_.parent.span_id == first.context.span_id
        assert one_.context.trace_id == first.context.trace_id
        assert two.parent.span_id == one(exporter, "ambient").context.span_id
        assert links(two) == [second.context.span_id]


class TestNotSampled:
    @pytest.fixture
    def telemetry(self):
        return [OpenTelemetryTraces(TracerProvider(sampler=ALWAYS_OFF))]

    async def test_context_travels_only_with_headers_of_the_program(self, rsmq):
        queue = await rsmq.create_queue("jobs")
        await queue.send("a")
        await queue.send("b", headers={"tenant": "acme"})
        first, second = await queue.receive_many(2)

        assert first.headers == {}
        assert second.headers["tenant"] == "acme"
        flags = second.headers["traceparent"].rpartition("-")[2]
        assert int(flags, 16) % 2 == 0  # not sampled


async def test_peers_of_a_consumer_share_the_name_of_their_spans(rsmq, exporter):
    topic = rsmq.topic("news")
    for peer in ("a", "b"):
        await topic.subscribe("screens", mode="broadcast", peer=peer)
    await topic.publish("x")
    for peer in ("a", "b"):
        subscription = topic.subscription("screens", mode="broadcast", peer=peer)
        async with await subscription.receive():
            pass

    found = spans(exporter, "process news__screens__{peer}")
    assert [s.attributes["messaging.destination.name"] for s in found] == [
        "news__screens__a", "news__screens__b"
    ]  # fmt: skip
    for span in found:
        check_conventions(span)


def test_parent_is_one_of_two():
    with pytest.raises(InvalidValue, match="parent must be 'link' or 'producer', not 'both'"):
        OpenTelemetryTraces(parent="both")


def test_outlet_is_not_imported_unless_it_is_asked_for():
    """redis-py imports OpenTelemetry by itself if it is installed, so only our module counts."""
    code = "import aiorsmq_ng, aiorsmq_ng.telemetry, sys; aiorsmq_ng.RSMQ, aiorsmq_ng.Worker; "
    code += "print([name for name in sys.modules if name.endswith('_traces')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@contextmanager
def calls_of(*files):
    """Count the calls of Python functions in these files."""
    seen = []

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.endswith(files):
            seen.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)


async def test_client_without_telemetry_runs_none_of_it():
    async with RSMQ("memory://", options=Options()) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("warm up")
        with calls_of("recorder.py", "hooks.py", "opentelemetry_traces.py", "headers.py") as seen:
            await queue.send("a")
            await queue.send_many(["b", "c"])
            for message in await queue.receive_many(4):
                async with message:
                    pass

    assert [call for call in seen if "header_texts" not in call] == []
