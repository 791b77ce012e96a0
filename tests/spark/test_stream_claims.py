"""What happens on the driver, without Spark: claims, restarts, old drivers, new names."""

import json
import time

import pytest

from aiorsmq_ng import ClaimLost, InvalidValue, RSMQError
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng.spark import finalize
from aiorsmq_ng.spark.offsets import StreamOffset

from .support import QueryDriver, eventually


@pytest.fixture
def start(bench):
    """Start the driver's part of a query, as often as the test likes; it claims nothing ahead."""
    running = []

    def make(**options):
        claimant = QueryDriver({**bench.options, "claimAhead": "false", **options})
        running.append(claimant)
        return claimant

    yield make
    for claimant in running:
        claimant.close()


def count(pieces):
    return sum(piece.stop - piece.start for piece in pieces)


def test_offsets_that_were_logged_give_the_same_pieces_after_a_restart(start, bench):
    bench.fill_numbers(10)
    first = start(minPartitions="3")
    end = first.latest(first.origin, 100)
    pieces = first.plan(first.origin, end)

    again = start(minPartitions="3").plan(first.origin, end)

    assert [(p.claim, p.start, p.stop) for p in pieces] == [(1, 0, 3), (1, 3, 6), (1, 6, 10)]
    assert [(p.claim, p.start, p.stop) for p in again] == [(1, 0, 3), (1, 3, 6), (1, 6, 10)]


def test_latest_asked_twice_offers_the_same_claim(start, bench):
    bench.fill_numbers(10)
    claimant = start()

    assert claimant.latest(claimant.origin, 4) == claimant.latest(claimant.origin, 4)
    assert len(bench.receive(10)) == 6


def test_claim_that_was_never_logged_is_given_back_and_made_again(start, bench):
    bench.fill_numbers(4)
    first = start()
    done = first.latest(first.origin, 2)
    first.latest(done, 2)
    bench.fill_numbers(3, start=4)

    offset = start().latest(done, 100)

    assert (offset.claim, offset.count) == (2, 5)


def test_what_is_done_is_deleted_by_the_next_question(start, bench):
    bench.fill_numbers(5)
    claimant = start()
    end = claimant.latest(claimant.origin, 100)
    assert bench.size == 5

    assert claimant.latest(end, 100) == end
    assert bench.size == 0


def test_acknowledging_on_commit_waits_for_it(start, bench):
    bench.fill_numbers(5)
    claimant = start(ackOn="commit")
    first = claimant.latest(claimant.origin, 3)
    second = claimant.latest(first, 3)
    assert count(claimant.plan(claimant.origin, second)) == 5
    assert bench.size == 5

    claimant.commit(first)

    assert bench.size == 2


def test_old_driver_that_comes_back_is_refused(start, bench):
    bench.fill_numbers(5)
    old = start()
    end = old.latest(old.origin, 3)
    new = start()
    assert count(new.plan(new.origin, end)) == 3

    with pytest.raises(ClaimLost, match="another run took its place"):
        old.latest(end, 3)
    assert bench.size == 5
    new.latest(end, 3)
    eventually(lambda: bench.size == 2)


def test_old_checkpoint_is_refused_because_a_queue_cannot_be_read_again(start, bench):
    bench.fill_numbers(3)
    claimant = start()
    first = claimant.latest(claimant.origin, 1)
    second = claimant.latest(first, 1)
    claimant.latest(second, 1)
    eventually(lambda: bench.size == 1)

    with pytest.raises(RSMQError, match=r"claims up to 2 were acknowledged and deleted"):
        start().latest(first, 1)


def test_ledger_that_is_gone_stops_the_query_by_default(start, bench):
    bench.fill_numbers(3)
    claimant = start()
    end = claimant.latest(claimant.origin, 3)
    bench.redis.delete(bench.keys.ledger(end.ledger), bench.keys.claim(end.ledger, 1))
    bench.fill_numbers(2, start=3)

    with pytest.raises(RSMQError, match=r"its ledger is gone.*failOnDataLoss=false"):
        start().latest(end, 10)

    going_on = start(failOnDataLoss="false")
    fresh = going_on.latest(end, 10)
    assert (fresh.claim, fresh.count) == (1, 2)
    assert fresh.ledger != end.ledger
    assert count(going_on.plan(end, fresh)) == 2
    assert going_on.latest(fresh, 10) == fresh
    assert bench.size == 3


def test_named_reader_takes_over_what_the_one_before_it_held(start, bench):
    bench.fill_numbers(5)
    old = start(ledger="etl", claimMode="move")
    end = old.latest(old.origin, 5)
    assert bench.size == 0

    new = start(ledger="etl", claimMode="move")
    assert new.latest(new.origin, 5).count == 5

    with pytest.raises(ClaimLost):
        old.latest(end, 5)


def test_mode_of_a_checkpoint_stays(start, bench):
    bench.fill_numbers(1)
    claimant = start(ledger="etl")
    end = claimant.latest(claimant.origin, 5)

    with pytest.raises(InvalidValue, match="made with claimMode=lease"):
        start(ledger="etl", claimMode="move").latest(end, 5)


