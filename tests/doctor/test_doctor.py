"""The doctor: every kind of damage is found, repaired, and nothing else is touched."""

import asyncio
import re
import time
from typing import get_args

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import (
    RSMQ,
    Delivery,
    FindingKind,
    InvalidValue,
    Message,
    Options,
    QueueCorrupt,
    QueueNotFound,
)
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import doctor as operations
from aiorsmq_ng._protocol.operations.doctor import FieldsCursor
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng.doctor import kinds
from aiorsmq_ng.doctor import queue_examination as examination
from aiorsmq_ng.doctor import server_settings as doctor_server
from aiorsmq_ng.testing import PrivateServer
from tools.lab import Cluster

#: A broker does not examine the server that it works on.
BACKENDS = ("server", "cluster")
ABSENT = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
HOUR_MS = 3_600_000
#: What is about the server is looked at in tests of its own.
ABOUT_SERVER = {
    "eviction", "volatile_eviction", "no_persistence", "fsync", "no_maxmemory", "memory_low",
    "facts_refused", "facts_unknown", "clock_offset",
}  # fmt: skip


def id_at(ms: float, end: str = "x") -> str:
    """Return an id that was made at *ms*."""
    digits, us = "", int(ms * 1000)
    while us:
        us, digit = divmod(us, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits + end * 22


async def dump(raw: Redis, ns: str) -> dict:
    """Return all that is stored under a namespace."""
    found = {}
    async for key in raw.scan_iter(match=f"{ns}:*", count=1000):
        kind = await raw.type(key)
        if kind == b"hash":
            found[key.decode()] = await raw.hgetall(key)
        elif kind == b"zset":
            found[key.decode()] = dict(await raw.zrange(key, 0, -1, withscores=True))
        elif kind == b"set":
            found[key.decode()] = await raw.smembers(key)
        else:
            found[key.decode()] = await raw.get(key)
    return found


async def examine(rsmq: RSMQ, *names: str, **how) -> dict:
    """Return what is found in queues, by (queue, kind)."""
    report = await rsmq.doctor(*names, **how)
    found = [f for f in report.findings if f.kind not in ABOUT_SERVER]
    assert all(f.detail and not f.detail.endswith(".") for f in report.findings)
    return {(f.queue, f.kind): f for f in found}


async def cure(rsmq: RSMQ, raw: Redis, *names: str, **how) -> tuple[dict, dict]:
    """Look, repair, look again; return what was repaired and all that is stored then."""
    before = await dump(raw, rsmq.ns)
    seen = await examine(rsmq, *names, **how)
    assert await dump(raw, rsmq.ns) == before, "looking changes nothing"
    assert not any(f.fixed for f in seen.values())
    repaired = await examine(rsmq, *names, fix=True, **how)
    assert {k: f.count for k, f in repaired.items()} == {k: f.count for k, f in seen.items()}
    left = await examine(rsmq, *names, **how)
    assert set(left) == {k for k, f in repaired.items() if not f.fixed}
    return repaired, await dump(raw, rsmq.ns)


async def works(rsmq: RSMQ, name: str = "jobs") -> list[Message]:
    """Go through the verbs of a queue and return what was in it."""
    queue = rsmq.queue(name)
    await queue.send("new")
    received: list[Delivery] = []
    while some := await queue.receive_many(100):  # one that was received before comes alone
        received += some
    for message in received:
        await message.ack()
    assert "new" in [m.text for m in received]
    assert (await queue.attributes()).ready == 0
    assert name in await rsmq.list_queues()
    return received


@pytest.fixture
def zset(ns):
    return f"{ns}:jobs"


@pytest.fixture
def fields(ns):
    return f"{ns}:jobs:Q"


@pytest.fixture
async def busy(queue):
    """A queue with a ready, a leased, a delayed and a twice received message."""
    await queue.send("twice")
    await queue.receive(vt=0)
    await queue.send_many(["once", "ready"])
    assert [m.rc for m in await queue.receive_many(2, vt=1000)] == [2, 1]
    await queue.send("later", delay=3600 * 24 * 7)
    await queue.send("soon", delay=60)
    return queue


async def test_sound_queue_gives_no_finding_and_is_left_as_it_is(rsmq, raw, busy, ns):
    before = await dump(raw, ns)
    found = await examine(rsmq, fix=True)

    assert list(found) == [("jobs", "long_hidden")]
    assert found["jobs", "long_hidden"].severity == "info"
    assert await dump(raw, ns) == before


async def test_report_names_queues_and_server(rsmq, queue, backend):
    report = await rsmq.doctor()

    assert report.queues == ["jobs"]
    assert report.server.engine in ("redis", "valkey")
    assert report.server.version.split(".")[0].isdecimal()
    assert report.server.cluster is (backend == "cluster")
    assert report.server.replicas == 0
    assert report.server.appendfsync in ("always", "everysec", "no")
    assert abs(report.server.clock_offset) < 1
    assert report.healthy == (not any(f.open for f in report.findings))


async def test_phantoms_are_removed_with_their_fields(rsmq, raw, busy, zset, fields, ns):
    whole = await dump(raw, ns)
    now = time.time() * 1000
    await raw.zadd(zset, {ABSENT: 5, id_at(now): now + 1000, "o" * 30: 1})
    await raw.hset(fields, mapping={f"{ABSENT}:rc": 3, f"{ABSENT}:fr": 4, f"{ABSENT}:meta": "{}"})

    found, after = await cure(rsmq, raw)

    assert found["jobs", "phantom"].count == 3
    assert ABSENT in found["jobs", "phantom"].ids
    assert found["jobs", "phantom"].severity == "warning"
    assert found["jobs", "phantom"].fixed
    assert after == whole


async def test_members_that_are_no_ids_are_removed_and_nothing_else(
    rsmq, raw, busy, zset, fields, ns
):
    """Some equal an attribute, a field of a message, or have fields as a message has."""
    real = id_at(time.time() * 1000)
    await raw.hset(fields, mapping={"x": "body", "x:rc": 1, f"{real}": "b", f"{real}:rc": 1})
    await raw.zadd(zset, {real: 5})
    whole = await dump(raw, ns)
    planted = ["vt", "totalsent", "", "x", f"{real}:rc", "a" * 10_240, b"\0" * 32, b"\xff" * 32]
    await raw.zadd(zset, dict.fromkeys(planted, 1))

    found, after = await cure(rsmq, raw)

    assert found["jobs", "not_an_id"].count == len(planted)
    assert found["jobs", "not_an_id"].severity == "warning"
    assert ("jobs", "phantom") not in found
    assert after == whole


async def test_orphans_can_be_received_again_with_count_and_first_time(
    rsmq, raw, busy, zset, fields, ns
):
    lost, fresh = ABSENT, id_at(time.time() * 1000)
    whole = await dump(raw, ns)
    await raw.hset(fields, mapping={lost: "a", f"{lost}:rc": 2, f"{lost}:fr": 1234, fresh: "b"})
    damaged = await dump(raw, ns)

    found, after = await cure(rsmq, raw)

    assert found["jobs", "orphan"].count == 2
    assert found["jobs", "orphan"].severity == "error"
    assert after[fields] == damaged[fields]
    assert {k: v for k, v in after[zset].items() if k.decode() not in (lost, fresh)} == whole[zset]
    received = {m.text: m for m in await works(rsmq)}
    assert (received["a"].rc, received["a"].fr, received["b"].rc) == (3, 1234, 1)
    assert set(received) == {"ready", "a", "b", "new"}


async def test_orphan_made_visible_wakes_who_waits(server_url, raw, fields, ns):
    patient = Options(poll_base=600, poll_cap=600)
    async with RSMQ(server_url, ns=ns, options=patient) as rsmq:
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=60))
        await asyncio.sleep(0.5)
        await raw.hset(fields, ABSENT, "a")

        await rsmq.doctor("jobs", fix=True)

        assert (await asyncio.wait_for(waiting, 30)).text == "a"


