"""What a worker logs, with the fields of each record."""

import asyncio
import json
import logging

import pytest

from aiorsmq_ng import RSMQ, Options, Retry, Worker
from aiorsmq_ng.cli.log_format import JsonFormatter
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .test_worker import stopped

QUICK = Options(poll_cap=0.2, deadline=1)


def fields(record):
    usual = {*vars(logging.makeLogRecord({})), "message", "asctime"}
    return {name: value for name, value in vars(record).items() if name not in usual}


@pytest.fixture
def logged(caplog):
    """Return the records whose text begins with some words."""
    caplog.set_level(logging.DEBUG, "aiorsmq_ng")

    def logged(words):
        return [r for r in caplog.records if r.getMessage().startswith(words)]

    return logged


async def test_life_of_a_worker_is_logged_with_its_fields(rsmq, queue, logged):
    worker = Worker(rsmq, concurrency=1, prefetch=10, grace=0)
    hang = asyncio.Event()

    @worker.handler("jobs", retry=Retry(2, backoff="constant", base=0, jitter=False))
    async def work(body: str) -> None:
        if body == "bad":
            raise KeyError("secret")
        if body == "long":
            await hang.wait()

    for body in ("good", "bad"):
        await queue.send(body)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: (worker.health.done, worker.health.rejected) == (1, 1))
    await queue.send("long")
    await until(lambda: worker.health.running == 1)
    await queue.send_many(["ahead"] * 3)

    async def ahead():
        return (await queue.attributes()).leased == 4

    await until(ahead)
    await stopped(worker, running)

    (begun,), (done,) = logged("serving 'jobs', up to 1 handlers"), logged("stopped; messages")
    assert fields(begun) == {"queues": ["jobs"], "concurrency": 1, "prefetch": 10}
    found = fields(done)
    assert found.pop("seconds") > 0
    assert found == {"done": 1, "failed": 1, "rejected": 1, "released": 4, "stuck": 0}
    (handled,) = logged(f"handler {work.__qualname__} has handled")
    first, last = logged(f"handler {work.__qualname__} failed")
    for record, outcome in ((handled, "acked"), (first, "released"), (last, "rejected")):
        found = fields(record)
        assert found.pop("duration") > 0
        assert (found["queue"], found["handler"]) == ("jobs", work.__qualname__)
        assert (found["outcome"], found["count"]) == (outcome, 1)
    assert (first.rc, last.rc, first.error, first.message_id) == (1, 2, "KeyError", last.message_id)
    (moved,) = logged(f"message {last.message_id} of queue 'jobs' was moved")
    assert fields(moved) == {
        "queue": "jobs", "message_id": last.message_id, "rc": 2,
        "dead_letter": "jobs-dead", "reason": "KeyError: 'secret'",
    }  # fmt: skip


async def test_outage_is_logged_with_its_length(logged):
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=QUICK) as rsmq,
    ):
        worker = Worker(rsmq)

        @worker.handler("jobs")
        async def work(body: str) -> None: ...

        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        server.kill()
        await until(lambda: worker.health.server_away)
        await server.start()
        await until(lambda: worker.health.ok)
        await stopped(worker, running)

    (away,), (back,) = logged("the server does not answer"), logged("the server answers again")
    assert away.error in away.getMessage()
    assert back.seconds >= away.seconds >= 1


def test_record_is_one_line_of_json_with_its_fields():
    try:
        raise ValueError("no\nsuch \x1b[2J thing")
    except ValueError as error:
        record = logging.makeLogRecord(
            {
                "name": "aiorsmq_ng.worker", "levelname": "WARNING",
                "msg": "handler %s", "args": ("f",),
                "created": 1.5, "exc_info": (type(error), error, error.__traceback__),
                "queue": "jobs", "error": error, "message": "not this",
            }
        )  # fmt: skip
    line = JsonFormatter().format(record)
    found = json.loads(line)

    assert line.isascii()
    assert line.isprintable()
    assert "ValueError: no\nsuch" in found.pop("traceback")
    assert found == {
        "time": "1970-01-01T00:00:01.500Z", "level": "WARNING", "logger": "aiorsmq_ng.worker",
        "message": "handler f", "queue": "jobs", "error": "no\nsuch \x1b[2J thing",
    }  # fmt: skip
