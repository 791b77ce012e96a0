"""Actions: on one message, a selection, or all that match; the audit log."""

import logging
from types import SimpleNamespace

import pytest

from aiorsmq_ng import Queue, ServerOutOfMemory
from aiorsmq_ng.broker.tokens import ANONYMOUS
from aiorsmq_ng.dashboard import actions, dashboard
from aiorsmq_ng.dashboard.request_context import Visit

from ..cli.ctl import ABSENT
from .conftest import WRITE


async def states(queue):
    return {m.body.decode(): m.state async for m in queue.scan()}


async def test_send_stores_copies_with_a_delay(act, queue):
    reply = await act("messages", {"body": '{"n": 1}', "delay": 60, "copies": 3})

    found = [m async for m in queue.scan()]
    assert sorted(reply.json()["ids"]) == sorted(m.id for m in found)
    assert {(m.body, m.state) for m in found} == {(b'{"n": 1}', "delayed")}


async def test_attributes_are_changed_where_they_are_given(act, queue):
    await act("", {"vt": 5, "maxsize": 2048}, method="PATCH")

    found = await queue.attributes()
    assert (found.vt, found.delay, found.maxsize) == (5, 0, 2048)


async def test_selection_is_deleted_and_the_rest_stays(act, queue):
    ids = await queue.send_many(["a", "b", "c"])
    await queue.receive()

    reply = await act("delete", {"ids": [ids[0], ids[2], ABSENT]})

    assert reply.json()["done"] == 2
    assert await states(queue) == {"b": "ready"}


async def test_all_that_match_are_deleted(act, queue):
    await queue.send_many([{"type": kind, "n": n} for n in range(600) for kind in ("a", "b")])

    counted = await act("delete", {"match": {"where": "body.type == 'a'"}, "dry_run": True})
    before = (await queue.attributes()).msgs
    done = await act("delete", {"match": {"where": "body.type == 'a'"}})

    assert (counted.json()["matched"], counted.json()["done"], before) == (600, 0, 1200)
    assert done.json()["done"] == 600
    assert {m.json()["type"] async for m in queue.scan()} == {"b"}


async def test_no_more_than_count_are_deleted(act, queue):
    await queue.send_many(["x"] * 250)

    reply = await act("delete", {"match": {"text": "x"}, "count": 120})

    assert reply.json()["done"] == 120
    assert (await queue.attributes()).msgs == 130


async def test_hidden_messages_are_released(act, queue):
    await queue.send("leased")
    await queue.receive()
    await queue.send("delayed", delay=60)
    await queue.send("ready")

    reply = await act("release", {"match": {}})

    assert reply.json()["done"] == 2
    assert set((await states(queue)).values()) == {"ready"}


async def test_leases_are_extended_once_and_others_are_left_alone(act, queue):
    await queue.send_many(["a", "b", "c"])
    await queue.receive(vt=10)
    await queue.receive(vt=20)
    await queue.send("delayed", delay=30)

    reply = await act("extend", {"match": {}, "seconds": 500})

    assert reply.json()["done"] == 2
    scores = {m.body: m.score async for m in queue.scan() if m.state == "leased"}
    (delayed,) = [m.score async for m in queue.scan() if m.state == "delayed"]
    assert len(scores) == 2
    assert min(scores.values()) > delayed + 400_000


async def test_lease_that_is_extended_is_not_found_again_behind_the_walk(act, queue, monkeypatch):
    monkeypatch.setattr("aiorsmq_ng.queue._SCAN_PAGE", 1)
    monkeypatch.setattr("aiorsmq_ng.dashboard.message_search.STEP", 1)
    await queue.send_many(["a", "b"])
    await queue.receive_many(2, vt=10)

    reply = await act("extend", {"match": {}, "seconds": 500, "count": 5})

    assert reply.json()["done"] == 2


async def test_ready_messages_are_moved_with_rc_0(act, rsmq, queue):
    other = await rsmq.create_queue("other")
    await queue.send_many(["a", "b"])
    await queue.receive(vt=600)

    reply = await act("move", {"match": {}, "target": "other"})

    assert reply.json()["done"] == 1
    assert [(m.body, m.rc) for m in await other.peek()] == [(b"b", 0)]
    assert await states(queue) == {"a": "leased"}