async def test_fields_without_a_message_are_removed(rsmq, raw, busy, fields, ns):
    whole = await dump(raw, ns)
    old = "k" * 30  # as old Rust clients made them
    await raw.hset(fields, mapping={f"{ABSENT}:rc": 3, f"{ABSENT}:fr": 4, f"{old}:meta": "x"})

    found, after = await cure(rsmq, raw)

    assert found["jobs", "leak"].count == 2
    assert after == whole


async def test_unknown_fields_are_reported_and_left_alone(rsmq, raw, busy, fields, ns):
    strange = {"msgs": "1", "hiddenmsgs": "2", "k" * 30: "short id", "a b:rc": "?", "x:rc": "1"}
    await raw.hset(fields, mapping=strange)

    found, after = await cure(rsmq, raw)

    assert found["jobs", "unknown_field"].count == 5
    assert found["jobs", "unknown_field"].severity == "info"
    assert {k.encode(): v.encode() for k, v in strange.items()}.items() <= after[fields].items()


async def test_messages_with_short_ids_of_old_clients_are_sound(rsmq, raw, queue, zset, fields):
    await raw.zadd(zset, {"k" * 30: 5})
    await raw.hset(fields, mapping={"k" * 30: "old", "k" * 30 + ":rc": 1, "k" * 30 + ":fr": 5})

    assert await examine(rsmq, fix=True) == {}
    assert "old" in [m.text for m in await works(rsmq)]


@pytest.mark.parametrize("kept", [{"vt": "7"}, {"totalsent": "3"}, {"delay": "0", "maxsize": "-1"}])
async def test_half_made_queue_is_completed_and_keeps_what_is_stored(rsmq, raw, ns, fields, kept):
    await raw.hset(fields, mapping=kept)
    with pytest.raises(QueueNotFound):
        await rsmq.queue("jobs").send("x")

    found, after = await cure(rsmq, raw)

    assert found["jobs", "ghost"].fixed
    assert found["jobs", "ghost"].severity == "error"
    created = after[fields].pop(b"created"), after[fields].pop(b"modified")
    assert all(abs(int(s) - time.time()) < 60 for s in created)
    defaults = {"vt": "30", "delay": "0", "maxsize": "65536"} | kept
    assert after[fields] == {k.encode(): v.encode() for k, v in defaults.items()}
    assert after[f"{ns}:QUEUES"] == {b"jobs"}
    await works(rsmq)


