"""Headers of messages that a claim holds, as the scripts see it; no Spark."""

import pytest

from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.spark import bulk_send, claims
from aiorsmq_ng._protocol.operations.spark.claims import DeadLetter, Ledger

from .claim_desk import Desk

MODES = pytest.mark.parametrize("mode", ["lease", "move"])
#: Headers as they are stored; the second message has none.
HEADERS = (b'{"n":"0"}', b"", b'{"n":"2"}')


@pytest.fixture
def desk(server_url, ns):
    return Desk(server_url, ns)


def claimed(desk, mode):
    """Send three messages and claim them; return the ledger and their ids."""
    bodies = [b"a", b"b", b"c"]
    ids = desk.run(
        messages.send(desk.keys, bodies, delay_ms=0, channel=desk.keys.wake, headers=HEADERS)
    )
    ledger = Ledger(desk.keys, "spark", mode)
    assert desk.claim(ledger, limit=3).messages == 3
    return ledger, ids


def stored(desk, keys=None):
    return desk.redis.hgetall((keys or desk.keys).headers)


def send(desk, count):
    """Send messages with headers; return their ids."""
    bodies, headers = [b"x"] * count, (b'{"x":"y"}',)
    return desk.run(messages.send(desk.keys, bodies, delay_ms=0, channel="", headers=headers))


def acknowledge(desk, ledger, number, *, count):
    while desk.run(claims.acknowledge(ledger, number, count=count)):
        pass


@MODES
def test_messages_that_a_claim_gives_back_have_their_headers(desk, mode):
    ledger, ids = claimed(desk, mode)
    send(desk, 300)  # looks for headers that are left over, too
    desk.run(claims.release(ledger, 1, count=10))

    found = {m.id: m.headers for m in desk.receive(303) if m.id in ids}
    assert [found[id] for id in ids] == list(HEADERS)


@MODES
def test_acknowledged_messages_take_their_headers_along(desk, mode):
    ledger, _ = claimed(desk, mode)
    acknowledge(desk, ledger, 1, count=10)

    assert not stored(desk)


@MODES
def test_claim_is_acknowledged_in_portions(desk, mode):
    """Two runs, of ids of different lengths; the first call removes one of them."""
    send(desk, 2)
    other = b"g73zkl38qz" + b"x" * 21 + b"hd"
    desk.redis.hset(desk.keys.hash, other, b"from elsewhere")
    desk.redis.hset(desk.keys.headers, other, b'{"n":"o"}')
    desk.redis.zadd(desk.keys.zset, {other: 1})
    ledger = Ledger(desk.keys, "spark", mode)
    assert desk.claim(ledger, limit=3).messages == 3

    assert desk.run(claims.acknowledge(ledger, 1, count=1)) == 1
    assert len(stored(desk)) == 2
    acknowledge(desk, ledger, 1, count=1)
    assert not stored(desk)
    assert desk.redis.hgetall(desk.keys.moved) == {}


@MODES
def test_headers_left_over_are_removed_while_a_claim_holds_messages(desk, mode):
    """Another client deletes what it was sent, and nothing of the claim is lost."""
    ledger, ids = claimed(desk, mode)
    for _ in range(20):
        desk.redis.zrem(desk.keys.zset, *send(desk, 100))

    assert len(stored(desk)) < 400
    desk.run(claims.release(ledger, 1, count=10))
    found = {m.id: m.headers for m in desk.receive(100)}
    assert [found[id] for id in ids] == list(HEADERS)


@MODES
def test_headers_of_released_messages_are_removed_when_they_are_left_over(desk, mode):
    ledger, ids = claimed(desk, mode)
    desk.run(claims.release(ledger, 1, count=10))
    other = Ledger(desk.keys, "other", "move")
    desk.redis.zrem(desk.keys.zset, *ids)
    send(desk, 1)
    assert desk.claim(other, limit=1).messages == 1  # while a claim holds messages

    for _ in range(20):
        send(desk, 10)
    assert not {id.encode() for id in ids} & stored(desk).keys()


@MODES
def test_dead_letters_of_a_claim_keep_their_headers(desk, mode):
    ledger, ids = claimed(desk, mode)
    dead = desk.keys.namespace.queue("jobs-dead")
    letters = [DeadLetter(2, ids[2].encode(), b"c", "is bad")]
    assert desk.run(claims.dead_letter(ledger, 1, letters, dead)) == 1

    assert stored(desk, dead) == {ids[2].encode(): HEADERS[2]}
    mark = b"!" if mode == "move" else b""  # a claim holds the message
    assert stored(desk) == {ids[0].encode(): mark + HEADERS[0]}


@MODES
def test_page_of_a_claim_has_headers_if_they_are_asked_for(desk, mode):
    ledger, ids = claimed(desk, mode)

    read = claims.read(ledger, 1, 0, 3, bodies=True, headers=True)
    assert list(desk.run(read).headers) == [
        ids[0].encode(),
        HEADERS[0],
        ids[2].encode(),
        HEADERS[2],
    ]
    assert not desk.read(ledger, 3).headers


@pytest.mark.parametrize("length", [22, 32, 33])
def test_headers_are_looked_for_by_the_ids_that_end_in_the_mark(desk, length):
    plain, marked = "hd" * 9 + "k" * (length - 18), "k" * (length - 2) + "hd"
    rows = bulk_send.Rows([bulk_send.kept(plain), bulk_send.kept(marked)], -1, [b"x", b"y"])
    place = bulk_send.Place("job", "0")
    desk.run(bulk_send.send(desk.keys, rows, place, ttl_s=60, oversize="fail"))
    desk.redis.hset(desk.keys.headers, plain, "of another message")
    desk.redis.hset(desk.keys.headers, marked, HEADERS[0])
    ledger = Ledger(desk.keys, "spark", "lease")
    assert desk.claim(ledger, limit=3).messages == 2

    page = desk.run(claims.read(ledger, 1, 0, 2, bodies=True, headers=True))

    assert list(page.headers) == [marked.encode(), HEADERS[0]]
