"""Records in GOMQ's format, and their sizes."""

from __future__ import annotations

import time

from aiorsmq_ng import Delivery

from ...rpc import routeguide_pb2 as pb

#: Largest reply that a client accepts by default: gRPC's own limit.
LIMIT = 4 * 1024 * 1024

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ID_LENGTH, _TIME_LENGTH = 32, 28


def name_of(text: str) -> str:
    """Return the name of a topic or consumer for GOMQ's *text*, which may be empty."""
    return text + "\0" if not text.strip("\0") else text


def text_of(name: str) -> str:
    """Return the text from which ``name_of`` made *name*."""
    return name[:-1] if not name.strip("\0") else name


def timestamp(sent_ms: float | None) -> str:
    """Return a time as Go's UnixDate, in UTC, independent of the locale."""
    moment = time.gmtime((sent_ms or 0.0) / 1000)
    day, month = _DAYS[moment.tm_wday], _MONTHS[moment.tm_mon - 1]
    clock = f"{moment.tm_hour:02}:{moment.tm_min:02}:{moment.tm_sec:02}"
    return f"{day} {month} {moment.tm_mday:2} {clock} UTC {moment.tm_year}"


def record(key: str, delivery: Delivery) -> pb.Record:
    """Return a delivery as a record."""
    message = pb.Message(id=delivery.id, timestamp=timestamp(delivery.sent), payload=delivery.body)
    return pb.Record(key=text_of(key), value=message)


def record_size(key: str, payload: int) -> int:
    """Return an upper bound of the bytes that a record takes in a reply."""
    message = _field(_ID_LENGTH * 2) + _field(_TIME_LENGTH) + _field(payload)
    return _field(_field(len(key.encode())) + _field(message))


def _field(length: int) -> int:
    """Return the bytes of a length-delimited field: tag, length and content."""
    return 1 + max(1, -(-length.bit_length() // 7)) + length
