"""Snapshots: what a queue held at a time, also while others change it; reasons of dead letters."""

import os
import uuid

import pytest
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk_send, reasons, snapshots
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.errors import SnapshotGone
from aiorsmq_ng.options import Options


@pytest.fixture
def keys(ns):
    return Namespace(ns).queue("jobs")


@pytest.fixture
def run(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    yield client.run
    client.close()


@pytest.fixture
def redis(server_url):
    with Redis.from_url(server_url) as client:
        yield client


def fill(run, keys, *bodies, delay_ms=-1):
    rows = bulk_send.Rows(b"".join(suffixes(os.urandom(22 * len(bodies)))), delay_ms, list(bodies))
    place = bulk_send.Place(uuid.uuid4().hex, "0")
    run(bulk_send.send(keys, rows, place, ttl_s=60, oversize="fail"))


def note(run, keys, *, visibility="all", step=10_000):
    id, state = uuid.uuid4().hex, snapshots.SnapshotState()
    while state.now_ms is None or state.last:
        state = run(
            snapshots.take_snapshot(keys, id, state, visibility=visibility, ttl_s=60, step=step)
        )
    return id, state.sizes


def noted(run, keys, id, sizes):
    """Return ids and bodies of all messages in a snapshot."""
    ids, bodies = [], []
    for page, size in enumerate(sizes):
        if not size:
            continue
        part = snapshots.SnapshotRange(id, len(sizes), page, 0, size)
        read = run(snapshots.read_snapshot(keys, part, ttl_s=60, bodies=True, counts=True))
        ids += read.range[0::2]
        bodies += read.bodies
    return ids, bodies


@pytest.mark.parametrize("step", [7, 10_000])
@pytest.mark.parametrize(("visibility", "expected"), [("all", 30), ("visible", 20), ("hidden", 10)])
def test_snapshot_holds_what_the_queue_held(run, keys, visibility, expected, step):
    fill(run, keys, *[b"now"] * 20)
    fill(run, keys, *[b"later"] * 10, delay_ms=60_000)

    id, sizes = note(run, keys, visibility=visibility, step=step)
    fill(run, keys, b"new")
    ids, bodies = noted(run, keys, id, sizes)

    assert sum(sizes) == expected
    assert len(sizes) == -(-expected // step)
    assert len(ids) == len(set(ids)) == expected
    assert (bodies.count(b"now"), bodies.count(b"new")) == (
        20 if visibility != "hidden" else 0,
        0,
    )


def test_snapshot_made_in_pages_misses_nothing_while_others_delete(run, keys):
    fill(run, keys, *[b"x"] * 100)
    id, state = "s", snapshots.SnapshotState()
    deleted: set[str] = set()
    while state.now_ms is None or state.last:
        state = run(snapshots.take_snapshot(keys, id, state, visibility="all", ttl_s=60, step=10))
        victims = run(messages.pop(keys, 3)).messages
        deleted |= {m.id for m in victims}

    found = {i.decode() for i in noted(run, keys, id, state.sizes)[0]}

    left = run(messages.receive(messages.ReceiveSpec(keys), 200, vt_ms=1000)).messages
    assert {m.id for m in left} <= found
    assert len(found | deleted) == 100


def test_snapshot_made_in_pages_notes_nothing_twice_while_others_receive(run, keys):
    """What is received gets a later time, and would be met again further on."""
    fill(run, keys, *[b"x"] * 100)
    id, state = "s", snapshots.SnapshotState()
    while state.now_ms is None or state.last:
        state = run(snapshots.take_snapshot(keys, id, state, visibility="all", ttl_s=60, step=10))
        run(messages.receive(messages.ReceiveSpec(keys), 3, vt_ms=60_000))

    ids, _ = noted(run, keys, id, state.sizes)

    assert len(ids) == len(set(ids)) == 100


def test_snapshot_of_messages_far_apart_notes_nothing_twice_either(run, keys, redis):
    """Pages that have no times in common are compared only where messages can have moved to."""
    fill(run, keys, *[b"x"] * 100)
    ids = redis.zrange(keys.zset, 0, -1)
    redis.zadd(keys.zset, {id: 1000 * n for n, id in enumerate(ids)})
    state, last = snapshots.SnapshotState(), ids[0]
    while state.now_ms is None or state.last:
        state = run(snapshots.take_snapshot(keys, "s", state, visibility="all", ttl_s=60, step=10))
        run(messages.receive(messages.ReceiveSpec(keys), 3, vt_ms=60_000))
        # As if it was given back: a little later than before, which may be on the next page.
        last = state.last or last
        redis.zincrby(keys.zset, 2, last)

    found, _ = noted(run, keys, "s", state.sizes)

    assert len(found) == len(set(found)) == 100


def test_snapshot_lives_as_long_as_one_of_its_pages_is_read(run, keys, redis):
    fill(run, keys, *[b"x"] * 20)
    id, sizes = note(run, keys, step=10)
    redis.expire(keys.snapshot(id, 1), 5)

    part = snapshots.SnapshotRange(id, len(sizes), 0, 0, 1)
    run(snapshots.read_snapshot(keys, part, ttl_s=60, bodies=False, counts=False))

    assert redis.ttl(keys.snapshot(id, 1)) > 5


def test_snapshot_shows_gone_messages_without_a_body(run, keys):
    fill(run, keys, b"a", b"b")
    id, sizes = note(run, keys)
    run(messages.pop(keys, 1))

    assert noted(run, keys, id, sizes)[1] == [None, b"b"]


def test_snapshot_that_expired_is_said_to_be_gone(run, keys, redis):
    fill(run, keys, b"a")
    id, sizes = note(run, keys)
    redis.delete(keys.snapshot(id, 0))

    with pytest.raises(SnapshotGone, match=r"load\(\) it again"):
        noted(run, keys, id, sizes)


def test_reasons_of_many_are_read_at_once_and_those_of_an_earlier_life_do_not_count(
    run, keys, redis
):
    fill(run, keys, b"a", b"b", b"c", b"d")
    ids = [id.decode() for id in redis.zrange(keys.zset, 0, -1)]
    told = {ids[0]: ("5", "5 no\nmore"), ids[1]: ("5", "4 old"), ids[2]: ("", "5 x")}
    for id, (first, text) in told.items():
        redis.set(keys.reason(id), text)
        if first:
            redis.hset(keys.hash, f"{id}:fr", first)

    assert run(reasons.read_reasons(keys, ids)) == ["no\nmore", "", "", ""]
