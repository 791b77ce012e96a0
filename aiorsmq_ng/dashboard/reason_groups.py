"""Groups of dead letters: reasons that differ only in ids and numbers are one kind."""

from __future__ import annotations

import re

#: What differs between reasons of one kind: ids, addresses, numbers, quoted values.
_VARIABLE = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8,}\b|\b[a-zA-Z0-9]{32}\b|\d+(?:\.\d+)?")


def reason_kind(reason: str | None) -> str:
    """Return a reason without what differs from message to message; empty if there is none."""
    return _VARIABLE.sub("#", (reason or "").strip())[:200]
