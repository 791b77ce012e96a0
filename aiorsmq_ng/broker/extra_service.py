"""Interface of an additional gRPC service that a broker serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from .broker_context import BrokerContext
from .caller_limits import Rule
from .receive import BoundedReceiver


class Service(Protocol):
    """A gRPC service beside the broker's own, with the same checks of callers and limits."""

    @property
    def name(self) -> str:
        """Full name of the service, as in its proto: for health checks and reflection."""
        ...

    @property
    def rules(self) -> Mapping[str, Rule]:
        """The rule of each method, by the method's name; a method without one is refused."""
        ...

    def register(self, server: Any, broker: BrokerContext, receiver: BoundedReceiver) -> None:
        """Add the service to a gRPC server before the server starts."""
        ...

    async def close(self) -> None:
        """Give back what clients hold; called when the server has stopped."""
        ...
