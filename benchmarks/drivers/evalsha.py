"""The reference of the lone sender: the same script called by redis-py, with nothing around it.

The second argument ``empty`` calls a script that does nothing instead.
"""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

from redis.asyncio import Redis
from talk import Job, Peer, serve

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operation import Argument, Operation
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.redis_codecs import encode
from aiorsmq_ng._protocol.scripts import load

KEYS = Namespace("bench").queue("jobs")


class Evalsha(Peer):
    """One bare ``EVALSHA`` per message."""

    packages = ("redis", "hiredis")

    def __init__(self, *, empty: bool) -> None:
        self.empty = empty
        self.numbers = itertools.count(1)

    async def open(self, url: str) -> None:
        """Connect by a pool."""
        self.redis = Redis.from_url(url)

    async def prepare(self, job: Job) -> None:
        """Make the queue, and all that the calls say."""
        create = queues.create(KEYS, vt=30, delay=0, maxsize=-1)
        await self.redis.eval(load("create_queue").source, *self._words(create))
        sends = [_send(job.body.encode()) for _ in range(job.messages)]
        self.sha = await self.redis.script_load("return 1" if self.empty else load("send").source)
        self.words = iter([[0] if self.empty else self._words(send) for send in sends])

    async def send(self, body: str) -> None:
        """Call the script."""
        await self.redis.evalsha(self.sha, *next(self.words))

    def _words(self, operation: Operation[Any]) -> list[Argument]:
        record = KEYS.call_record("bare")
        return encode([operation], record, os.urandom).words(next(self.numbers))


def _send(body: bytes) -> Operation[list[str]]:
    return messages.send(KEYS, [body], delay_ms=-1, channel=KEYS.wake)


serve(Evalsha(empty="empty" in sys.argv))
