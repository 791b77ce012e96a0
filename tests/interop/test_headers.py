"""Headers and traces beside foreign clients, which read the body and nothing else."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider

from aiorsmq_ng import RSMQ
from aiorsmq_ng.telemetry.opentelemetry_traces import OpenTelemetryTraces

from .peers import Foreign
from .wire import EMPTY_FIELDS, Wire

BODY = "snow \u2603"


async def test_foreign_consumer_in_the_middle_reads_the_body_as_it_was(
    foreign: Foreign, server_url: str, ns: str, wire: Wire
) -> None:
    """A traced service sends, another client consumes, deletes, and sends on."""
    traces = OpenTelemetryTraces(TracerProvider())
    async with RSMQ(server_url, ns=ns, telemetry=[traces]) as rsmq:
        first, second = await rsmq.create_queue("first"), await rsmq.create_queue("second")
        id = await first.send(BODY, headers={"tenant": "acme"})
        assert id.endswith("hd")

        got = await foreign.receive("first")
        assert got is not None
        assert (got.id, got.body, got.rc) == (id, BODY, 1)
        await foreign.send("second", got.body)
        assert await foreign.delete("first", id)
        async with await second.receive() as message:
            assert (message.text, dict(message.headers)) == (BODY, {})

    for queue in ("first", "second"):
        assert (await wire.hash(queue)).keys() == EMPTY_FIELDS


async def test_headers_are_there_again_after_a_foreign_client_had_the_message(
    foreign: Foreign, rsmq: RSMQ
) -> None:
    queue = await rsmq.create_queue("jobs")
    id = await queue.send(BODY, headers={"tenant": "acme"})
    got = await foreign.receive("jobs", vt=60)
    assert got is not None
    await foreign.change_visibility("jobs", id, 0)

    message = await queue.receive()

    assert message is not None
    assert (message.text, message.rc, dict(message.headers)) == (BODY, 2, {"tenant": "acme"})
