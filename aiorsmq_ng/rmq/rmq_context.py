"""What a client of rmq, its queues and its consumers share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._transport.transport import Transport
from ..codec import Codec
from ..options import Options
from .connection import Connections

if TYPE_CHECKING:
    from .prefetch import RmqPrefetch


@dataclass(frozen=True, slots=True)
class RmqContext:
    """What a client, its queues and its consumers share."""

    transport: Transport
    connections: Connections
    codec: Codec
    options: Options
    tag: str
    #: The consumers at work; closing the client ends them before it gives everything back.
    prefetches: set[RmqPrefetch] = field(default_factory=set)
