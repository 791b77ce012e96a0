"""Operations are built and replies are read without a server."""

import pytest

from aiorsmq_ng import LeaseLost, MessageTooLong, QueueCorrupt, QueueNotFound, SendUnknown
from aiorsmq_ng._protocol import messages, queues
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.messages import Intake
from aiorsmq_ng._protocol.values import Receipt

KEYS = Namespace("rsmq").queue("jobs")
ID = "g73zkl38qz" + "x" * 22


def test_keys_are_rsmqs():
    assert (KEYS.namespace.index, KEYS.zset, KEYS.hash, KEYS.realtime) == (
        "rsmq:QUEUES",
        "rsmq:jobs",
        "rsmq:jobs:Q",
        "rsmq:rt:jobs",
    )


def test_side_keys_cannot_be_the_keys_of_a_queue():
    for key in (KEYS.wake, KEYS.deliveries, KEYS.reason(ID)):
        assert key.startswith("rsmq:jobs:ng:")


def test_send_carries_suffixes_and_bodies_in_order():
    operation = messages.send(
        KEYS, [b"one", b"two"], delay_ms=-1, entropy=bytes(44), channel="wake"
    )

    assert operation.args == ("-1 0 2", b"A" * 44, b"one", b"two")
    assert (operation.head, operation.weight, operation.size) == (("wake",), 2, 6)
    assert operation.lost is SendUnknown
    assert not operation.repeatable


def test_send_reads_ids_or_what_was_too_long():
    operation = messages.send(KEYS, [b"x"], delay_ms=0, entropy=bytes(22), channel="w")

    assert operation.parse([ID.encode()]) == [ID]
    with pytest.raises(MessageTooLong, match="70000"):
        operation.parse([b"messageTooLong", 70000, 65536])


def test_receive_reads_messages_or_the_hint():
    operation = messages.receive(Intake(KEYS), 2, vt_ms=-1)

    received = operation.parse([30000, 0, ID.encode(), b"body", 1, 1794787267284])
    empty = operation.parse([30000, 250])

    assert received.messages[0].receipt == Receipt(ID, 1, 1794787267284)
    assert (received.messages[0].vt_ms, received.messages[0].keys) == (30000, KEYS)
    assert (empty.messages, empty.next_visible_ms) == ([], 250)


def test_receive_is_undone_by_a_fenced_release():
    operation = messages.receive(Intake(KEYS), 1, vt_ms=-1)
    received = operation.parse([30000, 0, ID.encode(), b"body", 3, 17])

    (step,) = operation.undo(received)

    assert step.script.name == "visibility"
    assert step.args == (ID, 3, 17, 0, "u")


def test_pop_is_never_repeated_and_cannot_be_undone():
    operation = messages.pop(KEYS, 1)

    assert not operation.repeatable
    assert operation.undo is None


@pytest.mark.parametrize(("outcome", "gone"), [(0, True), (-1, False)])
def test_fenced_operation_that_did_not_hold_says_why(outcome, gone):
    receipt = Receipt(ID, 1, 5)

    for operation, reply in (
        (messages.ack(KEYS, receipt), [outcome]),
        (messages.visibility(KEYS, ID, vt_ms=0, channel="w", receipt=receipt), outcome),
    ):
        with pytest.raises(LeaseLost) as caught:
            operation.parse(reply)
        assert caught.value.gone is gone


def test_unfenced_operations_answer_with_what_was_there():
    other = "h" * 32

    assert messages.delete(KEYS, [ID, other]).parse([0, 1]) == [other]
    assert messages.visibility(KEYS, ID, vt_ms=0, channel="w").parse(0) is False


def test_attributes_read_what_other_clients_stored():
    reply = [b"2.5", b"0", b"65565", b"", b"", b"", b"", 3, 2, 1, 1, -1]

    attributes = queues.attributes(KEYS).parse(reply)

    assert (attributes.vt, attributes.maxsize, attributes.created) == (2.5, 65565, 0)
    assert (attributes.ready, attributes.delayed, attributes.leased) == (1, 1, 1)
    assert attributes.oldest_age is None


@pytest.mark.parametrize("stored", [b"x", b"nan", b"inf", b"1e400"])
def test_attributes_that_are_no_numbers_are_corrupt(stored):
    with pytest.raises(QueueCorrupt, match="jobs"):
        queues.attributes(KEYS).parse([stored, b"0", b"0", b"", b"", b"", b"", 0, 0, 0, 1, -1])


def test_code_words_become_errors_of_this_queue():
    fail = messages.receive(Intake(KEYS), 1, vt_ms=0).fail

    assert isinstance(fail("queueNotFound"), QueueNotFound)
    assert isinstance(fail("wrongType"), QueueCorrupt)
    assert isinstance(fail("queueCorrupt"), QueueCorrupt)
