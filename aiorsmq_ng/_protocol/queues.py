"""Operations on queues as such: create, delete, list, describe, change, purge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import DecodeError, json

from ..errors import QueueCorrupt, QueueNotFound
from ..models import ConsumerInfo, QueueAttributes, QueueStats
from . import limits
from .keys import Namespace, QueueKeys
from .operation import Argument, Operation, Reply
from .scripts import load

#: What a client tells of itself at most: characters of its name, ids, and characters of each.
_NAME_LENGTH, _MOST_IDS, _ID_LENGTH = 250, 100, 64
#: A client that consumes is heard of every 10 s; three silences and it counts as gone.
ANNOUNCE_S = 10.0
ALIVE_MS = 35_000
CONSUMERS_TTL_S = 86_400


def create(
    keys: QueueKeys, *, vt: limits.Seconds, delay: limits.Seconds, maxsize: int
) -> Operation[bool]:
    """Create a queue, or complete a half-made one; the result tells whether it was not there."""
    return Operation(
        script=load("create_queue"),
        keys=(keys.namespace.index, keys.zset, keys.hash),
        args=(
            keys.queue,
            limits.whole_seconds("vt", vt),
            limits.whole_seconds("delay", delay),
            limits.check_maxsize(maxsize),
        ),
        parse=bool,
        fail=keys.failure,
        memory=keys.memory,
    )


def exists(keys: QueueKeys) -> Operation[bool]:
    """Return True if a queue exists."""
    return Operation(
        script=load("exists"),
        keys=(keys.hash,),
        args=(),
        parse=bool,
        fail=keys.failure,
        repeatable=True,
    )


def delete(keys: QueueKeys) -> Operation[None]:
    """Delete a queue and all that belongs to it.

    Waiters stay known until they look: if the queue is made again, they are called.
    """

    def parse(reply: Reply) -> None:
        if not reply:
            raise QueueNotFound(keys.queue, keys.namespace.name)

    return Operation(
        script=load("delete_queue"),
        keys=(keys.namespace.index, keys.zset, keys.hash, keys.deliveries, keys.consumers),
        args=(keys.queue,),
        parse=parse,
        fail=keys.failure,
        memory=keys.memory,
    )


#: The cursor of the first page, and of the one after the last.
FIRST_PAGE = b"0"
#: Names that are looked at in one call: some milliseconds of the server's time.
_NAMES_PAGE = 5000


class NamesPage(NamedTuple):
    """Some of the names, and where the next page begins."""

    cursor: bytes
    names: list[str]


def list_queues(namespace: Namespace, cursor: bytes) -> Operation[NamesPage]:
    """List the names of queues, from *cursor* on."""
    return list_names(namespace, namespace.index, cursor)


def list_names(namespace: Namespace, index: str, cursor: bytes) -> Operation[NamesPage]:
    """List what is in the set *index*, from *cursor* on."""

    def parse(reply: Reply) -> NamesPage:
        # Foreign names need not be text; they are shown, and refused when used.
        names = [name.decode(errors="backslashreplace") for name in reply[1:]]
        return NamesPage(reply[0], names)

    return Operation(
        script=load("list_queues"),
        keys=(index,),
        args=(cursor, _NAMES_PAGE),
        parse=parse,
        fail=namespace.queue("QUEUES").failure,
        repeatable=True,
    )


def attributes(keys: QueueKeys) -> Operation[QueueAttributes]:
    """Describe a queue."""
    return _describing("attributes", keys, ())


def set_attributes(
    keys: QueueKeys,
    *,
    vt: limits.Seconds | None,
    delay: limits.Seconds | None,
    maxsize: int | None,
) -> Operation[QueueAttributes]:
    """Change what is stored on a queue, then describe it."""
    args: tuple[Argument, ...] = (
        "" if vt is None else limits.whole_seconds("vt", vt),
        "" if delay is None else limits.whole_seconds("delay", delay),
        "" if maxsize is None else limits.check_maxsize(maxsize),
    )
    return _describing("set_attributes", keys, args, memory=keys.memory)


def stats(keys: QueueKeys, dead: QueueKeys) -> Operation[QueueStats]:
    """Describe a queue with its dead letters and its consumers."""

    def parse(reply: Reply) -> QueueStats:
        try:
            attributes = _attributes(reply[0])
        except (ValueError, OverflowError):
            raise keys.failure(QueueCorrupt.code) from None
        rows = iter(reply[2:])
        consumers = (_consumer(*row) for row in zip(rows, rows, rows, strict=True))
        return QueueStats(attributes, reply[1], tuple(sorted(consumers, key=lambda c: c.name)))

    return Operation(
        script=load("stats"),
        keys=(keys.zset, keys.hash, dead.zset, keys.consumers),
        args=(ALIVE_MS,),
        parse=parse,
        fail=keys.failure,
        repeatable=True,
    )


def announce(keys: QueueKeys, name: str, consumers: int, holding: list[str]) -> Operation[None]:
    """Say that a client consumes from this queue, and what it holds; with 0 consumers, no more.

    As much as people look at: 100 ids, and a name of 250 characters.
    """
    name = name[:_NAME_LENGTH]
    holding = [id for id in holding[:_MOST_IDS] if len(id) <= _ID_LENGTH]
    told = json.encode({"consumers": consumers, "holding": holding}) if consumers else b""
    return Operation(
        script=load("announce"),
        keys=(keys.consumers, keys.hash),
        args=(name, told, CONSUMERS_TTL_S),
        parse=lambda _: None,
        fail=keys.failure,
        repeatable=True,
    )


def purge(keys: QueueKeys, at: int) -> Operation[tuple[int, int, int]]:
    """Remove up to 1000 messages that nobody holds: (removed, next rank or -1, number before)."""
    return Operation(
        script=load("purge"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(at,),
        parse=lambda reply: (reply[0], reply[1], reply[2]),
        fail=keys.failure,
        memory=keys.memory,
    )


def purge_all(keys: QueueKeys) -> Operation[int]:
    """Remove every message, leased ones too; the result is their number."""
    return Operation(
        script=load("purge_all"),
        keys=(keys.zset, keys.hash, keys.deliveries),
        args=(),
        parse=int,
        fail=keys.failure,
        memory=keys.memory,
    )


def _describing(
    script: str,
    keys: QueueKeys,
    args: tuple[Argument, ...],
    memory: Callable[[str], str] | None = None,
) -> Operation[QueueAttributes]:
    def parse(reply: Reply) -> QueueAttributes:
        try:
            return _attributes(reply)
        except (ValueError, OverflowError):
            raise keys.failure(QueueCorrupt.code) from None

    return Operation(
        script=load(script),
        keys=(keys.zset, keys.hash),
        args=args,
        parse=parse,
        fail=keys.failure,
        repeatable=True,
        memory=memory,
    )


def _attributes(reply: Reply) -> QueueAttributes:
    vt, delay, maxsize, totalrecv, totalsent, created, modified = map(_number, reply[:7])
    msgs, hidden, leased, exact, head_age_ms = reply[7:]
    return QueueAttributes(
        vt=vt,
        delay=delay,
        maxsize=int(maxsize),
        totalrecv=int(totalrecv),
        totalsent=int(totalsent),
        created=int(created),
        modified=int(modified),
        msgs=msgs,
        hiddenmsgs=hidden,
        ready=msgs - hidden,
        delayed=hidden - leased,
        leased=leased,
        exact=bool(exact),
        oldest_age=None if head_age_ms < 0 else head_age_ms / 1000,
    )


def _consumer(name: bytes, silent_ms: int, told: bytes) -> ConsumerInfo:
    try:
        known = json.decode(told, type=dict[str, Any])
        consumers, holding = int(known["consumers"]), [str(id) for id in known["holding"]]
    except (DecodeError, KeyError, TypeError, ValueError):
        consumers, holding = 0, []
    return ConsumerInfo(name.decode(errors="replace"), consumers, tuple(holding), silent_ms / 1000)


def _number(stored: bytes) -> int | float:
    """Read a stored number: absent ones count as 0, whole ones come back as ``int``."""
    value = float(stored or 0)
    if not math.isfinite(value):
        raise ValueError(stored)
    return int(value) if value.is_integer() else value
