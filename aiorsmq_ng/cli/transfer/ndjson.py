"""Messages as lines of JSON, for export and import."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Sequence

import click
import msgspec

import aiorsmq_ng

from ..._common.queue_defaults import MAX_SECONDS


class Text(msgspec.Struct):
    """A line whose body is text."""

    id: str
    body: str
    sent: int | None
    rc: int
    fr: int
    visible_at: float


class Binary(msgspec.Struct):
    """A line whose body is not UTF-8."""

    id: str
    body_base64: str
    sent: int | None
    rc: int
    fr: int
    visible_at: float


class Line(msgspec.Struct):
    """The fields that an import reads; other fields of a line are ignored."""

    body: str | None = None
    body_base64: str | None = None
    visible_at: float | None = None


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
    )
    try:
        return Text(message.id, message.body.decode(), *rest)
    except UnicodeDecodeError:
        return Binary(message.id, base64.b64encode(message.body).decode(), *rest)


def decode(
    line: bytes, number: int, *, ready: bool, late: Callable[[int], None]
) -> tuple[bytes, float | None]:
    """Return body and delay of a line; with *ready* there is no delay.

    *late* is called with the number of a line whose delay is longer than RSMQ allows.
    """
    try:
        found = _decoder.decode(line)
        text, visible_at = found.body, found.visible_at
        body = _body(found) if text is None or found.body_base64 is not None else text.encode()
    except (msgspec.DecodeError, binascii.Error, ValueError, RecursionError) as error:
        raise click.ClickException(f"line {number} is invalid: {error}") from None
    if ready or visible_at is None or (left_ms := visible_at - time.time() * 1000) <= 0:
        return body, 0
    if left_ms > MAX_SECONDS * 1000:
        late(number)
        return body, MAX_SECONDS
    return body, round(left_ms) / 1000


def _body(line: Line) -> bytes:
    if line.body_base64 is not None and line.body is None:
        return base64.b64decode(line.body_base64, validate=True)
    raise ValueError("it must have either body or body_base64")
