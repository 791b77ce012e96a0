"""Waiting for a server: a call is retried while the server is unavailable."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from .._common.backoff import Backoff
from ..errors import Unavailable

R = TypeVar("R")

logger = logging.getLogger("aiorsmq_ng.outages")

_BASE_S, _CAP_S = 0.1, 5.0
#: Another attempt in less time would fail by its timeout, and hide why the others failed.
_LEAST_S = 0.1


async def retry_through_outages(
    call: Callable[[], Awaitable[R]], within_s: float | None = None
) -> R:
    """Return the result of *call*; call it again while the server is unavailable.

    After *within_s* seconds the error is raised; with ``None``, never. An error that is not
    transient is raised at once. The transport logs outages (``_transport/server_monitor.py``).
    """
    backoff = Backoff(_BASE_S, _CAP_S)
    ends_at = None if within_s is None else anyio.current_time() + within_s
    while True:
        try:
            return await call()
        except Unavailable as error:
            if not error.transient:
                raise
            pause_s = backoff.next_s()
            if ends_at is not None:
                left_s = ends_at - anyio.current_time()
                if left_s <= _LEAST_S:
                    raise
                pause_s = min(pause_s, left_s / 2)  # the last attempt needs time, too
            logger.debug("trying again in %.1f s: %s", pause_s, error)
        await anyio.sleep(pause_s)
