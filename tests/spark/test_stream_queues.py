"""Many queues in one stream, on the driver: offsets, shares, queues that come and go."""

import json
import time

import pytest

from aiorsmq_ng import InvalidValue, QueueNotFound
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng.spark import finalize, release
from aiorsmq_ng.spark.fair_shares import divide
from aiorsmq_ng.spark.offsets import Offset, StreamOffset

from .conftest import Bench
from .support import QueryDriver, StreamDriver, eventually

NOTHING = StreamOffset()


@pytest.fixture
def make(server_url, ns):
    """Make queues of the test's namespace, filled."""

    def make(name, count=0):
        queue = Bench(server_url, ns, name)
        queue.fill_numbers(count)
        return queue

    return make


@pytest.fixture
def start(server_url, ns):
    """Start the driver's part of a query over several queues."""
    running = []

    def start(**options):
        given = {"url": server_url, "namespace": ns, "claimAhead": "false", **options}
        driver = StreamDriver({"discoverEveryMs": "100"} | given)
        running.append(driver)
        return driver

    yield start
    for driver in running:
        driver.close()


def counts(offset):
    return {at.queue: at.count for at in offset.offsets.values()}


def taken(tasks):
    """Return the messages per queue of all tasks."""
    found = {}
    for slice in (slice for task in tasks for slice in task):
        queue = slice.ledger.keys.queue
        found[queue] = found.get(queue, 0) + slice.stop - slice.start
    return found


@pytest.mark.parametrize(
    ("limit", "waiting", "shares"),
    [
        (100, {"a": 10, "b": 0, "c": 5}, {"a": 10, "c": 5}),
        (100, {"a": 1000, "b": 1000}, {"a": 50, "b": 50}),
        (100, {"a": 3000, "b": 1000}, {"a": 70, "b": 30}),
        # A queue that is short beside the others gets the floor, a quarter of an equal share.
        (80, {"a": 1_000_000, "b": 11}, {"a": 70, "b": 10}),
        (80, {"a": 1_000_000, "b": 3}, {"a": 77, "b": 3}),
        (0, {"a": 5}, {}),
    ],
)
def test_limit_is_divided_by_backlog_with_a_floor(limit, waiting, shares):
    assert divide(limit, waiting) == shares


@pytest.mark.parametrize("limit", [1, 7, 23, 24, 25, 1000, 99_999])
def test_shares_never_exceed_the_limit_and_leave_nothing_of_it(limit):
    waiting = {number: (number * 7919) % 1000 for number in range(24)}

    shares = divide(limit, waiting, first=3)

    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < share <= waiting[name] for name, share in shares.items())


def test_limit_below_the_number_of_queues_goes_round():
    waiting = dict.fromkeys("abc", 9)

    assert [list(divide(2, waiting, first)) for first in range(3)] == [
        ["a", "b"],
        ["b", "c"],
        ["c", "a"],
    ]


def test_batch_has_messages_of_all_queues_within_the_limit(start, make):
    benches = [make("a", 30), make("b", 10), make("c")]
    driver = start(queues="a, b, c", maxRecordsPerPartition="7")

    first = driver.latest(NOTHING, 20)
    tasks = driver.plan(NOTHING, first)
    assert counts(first) == {"a": 15, "b": 5}
    assert taken(tasks) == {"a": 15, "b": 5}
    assert [sum(s.stop - s.start for s in task) for task in tasks] == [6, 7, 7]

    second = driver.latest(first, 1000)
    assert counts(second) == {"a": 15, "b": 5}
    assert taken(driver.plan(first, second)) == {"a": 15, "b": 5}
    assert driver.latest(second, 1000) == second
    eventually(lambda: [bench.size for bench in benches] == [0, 0, 0])


def test_next_batch_is_claimed_ahead_in_all_queues_within_the_limit(start, make):
    benches = [make("a", 30), make("b", 30)]
    driver = start(queues="a,b", claimAhead="true")

    first = driver.latest(NOTHING, 20)
    eventually(lambda: [len(bench.receive(100)) for bench in benches] == [10, 10])

    assert counts(first) == {"a": 10, "b": 10}
    assert counts(driver.latest(first, 20)) == {"a": 10, "b": 10}


def test_queue_that_fills_later_is_not_starved_by_what_was_claimed_ahead(start, make):
    make("a", 100)
    late = make("b")
    driver = start(queues="a,b", claimAhead="true")
    at = driver.latest(NOTHING, 10)
    late.fill_numbers(100)

    for _ in range(3):
        at = driver.latest(at, 10)

    assert sum(counts(at).values()) <= 10
    assert counts(at)["b"] >= 4


