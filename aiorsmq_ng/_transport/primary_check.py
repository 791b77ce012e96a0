"""Check that a server is still the primary: by replicas (WAIT), or by asking the sentinels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .._common.tasks import retrieve_exception
from .._protocol.operation import Reply
from .script_calls import Command

#: How long to wait for replicas to acknowledge a receive, in milliseconds; then others are asked.
CONFIRM_MS = 100
#: How long to wait for the other sentinels after the first has answered.
STRAGGLERS_S = 0.5


async def is_confirmed(
    ask: Callable[[tuple[str | int, ...]], Awaitable[Reply]], command: Command, reply: Reply
) -> bool:
    """Return True if enough replicas have the effect of *command*, or if that does not matter.

    *ask* runs a command on the same connection.
    """
    if command.follow_up is not None:
        answer = command.confirmation
    elif (
        command.needs_confirmation is None
        or isinstance(reply, bytes)
        or not command.needs_confirmation(reply)
    ):
        return True
    else:
        answer = await ask(("WAIT", command.min_replicas, CONFIRM_MS))
    return isinstance(answer, int) and answer >= command.min_replicas


async def primaries_named(pool: Any) -> set[tuple[Any, Any]]:
    """Return every address that a sentinel names as that of the primary.

    *pool* is a pool of redis-py that finds its primary by sentinels. Some sentinels know of a
    promotion before others. None is named while all consider the primary down.
    """
    named = set()
    for masters in await _answers(pool.sentinel_manager.sentinels):
        state = masters.get(pool.service_name)
        if state and pool.sentinel_manager.check_master_state(state, pool.service_name):
            forced = getattr(pool.sentinel_manager, "_force_master_ip", None)
            named.add((forced or state["ip"], state["port"]))
    return named


async def _answers(sentinels: list[Any]) -> list[Any]:
    """Return the answers of all sentinels that answer soon after the first one does."""
    asking = {asyncio.ensure_future(node.sentinel_masters()) for node in sentinels}
    pending = asking
    answers: list[Any] = []
    try:
        while pending:
            limit_s = STRAGGLERS_S if answers else None
            done, pending = await asyncio.wait(
                pending, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            answers += [task.result() for task in done if not task.exception()]
    finally:
        for task in pending:
            task.add_done_callback(retrieve_exception)
            task.cancel()
    return answers
