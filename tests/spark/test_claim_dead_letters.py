"""Messages of a claim go to the dead-letter queue, as the scripts see it; no Spark."""

import pytest

from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng._protocol.operations.spark.claims import DeadLetter, Ledger
from aiorsmq_ng._protocol.operations.spark.reasons import read_reasons
from aiorsmq_ng.errors import ClaimLost, QueueCorrupt

from .claim_desk import Desk

MODES = pytest.mark.parametrize("mode", ["lease", "move"])


@pytest.fixture
def desk(server_url, ns):
    return Desk(server_url, ns)


class Letters:
    """Dead letters of the first claim of a ledger, by their numbers."""

    def __init__(self, desk, ledger, count):
        self.desk, self.ledger, self.count = desk, ledger, count
        self.dead = desk.keys.namespace.queue("jobs-dead")
        page = desk.read(ledger, count)
        self.known = list(zip(page.ids, page.bodies, strict=True))

    def letter(self, *numbers, ledger=None):
        made = [DeadLetter(n, *self.known[n], f"is bad, number {n}") for n in numbers]
        return self.desk.run(claims.dead_letter(ledger or self.ledger, 1, made, self.dead))

    def ids(self, *numbers):
        return [self.known[n][0] for n in numbers]

    @property
    def found(self):
        """Ids and bodies in the dead-letter queue, in no order."""
        redis = self.desk.redis
        ids = redis.zrange(self.dead.zset, 0, -1)
        return sorted(zip(ids, redis.hmget(self.dead.hash, ids), strict=True)) if ids else []


def claimed(desk, mode, count):
    ledger = Ledger(desk.keys, "spark", mode)
    while not desk.claim(ledger, limit=count).complete:
        pass
    return ledger, Letters(desk, ledger, count)


@MODES
def test_dead_letters_leave_the_claim_with_body_count_and_reason(desk, mode):
    desk.send(6)
    ledger, letters = claimed(desk, mode, 6)

    assert letters.letter(0, 3, 4) == 3

    assert letters.found == sorted(letters.known[n] for n in (0, 3, 4))
    ids = [id.decode() for id in letters.ids(0, 3, 4)]
    assert desk.run(read_reasons(letters.dead, ids)) == [f"is bad, number {n}" for n in (0, 3, 4)]
    spec = messages.ReceiveSpec(letters.dead)
    received = desk.run(messages.receive(spec, 9, vt_ms=1000)).messages
    assert [(m.rc, m.strikes) for m in received] == [(2, 0)] * 3
    assert not any(desk.redis.hexists(desk.keys.hash, id) for id in letters.ids(0, 3, 4))
    stored = desk.redis.hmget(letters.dead.hash, "maxsize", "totalsent")
    assert stored == [b"65536", b"3"]
    assert desk.redis.sismember(desk.keys.namespace.index, "jobs-dead")


@MODES
def test_other_messages_of_the_claim_keep_their_numbers(desk, mode):
    desk.send(6)
    ledger, letters = claimed(desk, mode, 6)
    letters.letter(1, 2, 5)

    for start in range(6):
        for stop in range(start + 1, 7):
            for bodies in (True, False):
                page = desk.run(claims.read(ledger, 1, start, stop, bodies=bodies))
                kept = [n for n in range(start, stop) if n not in (1, 2, 5)]
                assert page.held == letters.ids(*kept)
                assert (page.taken, page.gone) == (0, stop - start - len(kept))
    assert desk.renew(ledger) == (-1, 0, 0)
    assert desk.read(ledger, 6).held == letters.ids(0, 3, 4)
    while desk.run(claims.acknowledge(ledger, 1, count=2)):
        pass
    assert desk.size == 0
    assert desk.redis.hlen(desk.keys.hash) == 7
    assert desk.redis.zcard(letters.dead.zset) == 3


@MODES
def test_second_attempt_finds_nothing_to_move(desk, mode):
    desk.send(3)
    _, letters = claimed(desk, mode, 3)

    assert [letters.letter(0, 1), letters.letter(0, 1), letters.letter(1, 2)] == [2, 0, 1]

    assert letters.found == sorted(letters.known)
    assert desk.redis.hget(letters.dead.hash, "totalsent") == b"3"


