"""Search: streamed hits with progress, the conditions, and what it reads."""

import json
import re
from contextlib import aclosing

import pytest

from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.dashboard.message_search import Match, Matcher
from aiorsmq_ng.dashboard.reason_groups import reason_kind


def events(text):
    return [
        (name, json.loads(data)) for name, data in re.findall(r"event: (\w+)\ndata: (.*)\n", text)
    ]


@pytest.fixture
def search(web):
    async def search(**query):
        reply = await web.get("/api/v1/queues/jobs/search", params=query)
        assert reply.headers["content-type"].startswith("text/event-stream")
        return events(reply.text)

    return search


async def test_search_tells_hits_progress_and_the_end(search, queue):
    ids = await queue.send_many([f"n{n}" for n in range(1200)])

    found = await search(text="n119")

    hits = [value["id"] for name, value in found if name == "hit"]
    assert hits == [ids[119], *ids[1190:1200]]
    steps = [value["looked_at"] for name, value in found if name == "progress"]
    assert steps == [0, 500, 1000, 1200]
    assert found[-1] == ("done", {"looked_at": 1200, "found": 11, "total": 1200})


@pytest.mark.parametrize(
    ("query", "bodies"),
    [
        ({"where": "body.user.name == 'ann'"}, ["ann"]),
        ({"where": "rc > 0"}, ["ann"]),
        ({"where": "size > 30"}, ["bob"]),
        ({"text": "é"}, ["bob"]),
        ({"where": "body.user.name == 'ann'", "state": "ready"}, []),
        ({"where": "body.n == 9007199254740993"}, ["bob"]),
        ({"state": "leased", "text": "name"}, ["ann"]),
    ],
)
async def test_conditions_are_on_bodies_and_fields(search, queue, query, bodies):
    await queue.send('{"user": {"name": "ann"}}')
    await queue.receive(vt=600)
    await queue.send('{"user": {"name": "bob"}, "n": 9007199254740993, "é": ""}')

    found = [value["preview"] for name, value in await search(**query) if name == "hit"]

    assert [name for name in ("ann", "bob") if any(name in preview for preview in found)] == bodies


async def test_search_of_dead_letters_knows_reasons(web, queue):
    await queue.send_many(["a", "b"])
    for reason in ("KeyError: 7", "timeout"):
        await (await queue.receive()).reject(reason)

    reply = await web.get("/api/v1/queues/jobs-dead/search", params={"where": "'Key' in reason"})

    assert [v["reason"] for name, v in events(reply.text) if name == "hit"] == ["KeyError: 7"]


async def test_search_that_is_stopped_reads_no_more(rsmq, queue, raw):
    await queue.send_many(["x"] * 5000)
    board = dashboard(rsmq).state.board
    before = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]
    async with aclosing(Matcher(board, queue, Match(text="x")).steps()) as steps:
        first = await anext(steps)
    after = (await raw.info("commandstats"))["cmdstat_evalsha"]["calls"]

    assert first.looked_at == 500
    assert after - before <= 2


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("KeyError: 7", "KeyError: #"),
        ("timeout after 3.25 s", "timeout after # s"),
        ("order 0xdeadbeef and 550e8400e29b gone", "order # and # gone"),
        (None, ""),
        ("  plain text ", "plain text"),
    ],
)
def test_reasons_of_one_kind_differ_in_numbers_and_ids_only(reason, kind):
    assert reason_kind(reason) == kind
