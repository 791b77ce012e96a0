"""Durability levels: how safe a message must be before ``send`` returns, and the WAIT command."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidValue

MEMORY, FSYNCED = "memory", "fsynced"

_REPLICATED = re.compile(r"replicated:([1-9][0-9]{0,2})")


@dataclass(frozen=True, slots=True)
class Durability:
    """One level: executed by the primary, received by *replicas*, or written to disk (*fsync*)."""

    replicas: int = 0
    fsync: bool = False
    #: True if a WAITAOF is needed; not if the server syncs every write anyway.
    waits: bool = True

    @classmethod
    def parse(cls, text: str) -> Durability:
        """Return the level named ``memory``, ``replicated:n`` or ``fsynced``."""
        if text == MEMORY:
            return cls()
        if text == FSYNCED:
            return cls(fsync=True)
        if isinstance(text, str) and (found := _REPLICATED.fullmatch(text)):
            return cls(replicas=int(found[1]))
        raise InvalidValue(
            f"durability {text!r} is not known; use 'memory', 'replicated:n' or 'fsynced'"
        )

    def question(self, timeout_ms: int) -> tuple[str | int, ...] | None:
        """Return the command that waits for this level, or None if no wait is needed."""
        if self.fsync:
            return ("WAITAOF", 1, 0, timeout_ms) if self.waits else None
        if self.replicas:
            return ("WAIT", self.replicas, timeout_ms)
        return None

    def reached(self, answer: Any) -> str:
        """Return the level that the server's reply confirms; at least ``memory``."""
        if self.fsync:
            synced = not self.waits or (isinstance(answer, list) and answer[0] >= 1)
            return FSYNCED if synced else MEMORY
        return f"replicated:{answer}" if isinstance(answer, int) and answer > 0 else MEMORY

    def met_by(self, reached: str) -> bool:
        """Return True if the level *reached* is at least this one."""
        if self.fsync:
            return reached == FSYNCED
        found = _REPLICATED.fullmatch(reached)
        return not self.replicas or (found is not None and int(found[1]) >= self.replicas)

    def __str__(self) -> str:
        if self.fsync:
            return FSYNCED
        return f"replicated:{self.replicas}" if self.replicas else MEMORY
