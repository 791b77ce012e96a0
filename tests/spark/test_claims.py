"""Claims: messages held under a number, read again at will, deleted when acknowledged."""

import pytest

from aiorsmq_ng._protocol.operations import inspection, messages, queues
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng._protocol.operations.spark.claims import Ledger
from aiorsmq_ng.errors import ClaimLost, QueueNotFound, RSMQError

from .claim_desk import TTL_S, Desk, past


@pytest.fixture
def desk(server_url, ns):
    return Desk(server_url, ns)


@pytest.fixture
def ledger(desk):
    return Ledger(desk.keys, "spark", "lease")


def test_claim_hides_messages_and_counts_a_delivery(desk, ledger):
    desk.send(5)

    claimed = desk.claim(ledger)

    assert claimed == (5, True, False)
    assert desk.receive(5) == []
    assert desk.run(queues.attributes(desk.keys)).totalrecv == 5
    assert {run.rc for run in desk.read(ledger, 5).runs} == {b"1"}


def test_claim_grows_by_chunks_up_to_its_limit(desk, ledger):
    desk.send(25)

    sizes = [desk.claim(ledger, limit=22, chunk=10) for _ in range(3)]

    assert sizes == [(10, False, False), (20, False, False), (22, True, True)]
    assert desk.claim(ledger, limit=22, chunk=10) == (22, True, False)
    assert len(desk.receive(10)) == 3


def test_complete_claim_never_grows(desk, ledger):
    desk.send(3)
    desk.claim(ledger)
    desk.send(2)

    assert desk.claim(ledger) == (3, True, False)
    assert len(desk.receive(5)) == 2


def test_claim_of_an_empty_queue_leaves_nothing_behind(desk, ledger):
    assert desk.claim(ledger) == (0, True, False)
    assert desk.side_keys() == []


def test_moving_claim_of_nothing_but_phantoms_leaves_nothing_in_the_ledger(desk):
    """A phantom is an id in the sorted set without a body; a page may hold nothing else."""
    ledger = Ledger(desk.keys, "etl.1", "move", group="etl")
    desk.run(claims.set_group_ledger(ledger, expected="", ttl_s=TTL_S))
    desk.redis.zadd(desk.keys.zset, {f"phantom{n:025d}": 0 for n in range(4)})

    while not desk.claim(ledger, create=False, chunk=2).complete:
        pass

    assert desk.size == 0
    assert desk.run(claims.take_over(desk.keys, "etl.1", "etl")).live == []


def test_claim_up_to_a_moment_leaves_what_became_visible_later(desk, ledger):
    desk.send(3)
    before = desk.run(claims.backlog(desk.keys)).now_ms
    for id in desk.redis.zrange(desk.keys.zset, 0, 0):
        desk.redis.zadd(desk.keys.zset, {id: before + 5})

    while desk.run(claims.backlog(desk.keys)).visible < 3:
        pass

    assert desk.claim(ledger, latest_ms=before).messages == 2


def test_claim_of_a_missing_queue_says_so(desk):
    nowhere = Ledger(desk.keys.namespace.queue("nowhere"), "spark", "lease")

    with pytest.raises(QueueNotFound):
        desk.claim(nowhere)


def test_read_gives_the_same_again(desk, ledger):
    desk.send(5)
    desk.claim(ledger)

    first, second = desk.read(ledger, 5), desk.read(ledger, 5)

    assert first == second
    assert sorted(first.bodies) == [b"body %d" % n for n in range(5)]


def test_read_tells_what_others_received_and_what_they_deleted(desk, ledger):
    desk.send(6)
    desk.claim(ledger)
    ids = desk.read(ledger, 6).held
    desk.run(messages.delete(desk.keys, [ids[0].decode(), ids[1].decode()]))
    desk.redis.zadd(desk.keys.zset, {ids[2]: 1})
    assert len(desk.receive(1)) == 1

    page = desk.read(ledger, 6)

    assert (page.taken, page.gone, page.held) == (1, 2, ids[3:])
    assert [body is None for body in page.bodies] == [True] * 3 + [False] * 3


