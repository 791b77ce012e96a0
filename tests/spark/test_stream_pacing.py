"""When a batch of a stream begins: enough messages, long enough, and not too many per second."""

import pytest

from aiorsmq_ng.spark.options import StreamReadOptions, parse
from aiorsmq_ng.spark.stream_pacing import StreamPacing

from .support import QueryDriver, eventually


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def paced():
    """Make a pacing with a clock that stands still."""

    def make(**options):
        clock = Clock()
        return StreamPacing(parse(StreamReadOptions, {"queue": "jobs", **options}), clock), clock

    return make


def test_stream_without_these_options_is_not_held_back(paced):
    pacing, _ = paced()

    assert not pacing.is_active
    assert pacing.admit(0, 100, ends=False) == 100


def test_batch_begins_with_enough_messages_or_after_the_delay(paced):
    pacing, clock = paced(minMessagesPerTrigger="10", maxTriggerDelayMs="60000")

    assert pacing.admit(9, 100, ends=False) == 0
    assert pacing.admit(10, 100, ends=False) == 100
    assert pacing.admit(9, 100, ends=True) == 100
    clock.now += 60
    assert pacing.admit(1, 100, ends=False) == 100
    pacing.began(1)
    assert pacing.admit(1, 100, ends=False) == 0


def test_messages_per_second_are_kept_on_average_however_long_batches_take(paced):
    pacing, clock = paced(maxMessagesPerSecond="50")
    sent = 0

    for pause in [0.3, 0.3, 2.5, 0.1, 7.0, 0.9, 0.1] * 20:
        admitted = pacing.admit(0, 1000, ends=False)
        pacing.began(admitted)
        sent += admitted
        clock.now += pause

    assert 0.9 < sent / (50 * (clock.now - 1000.0)) <= 1.01


def test_rate_above_the_limit_of_a_batch_does_not_stop_the_stream(paced):
    pacing, clock = paced(maxMessagesPerSecond="5000")

    for _ in range(3):
        assert pacing.admit(0, 10, ends=False) == 10
        pacing.began(10)
        clock.now += 1


@pytest.fixture
def query(bench):
    """Start the driver's part of a query."""
    running = []

    def query(**options):
        running.append(QueryDriver({**bench.options, **options}))
        return running[-1]

    yield query
    for one in running:
        one.close()


def test_batch_that_is_held_back_acknowledges_the_one_before(query, bench):
    bench.fill_numbers(5)
    driver = query(minMessagesPerTrigger="5")
    first = driver.latest(driver.origin, 100)
    driver.plan(driver.origin, first)
    bench.fill_numbers(4)

    assert first.count == 5
    assert driver.latest(first, 100) == first
    assert bench.size == 4
    bench.fill_numbers(1)
    assert driver.latest(first, 100).count == 5


def test_rate_limits_a_batch_and_a_query_that_ends_waits_for_it(query, bench):
    bench.fill_numbers(7)
    driver = query(maxMessagesPerSecond="5")
    driver.driver.client.call(driver.driver.queues.stop_at_now())
    first = driver.latest(driver.origin, 100)
    driver.plan(driver.origin, first)

    second = driver.latest(first, 100)  # not the end, though the second is not over
    driver.plan(first, second)

    assert (first.count, second.count) == (5, 2)
    eventually(lambda: driver.latest(second, 100) == second)
    assert bench.size == 0