@MODES
def test_release_returns_the_others_only(desk, mode):
    desk.send(5)
    ledger, letters = claimed(desk, mode, 5)
    letters.letter(0, 4)
    if mode == "move":
        assert list(desk.redis.hgetall(desk.keys.moved).values()) == [b"3"]

    given, left = 0, 1
    while left:
        released = desk.run(claims.release(ledger, 1, count=2, max_bytes=1))
        given, left = given + released.given, released.left

    assert given == 3
    assert [(m.id.encode(), m.rc) for m in desk.receive(9)] == [
        (id, 2) for id in letters.ids(1, 2, 3)
    ]
    assert not desk.redis.exists(desk.keys.moved)
    assert len(letters.found) == 2


@MODES
def test_claim_of_dead_letters_alone_can_be_acknowledged_or_released(desk, mode):
    desk.send(2)
    ledger, letters = claimed(desk, mode, 2)
    letters.letter(0, 1)

    assert desk.run(claims.release(ledger, 1, count=9)) == (0, 0)
    assert desk.size == 0
    assert desk.claim(ledger, 2).messages == 0


@MODES
def test_messages_that_were_received_before_are_dead_lettered_with_their_counts(desk, mode):
    desk.send(4)
    desk.receive(3)
    desk.expire_leases()
    _, letters = claimed(desk, mode, 4)

    assert letters.letter(0, 1, 2, 3) == 4

    counts = [desk.redis.hget(letters.dead.hash, id + b":rc") for id in letters.ids(0, 1, 2, 3)]
    assert sorted(counts) == [b"1", b"2", b"2", b"2"]
    assert desk.redis.hlen(desk.keys.hash) == 7


def test_message_that_others_received_stays_theirs(desk):
    desk.send(3)
    ledger, letters = claimed(desk, "lease", 3)
    desk.expire_leases(ledger)
    (theirs,) = desk.receive(1)
    (number,) = (n for n in range(3) if letters.known[n][0] == theirs.id.encode())

    assert letters.letter(0, 1, 2) == 2

    assert theirs.id.encode() not in dict(letters.found)
    assert desk.redis.hexists(desk.keys.hash, theirs.id)
    assert desk.read(ledger, 3).taken == 1
    assert letters.letter(number) == 0


@MODES
def test_former_holder_of_the_ledger_moves_nothing(desk, mode):
    desk.send(1)
    ledger, letters = claimed(desk, mode, 1)
    taken_over = desk.run(claims.take_over(desk.keys, "spark"))

    with pytest.raises(ClaimLost, match="another run"):
        letters.letter(0)
    assert letters.found == []
    assert letters.letter(0, ledger=taken_over) == 1

    with pytest.raises(ClaimLost):
        desk.run(claims.dead_letter(taken_over, 2, [DeadLetter(0, b"x", b"", "")], letters.dead))


@MODES
def test_message_that_returns_from_the_dead_letters_is_not_the_claims(desk, mode):
    """It was redriven while its former claim is still there."""
    desk.send(2)
    ledger, letters = claimed(desk, mode, 2)
    letters.letter(0)
    redrive = messages.redrive(letters.dead, desk.keys, 1, ids=(), channel=desk.keys.wake)
    assert desk.run(redrive) == 1

    page = desk.read(ledger, 2)
    assert (page.taken, page.held) == (0, letters.ids(1))
    while desk.run(claims.acknowledge(ledger, 1, count=9)):
        pass

    assert [(m.id.encode(), m.body) for m in desk.receive(9)] == [letters.known[0]]


@MODES
def test_damaged_dead_letter_queue_takes_nothing(desk, mode):
    desk.send(2)
    ledger, letters = claimed(desk, mode, 2)
    desk.redis.set(letters.dead.zset, "in the way")

    with pytest.raises(QueueCorrupt):
        letters.letter(0)

    assert desk.read(ledger, 2).held == letters.ids(0, 1)


@MODES
def test_runs_that_differ_by_their_ids_only_stay_apart(desk, mode):
    """Single messages with equal counts and times are runs that only their ids tell apart."""
    desk.send(5)
    for n, id in enumerate(desk.redis.zrange(desk.keys.zset, 0, -1)):
        if n % 2 == 0:
            desk.redis.hset(desk.keys.hash, mapping={id + b":rc": 6, id + b":fr": 1000})
    ledger, letters = claimed(desk, mode, 5)

    assert letters.letter(0, 2, 4) == 3

    assert desk.read(ledger, 5).held == letters.ids(1, 3)