def test_read_without_bodies_fetches_none(desk, ledger):
    desk.send(3)
    desk.claim(ledger)

    page = desk.run(claims.read(ledger, 1, 0, 3, bodies=False))

    assert (len(page.held), page.bodies) == (3, [])


def test_read_of_a_claim_that_is_gone_says_so(desk, ledger):
    with pytest.raises(ClaimLost, match="a claim of it is gone"):
        desk.read(ledger, 1)


def test_renewal_hides_messages_whose_lease_ran_out(desk, ledger):
    desk.send(3)
    desk.claim(ledger)
    desk.expire_leases(ledger)

    assert desk.renew(ledger) == (-1, 0, 0)
    assert desk.receive(3) == []


def test_renewal_leaves_what_others_hold_by_now(desk, ledger):
    desk.send(3)
    desk.claim(ledger)
    desk.expire_leases(ledger)
    (theirs,) = desk.receive(1)
    score = desk.redis.zscore(desk.keys.zset, theirs.id)

    assert desk.renew(ledger) == (-1, 1, 0)
    assert desk.redis.zscore(desk.keys.zset, theirs.id) == score


def test_acknowledge_deletes_the_claim_and_nothing_else(desk, ledger):
    desk.send(5)
    for _ in range(3):
        desk.claim(ledger, limit=3, chunk=1)

    left = [desk.run(claims.acknowledge(ledger, 1, count=2)) for _ in range(3)]

    assert left == [1, 0, 0]
    assert desk.size == 2
    assert len(desk.receive(5)) == 2
    assert desk.side_keys() == ["ledger:spark", *[k for k in desk.side_keys() if "marks" in k]]


def test_acknowledge_leaves_what_others_received_since(desk, ledger):
    desk.send(3)
    desk.claim(ledger)
    desk.expire_leases(ledger)
    (theirs,) = desk.receive(1)

    desk.run(claims.acknowledge(ledger, 1, count=10))

    assert [id.decode() for id in desk.redis.zrange(desk.keys.zset, 0, -1)] == [theirs.id]
    assert desk.redis.hget(desk.keys.hash, theirs.id) == theirs.body


def test_old_holder_changes_nothing_after_a_take_over(desk, ledger):
    desk.send(3)
    desk.claim(ledger)

    taken = desk.run(claims.take_over(desk.keys, "spark"))

    assert (taken.fence, taken.sealed, taken.acked) == (2, {1: 3}, 0)
    for operation in (
        claims.acknowledge(ledger, 1, count=10),
        claims.renew(ledger, 1, 0, count=10, lease_ms=1, ttl_s=1),
        claims.release(ledger, 1, count=10),
    ):
        with pytest.raises(ClaimLost, match="another run took its place"):
            desk.run(operation)
    with pytest.raises(ClaimLost):
        desk.claim(ledger, 2)
    assert desk.size == 3
    assert desk.run(claims.acknowledge(taken, 1, count=10)) == 0


def test_unknown_ledger_is_neither_taken_over_nor_made_again(desk, ledger):
    desk.send(1)

    with pytest.raises(ClaimLost, match="its ledger is gone"):
        desk.run(claims.take_over(desk.keys, "spark"))
    with pytest.raises(ClaimLost, match="its ledger is gone"):
        desk.claim(ledger, create=False)


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_release_gives_messages_back_in_their_order(desk, mode):
    ledger = Ledger(desk.keys, "spark", mode)
    desk.send(5)
    before = desk.redis.zrange(desk.keys.zset, 0, -1)
    while not desk.claim(ledger, chunk=1, limit=5).complete:
        pass

    given = [desk.run(claims.release(ledger, 1, count=3)) for _ in range(2)]

    assert given == [(3, 2), (2, 0)]
    assert [m.id.encode() for m in desk.receive(10)] == before
    assert desk.run(claims.take_over(desk.keys, "spark")).live == []


