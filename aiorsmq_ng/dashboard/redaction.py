"""What may be shown of a body: the application's own function decides."""

from __future__ import annotations

from collections.abc import Callable

#: Given a queue's name and a body, returns what may be shown of it; ``None`` hides it.
Redact = Callable[[str, bytes], bytes | None]
HIDDEN = b"(hidden)"


def redacted(redact: Redact | None, queue: str, body: bytes) -> bytes:
    """Return what may be shown of *body*."""
    if redact is None:
        return body
    kept = redact(queue, body)
    return HIDDEN if kept is None else kept
