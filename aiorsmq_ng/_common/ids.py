"""Message ids: ten base36 digits of the send time in microseconds, then 22 random characters."""

from __future__ import annotations

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# 256 byte values onto 62 characters: eight characters are a little likelier, which costs 0.1 of
# 131 bits.
_TABLE = bytes(_ALPHABET[value % 62] for value in range(256))

SUFFIX_LENGTH = 22
ID_LENGTH = 32
# Send times outside these years mean that an id was not built by RSMQ's rule.
PLAUSIBLE_US = range(1_000_000_000_000_000, 36**10)


def suffix(entropy: bytes) -> bytes:
    """Turn random bytes into id suffixes, one after the other; 22 bytes into one."""
    return entropy.translate(_TABLE)


def suffixes(entropy: bytes) -> list[bytes]:
    """Turn random bytes into id suffixes, one per 22 bytes."""
    text = suffix(entropy)
    return [text[at : at + SUFFIX_LENGTH] for at in range(0, len(text), SUFFIX_LENGTH)]


def sent_ms(id: str) -> float | None:
    """Return the send time in epoch milliseconds, or ``None`` if *id* does not tell it."""
    if len(id) != ID_LENGTH or not (id.isascii() and id[:10].isalnum()):
        return None
    microseconds = int(id[:10], 36)
    return microseconds / 1000 if microseconds in PLAUSIBLE_US else None
