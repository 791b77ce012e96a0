"""``send`` and ``publish``: what callers store together goes into as few calls as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .._common.durability import FSYNCED
from .._protocol.operation import Argument, Reply
from .._protocol.redis.send import DUPLICATE, STORED
from ..errors import DurabilityUnmet, MessageTooLong, RSMQError
from ..rpc import v1_pb2 as pb
from .errors import Answered
from .script_call import ScriptCall, together


class Part(NamedTuple):
    """What one caller stores."""

    delay_ms: int
    #: Digest of its dedup key; empty without one.
    dedup: str
    bodies: list[bytes]


async def send(call: ScriptCall) -> Reply:
    """Store messages in a queue."""
    call.numbered()
    parts = _send_parts(call.args[1:], call.keys[2:])
    request = pb.SendRequest(queue=call.queue())
    return await _store(call, "Send", request, parts)


async def publish(call: ScriptCall) -> Reply:
    """Store messages in every subscription of a topic; which these are is for the broker to say."""
    call.numbered()
    topic, _, _, _, count = call.args[:5]
    parts = _publish_parts(call.args[5 + 2 * int(count) :], call.keys[6 + 2 * int(count) :])
    request = pb.PublishRequest(topic=str(topic))
    return await _store(call, "Publish", request, parts)


async def _store(call: ScriptCall, method: str, base: Any, parts: list[Part]) -> Reply:
    groups = _groups(parts)
    found = await together(
        *(
            _store_group(call, method, base, [parts[place] for place in group], f"-{group[0]}")
            for group in groups
        )
    )
    replies: list[Reply] = [None] * len(parts)
    for group, answer in zip(groups, found, strict=True):
        shares = [answer] * len(group) if isinstance(answer, RSMQError) else answer
        for place, share in zip(group, shares, strict=True):
            replies[place] = share
    return replies


async def _store_group(
    call: ScriptCall, method: str, base: Any, parts: list[Part], name: str
) -> list[Reply]:
    """Store what may share a call; if one is refused, each alone: it must not hurt the others."""
    try:
        return await _store_once(call, method, base, parts, name)
    except Answered as answered:
        if len(parts) == 1 or not isinstance(answered.error, MessageTooLong):
            raise
    alone = await together(
        *(
            _store_once(call, method, base, [part], f"{name}-{place}")
            for place, part in enumerate(parts)
        )
    )
    return [share if isinstance(share, RSMQError) else share[0] for share in alone]


async def _store_once(
    call: ScriptCall, method: str, base: Any, parts: list[Part], name: str
) -> list[Reply]:
    request = type(base)()
    request.CopyFrom(base)
    request.bodies.extend(body for part in parts for body in part.bodies)
    if parts[0].dedup:
        request.dedup_key = f"digest:{parts[0].dedup}"
    if parts[0].delay_ms >= 0:
        request.delay_ms = parts[0].delay_ms
    # No second copy is stored under a dedup key, whoever is asked.
    request.request.CopyFrom(call.request_id(name, anywhere=bool(parts[0].dedup)))
    try:
        response = await call.ask(method, request)
    except Answered as answered:
        if not isinstance(answered.error, DurabilityUnmet) or not answered.error.ids:
            raise
        # They are stored; the transport compares what was reached with what this client wants.
        return _confirmed(call, parts, answered.error, answered.error.reached)
    return _confirmed(call, parts, response, response.durability)


def _confirmed(call: ScriptCall, parts: list[Part], found: Any, durability: str) -> list[Reply]:
    if call.command.then is not None:
        call.command.confirmation = _confirmation(call.command.then, durability)
    if parts[0].dedup:
        # It is alone. After a repetition at another broker the message that was there may be its
        # own or another's.
        duplicate = getattr(found, "duplicate", False) and not call.elsewhere
        return [[found.ids[0].encode(), DUPLICATE if duplicate else STORED]]
    rest = iter(found.ids)
    return [[next(rest).encode() for _ in part.bodies] for part in parts]


def _confirmation(question: Sequence[Argument], durability: str) -> Reply:
    """Return what a server that reached *durability* answers to ``WAIT`` or ``WAITAOF``."""
    if question[0] == "WAITAOF":
        return [int(durability == FSYNCED), 0]
    level, _, replicas = durability.partition(":")
    return int(replicas) if level == "replicated" else 0


def _groups(parts: list[Part]) -> list[list[int]]:
    """Return which parts share a call: those with the same delay and no dedup key."""
    groups: list[list[int]] = []
    open_for: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        group = None if part.dedup else open_for.get(part.delay_ms)
        if group is None:
            group = []
            groups.append(group)
            if not part.dedup:
                open_for[part.delay_ms] = group
        group.append(place)
    return groups


def _send_parts(args: Sequence[Argument], markers: Sequence[str]) -> list[Part]:
    """Return the parts of a send: a text of numbers, the suffixes in one, the bodies."""
    parts, at, digests = [], 0, iter(markers)
    while at < len(args):
        numbers = str(args[at]).split()
        bodies = args[at + 2 : at + 2 + int(numbers[2])]
        parts.append(_part(numbers, bodies, digests))
        at += 2 + len(bodies)
    return parts


def _publish_parts(args: Sequence[Argument], markers: Sequence[str]) -> list[Part]:
    """Return the parts of a publish: three numbers, then a suffix before each body."""
    parts, at, digests = [], 0, iter(markers)
    while at < len(args):
        numbers = args[at : at + 3]
        bodies = args[at + 4 : at + 3 + 2 * int(numbers[2]) : 2]
        parts.append(_part(numbers, bodies, digests))
        at += 3 + 2 * len(bodies)
    return parts


def _part(numbers: Sequence[Argument], bodies: Sequence[Argument], digests: Iterator[str]) -> Part:
    delay_ms, window_ms, _ = map(int, numbers)
    digest = next(digests).rpartition(":")[2] if window_ms else ""
    return Part(delay_ms, digest, [_bytes(body) for body in bodies])


def _bytes(body: Argument) -> bytes:
    return body if isinstance(body, bytes) else str(body).encode()
