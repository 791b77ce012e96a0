"""Pages: what they show, their links, and that looking changes nothing."""

import hashlib
import re
from pathlib import Path

import pytest

import aiorsmq_ng.dashboard
from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.dashboard.links import name_of, segment

STATIC = Path(aiorsmq_ng.dashboard.__file__).parent / "static"


@pytest.fixture
async def filled(rsmq):
    """Queues with messages of every state, dead letters, a topic and a consumer."""
    jobs = await rsmq.create_queue("jobs")
    await jobs.send_many([{"n": n} for n in range(5)])
    await jobs.send("later", delay=600)
    taken = await jobs.receive(vt=600)
    rejected = await jobs.receive()
    await rejected.reject("KeyError: 7")
    topic = rsmq.topic("news")
    await topic.subscribe("mail")
    await topic.publish("hello")
    await rsmq.gateway.announce(jobs, "host-1", 2, [taken.id])
    return jobs


def rows(page):
    return re.findall(r'href="[^"]*/m/([a-zA-Z0-9]{32})"', page.text)


PAGES = [
    *("/", "/q/jobs", "/q/jobs/messages", "/q/jobs/messages?state=leased"),
    *("/q/jobs/messages?text=n", "/dead", "/q/jobs/dead", "/consumers", "/topics"),
    *("/server", "/audit"),
]


@pytest.mark.parametrize("path", PAGES)
async def test_page_is_shown_with_figures_of_its_queues(web, filled, path):
    page = await web.get(path)

    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "<h1" in page.text


async def test_page_of_a_queue_shows_states_consumers_and_dead_letters(web, filled):
    page = await web.get("/q/jobs")

    figures = dict(re.findall(r'data-total="(\w+)">([^<]*)<', page.text))
    assert [figures[name] for name in ("ready", "leased", "delayed", "dead")] == [
        "3",
        "1",
        "1",
        "1",
    ]
    assert "host-1" in page.text


async def test_message_page_shows_its_holder_and_its_life(web, filled):
    (taken,) = [m async for m in filled.scan() if m.state == "leased"]

    page = await web.get(f"/q/jobs/m/{taken.id}")

    assert "host-1" in page.text
    assert "1 times" in page.text
    assert "&#34;n&#34;: 0" in page.text


async def test_looking_at_every_page_changes_no_message(web, filled):
    before = [(m.id, m.state, m.rc, m.score) async for m in filled.scan()]

    for path in PAGES:
        await web.get(path)

    assert [(m.id, m.state, m.rc, m.score) async for m in filled.scan()] == before


async def test_pages_of_messages_show_each_once(web, queue):
    ids = await queue.send_many([str(n) for n in range(120)])

    seen, path = [], "/q/jobs/messages"
    while path:
        page = await web.get(path)
        seen += rows(page)
        found = re.search(r'rel="next" href="([^"]+)"', page.text)
        path = f"/q/jobs/messages{found[1]}".replace("&amp;", "&") if found else None

    assert seen == ids


@pytest.mark.parametrize("state", ["ready", "leased", "delayed"])
async def test_messages_of_one_state_are_shown_alone(web, filled, state):
    page = await web.get(f"/q/jobs/messages?state={state}")

    assert rows(page) == [m.id async for m in filled.scan() if m.state == state]


async def test_few_messages_of_a_state_among_many_are_found_page_by_page(web, queue, monkeypatch):
    monkeypatch.setattr("aiorsmq_ng.dashboard.messages._LOOKED_AT", 10)
    await queue.send_many(["later"] * 35, delay=600)
    (leased,) = await queue.send_many(["now"])
    await queue.receive(vt=9000)

    seen, path = [], "/api/v1/queues/jobs/messages?state=leased"
    while path:
        page = (await web.get(path)).json()
        seen += [row["id"] for row in page["messages"]]
        after = page["next"]
        path = f"/api/v1/queues/jobs/messages?state=leased&after={after}" if after else None

    assert seen == [leased]


@pytest.mark.parametrize("path", ["/q/missing", "/q/missing/messages", "/nothing", "/q/jobs/"])
async def test_what_is_not_there_is_said_to_be_missing(web, queue, path):
    page = await web.get(path)

    assert page.status_code == 404
    assert "Not found" in page.text


@pytest.mark.parametrize("query", ["state=old", "after=nan~x", "after=x", "count=0", "where=1%2B"])
async def test_wrong_query_is_a_clear_error(web, queue, query):
    page = await web.get(f"/q/jobs/messages?{query}")

    assert page.status_code == 400
    assert 'id="error"' in page.text


async def test_queues_that_need_a_look_come_first(web, rsmq, raw):
    await rsmq.create_queue("calm")
    await (await rsmq.create_queue("lonely")).send("x")
    await raw.set(f"{rsmq.ns}:broken:Q", "text")
    await raw.sadd(f"{rsmq.ns}:QUEUES", "broken")

    found = (await web.get("/api/v1/queues")).json()

    order = [(row["name"], row["trouble"]) for row in found["queues"]]
    assert order == [("broken", "damaged"), ("lonely", "no consumers"), ("calm", "")]
    assert found["totals"]["trouble"] == 2