@pytest.mark.parametrize("leased", [False, True])
@pytest.mark.parametrize("value", [{"match": {}}, {"ids": [ABSENT]}, {"match": {}, "count": 5}])
async def test_move_out_of_a_queue_without_ready_messages_does_nothing(
    act, web, rsmq, queue, leased, value
):
    await rsmq.create_queue("other")
    await queue.send("x")
    await (queue.receive(vt=600) if leased else queue.purge())

    reply = await act("move", {**value, "target": "other"})

    assert (reply.status_code, reply.json().get("done")) == (200, 0)
    (entry,) = (await web.get("/api/v1/audit")).json()["entries"]
    assert entry["outcome"] == "done"


async def test_redrive_when_all_dead_letters_are_gone_does_nothing(act, rsmq, queue):
    await rsmq.create_queue("jobs-dead")

    reply = await act("redrive", {})

    assert (reply.status_code, reply.json().get("done")) == (200, 0)


async def test_purge_needs_the_name_of_the_queue(act, queue):
    await queue.send_many(["a", "b"])
    await queue.receive(vt=600)

    refused = await act("purge", {"confirm": "job"})
    before = (await queue.attributes()).msgs
    rest = await act("purge", {"confirm": "jobs"})
    leased = await act("purge", {"confirm": "jobs", "leased": True})

    assert (refused.status_code, before) == (400, 2)
    assert (rest.json()["done"], leased.json()["done"]) == (1, 1)


@pytest.fixture
async def dead(queue):
    await queue.send_many([{"n": n} for n in range(6)])
    for n in range(6):
        await (await queue.receive()).reject(f"KeyError: {n}" if n % 2 else "timeout")


@pytest.mark.parametrize(
    ("value", "moved"),
    [
        ({}, 6),
        ({"count": 2}, 2),
        ({"match": {"where": "'Key' in reason"}}, 3),
        ({"match": {"reason_kind": "KeyError: #"}}, 3),
        ({"match": {"where": "body.n > 3"}}, 2),
        ({"match": {"text": '"n":5'}}, 1),
        ({"rate": 1000}, 6),
    ],
)
async def test_redrive_moves_what_is_chosen_and_counts_before(act, queue, dead, value, moved):
    counted = await act("redrive", {**value, "dry_run": True})
    before = (await queue.attributes()).msgs
    done = await act("redrive", value)

    assert (counted.json()["matched"], counted.json()["done"], before) == (moved, 0, 0)
    assert done.json()["done"] == moved
    assert (await queue.stats()).dead == 6 - moved
    assert {m.rc async for m in queue.scan()} == {0}


async def test_redrive_of_a_queue_without_dead_letters_says_so(act, queue):
    reply = await act("redrive", {})

    assert reply.status_code == 404


@pytest.mark.parametrize(
    ("action", "value"),
    [
        ("delete", {}),
        ("delete", {"ids": [ABSENT], "match": {}}),
        ("delete", {"ids": ["x"]}),
        ("delete", {"ids": [ABSENT], "unknown": 1}),
        ("delete", {"match": {"where": "import os"}}),
        ("delete", {"match": {}, "count": 0}),
        ("move", {"ids": [ABSENT], "target": "jobs"}),
        ("move", {"match": {}}),
        ("redrive", {"rate": 0}),
        ("extend", {"match": {}, "seconds": -1}),
        ("messages", {"body": "x", "copies": 1001}),
        ("messages", {"body": 7}),
    ],
)
async def test_wrong_request_is_refused_and_changes_nothing(act, queue, action, value):
    await queue.send("a")
    await queue.receive(vt=600)

    reply = await act(action, value)

    assert reply.status_code == 400
    assert reply.json()["error"]
    assert await states(queue) == {"a": "leased"}


@pytest.mark.parametrize("seconds", [-1, 1e12])
async def test_extend_refuses_its_seconds_also_where_nothing_matches(act, queue, seconds):
    reply = await act("extend", {"match": {}, "seconds": seconds})

    assert reply.status_code == 400
    assert "seconds" in reply.json()["error"]


