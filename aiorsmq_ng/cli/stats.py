"""Statistics of many queues, fetched concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import aiorsmq_ng

#: Number of concurrent requests.
_AT_ONCE = 64


async def all_stats(
    rsmq: aiorsmq_ng.RSMQ,
    names: Sequence[str] | None = None,
    damaged: Callable[[str], None] = lambda _: None,
) -> dict[str, aiorsmq_ng.QueueStats]:
    """Return the stats of *names*, by default of all queues; deleted queues are left out.

    A queue that was named must exist. The callback *damaged* is given the names of damaged queues.
    """
    wanted = await rsmq.list_queues() if names is None else names
    limit = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> aiorsmq_ng.QueueStats | None:
        async with limit:
            try:
                return await rsmq.queue(name).stats()
            except (
                aiorsmq_ng.QueueNotFound,
                aiorsmq_ng.QueueCorrupt,
                aiorsmq_ng.InvalidValue,
            ) as error:
                if names is not None:
                    raise
                if not isinstance(error, aiorsmq_ng.QueueNotFound):
                    damaged(name)
                return None  # deleted since, or damaged: report the others

    looks = await asyncio.gather(*map(look, wanted))
    return {name: stats for name, stats in zip(wanted, looks, strict=True) if stats is not None}
