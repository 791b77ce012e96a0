"""Operations are built and replies are read without a server."""

import pytest

from aiorsmq_ng import LeaseLost, MessageTooLong, QueueCorrupt, QueueNotFound, SendUnknown
from aiorsmq_ng._protocol import redis_codecs as redis
from aiorsmq_ng._protocol import scripts
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.message_values import Dedup, Receipt
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec, VisibilityRequest

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


def encoded(*operations):
    """Return the keys and arguments of the script call, without random bytes."""
    call = redis.encode(operations, None, bytes)
    return call.keys, call.args


def read(operation, reply, *, repeated=False):
    """Return the result that *reply* means, or raise the error."""
    whole = [reply] if operation.kind.merge else reply
    [result] = redis.decode([operation], whole, repeated=repeated)
    if isinstance(result, Exception):
        raise result
    return result


def test_every_kind_has_one_codec_and_every_script_one_kind():
    kinds = [codec.kind for codec in redis.CODECS.values()]

    assert len({kind.name for kind in kinds}) == len(kinds)
    assert {codec.script for codec in redis.CODECS.values()} == set(scripts.names())


def test_send_carries_suffixes_and_bodies_in_order():
    operation = messages.send(KEYS, [b"one", b"two"], delay_ms=-1, channel="wake")
    request = operation.request

    assert encoded(operation) == (
        ["rsmq:jobs", "rsmq:jobs:Q"],
        ["wake", "-1 0 2", b"A" * 44, b"one", b"two"],
    )
    assert (request.lane, request.weight, request.size) == (("rsmq:jobs", "wake"), 2, 6)
    assert operation.kind.unknown is SendUnknown
    assert not operation.kind.repeatable


def test_sends_that_share_a_call_have_suffixes_and_markers_of_their_own():
    first = messages.send(KEYS, [b"one"], delay_ms=-1, channel="w")
    second = messages.send(KEYS, [b"two"], delay_ms=5, channel="w", dedup=Dedup("d", 1000))
    call = redis.encode([first, second], "record", lambda count: bytes(range(count)))

    header, suffixes, _, other_header, others, _ = call.args[1:]
    assert (header, other_header) == ("-1 0 1", "5 1000 1")
    assert [len(suffixes), len(others)] == [22, 22]
    assert suffixes != others
    assert call.keys == ["rsmq:jobs", "rsmq:jobs:Q", KEYS.marker("d"), "record"]


def test_send_reads_ids_or_what_was_too_long():
    operation = messages.send(KEYS, [b"x"], delay_ms=0, channel="w")

    assert read(operation, [ID.encode()]) == [ID]
    with pytest.raises(MessageTooLong, match="70000"):
        read(operation, [b"messageTooLong", 70000, 65536])


def test_receive_reads_messages_or_the_hint():
    operation = messages.receive(ReceiveSpec(KEYS), 2, vt_ms=-1)

    received = read(operation, [30000, 0, ID.encode(), b"body", 1, 1794787267284])
    empty = read(operation, [30000, 250])

    assert received.messages[0].receipt == Receipt(ID, 1, 1794787267284)
    assert (received.messages[0].vt_ms, received.messages[0].keys) == (30000, KEYS)
    assert (empty.messages, empty.next_visible_ms) == ([], 250)


def test_receive_is_undone_by_a_fenced_release():
    operation = messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1)
    received = read(operation, [30000, 0, ID.encode(), b"body", 3, 17])

    (step,) = operation.kind.undo(received)

    assert step.kind is messages.VISIBILITY
    assert step.request == VisibilityRequest(KEYS, ID, 0, KEYS.wake, Receipt(ID, 3, 17), "u")
    assert encoded(step)[1] == [KEYS.wake, ID, 3, 17, 0, "u"]


def test_pop_is_never_repeated_and_cannot_be_undone():
    kind = messages.pop(KEYS, 1).kind

    assert not kind.repeatable
    assert not kind.numbered
    assert kind.undo is None


@pytest.mark.parametrize(("outcome", "gone"), [(0, True), (-1, False)])
def test_fenced_operation_that_did_not_hold_says_why(outcome, gone):
    receipt = Receipt(ID, 1, 5)

    for operation, reply in (
        (messages.ack(KEYS, receipt), [outcome]),
        (messages.visibility(KEYS, ID, vt_ms=0, channel="w", receipt=receipt), outcome),
    ):
        with pytest.raises(LeaseLost) as caught:
            read(operation, reply)
        assert caught.value.gone is gone


def test_unfenced_operations_answer_with_what_was_there():
    other = "h" * 32

    assert read(messages.delete(KEYS, [ID, other]), [0, 1]) == [other]
    assert read(messages.delete(KEYS, [ID, other]), [0, 1], repeated=True) == [ID, other]
    assert read(messages.visibility(KEYS, ID, vt_ms=0, channel="w"), 0) is False


def test_attributes_read_what_other_clients_stored():
    reply = [b"2.5", b"0", b"65565", b"", b"", b"", b"", 3, 2, 1, 1, -1]

    attributes = read(queues.attributes(KEYS), reply)

    assert (attributes.vt, attributes.maxsize, attributes.created) == (2.5, 65565, 0)
    assert (attributes.ready, attributes.delayed, attributes.leased) == (1, 1, 1)
    assert attributes.oldest_age is None


@pytest.mark.parametrize("stored", [b"x", b"nan", b"inf", b"1e400"])
def test_attributes_that_are_no_numbers_are_corrupt(stored):
    with pytest.raises(QueueCorrupt, match="jobs"):
        read(queues.attributes(KEYS), [stored, b"0", b"0", b"", b"", b"", b"", 0, 0, 0, 1, -1])


def test_code_words_become_errors_of_this_queue():
    operations = [messages.receive(ReceiveSpec(KEYS), 1, vt_ms=0)] * 2

    errors = redis.decode(operations, b"queueNotFound", repeated=False)
    assert [type(error) for error in errors] == [QueueNotFound, QueueNotFound]
    assert errors[0] is not errors[1]
    for code in ("wrongType", "queueCorrupt"):
        assert isinstance(redis.failures(operations, code)[0], QueueCorrupt)


def test_reply_that_cannot_be_read_is_the_error_of_its_own_operation():
    operations = [messages.receive(ReceiveSpec(KEYS), 1, vt_ms=0)] * 2

    received, error = redis.decode(operations, [[30000, 250], None], repeated=False)

    assert received.next_visible_ms == 250
    assert isinstance(error, TypeError)
