"""Calls are bounded by bytes: each ends with the message that reaches its number of bytes."""

from itertools import pairwise
from types import SimpleNamespace

import pyarrow as pa
import pytest

from aiorsmq_ng._protocol.operations.spark import bulk_send, claims, snapshots
from aiorsmq_ng._protocol.operations.spark.claims import Ledger, Terms
from aiorsmq_ng.spark.arrow_rows import full_schema
from aiorsmq_ng.spark.batch_reader import SnapshotReader
from aiorsmq_ng.spark.options import ReadOptions, StreamReadOptions, WriteOptions, parse
from aiorsmq_ng.spark.paging import read_pages
from aiorsmq_ng.spark.stream_reader import ClaimReader
from aiorsmq_ng.spark.writers import _commit, _deliver, _lots

from .support import QueryDriver

KB = 1000
#: Short ones among long ones; 40 of them, 26 KB.
MIXED = [b"x" * size for size in (10, 3 * KB, 500, 700, 10, 20, 2 * KB, 10, 10, 300) * 4]
MODES = pytest.mark.parametrize("mode", ["lease", "move"])


@pytest.fixture(params=[4096, -1, 100], ids=["maxsize", "unlimited", "lowered"])
def bench(bench, request):
    """A queue with the messages of ``MIXED``; it has a maxsize, has none, or it was lowered."""
    bench.fill(*MIXED)
    bench.redis.hset(bench.keys.hash, "maxsize", request.param)
    # Its maxsize does not bound the bodies of a queue that was lowered.
    bench.spare = 16 * 3 * KB if request.param == 100 else 0
    return bench


def until_full(sizes, most):
    """Return how many of *sizes* it takes to reach *most*."""
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total >= most:
            return count
    return len(sizes)


def calls(sizes, most):
    """Return the sizes that each call handles."""
    found = []
    while sizes:
        count = until_full(sizes, most)
        found.append(sizes[:count])
        sizes = sizes[count:]
    return found


def check(pages, most, spare=0):
    """Raise unless *pages*, lists of sizes, hold all of ``MIXED``, and each only what it should."""
    assert [size for page in pages for size in page] == list(map(len, MIXED))
    if spare:
        assert all(sum(page) - page[-1] < most + spare for page in pages)
    else:
        assert pages == calls(list(map(len, MIXED)), most)


def claim(bench, mode, **changes):
    """Make a claim; return it and what each call added to it."""
    ledger = Ledger(bench.keys, "spark", mode)
    terms = Terms(1000, 1000, 60_000, 600)._replace(**changes)
    grown, claimed = [0], claims.Claimed(0, False, False)
    while not claimed.complete:
        claimed = bench.run(claims.claim(ledger, 1, terms, create=True))
        grown.append(claimed.messages)
    return ledger, claimed, grown


def divided(grown):
    """Return the sizes of the messages that each call added."""
    sizes = list(map(len, MIXED))
    return [sizes[low:high] for low, high in pairwise(grown) if high > low]


@MODES
@pytest.mark.parametrize("most", [1, KB, 5 * KB, 100 * KB])
def test_page_of_a_claim_ends_with_the_message_that_reaches_the_bytes(bench, mode, most):
    ledger, claimed, _ = claim(bench, mode)
    pages, at = [], 0
    while at < claimed.messages:
        read = claims.read(ledger, 1, at, claimed.messages, bodies=True, max_bytes=most)
        page = bench.run(read)
        assert page.size == len(page.bodies)
        pages.append(list(map(len, page.bodies)))
        at += page.size

    check(pages, most, bench.spare)


@pytest.mark.parametrize("most", [1, KB, 5 * KB, 100 * KB])
def test_page_of_a_snapshot_ends_with_the_message_that_reaches_the_bytes(bench, most):
    state = snapshots.SnapshotState()
    bench.run(snapshots.take_snapshot(bench.keys, "s", state, visibility="all", ttl_s=60, step=100))
    pages, at = [], 0
    while at < len(MIXED):
        part = snapshots.SnapshotRange("s", 1, 0, at, len(MIXED))
        read = snapshots.read_snapshot(
            bench.keys, part, ttl_s=60, bodies=True, counts=True, max_bytes=most
        )
        page = bench.run(read)
        pages.append(list(map(len, page.bodies)))
        at += page.size

    check(pages, most, bench.spare)


@pytest.mark.parametrize("most", [1, KB, 5 * KB, 100 * KB])
def test_call_that_moves_messages_ends_with_the_one_that_reaches_the_bytes(bench, most):
    ledger, claimed, grown = claim(bench, "move", call_bytes=most)

    check(divided(grown), most, bench.spare)
    given, left = [0], claimed.messages
    while left:
        released = bench.run(claims.release(ledger, 1, count=1000, max_bytes=most))
        given.append(given[-1] + released.given)
        left = released.left
    check(divided(given), most)
    assert sorted(bench.bodies()) == sorted(MIXED)


@MODES
@pytest.mark.parametrize("chunk", [1000, 3])
def test_claim_ends_with_the_message_that_reaches_its_bytes(bench, mode, chunk):
    sizes = list(map(len, MIXED))
    expected = until_full(sizes, 10 * KB)

    ledger, claimed, _ = claim(bench, mode, max_bytes=10 * KB, chunk=chunk, call_bytes=4 * KB)

    if mode == "lease" or not bench.spare:
        assert claimed == (expected, True, True)
    assert bench.run(claims.take_over(bench.keys, "spark")).live == [1]
    assert bench.redis.hget(ledger.key, "bytes") is None


@MODES
def test_claim_below_its_bytes_takes_all(bench, mode):
    assert claim(bench, mode, max_bytes=100 * KB)[1] == (len(MIXED), True, False)


