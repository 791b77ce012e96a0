"""Clients for tests, which delete their queues and topics when they are closed."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio

from .._protocol.keys import QueueKeys
from .._protocol.operations import queues
from .._runtime.queue_context import context_of
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.script_calls import RedisDriver, WrongLayout
from ..client import RSMQ
from ..codec import Codec
from ..options import Options


def unique_namespace(url: str = "memory://") -> str:
    """Return a random namespace that no other client or process uses.

    Args:
        url: URL of the server: a cluster needs a namespace in braces.
    """
    name = f"test-{uuid.uuid4().hex[:16]}"
    # A cluster keeps the keys of a namespace together only if its name is in braces.
    return f"{{{name}}}" if url.startswith("redis+cluster://") else name


@asynccontextmanager
async def temporary_client(
    url: str = "memory://",
    *,
    ns: str | None = None,
    realtime: bool = False,
    codec: Codec | None = None,
    options: Options | None = None,
) -> AsyncIterator[RSMQ]:
    """Open a client in a namespace of its own; at the end close it and delete the namespace.

    At the end *all* topics and queues of the namespace are deleted. So give *ns* only for a
    namespace that no other program uses. The block may close the client itself.

    Args:
        url: where the server is; see the reference of URLs.
        ns: namespace: the prefix of every key.
        realtime: publish sends on RSMQ's own channel ``ns:rt:queue``.
        codec: how bodies that are neither ``str`` nor bytes are encoded; JSON by default.
        options: limits and pacing of the client.
    """
    own = ns or unique_namespace(url)
    async with RSMQ(url, ns=own, realtime=realtime, codec=codec, options=options) as rsmq:
        try:
            yield rsmq
        finally:
            with anyio.CancelScope(shield=True):
                # Opened before the other client is closed: a server that runs as long as it has
                # clients (memory://, embedded://) need not start again.
                async with RSMQ(url, ns=own, options=options) as broom:
                    await rsmq.aclose()
                    await _sweep(broom)


async def _sweep(rsmq: RSMQ) -> None:
    """Delete every topic and queue of the namespace, and if possible keys that wait for a TTL."""
    for name in await rsmq.list_topics():
        await rsmq.topic(name).delete()
    # A handle costs nothing and needs no queue.
    context = context_of(rsmq.queue("any"))
    driver = await context.transport.driver()
    for name in await rsmq.list_queues():
        # Names are not validated here: other clients allow more.
        keys = context.keys.namespace.queue(name)
        with suppress(NotExecuted, ReplyLost, WrongLayout):
            if isinstance(driver, RedisDriver):
                await _remove_reasons(driver, keys)
        await context.transport.run(queues.delete(keys))


async def _remove_reasons(driver: RedisDriver, keys: QueueKeys) -> None:
    ids = await driver.command("ZRANGE", keys.zset, 0, -1, key=keys.zset)
    if reasons := [keys.reason(id.decode(errors="replace")) for id in ids]:
        await driver.command("UNLINK", *reasons, key=reasons[0])
