"""TEMPORARY: gives the broker's driver the script call that a call would be on Redis.

To be removed when ``send``, ``receive``, ``settle``, ``admin`` and ``topics`` read typed requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .._common import entropy
from .._protocol.operation import Argument, Reply
from .._protocol.redis import decode, encode
from .._transport.calls import Call


@dataclass(slots=True)
class Command:
    """A script call as Redis would be given it."""

    words: tuple[Argument, ...]
    written: bool = False
    #: The question about durability, and what a server would have answered.
    then: tuple[Argument, ...] | None = None
    confirmation: Reply = None


async def run_as_script(
    call: Call, execute: Callable[[str, Command], Awaitable[Reply]]
) -> list[Any]:
    """Encode *call*, have the name of its script and its words executed, decode the reply."""
    encoded = call.encoded
    if encoded is None:
        encoded = call.encoded = encode(call.operations, call.record, entropy.take)
    number = call.number.number if call.number else None
    words = encoded.words(number, 0 if call.recall else call.attempt)
    command = Command(("EVALSHA", encoded.script.sha, *words))
    if call.durability is not None:
        command.then = call.durability.question(call.confirm_ms)
    try:
        reply = await execute(encoded.script.name, command)
    finally:
        call.written = command.written
    if call.durability is not None:
        call.reached = call.durability.reached(command.confirmation)
    if isinstance(reply, Exception):
        return [reply] * len(call.operations)
    if not call.kind.merge:
        return decode(call.operations, reply, repeated=call.in_doubt)
    results: list[Any] = []
    for operation, part in zip(call.operations, reply, strict=True):
        if isinstance(part, Exception):
            results.append(part)
        else:
            results += decode([operation], [part], repeated=call.in_doubt)
    return results
