"""Claims that cost the server little: lean leases, and bodies moved into a list."""

import uuid

import pytest

from aiorsmq_ng._protocol.operations import inspection, messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk_send, claims
from aiorsmq_ng._protocol.operations.spark.claims import Ledger

from .claim_desk import LEASE_MS, TTL_S, Desk, past


@pytest.fixture
def desk(server_url, ns):
    return Desk(server_url, ns)


@pytest.fixture
def ledger(desk):
    return Ledger(desk.keys, "spark", "lease")


def test_lean_lease_writes_nothing_but_the_score(desk, ledger):
    desk.send(3)
    fields = desk.redis.hlen(desk.keys.hash)

    desk.claim(ledger)

    # Of the queue's own, totalrecv appears with the first delivery.
    assert desk.redis.hlen(desk.keys.hash) == fields + 1
    scores = {score for _, score in desk.redis.zrange(desk.keys.zset, 0, -1, withscores=True)}
    assert len(scores) == 1
    assert scores.pop() % 1 == 0.5


def test_two_lean_leases_never_have_the_same_score(desk):
    """They end at the same time if they begin in the same millisecond."""
    desk.send(20)
    for n in range(20):
        desk.claim(Ledger(desk.keys, f"reader{n}", "lease"), limit=1, chunk=1)

    scores = [score for _, score in desk.redis.zrange(desk.keys.zset, 0, -1, withscores=True)]
    assert len(set(scores)) == 20


def test_message_that_was_deleted_and_sent_again_under_its_id_is_not_the_claimants(desk, ledger):
    desk.send(2)
    desk.claim(ledger)
    ids = desk.read(ledger, 2).held
    desk.run(messages.delete(desk.keys, [ids[0].decode()]))
    rows = bulk_send.Rows([bulk_send.kept(ids[0].decode())], -1, [b"again"])
    place = bulk_send.Place(uuid.uuid4().hex, "0")
    desk.run(bulk_send.send(desk.keys, rows, place, ttl_s=60, oversize="fail"))

    page = desk.read(ledger, 2)
    desk.run(claims.acknowledge(ledger, 1, count=10))

    assert (page.taken, page.gone, page.held) == (1, 0, ids[1:])
    assert [m.body for m in desk.receive(5)] == [b"again"]


def test_message_that_was_made_visible_is_not_the_claimants(desk, ledger):
    desk.send(2)
    desk.claim(ledger)
    first, second = desk.read(ledger, 2).held
    desk.redis.zadd(desk.keys.zset, {first: 1})

    assert desk.renew(ledger) == (-1, 1, 0)
    desk.run(claims.acknowledge(ledger, 1, count=10))

    assert [m.id.encode() for m in desk.receive(5)] == [first]
    assert not desk.redis.hexists(desk.keys.hash, second)


def test_lean_lease_that_expired_is_counted_by_the_next_claim(desk, ledger):
    desk.send(3)
    desk.claim(ledger)
    desk.expire_leases(ledger)
    other = Ledger(desk.keys, "other", "lease")

    desk.claim(other)

    assert {run.rc for run in desk.read(other, 3).runs} == {b"2"}
    assert desk.read(ledger, 3).taken == 3
    # No trace is left of the lease once nothing has its score.
    desk.run(claims.acknowledge(other, 1, count=10))
    assert desk.redis.zcard(desk.keys.lean_leases) == 0


def test_other_clients_count_from_one_after_a_lean_lease_that_expired(desk, ledger):
    desk.send(1)
    desk.claim(ledger)
    desk.expire_leases(ledger)

    assert past(*desk.receive(1)) == (1, 0, 0)


def test_lean_leases_are_renewed_together_with_others(desk, ledger):
    """A claim of messages that were received before, and of some that were not."""
    desk.send(3)
    desk.receive(1)
    desk.expire_leases()
    while not desk.claim(ledger, chunk=2).complete:
        pass
    before = dict(desk.redis.zrange(desk.keys.zset, 0, -1, withscores=True))

    assert desk.renew(ledger, 2 * LEASE_MS) == (-1, 0, 0)

    after = dict(desk.redis.zrange(desk.keys.zset, 0, -1, withscores=True))
    assert all(after[id] > before[id] + LEASE_MS / 2 for id in before)
    assert len(desk.read(ledger, 3).held) == 3
    assert desk.run(claims.acknowledge(ledger, 1, count=10)) == 0
    assert (desk.size, desk.redis.hlen(desk.keys.hash)) == (0, 7)