async def test_dead_letters_are_grouped_by_what_their_reasons_share(web, queue):
    await queue.send_many(["x"] * 4)
    for reason in ("KeyError: 7", "KeyError: 8", "timeout after 3.5 s", None):
        await (await queue.receive()).reject(reason)

    found = (await web.get("/api/v1/queues/jobs/dead")).json()

    groups = {group["reason_kind"]: group["count"] for group in found["groups"]}
    assert groups == {"KeyError: #": 2, "timeout after # s": 1, "": 1}
    assert found["total"] == found["looked_at"] == 4


async def test_queue_without_dead_letters_has_an_empty_page(web, queue):
    page = await web.get("/q/jobs/dead")

    assert page.status_code == 200
    assert "0 in" in page.text


async def test_body_is_a_download_that_no_browser_shows(web, queue):
    id = await queue.send(b"<script>\x00\xff")

    reply = await web.get(f"/api/v1/queues/jobs/messages/{id}/body")

    assert reply.content == b"<script>\x00\xff"
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in reply.headers["content-security-policy"]


async def test_long_body_is_cut_on_its_page_and_whole_in_its_download(web, rsmq):
    queue = await rsmq.create_queue("large", maxsize=-1)
    body = "é" * 200_000
    id = await queue.send(body)

    page = await web.get(f"/q/large/m/{id}")
    whole = await web.get(f"/api/v1/queues/large/messages/{id}/body")

    assert "Only the beginning is shown" in page.text
    assert len(page.content) < 300_000
    assert whole.content.decode() == body


HOSTILE = '</script><img src=x onerror="alert(1)">'


async def test_hostile_data_of_a_foreign_client_is_shown_as_text(web, rsmq, queue, raw):
    id = await queue.send(HOSTILE)
    await raw.sadd(f"{rsmq.ns}:QUEUES", HOSTILE)
    await rsmq.gateway.announce(queue, HOSTILE, 1, [id])
    topic = rsmq.topic(HOSTILE)
    await topic.subscribe(HOSTILE)
    await queue.send(HOSTILE)
    await (await queue.receive()).reject(HOSTILE)

    for path in [*PAGES, "/q/jobs-dead/messages", f"/q/jobs-dead/m/{id}", f"/q/{segment(HOSTILE)}"]:
        page = await web.get(path)
        assert "<img" not in page.text, path


@pytest.mark.parametrize("name", ["a/b", "a b", "..", ".", "50%", "ü?#&", "%2F"])
async def test_queue_with_any_name_has_its_page(server_url, ns, visitor, name):
    options = Options(foreign_names=True, connect_timeout=30)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        await rsmq.create_queue(name)
        web = visitor(dashboard(rsmq))
        overview = await web.get("/")
        (link,) = re.findall(r'<th scope="row"><a href="([^"]+)"', overview.text)

        page = await web.get(f"/{link}")

    assert page.status_code == 200
    assert name_of(segment(name).replace("%25", "%")) == name


def test_vendored_files_are_those_of_the_list():
    vendor = STATIC / "vendor"
    listed = dict(
        reversed(line.split()) for line in (vendor / "SHA256SUMS").read_text().splitlines()
    )
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in vendor.iterdir()
        if file.name != "SHA256SUMS"
    }

    assert found == listed


async def test_static_files_are_found_from_every_depth_and_kept_for_ever(web, queue):
    for path in ("/", "/q/jobs", "/q/jobs/messages"):
        page = await web.get(path)
        (sheet,) = re.findall(r'href="([^"]+dashboard.css)"', page.text)
        file = await web.get(str(page.url.join(sheet)))
        assert file.status_code == 200
        assert "immutable" in file.headers["cache-control"]


@pytest.mark.parametrize("length", [155, 156, 160])
async def test_queue_with_a_long_name_is_shown_as_what_it_is(web, act, rsmq, length):
    name = "q" * length
    queue = await rsmq.create_queue(name)
    await queue.send("x")
    await rsmq.gateway.announce(queue, "host-1", 2, [])

    (row,) = (await web.get("/api/v1/queues")).json()["queues"]
    page, reasons = await web.get(f"/q/{name}"), await web.get(f"/q/{name}/dead")
    redriven = await act("redrive", {}, queue=name)

    assert (row["ready"], row["dead"], row["consumers"], row["trouble"]) == (1, 0, 2, "")
    assert (page.status_code, "host-1" in page.text) == (200, True)
    has_dead = length == 155
    assert (f'href="../q/{name}-dead"' in page.text) == has_dead
    assert (f'{name}/dead"' in page.text) == has_dead
    assert reasons.status_code == (200 if has_dead else 404)
    assert redriven.status_code == (404 if has_dead else 400)