@MODES
def test_bytes_of_a_claim_that_was_given_back_do_not_count_for_the_next(bench, mode):
    """A claim that is not complete is given back by the next run of its query."""
    ledger = Ledger(bench.keys, "spark", mode)
    terms = Terms(1000, 3, 60_000, 600, max_bytes=10 * KB, call_bytes=KB)
    for _ in range(2):
        bench.run(claims.claim(ledger, 1, terms, create=True))
    while bench.run(claims.release(ledger, 1, count=1000)).left:
        pass

    assert bench.redis.hget(ledger.key, "bytes") is None


@pytest.mark.parametrize("most", [1, KB, 5 * KB, 100 * KB])
def test_staged_rows_move_until_they_reach_the_bytes(bench, most):
    bench.redis.delete(bench.keys.zset)
    rows = bulk_send.Rows([bulk_send.kept(f"{n:032d}") for n in range(len(MIXED))], -1, MIXED)
    bench.redis.hset(bench.keys.hash, "maxsize", -1)
    bench.run(bulk_send.stage(bench.keys, "t", rows, before=0, ttl_s=60, oversize="fail"))
    bench.redis.hset(bench.keys.hash, "maxsize", 100 if bench.spare else 4096)
    moved, left = [0], len(MIXED)
    while left:
        left = bench.run(bulk_send.move_staged(bench.keys, "t", count=1000, max_bytes=most))
        moved.append(len(MIXED) - left)

    check(divided(moved), most, bench.spare)
    assert bench.size == len(MIXED)


def sizes_of(batches):
    return [list(map(len, batch.column("body").to_pylist())) for batch in batches]


@MODES
@pytest.mark.parametrize("fetch_size", ["7000", "4"])
def test_stream_reads_all_in_pages_of_bounded_bytes(bench, mode, fetch_size):
    given = {"claimMode": mode, "ledger": "etl", "fetchBytes": "4000", "fetchSize": fetch_size}
    options = parse(StreamReadOptions, {**bench.options, **given})
    reader = ClaimReader(options, full_schema("binary"))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())

    pages = sizes_of(b for part in reader.partitions(start, end) for b in reader.read(part))
    reader.stop()

    assert [size for page in pages for size in page] == list(map(len, MIXED))
    assert all(sum(page) - page[-1] < 4000 + bench.spare for page in pages)
    assert max(map(len, pages)) <= int(fetch_size)


def test_after_a_page_that_was_cut_few_messages_are_asked_for():
    """The server looks at all messages of a range, also if few of their bodies fit."""
    asked = []

    class Client:
        def run_chain(self, first, following):
            page = first
            while page is not None:
                yield page
                page = following(page)

    def read(start, stop):
        asked.append((start, stop))
        return SimpleNamespace(size=min(stop - start, 3 if start < 6 else 100))

    list(read_pages(Client(), 0, 100, 50, read))

    assert asked == [(0, 50), (3, 9), (6, 12), (12, 24), (24, 48), (48, 96), (96, 100)]


def test_batch_reads_all_in_pages_of_bounded_bytes(bench):
    """Members of the sorted set that are no ids have ranks, and no rows."""
    ids = bench.redis.zrange(bench.keys.zset, 0, -1, withscores=True)
    bench.redis.zadd(bench.keys.zset, {b"no id %d" % n: ids[n][1] for n in range(0, 40, 3)})
    options = parse(ReadOptions, {**bench.options, "fetchBytes": "4000"})
    reader = SnapshotReader(options, full_schema("binary"))

    pages = sizes_of(b for part in reader.partitions() for b in reader.read(part))

    assert [size for page in pages for size in page] == list(map(len, MIXED))
    assert all(sum(page) - page[-1] < 4000 + bench.spare for page in pages if page)


def test_trigger_takes_messages_until_they_reach_its_bytes_and_the_next_is_claimed_ahead(bench):
    driver = QueryDriver({**bench.options, "maxBytesPerTrigger": str(10 * KB)})
    sizes = list(map(len, MIXED))

    first = driver.latest(driver.origin, 1000)
    second = driver.latest(first, 1000)
    driver.close()

    counts = [len(call) for call in calls(sizes, 10 * KB)]
    assert [first.count, second.count] == counts[:2]
    # What was claimed ahead was given back, and the first batch is acknowledged.
    assert len(bench.receive(1000)) == len(MIXED) - sum(counts[:2])


def test_rows_are_sent_in_lots_of_bounded_bytes(bench):
    bodies = pa.array(MIXED, pa.binary())
    batch = pa.RecordBatch.from_arrays([bodies], names=["body"])
    for size, most in ((1000, 4 * KB), (3, 4 * KB), (1000, 1), (7, 100 * KB)):
        given = {"sendSize": str(size), "sendBytes": str(most)}
        lots = list(_lots(parse(WriteOptions, {**bench.options, **given}), [batch, batch]))

        assert [body for lot in lots for body in lot.rows.bodies] == 2 * MIXED
        sizes = [list(map(len, lot.rows.bodies)) for lot in lots]
        assert all(sum(lot) - lot[-1] < most and len(lot) <= size for lot in sizes)
        assert all(sum(lot) >= most or len(lot) == size for lot in sizes[:-1])


def test_commit_of_staged_rows_sends_all_of_them(bench):
    bench.redis.delete(bench.keys.zset)
    bench.redis.hset(bench.keys.hash, "maxsize", 4096)
    options = parse(WriteOptions, {**bench.options, "sendBytes": "4000"})
    batch = pa.RecordBatch.from_arrays([pa.array(MIXED, pa.binary())], names=["body"])

    outcome = _deliver(options, "job", [batch], staged=True)
    _commit(options, "job", 0, [outcome], 60_000)

    assert sorted(bench.bodies()) == sorted(MIXED)