@pytest.mark.parametrize("mode", ["lease", "move"])
def test_phantoms_among_received_messages_hide_none_of_their_counts_for_good(desk, mode):
    """Two ids without a body make the hash look as if the received message had not been."""
    ledger = Ledger(desk.keys, "spark", mode)
    desk.send(2)
    desk.receive(1)
    desk.expire_leases()
    desk.redis.zadd(desk.keys.zset, {f"phantom{n:025d}": 0 for n in range(2)})

    desk.claim(ledger)
    while desk.run(claims.release(ledger, 1, count=10)).left:
        pass

    received = {m.body: m.rc for m in desk.receive(5)}
    assert received.keys() == {b"body 0", b"body 1"}
    assert set(received.values()) <= {2, 3}


def test_ledger_of_moved_messages_expires_once_it_holds_none(desk):
    ledger = Ledger(desk.keys, "etl.0a", "move", group="etl")
    desk.run(claims.set_group_ledger(ledger, expected="", ttl_s=TTL_S))
    kept = (ledger.key, ledger.group_key)
    assert all(0 < desk.redis.ttl(key) <= TTL_S for key in kept)
    desk.send(4)

    for number in (1, 2):
        desk.claim(ledger, number, create=False, limit=2)
    assert all(desk.redis.ttl(key) == -1 for key in kept)
    desk.run(claims.acknowledge(ledger, 1, count=10))
    assert all(desk.redis.ttl(key) == -1 for key in kept)
    desk.run(claims.release(ledger, 2, count=10))

    assert all(0 < desk.redis.ttl(key) <= TTL_S for key in kept)
    assert desk.side_keys() == sorted(
        ["deliveries", "group:etl", "ledger:etl.0a", *[k for k in desk.side_keys() if "marks" in k]]
    )


@pytest.mark.parametrize("end", ["acknowledge", "release"])
def test_long_bodies_that_were_moved_are_found_by_number(desk, end):
    """In a list, the server would walk over all of them."""
    ledger = Ledger(desk.keys, "etl", "move")
    desk.send(5, 2000)
    desk.claim(ledger, chunk=2, limit=5)
    desk.claim(ledger, chunk=3, limit=5)
    bodies = desk.keys.moved_bodies("etl", 1)

    assert desk.redis.lrange(bodies, 0, -1) == [b""] * 5
    assert desk.redis.hlen(f"{bodies}:long") == 5
    page = desk.run(claims.read(ledger, 1, 1, 4, bodies=True))
    assert [body.strip() for body in page.bodies] == [b"body 1", b"body 2", b"body 3"]
    if end == "release":
        while desk.run(claims.release(ledger, 1, count=1)).left:
            pass
    else:
        desk.run(claims.acknowledge(ledger, 1, count=1))
    assert not desk.redis.exists(bodies, f"{bodies}:long")
    assert len(desk.receive(9)) == (5 if end == "release" else 0)


def test_purge_leaves_what_a_claim_leases(desk, ledger):
    desk.send(2)
    desk.claim(ledger)
    desk.send(3)

    assert desk.run(queues.purge(desk.keys, 0))[0] == 3
    assert desk.run(queues.purge(desk.keys, 0))[0] == 0
    assert len(desk.read(ledger, 2).held) == 2


def test_claimed_messages_are_leased_in_what_attributes_and_scans_show(desk, ledger):
    desk.send(3)
    desk.claim(ledger, limit=2)

    attributes = desk.run(queues.attributes(desk.keys))
    assert (attributes.ready, attributes.leased, attributes.delayed) == (1, 2, 0)
    pending = desk.run(inspection.pending(desk.keys, skip=0, count=10, at=0)).messages
    assert [m.rc for m in pending] == [1, 1]
    scanned = desk.run(inspection.scan(desk.keys, 10, at=(0,))).messages
    assert [m.state for m in scanned] == ["ready", "leased", "leased"]


@pytest.mark.parametrize("size", [10, 2000])
def test_deleted_queue_takes_moved_messages_with_it(desk, size):
    ledger = Ledger(desk.keys, "etl.0a", "move", group="etl")
    desk.run(claims.set_group_ledger(ledger, expected="", ttl_s=TTL_S))
    desk.send(3, size)
    desk.claim(ledger, create=False)

    desk.run(queues.delete(desk.keys))

    assert [key for key in desk.side_keys() if not key.startswith("marks")] == []