async def test_message_sent_while_its_queue_was_deleted_is_delivered(rsmq, raw, zset, fields):
    id = id_at(time.time() * 1000)
    await raw.zadd(zset, {id: 1})
    await raw.hset(fields, mapping={id: "late", "totalsent": 1})

    found, after = await cure(rsmq, raw)

    assert set(found) == {("jobs", "ghost")}
    assert [m.text for m in await works(rsmq)] == ["late", "new"]


async def test_hash_of_leaked_fields_only_is_not_made_a_queue(rsmq, raw, ns, fields):
    await raw.sadd(f"{ns}:QUEUES", "jobs")
    await raw.hset(fields, mapping={f"{ABSENT}:rc": 3})

    await rsmq.doctor(fix=True)

    assert await dump(raw, ns) == {}


@pytest.mark.parametrize("listed", [True, False])
async def test_queue_without_its_hash_is_cleared_away(rsmq, raw, queue, ns, fields, listed):
    other = await rsmq.create_queue("other")
    await other.send("stays")
    await queue.send_many(map(str, range(1200)))
    await raw.delete(fields)
    if not listed:
        await raw.srem(f"{ns}:QUEUES", "jobs")
    whole = await dump(raw, ns)

    seen = await examine(rsmq)
    repaired = await examine(rsmq, fix=True)

    assert seen["jobs", "headless"].count == 1200
    assert seen["jobs", "headless"].severity == "error"
    assert repaired["jobs", "headless"].fixed
    assert repaired["jobs", "phantom"].count == 1200
    assert (("jobs", "vacant") in repaired) == listed
    assert await examine(rsmq) == {}
    del whole[f"{ns}:jobs"]
    assert await dump(raw, ns) == whole | {f"{ns}:QUEUES": {b"other"}}


async def test_listed_name_with_nothing_behind_is_taken_off(rsmq, raw, busy, ns):
    whole = await dump(raw, ns)
    await raw.sadd(f"{ns}:QUEUES", "gone", "a.b")

    found, after = await cure(rsmq, raw)

    assert {k for k in found if k[1] == "vacant"} == {("gone", "vacant"), ("a.b", "vacant")}
    assert after == whole


async def test_unlisted_queue_is_listed(rsmq, raw, busy, ns):
    whole = await dump(raw, ns)
    await raw.srem(f"{ns}:QUEUES", "jobs")

    found, after = await cure(rsmq, raw)

    assert found["jobs", "unlisted"].severity == "warning"
    assert after == whole


async def test_search_is_for_the_namespace_only(rsmq, raw, server_url, ns):
    await raw.hset(f"{ns}x:jobs:Q", mapping={"vt": 1})
    await raw.hset(f"x{ns}:jobs:Q", mapping={"vt": 1})

    assert (await rsmq.doctor(fix=True)).queues == []
    await raw.delete(f"{ns}x:jobs:Q", f"x{ns}:jobs:Q")


async def test_namespace_with_wildcards_means_itself(raw, server_url, ns):
    wild = f"{ns}[x]"
    await raw.hset(f"{wild}:jobs:Q", mapping={"vt": 1})
    await raw.hset(f"{ns}x:other:Q", mapping={"vt": 1})
    async with RSMQ(server_url, ns=wild) as rsmq:
        assert (await rsmq.doctor(fix=True)).queues == ["jobs"]
        await works(rsmq)
    await raw.delete(f"{wild}:jobs:Q", f"{wild}:QUEUES", f"{ns}x:other:Q")


async def test_keys_of_other_programs_are_reported_and_left_alone(rsmq, raw, ns):
    await raw.set(f"{ns}:cache", "x")
    await raw.hset(f"{ns}:user:Q", mapping={ABSENT: "md5?"})
    await raw.zadd(f"{ns}:scores", {"alice": 1, ABSENT: 2})
    await raw.zadd(f"{ns}:hexes", {"0" * 32: 1})
    await raw.set(f"{ns}:side:ng:reason:x", "x")

    found, _ = await cure(rsmq, raw)

    assert sorted(found) == [(name, "not_a_queue") for name in ("cache", "hexes", "scores", "user")]
    assert {f.severity for f in found.values()} == {"info"}


def hex_id(number: int) -> str:
    """Return an id as rbmq makes them: hexadecimal, without a time."""
    return f"{number:032x}"


