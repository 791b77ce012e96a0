"""Payloads of rmq: a body, and since v5.1 headers before it.

With headers a payload is a signature, the headers as a JSON object of lists on one line, and the
body. Without headers it is the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..errors import InvalidValue

#: What a payload with headers begins with.
SIGNATURE = b"\xff\x00\xbe\xbeJ"
#: Names of headers that Go rewrites: others it leaves as they are.
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

#: Values by name; a single value may be given as a text.
Headers = Mapping[str, str | Sequence[str]]

_decoder = msgspec.json.Decoder(dict[str, list[str] | None])


class BadHeader(ValueError):
    """Raised for a payload whose headers cannot be read; rmq rejects it."""


class Payload(NamedTuple):
    """A payload that was read."""

    headers: dict[str, list[str]]
    body: bytes


def canonical(name: str) -> str:
    """Return the name of a header as Go writes it: ``traceparent`` is ``Traceparent``."""
    if _TOKEN.fullmatch(name) is None:
        return name
    return "-".join(word[:1].upper() + word[1:].lower() for word in name.split("-"))


def pack(bodies: Sequence[bytes], headers: Headers | None = None) -> list[bytes]:
    """Return the payloads for *bodies*, each with *headers* if there are any."""
    if headers:
        head = _pack_headers(headers)
        return [head + body for body in bodies]
    # A body that looks like a header gets an empty one, so that it is read as it is.
    empty, signature = SIGNATURE + b"{}\n", SIGNATURE
    return [empty + body if body.startswith(signature) else body for body in bodies]


def _pack_headers(headers: Headers) -> bytes:
    merged: dict[str, list[str]] = {}
    for name, value in headers.items():
        single = isinstance(value, str) or not isinstance(value, Iterable)
        values: list[str] = [value] if single else list(value)  # type: ignore[list-item]
        if not isinstance(name, str) or not all(isinstance(one, str) for one in values):
            raise InvalidValue(f"header {name!r} must be a text, or a list of texts")
        merged.setdefault(canonical(name), []).extend(values)
    try:
        return b"".join((SIGNATURE, msgspec.json.encode(merged), b"\n"))
    except UnicodeEncodeError as error:
        raise InvalidValue(f"a header cannot be written as UTF-8: {error.reason}") from None


def unpack(payload: bytes) -> Payload:
    """Return headers and body of *payload*; ``BadHeader`` if the headers cannot be read."""
    if not payload.startswith(SIGNATURE):
        return Payload({}, payload)
    line, newline, body = payload[len(SIGNATURE) :].partition(b"\n")
    if not newline:
        raise BadHeader("the headers have no end")
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadHeader(f"the headers are not a JSON object of lists: {error}") from None
    return Payload({name: values or [] for name, values in found.items()}, body)
