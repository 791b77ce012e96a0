"""Splits a byte stream into requests or replies of the Redis protocol (RESP)."""

from __future__ import annotations

_BULKS = b"$=!"
_LISTS = b"*~>"
_PAIRS = b"%|"


class Splitter:
    """Splits a stream of bytes into whole requests or replies (RESP2, RESP3, inline commands).

    A stream that stops following the protocol, as replication does, is passed on unsplit.
    """

    def __init__(self) -> None:
        self._foreign = False
        self._buffer = bytearray()
        self._at = 0
        self._owed = 1

    def feed(self, data: bytes) -> list[bytes]:
        """Add *data* and return the complete elements; the rest stays in the buffer."""
        self._buffer += data
        found = []
        try:
            while not self._foreign and self._step():
                if self._owed == 0:
                    found.append(self._take(self._at))
        except ValueError:
            self._foreign = True
        if self._foreign and self._buffer:
            found.append(self._take(len(self._buffer)))
        return found

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        self._at, self._owed = 0, 1
        return taken

    def _step(self) -> bool:
        """Advance over one element; return False if the buffer does not contain all of it."""
        end = self._buffer.find(b"\n", self._at)
        if end < 0:
            return False
        kind = self._buffer[self._at : self._at + 1]
        after = end + 1
        owed = self._owed - 1
        if kind in _BULKS:
            size = int(self._buffer[self._at + 1 : end])
            after += size + 2 if size >= 0 else 0
            if len(self._buffer) < after:
                return False
        elif kind in _LISTS:
            owed += max(0, int(self._buffer[self._at + 1 : end]))
        elif kind in _PAIRS:
            # Pairs; an attribute (|) is followed by the value that it describes.
            owed += 2 * int(self._buffer[self._at + 1 : end]) + (kind == b"|")
        self._at, self._owed = after, owed
        return True