def test_leases_are_renewed_in_the_background(start, bench):
    bench.fill_numbers(5)
    claimant = start(leaseMs="3000")
    claimant.latest(claimant.origin, 5)
    first = bench.lease_ends()

    eventually(lambda: bench.lease_ends() >= first + 2000)


def test_unexpected_error_of_the_renewal_is_logged_and_raised_by_the_next_call(
    start, bench, caplog
):
    """Otherwise the leases would end without a word, and other consumers get the messages."""
    bench.fill_numbers(5)
    claimant = start(leaseMs="1000")
    end = claimant.latest(claimant.origin, 5)

    async def fail(number):
        raise TypeError("a fault of ours")

    claimant.claims._renew = fail
    eventually(claimant.claims._renewal.done)

    with pytest.raises(RSMQError, match=r"leases are not renewed any more.*TypeError"):
        claimant.latest(end, 5)
    assert "renewal of leases failed in an unexpected way" in caplog.text


def test_fence_noticed_by_the_renewal_is_raised_by_the_next_call(start, bench):
    bench.fill_numbers(5)
    old = start(leaseMs="1000")
    end = old.latest(old.origin, 5)
    start(leaseMs="1000").plan(old.origin, end)
    deadline = time.monotonic() + 60
    while old.claims._failure is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    with pytest.raises(ClaimLost, match="another run took its place"):
        old.plan(old.origin, end)


def test_message_received_by_others_is_not_theirs_to_lose(start, bench):
    bench.fill_numbers(3)
    claimant = start()
    end = claimant.latest(claimant.origin, 5)
    (piece,) = claimant.plan(claimant.origin, end)
    bench.run(claims.renew(piece.ledger, piece.claim, 0, count=3, lease_ms=1, ttl_s=600))
    eventually(lambda: visible(bench) == 3)
    (theirs,) = bench.receive(1)

    with pytest.raises(RSMQError, match="1 messages of queue 'jobs'"):
        start().plan(claimant.origin, end)
    going_on = start(failOnDataLoss="false")
    going_on.plan(claimant.origin, end)
    going_on.latest(end, 5)

    assert [i.decode() for i in bench.redis.zrange(bench.keys.zset, 0, -1)] == [theirs.id]
    bench.run(messages.ack(bench.keys, theirs.receipt))


def visible(bench):
    return bench.run(claims.backlog(bench.keys)).visible


def test_full_claim_makes_the_next_one_ahead(start, bench):
    bench.fill_numbers(10)
    claimant = start(claimAhead="true")

    first = claimant.latest(claimant.origin, 4)
    eventually(lambda: visible(bench) == 2)
    bench.fill_numbers(1, start=10)
    second = claimant.latest(first, 4)
    eventually(lambda: visible(bench) == 0)
    third = claimant.latest(second, 4)

    assert [(o.claim, o.count) for o in (first, second, third)] == [(1, 4), (2, 4), (3, 3)]
    assert claimant.latest(third, 4) == third
    assert (bench.size, bench.side_keys()) == (0, ["ledger"])


def test_claim_that_is_not_full_makes_none_ahead(start, bench):
    bench.fill_numbers(3)
    claimant = start(claimAhead="true")
    end = claimant.latest(claimant.origin, 4)
    bench.fill_numbers(2, start=3)

    assert claimant.claims._ahead is None
    assert claimant.latest(end, 4).count == 2


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_what_was_claimed_ahead_is_given_back_at_the_end(start, bench, mode):
    bench.fill_numbers(10)
    claimant = start(claimAhead="true", claimMode=mode, ledger="etl")
    claimant.latest(claimant.origin, 4)
    eventually(lambda: visible(bench) == 2)

    claimant.close()

    assert visible(bench) == 6
    assert len(bench.receive(10)) == 6


def test_what_was_claimed_ahead_by_a_run_that_died_is_given_back(start, bench):
    bench.fill_numbers(10)
    dead = start(claimAhead="true")
    end = dead.latest(dead.origin, 4)
    eventually(lambda: visible(bench) == 2)

    offset = start().latest(end, 100)

    assert (offset.claim, offset.count) == (2, 6)


def test_driver_that_was_replaced_does_not_go_on_with_what_it_claimed_ahead(start, bench):
    bench.fill_numbers(10)
    old = start(claimAhead="true")
    end = old.latest(old.origin, 4)
    eventually(lambda: visible(bench) == 2)
    new = start()
    new.plan(new.origin, end)

    with pytest.raises(ClaimLost, match="another run took its place"):
        old.latest(end, 4)


def test_finalize_gives_back_what_was_claimed_ahead_and_not_what_spark_has_logged(
    start, bench, tmp_path
):
    bench.fill_numbers(10)
    claimant = start(claimAhead="true")
    first = claimant.latest(claimant.origin, 3)
    second = claimant.latest(first, 3)
    eventually(lambda: visible(bench) == 1)
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    for number, offset in enumerate((first, second)):
        text = f"v1\n{{}}\n{json.dumps(StreamOffset.of_queues([offset]).to_dict())}"
        (tmp_path / "offsets" / str(number)).write_text(text)
    (tmp_path / "commits" / "0").touch()

    assert finalize(tmp_path, url=bench.url) == 0

    assert visible(bench) == 4
    again = start()
    assert count(again.plan(first, second)) == 3
