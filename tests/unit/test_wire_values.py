"""Values that the broker writes and its client reads are the same on both sides."""

import pytest

pytest.importorskip("grpc")

from aiorsmq_ng import QueueAttributes
from aiorsmq_ng.models import Message
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.wire_values import (
    dead_letter_field,
    optional,
    read_attributes,
    read_message,
    write_attributes,
    write_message,
)

COUNTS = dict.fromkeys(
    ("totalrecv", "totalsent", "created", "modified", "msgs", "hiddenmsgs"), 0
) | {"ready": 1, "delayed": 2, "leased": 3}


@pytest.mark.parametrize("age", [None, 0.0, 1.5])
@pytest.mark.parametrize("vt", [30, 0.5])
def test_attributes_that_are_written_are_read_as_they_were(age, vt):
    found = QueueAttributes(vt=vt, delay=0, maxsize=-1, exact=True, oldest_age=age, **COUNTS)

    again = read_attributes(write_attributes(found))

    assert again == found
    assert type(again.vt) is type(vt)


def test_message_that_is_written_is_read_as_it_was():
    again = read_message(write_message(Message("i" * 32, b"\xff", 2, 5)))

    assert (again.id, again.body, again.rc, again.fr) == ("i" * 32, b"\xff", 2, 5)


def test_field_that_is_not_given_is_not_zero():
    assert optional(pb.RedriveRequest(), "count") is None
    assert optional(pb.RedriveRequest(), "count", 7) == 7
    assert optional(pb.RedriveRequest(count=0), "count", 7) == 0


def test_only_another_dead_letter_queue_is_named():
    assert dead_letter_field("jobs", "jobs-dead") == ""
    assert dead_letter_field("jobs", "graves") == "graves"
