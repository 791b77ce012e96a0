"""The observer of a transport: sees every operation and every retry, if there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from .._protocol.operation import Operation


class Observer(Protocol):
    """What a transport reports. Nothing of it may raise, block or keep a caller waiting."""

    def begin(
        self, operation: Operation[Any]
    ) -> tuple[Operation[Any], Callable[[asyncio.Future[Any]], object]]:
        """Return the operation to make instead, and what is called with its future at the end."""
        ...

    def retried(self, operation: Operation[Any]) -> None:
        """Note that the call of which *operation* is the first is made again."""

    def lease_lost(self, namespace: str, queue: str, receipt: Any) -> None:
        """Note that a lease is lost that no operation has found to be lost."""
