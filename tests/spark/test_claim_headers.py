"""Headers of messages that a claim holds, as the scripts see it; no Spark."""

import pytest

from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.spark import claims
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
    send = messages.send(desk.keys, bodies, delay_ms=0, channel=desk.keys.wake, headers=HEADERS)
    ids = desk.run(send)
    ledger = Ledger(desk.keys, "spark", mode)
    assert desk.claim(ledger, limit=3).messages == 3
    return ledger, ids


def stored(desk, keys=None):
    return desk.redis.hgetall((keys or desk.keys).headers)


@MODES
def test_messages_that_a_claim_gives_back_have_their_headers(desk, mode):
    ledger, ids = claimed(desk, mode)
    send = messages.send(desk.keys, [b"x"] * 300, delay_ms=0, channel="", headers=(b'{"x":"y"}',))
    desk.run(send)  # looks for headers that are left over, too
    desk.run(claims.release(ledger, 1, count=10))

    found = {m.id: m.headers for m in desk.receive(303) if m.id in ids}
    assert [found[id] for id in ids] == list(HEADERS)


def test_acknowledged_messages_take_their_headers_along(desk):
    ledger, _ = claimed(desk, "lease")
    assert desk.run(claims.acknowledge(ledger, 1, count=10)) == 0

    assert not stored(desk)


@MODES
def test_dead_letters_of_a_claim_keep_their_headers(desk, mode):
    ledger, ids = claimed(desk, mode)
    dead = desk.keys.namespace.queue("jobs-dead")
    letters = [DeadLetter(2, ids[2].encode(), b"c", "is bad")]
    assert desk.run(claims.dead_letter(ledger, 1, letters, dead)) == 1

    assert stored(desk, dead) == {ids[2].encode(): HEADERS[2]}
    assert stored(desk) == {ids[0].encode(): HEADERS[0]}
