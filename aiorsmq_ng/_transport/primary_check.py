"""Check that a server is still the primary: by replicas (WAIT), or by asking the sentinels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from .._common.tasks import retrieve_exception
from .._protocol.operation import Reply
from .redis_calls import Command

#: How long replicas may take to tell that they know of a receive, before others are asked.
CONFIRM_MS = 100
#: How long the other sentinels are waited for when one has answered.
STRAGGLERS_S = 0.5


async def is_confirmed(
    ask: Callable[[tuple[str | int, ...]], Awaitable[Reply]], command: Command, reply: Reply
) -> bool:
    """Return True if enough replicas know what *command* did, or if that does not matter.

    *ask* makes a command on the connection that it ran on.
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


async def masters_named(pool: Any) -> set[tuple[Any, Any]]:
    """Return every address that a sentinel names as that of the master.

    *pool* is a pool of redis-py that finds its master by sentinels. A server that was promoted is
    known to some of them before others; none is named while all take the master for dead.
    """
    named = set()
    for masters in await _answers(pool.sentinel_manager.sentinels):
        state = masters.get(pool.service_name)
        if state and pool.sentinel_manager.check_master_state(state, pool.service_name):
            forced = getattr(pool.sentinel_manager, "_force_master_ip", None)
            named.add((forced or state["ip"], state["port"]))
    return named


async def _answers(sentinels: list[Any]) -> list[Any]:
    """Return what the sentinels know; of those that answer, and soon after the first."""
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
