"""The reference of the lone sender: the same script called by redis-py, with nothing around it.

The second argument ``empty`` calls a script that does nothing instead.
"""

from __future__ import annotations

import sys

from redis.asyncio import Redis
from script_calls import CREATE, SCRIPTS, Calls, send
from talk import Job, Peer, serve

from aiorsmq_ng._protocol.scripts import load


class Evalsha(Peer):
    """One bare ``EVALSHA`` per message."""

    packages = ("redis", "hiredis")

    def __init__(self, *, empty: bool) -> None:
        self.empty = empty

    async def open(self, url: str) -> None:
        """Connect by a pool, and give the scripts to the server."""
        self.redis = Redis.from_url(url)
        self.calls = Calls("bare")
        for name in SCRIPTS:
            await self.redis.script_load(load(name).source)

    async def prepare(self, job: Job) -> None:
        """Make the queue, and all that the calls say."""
        _, sha, *words = self.calls.words(CREATE)
        await self.redis.evalsha(sha, *words)
        sha = await self.redis.script_load("return 1")
        sends = [self.calls.words(send([job.body.encode()])) for _ in range(job.messages)]
        self.words = iter([(sha, 0) if self.empty else words[1:] for words in sends])

    async def send(self, body: str) -> None:
        """Call the script."""
        await self.redis.evalsha(*next(self.words))


serve(Evalsha(empty="empty" in sys.argv))