def test_released_messages_are_ready_since_they_were_sent(desk, ledger):
    """A reader that takes only what was there when it began finds them."""
    desk.send(3)
    began = desk.run(claims.backlog(desk.keys)).now_ms
    desk.claim(ledger)
    while desk.run(claims.backlog(desk.keys)).now_ms <= began:
        pass

    desk.run(claims.release(ledger, 1, count=10))

    assert desk.claim(ledger, 2, latest_ms=began).messages == 3


def test_release_leaves_what_others_received_since(desk, ledger):
    desk.send(2)
    desk.claim(ledger)
    desk.expire_leases(ledger)
    (theirs,) = desk.receive(1)

    assert desk.run(claims.release(ledger, 1, count=10)) == (1, 0)
    assert desk.receive(5)[0].id != theirs.id


def test_moved_messages_are_out_of_reach_until_they_are_given_back(desk):
    ledger = Ledger(desk.keys, "spark", "move")
    desk.send(4)

    desk.claim(ledger)

    assert desk.size == 0
    assert desk.redis.hlen(desk.keys.hash) == 7
    assert desk.redis.ttl(desk.keys.claim("spark", 1)) == -1
    assert len(desk.read(ledger, 4).bodies) == 4
    assert desk.run(claims.acknowledge(ledger, 1, count=1)) == 0
    assert desk.redis.exists(desk.keys.claim("spark", 1)) == 0


def test_leased_claims_expire_without_renewals(desk, ledger):
    desk.send(1)
    desk.claim(ledger)

    for key in (ledger.key, desk.keys.claim("spark", 1)):
        assert 0 < desk.redis.ttl(key) <= TTL_S


def test_ledger_of_a_reader_that_waits_does_not_expire(desk, ledger):
    desk.send(1)
    desk.claim(ledger)
    desk.redis.expire(ledger.key, 5)

    desk.claim(ledger, 2)

    assert desk.redis.ttl(ledger.key) > 5


def test_named_reader_gives_way_to_a_new_one(desk):
    old, new = (Ledger(desk.keys, f"etl.{n}", "lease", group="etl") for n in (1, 2))

    assert desk.run(claims.set_group_ledger(old, expected="", ttl_s=TTL_S)) is None
    assert desk.run(claims.set_group_ledger(new, expected="", ttl_s=TTL_S)) == "etl.1"
    assert desk.run(claims.set_group_ledger(new, expected="etl.1", ttl_s=TTL_S)) is None

    assert desk.run(claims.find_group_ledger(desk.keys, "etl")) == "etl.2"
    with pytest.raises(ClaimLost, match="another run"):
        desk.run(claims.take_over(desk.keys, "etl.1", "etl"))
    assert desk.run(claims.take_over(desk.keys, "etl.2", "etl")).fence == 2


