"""Operations on leased messages that another client holds: take them over, delete them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest, Request
from .message_values import Received
from .messages import ReceiveSpec, give_back


class Recovered(NamedTuple):
    """One page of messages taken over, and the position of the next page."""

    received: Received
    #: Where the next page starts; ``None``: this was the last.
    next_at: int | None
    #: When the first page ran, epoch ms by the server's clock.
    started_ms: int


class RecoverRequest(Request, frozen=True):
    """Lease up to *count* messages again whose last delivery is at least *idle_ms* ago."""

    spec: ReceiveSpec
    count: int
    idle_ms: int
    #: -1 for the queue's stored lease.
    vt_ms: int
    #: The page before, if there was one.
    after: Recovered | None
    holder: str

    @property
    def keys(self) -> QueueKeys:
        """The queue."""
        return self.spec.keys

    @property
    def weight(self) -> int:
        """The most messages it may take."""
        return self.count


RECOVER: Kind[Recovered] = Kind(
    name="recover",
    numbered=True,
    undo=lambda page: give_back(page.received),
    events=lambda page: page.received.dead_lettered,
    with_start_time=lambda page, asked_at: page._replace(received=page.received.at(asked_at)),
)


def recover(
    spec: ReceiveSpec, count: int, *, idle_ms: int, vt_ms: int, after: Recovered | None = None
) -> Operation[Recovered]:
    """Lease up to *count* messages again whose last delivery is at least *idle_ms* ago.

    Looks at up to 4096 hidden messages: the first ones, or those that follow the page *after*.
    Undone by making the messages visible again.
    """
    return Operation(RECOVER, RecoverRequest(spec, count, idle_ms, vt_ms, after, spec.holder()))


class DeleteLeasedRequest(QueueRequest, frozen=True):
    """Delete messages by id, whichever client holds them. The result is those under lease.

    After an attempt whose reply was lost, a message that is gone counts as deleted by it.
    """

    ids: Sequence[str]

    @property
    def weight(self) -> int:
        """One per id."""
        return len(self.ids)


DELETE_LEASED: Kind[list[str]] = Kind(name="delete_leased", repeatable=True)


def delete_leased(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Delete messages by id, whichever client holds them; the result is those under lease."""
    return Operation(DELETE_LEASED, DeleteLeasedRequest(keys, ids))