def test_restart_reads_the_same_and_goes_on(start, make):
    make("a", 6), make("b", 6)
    old = start(queues="a,b")
    first = old.latest(NOTHING, 6)
    second = old.latest(first, 4)

    new = start(queues="a,b")
    again = new.plan(first, second)

    assert taken(again) == taken(old.plan(first, second)) == {"a": 2, "b": 2}
    assert counts(new.latest(second, 100)) == {"a": 1, "b": 1}


def test_what_was_never_logged_comes_back_at_once_even_if_nothing_else_waits(start, make):
    make("a", 4), make("b", 4)
    old = start(queues="a,b")
    first = old.latest(NOTHING, 4)
    old.latest(first, 100)

    assert counts(start(queues="a,b").latest(first, 100)) == {"a": 2, "b": 2}


def test_checkpoint_of_one_queue_is_continued_by_many(start, make, bench):
    """Offsets as versions before this one stored them."""
    bench.fill_numbers(6)
    make("mails", 3)
    old = QueryDriver({**bench.options, "claimAhead": "false"})
    end = old.latest(old.origin, 4)
    old.close()
    stored = {
        "queue": "jobs",
        "namespace": bench.ns,
        "ledger": end.ledger,
        "claim": 1,
        "count": 4,
    }

    driver = start(queues="jobs,mails")
    before = StreamOffset.of(json.loads(json.dumps(stored)))
    assert taken(driver.plan(NOTHING, before)) == {"jobs": 4}
    after = driver.latest(before, 100)

    assert counts(after) == {"jobs": 2, "mails": 3}
    eventually(lambda: bench.size == 2)
    assert StreamOffset.of(json.loads(json.dumps(after.to_dict()))) == after


@pytest.mark.parametrize(
    "stored", [{"v": 3, "parts": {}}, {"v": 2}, {"topic": 1}, {"v": 2, "parts": {"a": {"x": 1}}}]
)
def test_offset_of_something_else_is_refused(stored):
    with pytest.raises(InvalidValue, match=r"later version|no offset of a queue"):
        StreamOffset.of(stored)


def test_queue_that_leaves_the_list_is_acknowledged_and_not_claimed(start, make):
    a, b = make("a", 4), make("b", 2)
    end = start(queues="a,b").latest(NOTHING, 4)
    b.fill_numbers(1)

    driver = start(queues="b")
    after = driver.latest(end, 100)

    assert set(counts(after)) == {"b"}
    assert a.size == 1


def test_missing_queue_is_an_error_that_names_it_or_is_left_out(start, make):
    make("a", 3)
    with pytest.raises(QueueNotFound, match="'none'"):
        start(queues="a,none").latest(NOTHING, 10)

    driver = start(queues="a,none", onMissingQueue="skip")
    end = driver.latest(NOTHING, 10)
    assert counts(end) == {"a": 3}

    make("none", 2)
    found = []
    eventually(lambda: found.append(driver.latest(end, 10)) or found[-1] != end)
    assert counts(found[-1])["none"] == 2


def test_deleted_queue_does_not_stop_the_others_and_may_return(start, make):
    a, b = make("a", 4), make("b", 4)
    driver = start(queues="a,b", onMissingQueue="skip")
    first = driver.latest(NOTHING, 4)
    a.run(queues.delete(a.keys))
    a.redis.delete(*a.redis.keys(f"{a.keys.zset}:ng:*"))

    b.fill_numbers(3)
    second = driver.latest(first, 100)
    assert taken(driver.plan(first, second)) == {"b": 5}

    a.run(queues.create(a.keys, vt=30, delay=0, maxsize=1024))
    a.fill_numbers(2)
    found = []
    eventually(lambda: found.append(driver.latest(second, 100)) or found[-1] != second)
    assert taken(driver.plan(second, found[-1])) == {"a": 2}


def test_deleted_queue_that_returns_before_anything_else_came_begins_as_a_new_one(start, make):
    a, _ = make("a", 2), make("b", 2)
    driver = start(queues="a,b", onMissingQueue="skip")
    first = driver.latest(NOTHING, 4)
    a.run(queues.delete(a.keys))
    a.redis.delete(*a.redis.keys(f"{a.keys.zset}:ng:*"))
    assert driver.latest(first, 4) == first

    make("a", 1)
    found = []
    eventually(lambda: found.append(driver.latest(first, 4)) or found[-1] != first)
    assert taken(driver.plan(first, found[-1])) == {"a": 1}