def test_named_reader_that_could_not_be_made_is_made_by_a_repetition(desk):
    """The group names a ledger only after the ledger is there."""
    ledger = Ledger(desk.keys, "etl.1", "lease", group="etl")
    desk.redis.set(ledger.key, "in the way")
    with pytest.raises(RSMQError):
        desk.run(claims.set_group_ledger(ledger, expected="", ttl_s=TTL_S))
    assert desk.run(claims.find_group_ledger(desk.keys, "etl")) == ""
    desk.redis.delete(ledger.key)

    assert desk.run(claims.set_group_ledger(ledger, expected="", ttl_s=TTL_S)) is None

    assert desk.run(claims.take_over(desk.keys, "etl.1", "etl")).fence == 2


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_claim_of_messages_that_differ_lists_each_as_it_is(desk, mode):
    """Some were received before, one has an id that is not RSMQ's; any range can be read."""
    ledger = Ledger(desk.keys, "spark", mode)
    desk.send(9)
    ids = desk.redis.zrange(desk.keys.zset, 0, -1)
    before = dict(zip(ids, [0, 0, 1, 1, 0, 7, 0, 0, 0], strict=True))
    for id, rc in before.items():
        if rc:
            desk.redis.hset(desk.keys.hash, mapping={id + b":rc": rc, id + b":fr": 1000 + rc})
    odd = b"k" * 30  # as old Rust clients made them
    desk.redis.zadd(desk.keys.zset, {odd: 0, b"": 0, b"\xff odd\n": 0})
    desk.redis.hset(desk.keys.hash, odd, b"body\n")
    ids = [odd, *ids]

    assert desk.claim(ledger, chunk=4) == (4, False, False)
    while not desk.claim(ledger, chunk=4).complete:
        pass

    for start in range(10):
        for stop in range(start + 1, 11):
            page = desk.run(claims.read(ledger, 1, start, stop, bodies=True))
            assert page.held == ids[start:stop]
    page = desk.read(ledger, 10)
    assert page.bodies[0] == b"body\n"
    received = [run.rc for run in page.runs for _ in range(run.size)]
    assert received == [b"1"] + [b"%d" % (rc + 1) for rc in before.values()]
    firsts = [run.fr for run in page.runs for _ in range(run.size)]
    assert [int(fr) for fr in firsts if int(fr) < 2000] == [1001, 1001, 1007]
    while desk.run(claims.acknowledge(ledger, 1, count=3)):
        pass
    assert desk.size == 0
    assert desk.redis.hlen(desk.keys.hash) == 7


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_claim_that_is_released_changes_nothing_that_is_known_of_earlier_deliveries(desk, mode):
    """Deliveries that were given back unseen do not count, also after the claim."""
    ledger = Ledger(desk.keys, "spark", mode)
    desk.send(2)
    for _ in range(4):
        desk.give_back(desk.receive(2), "u")
    desk.send(1)

    desk.claim(ledger)
    assert sorted(desk.read(ledger, 3).bodies) == [b"body 0", b"body 0", b"body 1"]
    while desk.run(claims.release(ledger, 1, count=1)).left:
        pass

    # They come together: none is a suspect.
    assert sorted(map(past, desk.receive(5))) == [(2, 0, 0), (6, 4, 0), (6, 4, 0)]


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_released_claim_ends_strikes_and_keeps_why_a_message_was_put_aside(desk, mode):
    ledger = Ledger(desk.keys, "spark", mode)
    desk.send(1)
    for _ in range(3):
        (message,) = desk.receive(1)
        desk.expire_leases()
    note = desk.redis.hget(desk.keys.deliveries, message.id)
    desk.redis.hset(desk.keys.deliveries, message.id, note + b"\nreceived too often")

    desk.claim(ledger)
    desk.run(claims.release(ledger, 1, count=10))

    assert desk.run(inspection.reason(desk.keys, message.id)) == "received too often"
    assert past(*desk.receive(1)) == (5, 0, 0)


def test_claim_that_runs_out_is_one_more_strike(desk, ledger):
    desk.send(1)
    for _ in range(2):
        desk.receive(1)
        desk.expire_leases()
    desk.claim(ledger)
    desk.expire_leases(ledger)

    assert past(*desk.receive(1)) == (4, 0, 3)


def test_first_delivery_of_a_released_claim_has_its_own_time(desk, ledger):
    desk.send(1)
    desk.claim(ledger)
    (run,) = desk.read(ledger, 1).runs
    while desk.run(claims.backlog(desk.keys)).now_ms <= int(run.fr):
        pass

    desk.run(claims.release(ledger, 1, count=10))

    (note,) = desk.redis.hvals(desk.keys.deliveries)
    assert note.split()[1] == run.fr


def test_claim_with_a_body_that_is_lost_gives_back_what_is_before_it(desk):
    """A long body of the last run is gone: nothing of that run is taken out of the claim."""
    ledger = Ledger(desk.keys, "spark", "move")
    desk.send(20, size=2000)
    assert desk.claim(ledger, limit=20).messages == 20
    bodies = desk.keys.moved_bodies(ledger.id, 1) + ":long"
    assert desk.redis.hdel(bodies, 15) == 1

    with pytest.raises(ClaimLost, match="a claim of it is gone"):
        while desk.run(claims.release(ledger, 1, count=100, max_bytes=10_000)).left:
            pass

    messages = desk.size + sum(
        len(run.split(b"\n", 1)[1]) // 32
        for run in desk.redis.zrange(desk.keys.claim(ledger.id, 1), 0, -1)
    )
    assert messages == 20
