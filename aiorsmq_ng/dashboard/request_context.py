"""One request of a caller to the dashboard, and what all requests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec
from starlette.requests import Request

from aiorsmq_ng import RSMQ, InvalidValue, Queue

from ..broker.tokens import Caller
from .access import Door
from .audit import AuditLog
from .error_to_status import NotThere
from .links import name_of
from .live_sampler import LiveSampler
from .redaction import Redact, redacted

T = TypeVar("T")

_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Board:
    """What all requests share."""

    rsmq: RSMQ
    sampler: LiveSampler
    audit: AuditLog
    door: Door
    redact: Redact | None
    read_only: bool
    #: Name of the environment, such as ``production``; empty for none.
    environment: str

    def shown(self, queue: str, body: bytes) -> bytes:
        """Return what may be shown of a body."""
        return redacted(self.redact, queue, body)


class Visit:
    """A request, its caller, and the board."""

    def __init__(self, board: Board, request: Request) -> None:
        self.board = board
        self.request = request
        self.caller: Caller = request.state.caller

    def may(self, *roles: str) -> bool:
        """Return True if the caller has one of *roles*, and this is no read-only dashboard."""
        return not self.board.read_only and self.caller.has(*roles)

    def name(self) -> str:
        """Return the queue that the path names, if the caller may see it."""
        return self.seen(name_of(self.request.path_params["queue"]))

    def seen(self, name: str) -> str:
        """Return *name*, if the caller may see the queue."""
        if not self.caller.sees_queue(name):
            raise NotThere(f"queue {name!r} does not exist")
        return name

    def queue(self, name: str | None = None) -> Queue:
        """Return the queue that the path names, or *name*, if the caller may see it."""
        return self.board.rsmq.queue(self.name() if name is None else self.seen(name))

    def id(self) -> str:
        """Return the message id that the path names."""
        return str(self.request.path_params["id"])

    def text(self, name: str) -> str:
        """Return a parameter of the query; empty if it is not given."""
        return self.request.query_params.get(name, "")

    async def decoded(self, type: type[T]) -> T:
        """Return the body of the request as *type*; ``InvalidValue`` if it does not fit."""
        body = b""
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise InvalidValue(f"a request may have up to {_MOST_BYTES} bytes")
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.DecodeError as error:
            raise InvalidValue(f"the request does not fit: {error}") from None
