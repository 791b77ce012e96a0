"""Ids, bodies, back-off, errors: the small values everything is made of."""

import dataclasses
import pickle
import subprocess
import sys
from datetime import UTC, datetime

import pytest

import aiorsmq_ng
from aiorsmq_ng import InvalidValue, Message, codec, errors
from aiorsmq_ng._common import entropy
from aiorsmq_ng._common.backoff import Backoff
from aiorsmq_ng._common.message_ids import sent_ms, suffixes


def test_suffixes_are_22_letters_and_digits_each():
    made = suffixes(bytes(range(256))[:220])

    assert len(made) == 10
    assert all(len(s) == 22 and s.isalnum() for s in made)
    assert len(set(made)) == 10


def test_sent_of_an_rsmq_id_has_microseconds():
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    value, prefix = 1_794_787_267_293_697, ""
    while value:
        value, digit = divmod(value, 36)
        prefix = digits[digit] + prefix

    assert sent_ms(prefix + "x" * 22) == 1_794_787_267_293.697


@pytest.mark.parametrize("id", ["a" * 30, "0" * 32, "g73zkl38q:" + "x" * 22, "é" * 32, ""])
def test_sent_of_a_foreign_id_is_unknown(id):
    assert sent_ms(id) is None


@dataclasses.dataclass
class Order:
    number: int
    at: datetime


def test_body_of_text_and_bytes_is_raw_and_of_others_json():
    assert codec.to_body("ü", codec.JSON) == b"\xc3\xbc"
    assert codec.to_body(b"\xff\x00", codec.JSON) == b"\xff\x00"
    assert codec.to_body(bytearray(b"x"), codec.JSON) == b"x"
    assert codec.to_body({"a": [1, None]}, codec.JSON) == b'{"a":[1,null]}'


def test_json_comes_back_as_the_type_asked_for():
    order = Order(7, datetime(2026, 1, 2, tzinfo=UTC))
    message = Message("x" * 32, codec.to_body(order, codec.JSON), 1, 0)

    assert message.json(Order) == order
    assert message.json()["number"] == 7
    assert message.json(None) == message.json()


@pytest.mark.parametrize("value", [object(), {1, object()}, "\ud800", {"x": 10**5000}])
def test_body_that_cannot_be_encoded_is_refused(value):
    with pytest.raises(InvalidValue) as caught:
        codec.to_body(value, codec.JSON)

    assert caught.value.code == "messageNotString"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"nan"])
def test_json_of_another_body_is_refused_in_one_sentence(body):
    with pytest.raises(InvalidValue, match="not JSON"):
        Message("x" * 32, body, 1, 0).json()


def test_json_that_does_not_fit_the_type_is_refused():
    with pytest.raises(InvalidValue, match="does not fit"):
        Message("x" * 32, b'{"number":"seven"}', 1, 0).json(Order)


def test_repr_of_a_message_hides_its_body():
    assert "secret" not in repr(Message("x" * 32, b"secret", 1, 0))


def test_backoff_doubles_to_its_cap_with_jitter():
    backoff = Backoff(1.0, 8.0)

    delays = [backoff.next_s() for _ in range(50)]

    assert all(c / 2 <= d <= c for c, d in zip([1, 2, 4], delays, strict=False))
    assert all(4 <= d <= 8 for d in delays[3:])
    assert len(set(delays[3:])) > 1
    backoff.reset()
    assert backoff.next_s() <= 1


def _instances():
    return [
        errors.QueueExists("jobs", "rsmq"),
        errors.QueueNotFound("jobs", "rsmq"),
        errors.MessageTooLong("jobs", 70000, 65536),
        errors.InvalidValue("vt must be"),
        errors.NoAttributeSupplied("jobs"),
        errors.LeaseLost("jobs", "x" * 32, gone=True),
        errors.ServerOutOfMemory("redis is out of memory"),
        errors.QueueCorrupt("jobs", "wrong type"),
        errors.SendUnknown("the reply was lost"),
        errors.DurabilityUnmet("replicated:2", "replicated:1"),
        errors.Unavailable("redis cannot be reached"),
        errors.ServerError("redis refused the command"),
        errors.UsageError("used wrongly"),
        errors.AccessDenied("redis refused access"),
        errors.NotSupported("redis does not know the command"),
        errors.ClientClosed(),
        errors.WrongContext("another event loop"),
        errors.ClaimLost("jobs", "reader", "fenced"),
        errors.RowsDiffer("other rows"),
        errors.SnapshotGone("expired"),
    ]


def test_every_error_has_a_code_of_its_own_and_one_root():
    made = _instances()

    assert {type(e).__name__ for e in made} == set(errors.__all__) - {"RSMQError", "SendToken"}
    assert all(isinstance(e, errors.RSMQError) for e in made)
    assert len({e.code for e in made}) == len(made)
    assert all(name in aiorsmq_ng.__all__ for name in errors.__all__)


def test_error_says_what_and_what_to_do():
    sentence = str(errors.MessageTooLong("jobs", 70000, 65536))

    assert "70000 bytes" in sentence
    assert "65536" in sentence
    assert "'jobs'" in sentence
    assert "create_queue()" in str(errors.QueueNotFound("jobs", "rsmq"))


@pytest.mark.parametrize("error", _instances(), ids=lambda e: type(e).__name__)
def test_error_travels_between_processes(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_send_unknown_is_an_outage_that_may_pass():
    error = errors.SendUnknown("the reply was lost")

    assert error.executed is None
    assert error.transient
    assert pickle.loads(pickle.dumps(error)).transient


def test_entropy_is_never_handed_out_twice():
    taken = [entropy.take(22) for _ in range(1000)]

    assert len(set(taken)) == 1000
    assert all(len(t) == 22 for t in taken)
    assert len(entropy.take(100_000)) == 100_000


def test_entropy_of_a_child_is_its_own():
    """In a process of its own, because forking one with threads is not done."""
    code = """
import os
from aiorsmq_ng._common import entropy
entropy.take(22)
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, entropy.take(22))
    os._exit(0)
os.wait()
print(os.read(reader, 22) != entropy.take(22))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "True\n"


def test_message_with_headers_can_be_pickled():
    message = Message("id", b"body", 1, 2, b'{"k":"v"}')
    assert message.headers == {"k": "v"}

    assert pickle.loads(pickle.dumps(message)).headers == {"k": "v"}
