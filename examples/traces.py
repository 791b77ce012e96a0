"""Traces of a journey: a service, a queue, a worker, a topic, a worker that fails, dead letters.

Prints every span under its parent, with the spans that it links to. It needs the extra ``otel`` and
an SDK (``pip install opentelemetry-sdk``). A real program sends spans to a collector instead; see
docs/guides/tracing.md.

Run it with ``python examples/traces.py``. It talks to the server in ``RSMQ_URL``, or starts an
embedded one. Its last line is: done
"""

import asyncio
import logging
import os
import uuid
from collections.abc import Callable

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext

from aiorsmq_ng import RSMQ, Retry, Worker
from aiorsmq_ng.telemetry.opentelemetry_traces import OpenTelemetryTraces

logging.getLogger("aiorsmq_ng").setLevel(logging.CRITICAL)  # the failure is wanted

URL = os.environ.get("RSMQ_URL", "embedded://")
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))


async def journey(rsmq: RSMQ, jobs: str, news: str) -> None:
    queue, topic = await rsmq.create_queue(jobs), rsmq.topic(news)
    subscription = await topic.subscribe("billing")
    worker = Worker(rsmq)
    failures = [LookupError("no such customer")]
    rejected, done = asyncio.Event(), asyncio.Event()
    rsmq.dead_letters.listen(lambda letter: rejected.set())

    @worker.handler(jobs)
    async def publish(body: str) -> None:
        await topic.publish(body)

    @worker.handler(subscription.name, retry=Retry(1))
    async def bill(body: str) -> None:
        if failures:
            raise failures.pop()
        done.set()

    with provider.get_tracer("shop").start_as_current_span("POST /orders"):
        await queue.send("order 7", headers={"tenant": "acme"})
    running = asyncio.create_task(worker.run())
    await rejected.wait()
    await subscription.redrive()
    await done.wait()
    worker.stop()
    await running
    await topic.delete()
    for name in (jobs, subscription.dead_letter):
        await rsmq.delete_queue(name)


def show(spans: list[ReadableSpan], short: Callable[[str], str]) -> None:
    """Print *spans* as trees, those that began first in front."""
    numbers = {context_of(span).span_id: number for number, span in enumerate(spans, 1)}

    def line(span: ReadableSpan, depth: int) -> None:
        own, error = context_of(span).span_id, (span.attributes or {}).get("error.type")
        links = [str(numbers[link.context.span_id]) for link in span.links]
        print(
            f"{numbers[own]:2} {'  ' * depth}{short(span.name)}  {span.kind.name.lower()}"
            + (f"  links to {', '.join(links)}" if links else "")
            + (f"  error.type={error}" if error else "")
        )
        for child in spans:
            if child.parent and child.parent.span_id == own:
                line(child, depth + 1)

    for span in spans:
        if not span.parent:
            line(span, 0)


def context_of(span: ReadableSpan) -> SpanContext:
    """Return the ids of a finished span."""
    context = span.get_span_context()
    assert context is not None
    return context


async def main() -> None:
    run = uuid.uuid4().hex[:8]
    async with RSMQ(URL, telemetry=[OpenTelemetryTraces(provider)]) as rsmq:
        await journey(rsmq, f"example-{run}-jobs", f"example-{run}-news")
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    show(spans, lambda name: name.replace(f"example-{run}-", ""))
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
