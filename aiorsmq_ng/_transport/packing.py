"""Packs commands for the server."""

from __future__ import annotations

from collections.abc import Sequence

from hiredis import pack_command

from .._protocol.operation import Argument


def pack(words: Sequence[Argument]) -> bytes:
    """Return *words* as the bytes of one command."""
    packed: bytes
    try:
        packed = pack_command(tuple(words))  # type: ignore[arg-type]
    except UnicodeEncodeError:
        # A name that is not UTF-8: it was read with surrogate escapes.
        escaped = (raw(word) if isinstance(word, str) else word for word in words)
        packed = pack_command(tuple(escaped))  # type: ignore[arg-type]
    return packed


def raw(text: str) -> bytes:
    """Return the bytes that *text* stands for; surrogate escapes stand for what is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")