@pytest.mark.parametrize("messages", [0, 3])
@pytest.mark.parametrize("also", ["nothing", "cfg lost", "msg lost", "rsmq created it, too"])
async def test_live_queue_of_rbmq_is_reported_and_left_alone(rsmq, raw, ns, messages, also):
    """As rbmq 1.0 stores it: the same list and sorted set, other keys, times in microseconds."""
    now_us = int(time.time() * 1_000_000)
    await raw.sadd(f"{ns}:QUEUES", "jobs")
    await raw.hset(f"{ns}:jobs:cfg", mapping={"vt": 30000, "delay": 0, "maxsize": 65536})
    for number in range(messages):
        await raw.zadd(f"{ns}:jobs", {hex_id(number): now_us + number})
        await raw.hset(f"{ns}:jobs:msg", hex_id(number), f"0\n0\n{now_us}\nbody")
    if also in ("cfg lost", "msg lost") and messages:
        await raw.delete(f"{ns}:jobs:{also[:3]}")
    if also.startswith("rsmq"):
        await raw.hset(f"{ns}:jobs:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536})
    before = await dump(raw, ns)

    report = await rsmq.doctor(fix=True, max_hidden=60)

    assert [f.kind for f in report.findings if f.queue == "jobs"] == ["other_format"]
    assert await dump(raw, ns) == before


async def test_live_queue_with_times_in_microseconds_is_left_alone(rsmq, raw, queue, ns):
    """As rsmq_async stores it with its feature break-js-comp."""
    now_us = int(time.time() * 1_000_000)
    for number, wait_us in enumerate((-5, 0, 30_000_000)):
        id = id_at(now_us / 1000, str(number))
        await raw.zadd(f"{ns}:jobs", {id: now_us + wait_us})
        await raw.hset(f"{ns}:jobs:Q", mapping={id: "body"})
    before = await dump(raw, ns)

    report = await rsmq.doctor("jobs", fix=True, max_hidden=60)

    assert [f.kind for f in report.findings if f.queue == "jobs"] == ["other_format"]
    assert await dump(raw, ns) == before


async def test_names_that_no_queue_can_have_are_reported(rsmq, raw, queue, ns):
    await raw.sadd(f"{ns}:QUEUES", "a:b", b"\xff", "")

    found, after = await cure(rsmq, raw)

    assert found[None, "odd_name"].count == 3
    assert after[f"{ns}:QUEUES"] == {b"jobs", b"a:b", b"\xff", b""}


@pytest.mark.parametrize(("key", "sort"), [("jobs", "zset"), ("jobs:Q", "hash"), ("QUEUES", "set")])
async def test_wrong_type_is_reported_and_never_touched(rsmq, raw, busy, ns, key, sort):
    await raw.set(f"{ns}:{key}", "no")

    found, _ = await cure(rsmq, raw)
    (wrong,) = [f for f in found.values() if f.kind == "wrong_type"]

    assert wrong.severity == "error"
    assert not wrong.fixed
    assert wrong.detail.startswith(f"{ns}:{key} is not a {sort}; ")
    assert wrong.queue == (None if key == "QUEUES" else "jobs")
    assert found == await examine(rsmq, "jobs")


@pytest.mark.parametrize(
    ("field", "value", "sane"),
    [
        ("vt", "soon", "30"), ("vt", "-5", "30"), ("vt", "99999999999", "30"), ("vt", "", "30"),
        ("delay", "nan", "0"), ("delay", "1e3", "0"),
        ("maxsize", "big", "65536"), ("maxsize", "0", "65536"), ("maxsize", "-2", "65536"),
        ("totalsent", "x", "5"), ("totalsent", "-3", "5"), ("totalsent", "12.7", "12"),
        ("totalsent", "9" * 30, "5"), ("totalrecv", "x", "0"), ("totalrecv", "-1", "0"),
    ],
)  # fmt: skip
async def test_bad_number_is_set_to_a_sane_one(rsmq, raw, busy, fields, ns, field, value, sane):
    whole = await dump(raw, ns)
    await raw.hset(fields, field, value)

    found, after = await cure(rsmq, raw)

    assert found["jobs", "bad_number"].detail.startswith(f"{field} is not a valid number")
    assert found["jobs", "bad_number"].severity == "error"
    whole[fields][field.encode()] = sane.encode()
    assert after == whole
    await works(rsmq)


@pytest.mark.parametrize("field", ["created", "modified"])
async def test_bad_time_is_set_to_now(rsmq, raw, queue, fields, field):
    await raw.hset(fields, field, "yesterday")
    with pytest.raises(QueueCorrupt):
        await queue.attributes()

    await cure(rsmq, raw)

    assert abs(getattr(await queue.attributes(), field) - time.time()) < 60


@pytest.mark.parametrize(
    ("vt", "told"),
    [("30000", True), ("4000", True), ("43200000", True), ("90000", True),
     ("3000", False), ("3600", False), ("36000", False), ("43200", False), ("30", False)],
)  # fmt: skip
async def test_milliseconds_are_reported_and_left_alone(rsmq, raw, queue, fields, vt, told):
    await raw.hset(fields, mapping={"vt": vt, "delay": vt})

    found, after = await cure(rsmq, raw)

    assert (("jobs", "milliseconds") in found) == told
    assert after[fields][b"vt"] == vt.encode()
    if vt == "30000":
        report = await rsmq.doctor("jobs")
        sentences = [f.detail for f in report.findings if f.kind == "milliseconds"]
        assert sentences[0].startswith("vt is 30000 s, that is 8.3 h")
        assert sentences[1].startswith("delay is 30000 s")


async def test_stored_fraction_is_a_remark(rsmq, raw, queue, fields):
    await raw.hset(fields, "vt", "2.5")

    found, after = await cure(rsmq, raw)

    assert found["jobs", "fraction"].severity == "info"
    assert after[fields][b"vt"] == b"2.5"


# clocks


async def test_messages_of_a_clock_that_went_back_are_due_when_they_should_be(
    rsmq, raw, queue, zset, fields
):
    """The clock was two hours ahead, is right again, and what was stored meanwhile waits."""
    now = int(time.time() * 1000)
    then = now + 2 * HOUR_MS
    sent, waits, leased = id_at(then, "a"), id_at(then + 0.5, "b"), id_at(now - 5000, "c")
    asked = id_at(then, "d")
    await raw.zadd(
        zset, {sent: then, waits: then + HOUR_MS, leased: then + 30_000, asked: then + 9 * HOUR_MS}
    )
    await raw.hset(fields, mapping={sent: "sent", waits: "waits", leased: "leased", asked: "asked"})
    await raw.hset(fields, mapping={f"{leased}:rc": 1, f"{leased}:fr": then})
    whole = await dump(raw, rsmq.ns)

    seen = await examine(rsmq)
    repaired = await examine(rsmq, fix=True)
    after = await dump(raw, rsmq.ns)

    assert seen["jobs", "hidden_by_clock"].count == 3
    assert seen["jobs", "hidden_by_clock"].severity == "warning"
    assert repaired["jobs", "hidden_by_clock"].fixed
    assert after[fields] == whole[fields]
    due = {id.decode()[-1]: score - now for id, score in after[zset].items()}
    assert 0 <= due["a"] < 60_000
    assert HOUR_MS <= due["b"] < HOUR_MS + 60_000
    assert 30_000 <= due["c"] < 90_000
    assert due["d"] == 11 * HOUR_MS
    # A second look leaves the waits that were asked for alone.
    again = await examine(rsmq, fix=True)
    assert set(again) == {("jobs", "sent_in_future")}
    assert again["jobs", "sent_in_future"].count == 3
    assert again["jobs", "sent_in_future"].severity == "warning"
    assert (await dump(raw, rsmq.ns))[zset] == after[zset]
    assert [m.text for m in await works(rsmq)] == ["sent", "new"]


async def test_messages_hidden_for_longer_than_any_call_can_are_shown(
    rsmq, raw, queue, zset, fields
):
    now = int(time.time() * 1000)
    scores = {
        id_at(now, "a"): now * 1000,
        id_at(now, "b"): "inf",
        id_at(now, "c"): now + 200 * 86_400_000,
    }
    await raw.zadd(zset, scores)
    await raw.hset(fields, mapping=dict.fromkeys(scores, "x"))

    found, _ = await cure(rsmq, raw)

    assert found["jobs", "too_far"].count == 3
    assert len(await works(rsmq)) == 4


async def test_long_delays_stay_unless_max_hidden_is_given(rsmq, raw, queue, zset):
    await queue.send("next week", delay=7 * 86_400)
    await queue.send("soon", delay=60)

    found, _ = await cure(rsmq, raw)
    assert set(found) == {("jobs", "long_hidden")}

    found, after = await cure(rsmq, raw, max_hidden=86_400)
    assert found["jobs", "too_far"].count == 1
    assert [m.text for m in await works(rsmq)] == ["next week", "new"]


async def test_max_hidden_is_checked_before_anything_is_done(rsmq):
    with pytest.raises(InvalidValue):
        await rsmq.doctor(max_hidden=-1)


async def test_server_clock_far_from_the_local_one_is_a_warning(rsmq, monkeypatch):
    real = time.time
    monkeypatch.setattr(doctor_server.time, "time", lambda: real() + 7)
    report = await rsmq.doctor()
    monkeypatch.undo()

    (offset,) = [f for f in report.findings if f.kind == "clock_offset"]
    assert offset.severity == "warning"
    assert "s behind the local one" in offset.detail
    assert -8 < report.server.clock_offset < -6


# a queue that moves


async def test_what_is_only_half_done_is_left_to_its_client(
    rsmq, raw, queue, zset, fields, monkeypatch
):
    """Some clients store in two steps; the doctor looks twice before it calls that damage."""
    monkeypatch.setattr(examination, "SETTLE_S", 3)
    sent, deleted = id_at(time.time() * 1000, "a"), id_at(time.time() * 1000, "b")
    await raw.zadd(zset, {sent: 1})
    await raw.hset(fields, deleted, "x")
    looked = asyncio.Event()

    running = asyncio.create_task(rsmq.doctor("jobs", fix=True, progress=lambda *_: looked.set()))
    await looked.wait()
    await asyncio.sleep(0.5)
    await raw.hset(fields, sent, "body")
    await raw.hdel(fields, deleted)
    report = await running

    assert [f for f in report.findings if f.queue] == []
    assert [m.text for m in await works(rsmq)] == ["body", "new"]


async def test_suspects_are_judged_by_what_they_are_when_repaired(rsmq, raw, busy, ns):
    """The repairing script, asked about sound messages and about nothing, changes nothing."""
    keys = Namespace(ns).queue("jobs")
    whole = await dump(raw, ns)
    ids = [*whole[f"{ns}:jobs"], b"vt", b"totalsent", ABSENT.encode()]

    kinds = await rsmq._transport.run(
        operations.messages(keys, ids, repair=True, max_hidden_ms=-1, channel=keys.wake)
    )

    assert kinds == [None] * len(ids)
    assert await dump(raw, ns) == whole


async def test_repair_while_the_queue_is_in_use_loses_and_doubles_nothing(rsmq, raw, queue, ns):
    """Eight tasks send, receive, ack, release and pop while the doctor repairs without a pause."""
    sent, done = set(), []
    stop, quiet = asyncio.Event(), asyncio.Event()

    async def producer(number):
        for turn in range(60):
            bodies = [f"{number}-{turn}-{i}" for i in range(5)]
            if turn % 3 == 2:
                await queue.send_many(bodies, delay=0.01)
            else:
                await queue.send_many(bodies)
            sent.update(bodies)

    async def foreign_producer():
        for turn in range(100):
            id = id_at(time.time() * 1000, "f")
            async with raw.pipeline(transaction=True) as multi:
                multi.zadd(f"{ns}:jobs", {id: time.time() * 1000})
                multi.hset(f"{ns}:jobs:Q", id, f"foreign-{turn}")
                multi.hincrby(f"{ns}:jobs:Q", "totalsent", 1)
                await multi.execute()
            sent.add(f"foreign-{turn}")

    async def consumer(number):
        while not quiet.is_set():
            for i, message in enumerate(await queue.receive_many(7, vt=600, wait=0.1)):
                if (number + i) % 5 == 0:
                    await message.release()
                else:
                    await message.ack()
                    done.append(message.text)

    async def popper():
        while not quiet.is_set():
            message = await queue.pop()
            if message is None:
                await asyncio.sleep(0.01)
            else:
                done.append(message.text)

    async def doctor():
        runs = 0
        while not stop.is_set():
            report = await rsmq.doctor(fix=True)
            assert [f for f in report.findings if f.queue] == []
            runs += 1
        return runs

    repairing = asyncio.create_task(doctor())
    consuming = [asyncio.create_task(consumer(n)) for n in range(3)]
    consuming.append(asyncio.create_task(popper()))
    await asyncio.gather(*(producer(n) for n in range(3)), foreign_producer())
    for _ in range(600):
        if (await queue.attributes()).msgs == 0:
            break
        await asyncio.sleep(0.1)
    quiet.set()
    await asyncio.gather(*consuming)
    stop.set()
    assert await repairing > 1

    assert sorted(done) == sorted(sent)
    attributes = await queue.attributes()
    assert (attributes.msgs, attributes.totalsent) == (0, len(sent))
    assert await raw.hlen(f"{ns}:jobs:Q") == 7


async def test_damage_among_traffic_is_repaired_once(rsmq, raw, queue, ns):
    """Orphans and phantoms appear while messages come and go: each orphan is delivered once."""
    orphans = [id_at(time.time() * 1000 - n, "o") for n in range(300)]
    done = []

    async def consume():
        while len(done) < 600:
            for message in await queue.receive_many(10, vt=600, wait=1):
                await message.ack()
                done.append(message.text)

    async def harm():
        for n, id in enumerate(orphans):
            await raw.hset(f"{ns}:jobs:Q", id, f"orphan-{n}")
            await raw.zadd(f"{ns}:jobs", {id_at(time.time() * 1000, "p"): 1e15})
            await queue.send(f"sent-{n}")

    consuming, harming = asyncio.create_task(consume()), asyncio.create_task(harm())
    while not (consuming.done() and harming.done()):
        await rsmq.doctor("jobs", fix=True)
    await asyncio.gather(consuming, harming)
    await rsmq.doctor("jobs", fix=True)

    assert sorted(done) == sorted(f"{kind}-{n}" for kind in ("orphan", "sent") for n in range(300))
    assert await raw.zcard(f"{ns}:jobs") == 0
    assert await raw.hlen(f"{ns}:jobs:Q") == 7


# size and reach


async def test_large_queue_is_looked_at_in_pages(rsmq, raw, queue, zset, fields):
    await queue.send_many(["x" * 200] * 5000)
    await queue.receive_many(1000, vt=0)
    ids = [id.decode() for id in await raw.zrange(zset, 0, -1)]
    await raw.zrem(zset, *ids[:700])
    await raw.hdel(fields, *ids[700:1500])
    seen = []

    report = await rsmq.doctor("jobs", fix=True, progress=lambda *told: seen.append(told))
    found = {f.kind: f.count for f in report.findings if f.queue}

    assert found == {"orphan": 700, "phantom": 800}
    assert len(seen) > 10
    assert {name for name, _, _ in seen} == {"jobs"}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert (await queue.attributes()).msgs == 4200
    assert len(await queue.receive_many(5000)) == 4200


async def test_pages_are_small_where_bodies_are_read_with_the_fields(rsmq, queue, ns):
    """Servers before 7.4 cannot leave bodies out of a scan; pages follow the size of the bodies."""
    await rsmq.set_queue_attributes("jobs", maxsize=-1)
    await queue.send_many(["x" * 30_000] * 200)
    keys, at, pages = Namespace(ns).queue("jobs"), FieldsCursor(names_only=False), []
    while not pages or at.cursor != b"0":
        page = await rsmq._transport.run(operations.fields(keys, at))
        at = page.next
        pages.append(page)

    assert not at.names_only
    assert sum(page.looked_at for page in pages) >= 205
    assert max(page.looked_at for page in pages) < 40
    assert all(page.suspects == [] for page in pages)


async def test_a_name_without_a_queue_is_an_error(rsmq, queue):
    found = await examine(rsmq, "jobs", "nosuch", "nosuch")

    assert set(found) == {("nosuch", "absent")}
    assert found["nosuch", "absent"].severity == "error"


async def test_named_queue_only_is_repaired(rsmq, raw, queue, fields, ns):
    other = await rsmq.create_queue("other")
    await raw.hset(fields, ABSENT, "a")
    await raw.hset(f"{ns}:other:Q", ABSENT, "b")

    await rsmq.doctor(other, fix=True)

    assert (await other.attributes()).msgs == 1
    assert (await queue.attributes()).msgs == 0


async def test_user_who_may_not_scan_gets_the_rest(rsmq, raw, server_url, queue, ns):
    await raw.execute_command(
        "ACL",
        "SETUSER",
        ns,
        "on",
        ">pw",
        "allkeys",
        "allchannels",
        "+@all",
        "-scan",
        "-config",
        "-info",
    )
    await queue.send("x")
    try:
        scheme, _, rest = server_url.partition("://")
        async with RSMQ(f"{scheme}://{ns}:pw@{rest}", ns=ns) as limited:
            report = await limited.doctor()
    finally:
        await raw.execute_command("ACL", "DELUSER", ns)

    found = {f.kind: f for f in report.findings}
    assert {kind: f.severity for kind, f in found.items()} == {
        "scan_refused": "warning", "facts_refused": "warning", "facts_unknown": "info",
    }  # fmt: skip
    assert report.queues == ["jobs"]
    assert report.server.version is None
    assert report.server.clock_offset is not None
    # What could not be looked at may be wrong.
    assert not report.healthy


async def test_rights_that_the_page_lists_are_enough(
    rsmq, raw, server_url, queue, fields, ns, pytestconfig
):
    page = (pytestconfig.rootpath / "docs" / "guides" / "doctor.md").read_text()
    rights = re.findall(r"\+[a-z]+(?![|a-z])", page.split("The rights that a user needs")[1])
    channels = ("resetchannels", f"&{ns}:*")
    login = ("+ping", "+hello", "+client", "+auth")
    await raw.execute_command(
        "ACL", "SETUSER", ns, "on", ">pw", f"~{ns}:*", *channels, "-@all", *login, *rights
    )
    await queue.send("x")
    await raw.hset(fields, mapping={ABSENT: "orphan", "k" * 30 + ":rc": "leak", "vt": "?"})
    await raw.zadd(f"{ns}:jobs", {"p" * 32: 1, "f" * 32: "inf", "vt": 1})
    await raw.hset(fields, "f" * 32, "far")
    await raw.hset(f"{ns}:half:Q", "vt", 1)
    await raw.sadd(f"{ns}:QUEUES", "vacant")
    try:
        scheme, _, rest = server_url.partition("://")
        async with RSMQ(f"{scheme}://{ns}:pw@{rest}", ns=ns) as limited:
            report = await limited.doctor(fix=True)
    finally:
        await raw.execute_command("ACL", "DELUSER", ns)

    found = {f.kind for f in report.findings if f.queue}
    assert found == {
        *("orphan", "leak", "phantom", "not_an_id", "too_far", "ghost", "vacant", "bad_number")
    }
    assert all(f.fixed for f in report.findings if f.queue)


async def test_memory_queues_can_be_examined():
    async with RSMQ("memory://") as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        driver = await rsmq._transport.driver()
        raw = Redis(connection_pool=driver._pool)
        await raw.zadd("rsmq:jobs", {ABSENT: 1, id_at(time.time() * 1000): "inf"})
        await raw.hset("rsmq:jobs:Q", id_at(time.time() * 1000 - 5), "orphan")
        report = await rsmq.doctor(fix=True)
        found = {f.kind: f.count for f in report.findings}

        assert found == {"facts_unknown": 1, "phantom": 2, "orphan": 1}
        assert report.server.engine is None
        assert sorted(m.text for m in await queue.receive_many(9)) == ["orphan", "x"]


async def test_cluster_is_searched_where_the_namespace_lies():
    async with Cluster() as cluster, RSMQ(cluster.url, ns="{rsmq}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        driver = await rsmq._transport.driver()
        await driver._client.srem("{rsmq}:QUEUES", "jobs")
        await driver._client.zadd("{rsmq}:jobs", {ABSENT: 1})
        report = await rsmq.doctor(fix=True)

        assert {f.kind for f in report.findings if f.queue} == {"unlisted", "phantom"}
        assert await rsmq.list_queues() == ["jobs"]
        assert report.server.cluster is True
        assert report.server.appendfsync == "everysec"


# the server's settings


async def test_server_settings_that_endanger_queues_are_reported():
    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        Redis.from_url(server.url) as raw,
    ):

        async def told(**settings):
            for name, value in settings.items():
                await raw.config_set(name.replace("_", "-"), value)
            report = await rsmq.doctor()
            return {f.kind: f.severity for f in report.findings}

        assert await told() == {"no_persistence": "warning", "no_maxmemory": "info"}
        assert await told(save="3600 1", maxmemory="512mb") == {"no_persistence": "warning"}
        assert await told(appendonly="yes", appendfsync="everysec") == {"fsync": "info"}
        assert await told(appendfsync="always") == {}
        assert await told(maxmemory_policy="allkeys-lru") == {"eviction": "error"}
        assert await told(maxmemory_policy="volatile-lru") == {"volatile_eviction": "info"}
        used = (await raw.info("memory"))["used_memory"]
        assert await told(maxmemory_policy="noeviction", maxmemory=used) == {
            "memory_low": "warning"
        }


async def test_full_server_can_be_repaired():
    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        Redis.from_url(server.url) as raw,
    ):
        queue = await rsmq.create_queue("jobs")
        await raw.hset("rsmq:jobs:Q", ABSENT, "lost")
        await raw.hset("rsmq:half:Q", "vt", 1)
        await raw.config_set("maxmemory", 1)
        report = await rsmq.doctor(fix=True)

        assert {f.kind for f in report.findings if f.queue} == {"orphan", "ghost"}
        assert all(f.fixed for f in report.findings if f.queue)
        assert (await queue.receive()).text == "lost"


