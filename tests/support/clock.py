"""Make time pass for stored messages, instead of waiting for it."""

from __future__ import annotations

import os

from redis.asyncio import Redis

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations.shift_time import shift
from aiorsmq_ng._protocol.redis_codecs import encode


async def pass_time(raw: Redis, zset: str, seconds: float) -> None:
    """Let *seconds* pass for all messages of a queue, leased ones that are renewed included.

    By the script of ``TimeMachine``, on a connection of the test: no client takes part.
    """
    namespace, _, queue = zset.rpartition(":")
    operation = shift(Namespace(namespace).queue(queue), by_ms=round(seconds * 1000))
    call = encode([operation], None, os.urandom)
    refused = await raw.eval(call.script.source, len(call.keys), *call.keys, *call.args)
    assert isinstance(refused, int), refused


async def server_ms(raw: Redis) -> int:
    """Return the server's time in milliseconds."""
    seconds, micros = await raw.time()
    return seconds * 1000 + micros // 1000
