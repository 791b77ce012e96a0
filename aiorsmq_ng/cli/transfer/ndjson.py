"""Messages as lines of JSON, for export and import."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import click
import msgspec

import aiorsmq_ng

from ..._common.message_headers import check_headers, header_bytes
from ..._common.queue_defaults import MAX_SECONDS

#: Headers of a line; a message without headers has no such field.
Headers = dict[str, str] | msgspec.UnsetType


class Entry(NamedTuple):
    """A line that is to be sent."""

    body: bytes
    #: Its own delay in seconds; ``None`` for the queue's.
    delay: float | None
    headers: Mapping[str, str] | None = None

    @property
    def size(self) -> int:
        """Bytes of its body and headers."""
        return len(self.body) + header_bytes(self.headers or {})


class Text(msgspec.Struct):
    """A line whose body is text."""

    id: str
    body: str
    sent: int | None
    rc: int
    fr: int
    visible_at: float
    headers: Headers = msgspec.UNSET


class Binary(msgspec.Struct):
    """A line whose body is not UTF-8."""

    id: str
    body_base64: str
    sent: int | None
    rc: int
    fr: int
    visible_at: float
    headers: Headers = msgspec.UNSET


class Line(msgspec.Struct):
    """The fields that an import reads; other fields of a line are ignored."""

    body: str | None = None
    body_base64: str | None = None
    visible_at: float | None = None
    headers: dict[str, str] | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode(messages: Sequence[aiorsmq_ng.ScannedMessage]) -> bytes:
    """Return messages as lines, each with its line break."""
    return _encoder.encode_lines(list(map(_record, messages)))


def _record(message: aiorsmq_ng.ScannedMessage) -> Text | Binary:
    sent, at = message.sent, message.score
    rest = (
        None if sent is None else int(sent),
        message.rc,
        message.fr,
        int(at) if at.is_integer() else at,
        dict(message.headers) or msgspec.UNSET,
    )
    try:
        return Text(message.id, message.body.decode(), *rest)
    except UnicodeDecodeError:
        return Binary(message.id, base64.b64encode(message.body).decode(), *rest)


def decode(line: bytes, number: int, *, ready: bool, late: Callable[[int], None]) -> Entry:
    """Return what a line is to send; with *ready* there is no delay.

    *late* is called with the number of a line whose delay is longer than RSMQ allows.
    """
    try:
        found = _decoder.decode(line)
        text, visible_at = found.body, found.visible_at
        if found.headers:
            check_headers(found.headers)
        body = _body(found) if text is None or found.body_base64 is not None else text.encode()
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise click.ClickException(f"line {number} is invalid: {error}") from None
    if ready or visible_at is None or (left_ms := visible_at - time.time() * 1000) <= 0:
        return Entry(body, 0, found.headers)
    if left_ms > MAX_SECONDS * 1000:
        late(number)
        return Entry(body, MAX_SECONDS, found.headers)
    return Entry(body, round(left_ms) / 1000, found.headers)


def _body(line: Line) -> bytes:
    if line.body_base64 is not None and line.body is None:
        return base64.b64decode(line.body_base64, validate=True)
    raise ValueError("it must have either body or body_base64")