@pytest.mark.parametrize("where", ["x" * 50_000, "body == " * 9000, "f(" + "1," * 9000 + ")"])
async def test_refused_filter_is_not_repeated_at_length(act, queue, where):
    reply = await act("delete", {"match": {"where": where}})

    assert reply.status_code == 400
    assert len(reply.json()["error"]) < 1000


async def test_long_action_reports_progress_line_by_line(web, queue):
    await queue.send_many(["x"] * 250)

    reply = await web.post(
        "/api/v1/queues/jobs/delete",
        json={"match": {}},
        headers={**WRITE, "accept": "application/x-ndjson"},
    )

    done = [line.count('"finished":true') for line in reply.text.splitlines()]
    assert done == [0, 0, 0, 1]


async def test_error_of_a_long_action_is_its_last_line(web, queue, monkeypatch):
    async def fail(*_, **__):
        raise ServerOutOfMemory("no room")

    monkeypatch.setattr(Queue, "delete_many", fail)
    await queue.send("x")
    reply = await web.post(
        "/api/v1/queues/jobs/delete",
        json={"match": {}},
        headers={**WRITE, "accept": "application/x-ndjson"},
    )

    assert "no room" in reply.text.splitlines()[-1]


async def test_every_action_is_in_the_audit_log(act, web, queue, caplog):
    with caplog.at_level(logging.INFO, "aiorsmq_ng.dashboard.audit"):
        (id,) = (await act("messages", {"body": "secret"})).json()["ids"]
        await act("delete", {"match": {}, "dry_run": True})
        await act("delete", {"ids": [id]})
        await act("", {"vt": 7}, method="PATCH")

    entries = (await web.get("/api/v1/audit")).json()["entries"]
    found = [(e["identity"], e["action"], e["queue"], e["count"], e["outcome"]) for e in entries]
    assert found == [
        ("anonymous", "set attributes", "jobs", 0, "done"),
        ("anonymous", "delete", "jobs", 1, "done"),
        ("anonymous", "send", "jobs", 1, "done"),
    ]
    assert [record.message.count("'jobs'") for record in caplog.records] == [1, 1, 1]
    assert "secret" not in caplog.text + str(entries)


@pytest.mark.parametrize(
    ("action", "value", "recorded", "outcome"),
    [
        ("move", {"match": {}, "target": "nowhere"}, "move to 'nowhere'", "nowhere"),
        ("move", {"match": {}, "target": "jobs"}, "move to 'jobs'", "into itself"),
        ("redrive", {}, "redrive", "jobs-dead"),
        ("purge", {"confirm": "job"}, "purge", "confirm must be"),
        ("", {"vt": -1}, "set attributes", "vt must be"),
        ("messages", {"body": "x", "delay": -1}, "send", "delay must be"),
    ],
)
async def test_refused_action_is_in_the_audit_log_with_the_reason(
    act, web, queue, action, value, recorded, outcome
):
    reply = await act(action, value, method="POST" if action else "PATCH")

    (entry,) = (await web.get("/api/v1/audit")).json()["entries"]
    assert reply.status_code in (400, 404)
    assert (entry["action"], entry["count"]) == (recorded, 0)
    assert outcome in entry["outcome"]


async def test_entry_of_the_audit_log_has_a_limit(act, web, queue):
    await act("delete", {"match": {"text": "x" * 100_000}})

    (entry,) = (await web.get("/api/v1/audit")).json()["entries"]
    assert len(str(entry)) < 2000


async def test_action_that_is_stopped_is_audited_with_what_it_did(rsmq, queue):
    async def body():
        yield b'{"match": {}}'

    app = dashboard(rsmq)
    await queue.send_many(["x"] * 250)
    request = SimpleNamespace(
        state=SimpleNamespace(caller=ANONYMOUS), path_params={"queue": "jobs"}, stream=body
    )
    steps = await actions.delete(Visit(app.state.board, request))
    first = await anext(steps)
    done = first.done
    await steps.aclose()

    (entry,) = app.state.board.audit.entries()
    assert (entry.count, entry.outcome) == (done, "stopped")
    assert (await queue.attributes()).msgs == 250 - done == 150
