"""Message ids: ten base36 digits of the send time in microseconds, then 22 random characters."""

from __future__ import annotations

from collections.abc import Sequence

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# 256 byte values map to 62 characters: eight characters are slightly more likely, which costs 0.1
# of 131 bits of entropy.
_TABLE = bytes(_ALPHABET[value % 62] for value in range(256))

SUFFIX_LENGTH = 22
#: How ids of messages with headers end, so that receivers look for headers of these only. Scripts
#: compare it, too (``_headers.lua``). An id drawn at random ends so once in 3844 times.
HEADERS_MARK = b"hd"
ID_LENGTH = 32
# A send time outside this range means that the id was not built by RSMQ's rule.
PLAUSIBLE_US = range(1_000_000_000_000_000, 36**10)


def suffix(entropy: bytes) -> bytes:
    """Turn random bytes into concatenated id suffixes; 22 bytes give one suffix."""
    return entropy.translate(_TABLE)


def suffixes(entropy: bytes) -> list[bytes]:
    """Turn random bytes into a list of id suffixes, one per 22 bytes."""
    text = suffix(entropy)
    return [text[at : at + SUFFIX_LENGTH] for at in range(0, len(text), SUFFIX_LENGTH)]


def mark_headers(suffixes: bytes, headers: Sequence[bytes]) -> bytes:
    """Return concatenated id suffixes, those of messages with headers with their mark.

    *headers* are the texts of headers: one for all messages, or one for each.
    """
    marked = bytearray(suffixes)
    for at in range(0, len(marked), SUFFIX_LENGTH):
        if headers[0 if len(headers) == 1 else at // SUFFIX_LENGTH]:
            end = at + SUFFIX_LENGTH
            marked[end - len(HEADERS_MARK) : end] = HEADERS_MARK
    return bytes(marked)


def sent_ms(id: str) -> float | None:
    """Return the send time in epoch milliseconds, or ``None`` if *id* does not contain it."""
    if len(id) != ID_LENGTH or not (id.isascii() and id[:10].isalnum()):
        return None
    microseconds = int(id[:10], 36)
    return microseconds / 1000 if microseconds in PLAUSIBLE_US else None
