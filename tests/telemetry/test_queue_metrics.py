"""The exporter of queues: figures of the server, shared samples, a server that is away."""

import asyncio

import httpx
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Mount

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.broker import Tokens
from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.queue_metrics import QueueMetrics
from aiorsmq_ng.telemetry.instruments import Queues, instruments

BACKENDS = ("server", "broker")


def read(page):
    """Return the samples of a page: (name, labels without the namespace) -> value."""
    return {
        (s.name, *(v for k, v in sorted(s.labels.items()) if k != "namespace")): s.value
        for family in text_string_to_metric_families(page.decode())
        for s in family.samples
    }


def queues(page):
    """Return the queues that a page has metrics of."""
    return {key[1] for key in read(page) if key[0] == "rsmq_queue_consumers"}


async def test_page_has_what_the_server_has(rsmq):
    jobs = await rsmq.create_queue("jobs")
    await jobs.send_many(["a", "b", "c"])
    await jobs.send("later", delay=60)
    await (await jobs.receive()).reject("no")
    await jobs.receive()
    await rsmq.create_queue("idle")
    with jobs.present():
        await jobs.receive()
        page, content_type = await QueueMetrics(rsmq).page()
    found = read(page)

    assert content_type.startswith("text/plain")
    assert found["rsmq_up",] == 1
    for state, number in (("ready", 0), ("leased", 2), ("delayed", 1)):
        assert found["rsmq_queue_messages", "jobs", state] == number
        assert found["rsmq_queue_messages", "idle", state] == 0
    assert found["rsmq_queue_dead_messages", "jobs"] == 1
    assert found["rsmq_queue_messages", "jobs-dead", "ready"] == 1
    assert found["rsmq_queue_oldest_ready_age_seconds", "jobs-dead"] >= 0
    assert found["rsmq_queue_sent_total", "jobs"] == 4
    assert found["rsmq_queue_received_total", "jobs"] == 3
    names = {one.name for one in instruments(Queues)} - {Queues.damaged.name}
    assert names == {name for name, *_ in found}


async def test_scrapers_share_a_sample(rsmq, monkeypatch):
    await rsmq.create_queue("jobs")
    metrics, looks = QueueMetrics(rsmq, interval=60), []
    listing = rsmq.list_queues

    async def list_queues():
        looks.append(1)
        return await listing()

    monkeypatch.setattr(rsmq, "list_queues", list_queues)
    pages = await asyncio.gather(*(metrics.page() for _ in range(10)))
    assert len({page for page, _ in pages}) == 1
    assert looks == [1]


async def test_names_choose_the_queues(rsmq):
    for name in ("orders-1", "orders-2", "other"):
        await rsmq.create_queue(name)
    page, _ = await QueueMetrics(rsmq, ["orders-*"]).page()
    assert queues(page) == {"orders-1", "orders-2"}


async def test_damaged_queue_is_one_metric_and_others_are_read(rsmq, raw, ns):
    for name in ("good", "bad"):
        await rsmq.create_queue(name)
    await raw.hset(f"{ns}:bad:Q", "totalsent", "many")
    page, _ = await QueueMetrics(rsmq).page()
    found = read(page)
    assert found["rsmq_queue_damaged", "bad"] == 1
    assert ("rsmq_queue_messages", "good", "ready") in found
    assert ("rsmq_queue_messages", "bad", "ready") not in found


async def test_server_that_is_away_is_a_metric():
    options = Options(deadline=0.2, connect_timeout=0.1)
    async with asyncio.timeout(20):
        rsmq = RSMQ("redis://127.0.0.1:1", options=options)
        page, _ = await QueueMetrics(rsmq).page()
        await rsmq.aclose()
    found = read(page)
    assert found["rsmq_up",] == 0
    assert {name for name, *_ in found} >= {"rsmq_up", "rsmq_build_info"}
    assert not [name for name, *_ in found if name.startswith("rsmq_queue_")]


async def test_openmetrics_if_the_scraper_asks_for_it(rsmq):
    page, content_type = await QueueMetrics(rsmq).page("application/openmetrics-text")
    assert content_type.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")


async def test_dashboard_serves_a_token_the_queues_that_it_sees(rsmq):
    for name in ("orders-1", "secret"):
        await rsmq.create_queue(name)
    tokens = Tokens.read(
        '[scraper]\ntoken = "0123456789abcdef"\nroles = ["consumer"]\nqueues = ["orders-*"]\n'
    )
    app = Starlette(routes=[Mount("/queues", dashboard(rsmq, tokens=tokens))])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        refused = await client.get("/queues/metrics")
        given = {"authorization": "Bearer 0123456789abcdef"}
        found = await client.get("/queues/metrics", headers=given)
    assert refused.status_code == 401
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/plain")
    assert queues(found.content) == {"orders-1"}
