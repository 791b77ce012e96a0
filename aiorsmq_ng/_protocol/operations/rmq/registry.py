"""Operations on what rmq knows of connections and queues: heartbeats and sets of names."""

from __future__ import annotations

from ...operation import Kind, Operation, Request
from ...rmq_keys import SetKey

#: How long a heartbeat keeps a connection alive, in seconds. Go's programs rely on this value.
HEARTBEAT_TTL_S = 60


class NamesRequest(Request, frozen=True):
    """A request about one set of names, or one heartbeat."""

    keys: SetKey  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleMethodOverride]


class MemberRequest(NamesRequest, frozen=True):
    """Add *name*, or remove it. The result is 1 if that changed the set.

    With a *heartbeat* that is there, nothing is changed, and the result is -1.
    """

    name: str
    add: bool
    heartbeat: str = ""


RMQ_MEMBER: Kind[int] = Kind(name="rmq_member", repeatable=True)


def add(names: SetKey, name: str) -> Operation[int]:
    """Add *name* to the set."""
    return Operation(RMQ_MEMBER, MemberRequest(names, name, True))


def remove(names: SetKey, name: str, *, unless: str = "") -> Operation[int]:
    """Remove *name* from the set; nothing is changed if the heartbeat *unless* is there."""
    return Operation(RMQ_MEMBER, MemberRequest(names, name, False, unless))


class MembersRequest(NamesRequest, frozen=True):
    """Read all names."""


RMQ_MEMBERS: Kind[list[str]] = Kind(name="rmq_members", repeatable=True)


def members(names: SetKey) -> Operation[list[str]]:
    """Read all names, sorted."""
    return Operation(RMQ_MEMBERS, MembersRequest(names))


class BeatRequest(NamesRequest, frozen=True):
    """Renew a heartbeat. The result is False if it had expired: it is not revived."""

    first: bool


RMQ_BEAT: Kind[bool] = Kind(name="rmq_beat", repeatable=True)


def beat(heartbeat: str, *, first: bool = False) -> Operation[bool]:
    """Renew a heartbeat, or make the *first* one."""
    return Operation(RMQ_BEAT, BeatRequest(SetKey(heartbeat), first))


class AliveRequest(NamesRequest, frozen=True):
    """Ask whether a heartbeat is there."""


RMQ_ALIVE: Kind[bool] = Kind(name="rmq_alive", repeatable=True)


def alive(heartbeat: str) -> Operation[bool]:
    """Ask whether the connection of *heartbeat* is alive."""
    return Operation(RMQ_ALIVE, AliveRequest(SetKey(heartbeat)))