@pytest.mark.parametrize("ledgers", ["with its ledgers", "alone"])
def test_batch_of_a_deleted_queue_is_planned_and_does_not_stop_the_others(start, make, ledgers):
    a, b = make("a", 2), make("b", 2)
    end = start(queues="a,b").latest(NOTHING, 4)
    a.run(queues.delete(a.keys))
    if ledgers == "with its ledgers":
        a.redis.delete(*a.redis.keys(f"{a.keys.zset}:ng:*"))

    driver = start(queues="a,b", onMissingQueue="skip")
    assert taken(driver.plan(NOTHING, end))["b"] == 2
    b.fill_numbers(1)
    after = driver.latest(end, 10)
    assert counts(after) == {"b": 1}
    eventually(lambda: b.size == 1)


def test_damaged_queue_does_not_stop_the_others_and_comes_back(start, make):
    a, b = make("a", 2), make("b", 2)
    a.redis.hset(a.keys.hash, "vt", "rubbish")
    driver = start(queues="a,b", onMissingQueue="skip")
    end = driver.latest(NOTHING, 10)
    assert counts(end) == {"b": 2}

    a.redis.hset(a.keys.hash, "vt", "30")
    found = []
    eventually(lambda: found.append(driver.latest(end, 10)) or found[-1] != end)
    assert counts(found[-1])["a"] == 2
    eventually(lambda: b.size == 0)


def test_pattern_selects_and_finds_new_queues_while_the_query_runs(start, make):
    make("jobs-a", 1), make("mails", 1)
    driver = start(queuesPattern="jobs-[a-z]")
    end = driver.latest(NOTHING, 10)
    assert counts(end) == {"jobs-a": 1}

    make("jobs-b", 2), make("jobs-10", 1)
    found = []
    eventually(lambda: found.append(driver.latest(end, 10)) or found[-1] != end)
    assert counts(found[-1]) == {"jobs-a": 1, "jobs-b": 2}


def test_pattern_that_selects_nothing_waits(start, make):
    driver = start(queuesPattern="jobs-.*")
    assert driver.latest(NOTHING, 10) == NOTHING


def test_run_that_ends_takes_what_was_ready_in_all_queues(start, make):
    a, b = make("a", 2), make("b", 2)
    driver = start(queues="a,b")
    driver.stop_at_now()
    time.sleep(0.01)
    a.fill_numbers(1), b.fill_numbers(1)

    end = driver.latest(NOTHING, 100)

    assert counts(end) == {"a": 2, "b": 2}
    assert driver.latest(end, 100) == end
    assert (a.size, b.size) == (1, 1)


def test_bytes_of_a_batch_are_divided_too(start, make):
    for name in ("a", "b"):
        make(name).fill(*[b"x" * 100] * 50)
    driver = start(queues="a,b", maxBytesPerTrigger="2000")

    assert counts(driver.latest(NOTHING, 1000)) == {"a": 10, "b": 10}


def test_finalize_and_release_reach_all_queues(start, make, tmp_path, server_url, ns):
    a, b = make("a", 4), make("b", 4)
    driver = start(queues="a,b", ledger="etl")
    first = driver.latest(NOTHING, 4)
    second = driver.latest(first, 2)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number, offset in enumerate((first, second)):
        text = f"v1\n{{}}\n{json.dumps(offset.to_dict())}"
        (tmp_path / "offsets" / str(number)).write_text(text)
        (tmp_path / "commits" / str(number)).touch()

    # The first claims are acknowledged by latest(); the second ones are what is left.
    eventually(lambda: a.size + b.size == 4)
    assert finalize(tmp_path, url=server_url) == 2
    assert (a.size, b.size) == (1, 1)

    again = start(queues="a,b", ledger="etl")
    assert counts(again.latest(second, 10)) == {"a": 1, "b": 1}
    assert (len(a.receive()), len(b.receive())) == (0, 0)
    assert release("a,b", "etl", url=server_url, namespace=ns) == 2
    assert (len(a.receive()), len(b.receive())) == (1, 1)


def test_named_reader_takes_over_what_it_held_in_all_queues(start, make):
    make("a", 2), make("b", 2)
    start(queues="a,b", ledger="etl", claimMode="move").latest(NOTHING, 10)

    new = start(queues="a,b", ledger="etl", claimMode="move")

    assert counts(new.latest(NOTHING, 10)) == {"a": 2, "b": 2}


def test_offset_names_namespace_and_queue():
    offset = StreamOffset.of_queues([Offset("jobs", "{a}/x", "l", 2, 7), Offset("none", "{a}")])

    assert offset.to_dict() == {
        "v": 2,
        "parts": {"{a}/x/jobs": {"ledger": "l", "claim": 2, "count": 7}},
    }
    assert StreamOffset.of(offset.to_dict()) == offset