@pytest.mark.parametrize("mode", ["lease", "move"])
async def test_what_a_claim_holds_is_left_to_it(rsmq, queue, mode):
    """Messages under a lean lease have no count; moved ones are not in the queue."""
    await queue.send_many([b"a", b"b", b"c"])
    context = queue._context
    ledger = claims.Ledger(context.keys, "etl.0a", mode)
    terms = claims.Terms(2, 10, 60_000, 600)
    await context.transport.run(claims.claim(ledger, 1, terms, create=True))

    report = await rsmq.doctor(fix=True)

    found = [(f.kind, f.fixed, f.detail) for f in report.findings if f.kind not in ABOUT_SERVER]
    assert len(found) == (mode == "move")
    assert all(
        kind == "moved" and not fixed and "2 in ledger etl.0a" in detail
        for kind, fixed, detail in found
    )
    page = await context.transport.run(claims.read(ledger, 1, 0, 2, bodies=True))
    assert page.bodies == [b"a", b"b"]


def test_page_on_the_doctor_tells_of_every_kind(pytestconfig):
    page = (pytestconfig.rootpath / "docs" / "guides" / "doctor.md").read_text()

    assert [kind for kind in kinds() if f"| `{kind}` |" not in page] == []
    assert list(get_args(FindingKind)) == kinds()


async def test_topics_are_no_damage(rsmq):
    topic = rsmq.topic("news")
    await topic.publish("x")
    await topic.subscribe("a")
    await topic.subscribe("b", mode="broadcast", peer="p")
    await topic.publish("y")

    report = await rsmq.doctor(fix=True)
    assert [f for f in report.findings if f.queue] == []
    assert report.queues == ["news__", "news__a", "news__b__p"]
    assert len(await topic.subscription("a").observe()) == 2


async def test_queue_with_dedup_keys_is_healthy(rsmq):
    queue = await rsmq.create_queue("jobs")
    await queue.send("x", dedup_key="k")

    findings = (await rsmq.doctor(queue)).findings
    assert [f for f in findings if f.queue is not None] == []


async def test_doctor_of_the_server_only_looks_at_no_queue(rsmq, raw):
    await rsmq.create_queue("jobs")
    await raw.zadd(f"{rsmq.ns}:jobs", {"phantom": 1})

    report = await rsmq.doctor(server_only=True)

    assert report.queues == []
    assert {found.queue for found in report.findings} <= {None}
    assert report.server.engine in ("redis", "valkey")
