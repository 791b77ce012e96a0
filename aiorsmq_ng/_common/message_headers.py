"""Headers of messages: what names and values may be, and the text that is stored for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..errors import InvalidValue

#: Bytes that names and values of one message's headers may have together, in UTF-8.
MAX_HEADER_BYTES = 8192
#: How long headers are kept after the last message with headers came into a queue.
HEADERS_TTL_S = 14 * 86400

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
#: What no value has: a program may put values into the headers of another protocol, or on a screen.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


def encode_headers(headers: Any) -> bytes:
    """Return the text that is stored for *headers*; empty if there are none.

    Raises ``InvalidValue`` if RSMQ's clients may not store them.
    """
    if headers is None:
        return b""
    checked = check_headers(headers)
    return _encode(checked) if checked else b""


def header_texts(headers: object, count: int = 1) -> Sequence[bytes]:
    """Return the texts to store for *count* messages: none, one for all, or one for each.

    *headers* are those of all messages, or a list with those of each.
    """
    if headers is None:
        return ()
    if isinstance(headers, Sequence) and not isinstance(headers, str | bytes):
        if len(headers) != count:
            raise InvalidValue(
                f"headers must be one mapping, or one for each of {count} messages, "
                f"not {len(headers)}"
            )
        texts = [encode_headers(one) for one in headers]
    else:
        texts = [encode_headers(headers)]
    return texts if any(texts) else ()


def add_headers(texts: Sequence[bytes], added: Mapping[str, str]) -> Sequence[bytes]:
    """Return stored texts of headers, each with those of *added* put before its own.

    What cannot be stored beside its own is left out: ``baggage``, which may be long, or all. A
    message that has one of these names already keeps its own as they are.
    """
    found = [_with_added(text, added) for text in texts or (b"",)]
    return found if any(found) else ()


def _with_added(text: bytes, added: Mapping[str, str]) -> bytes:
    own = decode_headers(text)
    if not own.keys() & added.keys():
        for part in (added, {name: added[name] for name in added if name != "baggage"}):
            with suppress(InvalidValue):
                return encode_headers({**part, **own})
    return text


def decode_headers(stored: bytes) -> dict[str, str]:
    """Return the headers in a stored text, as far as a sender may store them.

    Another program may have stored something else: names or values that are not allowed are left
    out, and headers that are too long altogether are none.
    """
    if not stored:
        return {}
    try:
        found = _decode(stored)
    except (msgspec.DecodeError, RecursionError):
        return {}
    allowed = {
        name: value
        for name, value in found.items()
        if _NAME.fullmatch(name) and not _CONTROL.search(value)
    }
    return allowed if header_bytes(allowed) <= MAX_HEADER_BYTES else {}


def check_headers(headers: Any) -> dict[str, str]:
    """Return *headers* as a ``dict`` if they are a mapping of names to texts within the limits."""
    if not isinstance(headers, Mapping):
        raise InvalidValue(f"headers must be a mapping of names to texts, not {_kind(headers)}")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidValue(
                f"header name {name!r} is not allowed: 1 to 128 ASCII letters, digits or "
                "any of !#$%&'*+-.^_`|~",
                code="invalidFormat",
            )
        if not isinstance(value, str):
            raise InvalidValue(f"header {name!r} must be a text, not {_kind(value)}")
        if control := _CONTROL.search(value):
            raise InvalidValue(
                f"header {name!r} has the control character {control[0]!r}; "
                "put texts of several lines into the body",
                code="invalidFormat",
            )
        checked[name] = value
    if (size := header_bytes(checked)) > MAX_HEADER_BYTES:
        raise InvalidValue(
            f"headers have {size} bytes in names and values, and {MAX_HEADER_BYTES} is the limit; "
            "put what is larger into the body"
        )
    return checked


def header_bytes(headers: Mapping[str, str]) -> int:
    """Return how many bytes names and values have in UTF-8."""
    size = 0
    for name, value in headers.items():
        try:
            size += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            raise InvalidValue(
                f"header {name!r} is not valid text: it has a lone surrogate"
            ) from None
    return size


def _kind(value: object) -> str:
    return type(value).__name__
