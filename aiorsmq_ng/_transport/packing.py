"""Packs commands for the server: short words by hiredis, long bodies with a copy less."""

from __future__ import annotations

from collections.abc import Sequence

import hiredis

from .._protocol.operation import Argument

#: From this length of the last word on, joining is cheaper than hiredis, which copies a command
#: three times and grows its buffer on the way; a body of 1 MiB costs 75 us instead of 300.
LONG = 1 << 14


def pack(words: Sequence[Argument]) -> bytes:
    """Return *words* as the bytes of one command."""
    last = words[-1]
    if isinstance(last, bytes) and len(last) >= LONG:
        return _join(words)
    packed: bytes
    try:
        packed = hiredis.pack_command(tuple(words))  # type: ignore[arg-type]
    except UnicodeEncodeError:
        # A name that is not UTF-8: it was read with surrogate escapes.
        escaped = (raw(word) if isinstance(word, str) else word for word in words)
        packed = hiredis.pack_command(tuple(escaped))  # type: ignore[arg-type]
    return packed


def raw(text: str) -> bytes:
    """Return the bytes that *text* stands for; surrogate escapes stand for what is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _join(words: Sequence[Argument]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word if isinstance(word, bytes) else raw(str(word))
        parts += (b"$%d\r\n" % len(text), text, b"\r\n")
    return b"".join(parts)
