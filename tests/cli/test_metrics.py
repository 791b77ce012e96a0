"""Metrics of commands: ``rsmqctl serve metrics``, and those of a worker and a broker."""

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from .test_worker import read_until

WORKER = """
from aiorsmq_ng import RSMQ, Worker

worker = Worker(RSMQ(ns={ns!r}))

@worker.handler("jobs")
async def handle(body: str) -> None:
    pass
"""


@asynccontextmanager
async def running(*words, **how):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", *words),
        stderr=asyncio.subprocess.PIPE,
        **how,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()
        assert process.returncode == 0, log
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def place_of(process):
    log = await read_until(process, "/metrics")
    return re.search(r"http://\S+/metrics", log)[0].replace("*", "127.0.0.1")


async def scrape(place, **headers):
    async with httpx.AsyncClient() as client:
        return await client.get(place, headers=headers)


def samples(reply):
    """Return the samples of a page: name, queue, then state or outcome -> value."""
    found = {}
    for family in text_string_to_metric_families(reply.text):
        for sample in family.samples:
            more = [sample.labels[k] for k in ("state", "outcome") if k in sample.labels]
            found[(sample.name, sample.labels.get("queue"), *more)] = sample.value
    return found


async def test_serve_metrics(server_url, ns, queue):
    await queue.send_many(["a", "b"])
    command = ("-r", server_url, "--ns", ns, "serve", "metrics", "--listen", "127.0.0.1:0")
    async with running(*command) as process:
        place = await place_of(process)
        reply = await scrape(place)
        assert reply.status_code == 200
        assert samples(reply)["rsmq_queue_messages", queue.name, "ready"] == 2
        assert (await scrape(place.removesuffix("metrics"))).status_code == 404


async def test_serve_metrics_needs_tokens_for_other_hosts(ctl, call):
    assert call("serve", "metrics", "--listen", "0.0.0.0:0").status == 2
    refused = call("serve", "metrics", "--listen", "somewhere")
    assert refused.status == 2
    assert "--listen 'somewhere' is not of the form HOST:PORT" in refused.err


async def test_serve_metrics_shows_a_token_the_queues_that_it_may_use(
    server_url, ns, queue, tmp_path
):
    file = tmp_path / "tokens.toml"
    file.write_text(
        '[scraper]\ntoken = "0123456789abcdef"\nroles = ["consumer"]\nqueues = ["nothing-*"]\n'
    )
    file.chmod(0o600)
    command = ("-r", server_url, "--ns", ns, "serve", "metrics", "--listen", "127.0.0.1:0")
    async with running(*command, "--tokens", str(file)) as process:
        place = await place_of(process)
        assert (await scrape(place)).status_code == 401
        found = samples(await scrape(place, authorization="Bearer 0123456789abcdef"))
        assert found["rsmq_up", None] == 1
        assert not [name for name, *_ in found if name == "rsmq_queue_messages"]


async def test_worker_serves_its_metrics(server_url, ns, queue, tmp_path):
    await queue.send_many(["a", "b", "c"])
    (tmp_path / "measured.py").write_text(WORKER.format(ns=ns).replace("jobs", queue.name))
    async with running(
        *("-r", server_url, "worker", "run", "measured:worker"),
        *("--metrics-listen", "127.0.0.1:0"),
        cwd=tmp_path,
        env={**os.environ, "RSMQ_URL": ""},
    ) as process:
        place, found = await place_of(process), {}
        async with asyncio.timeout(30):
            while found.get(("rsmq_worker_handled_total", queue.name, "acked")) != 3:
                found = samples(await scrape(place))
        assert found["rsmq_worker_wait_seconds_count", queue.name] == 3
        assert found["rsmq_client_connected", None] == 1


async def test_broker_serves_metrics_of_its_queues_and_of_its_process(server_url, ns, queue):
    command = ("-r", server_url, "--ns", ns, "serve", "grpc", "--listen", "127.0.0.1:0")
    async with running(*command, "--metrics-listen", "127.0.0.1:0") as process:
        place = await place_of(process)
        found = samples(await scrape(place))
        assert ("rsmq_queue_messages", queue.name, "ready") in found
        assert found["rsmq_client_connected", None] == 1


@pytest.mark.parametrize("command", ["worker run nothing:here", "serve grpc"])
def test_metrics_listen_must_be_an_address(call, command):
    outcome = call(*command.split(), "--metrics-listen", "9464")
    assert outcome.status == 2
    assert "--metrics-listen '9464' is not of the form HOST:PORT" in outcome.err
