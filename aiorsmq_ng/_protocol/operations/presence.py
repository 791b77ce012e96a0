"""Presence: a client announces how many consumers it has on a queue, and what they hold."""

from __future__ import annotations

from ..keys import QueueKeys
from ..operation import Kind, Operation, QueueRequest

#: Limits of an announcement: characters of the name, number of ids, characters of each id.
_NAME_LENGTH, _MOST_IDS, _ID_LENGTH = 250, 100, 64
#: A consuming client announces itself every 10 s; after three missed announcements it is gone.
ANNOUNCE_S = 10.0


class AnnounceRequest(QueueRequest, frozen=True):
    """Announce a client that consumes from this queue, and what it holds; 0 consumers end it."""

    name: str
    consumers: int
    holding: tuple[str, ...]


ANNOUNCE: Kind[None] = Kind(name="announce", repeatable=True)


def announce(keys: QueueKeys, name: str, consumers: int, holding: list[str]) -> Operation[None]:
    """Announce a client that consumes from this queue, and what it holds; 0 consumers end it.

    At most 100 ids and 250 characters of the name are stored.
    """
    held = tuple(id for id in holding[:_MOST_IDS] if len(id) <= _ID_LENGTH)
    return Operation(ANNOUNCE, AnnounceRequest(keys, name[:_NAME_LENGTH], consumers, held))
