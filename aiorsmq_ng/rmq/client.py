"""The client of rmq: opens the way to Redis and hands out queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import anyio

from .._common.durations import Seconds, at_least_0, in_seconds
from .._common.tasks import retrieve_exception
from .._protocol.operations.rmq import registry
from .._protocol.rmq_keys import RmqLayout, check_name
from .._runtime.wait_for_server import retry_through_outages
from .._transport.connect import CallerClient, adopt, connect, is_cluster, make_transport
from .._transport.driver import Driver
from .._transport.urls import read as read_url
from .._transport.urls import url_or_default
from ..codec import JSON, Codec
from ..errors import InvalidValue, RSMQError
from ..models import ServerStatus
from ..options import Options
from .cleaner import clean, clean_forever
from .connection import Connections
from .queue import RmqQueue
from .rmq_context import RmqContext
from .stats import RmqStats, collect

logger = logging.getLogger("aiorsmq_ng.rmq")

#: How long closing may take to give back what was taken; a cleaner does the rest.
_RETIRE_S = 5.0


class Rmq:
    """A client of the queues of adjust/rmq v5 in one database.

    Use it with ``async with``, or call ``open`` and ``aclose``. A client that only publishes leaves
    no trace but the messages. One that consumes is a connection of rmq: a name in
    ``rmq::connections`` with a heartbeat, which other programs see in their statistics and clean up
    after a crash. A graceful end leaves nothing to clean up.

    Args:
        url: as for ``RSMQ``: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``,
            ``redis+cluster://``, ``embedded://`` or ``memory://``.
        tag: begins the names of the connection and its consumers.
        client: a ``redis.asyncio.Redis`` or ``RedisCluster`` of your own, instead of a URL; it
            stays open.
        cluster: use the keys of rmq's OpenClusterConnection; by default for a cluster. Both
            layouts in one database are different queues.
        codec: how bodies that are neither ``str`` nor bytes are encoded; JSON by default.
        options: limits and pacing of the client.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tag: str = "aiorsmq-ng",
        client: CallerClient | None = None,
        cluster: bool | None = None,
        codec: Codec | None = None,
        options: Options | None = None,
    ) -> None:
        if url is not None and client is not None:
            raise InvalidValue("give either a url or a client, not both")
        self._options = options or Options()
        self._client = client
        self._address = read_url(url_or_default(url), self._options) if client is None else None
        if self._address is not None and self._address.kind == "broker":
            raise InvalidValue("a broker serves no queues of rmq; give the URL of the server")
        on_cluster = is_cluster(client, self._address)
        if on_cluster and cluster is False:
            raise InvalidValue(
                "a cluster needs rmq's layout for clusters, and not that for a single server"
            )
        self._layout = RmqLayout(on_cluster if cluster is None else cluster)
        check_name("tag", tag, self._layout)
        self._transport = make_transport(self._connect, self._options, self._address)
        self._connections = Connections(self._transport, self._layout, tag)
        self._context = RmqContext(
            self._transport, self._connections, codec or JSON, self._options, tag
        )
        self._closing: asyncio.Task[None] | None = None

    @property
    def connection(self) -> str | None:
        """Name of its connection in ``rmq::connections``; ``None`` if it has not consumed yet."""
        return self._connections.name

    @property
    def codec(self) -> Codec:
        """What turns values into bodies and back."""
        return self._context.codec

    @property
    def server_status(self) -> ServerStatus:
        """When the server last replied to this client, and whether it is away; no I/O."""
        return self._transport.server_status

    async def open(self, *, wait_for_server: Seconds | None = 0) -> Self:
        """Connect, and make sure that the server answers; ``Unavailable`` if it does not.

        Args:
            wait_for_server: seconds to wait for a server that is away; ``None`` for ever, 0 for one
                attempt.
        """
        try_s = self._options.connect_timeout
        within_s = None
        if wait_for_server is not None:
            within_s = at_least_0("wait_for_server", wait_for_server) or try_s
        await retry_through_outages(lambda: self._transport.ping(try_s, limit_s=within_s), within_s)
        return self

    async def aclose(self) -> None:
        """Give back what was taken and not settled, remove the connection's names, disconnect.

        Payloads go back to the front of their queues, in order; a block that is not left yet cannot
        settle its delivery any more. It goes on if the caller is cancelled meanwhile.
        """
        if self._transport.is_gone:
            return
        self._transport.check()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="aiorsmq-ng rmq close")
        await asyncio.shield(self._closing)

    @property
    def is_open(self) -> bool:
        """True if it was opened, or has made its first call."""
        return self._transport.is_started

    def add_close_hook(self, hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await *hook* first when the client is closed, while calls can still be made.

        Args:
            hook: a function without arguments that returns a coroutine.
        """
        self._transport.leavers.add(hook)

    def remove_close_hook(self, hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do not await *hook* any more.

        Args:
            hook: a function without arguments that returns a coroutine.
        """
        self._transport.leavers.discard(hook)

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.aclose()
            raise

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    def queue(self, name: str, *, push: str | RmqQueue | None = None) -> RmqQueue:
        """Return a handle on a queue; ``await`` it to list the queue, as Go's OpenQueue does.

        Args:
            name: name of the queue, any text.
            push: queue that ``RmqDelivery.push`` moves to, and deliveries whose handling raises;
                without one they are rejected.
        """
        keys = self._layout.queue(check_name("name of a queue", name, self._layout))
        if push is None:
            return RmqQueue(self, self._context, keys)
        target = push if isinstance(push, str) else push.name
        if target == name:
            raise InvalidValue(f"queue {name!r} cannot be its own push queue; use release()")
        check_name("name of a push queue", target, self._layout)
        return RmqQueue(self, self._context, keys, self._layout.queue(target))

    async def list_queues(self) -> list[str]:
        """Return the names of all queues that any program has opened, sorted."""
        return await self._transport.run(registry.members(self._layout.queues))

    async def stats(self, names: Sequence[str] | None = None) -> RmqStats:
        """Describe queues and the connections that consume them, as Go's CollectStats.

        A queue with a key that is not of rmq's layout is left out and named in
        ``RmqStats.damaged``; so is a connection. The others are described.

        Args:
            names: queues to look at; all that are listed by default.
        """
        return await collect(self._transport, self._layout, None if names is None else list(names))

    async def clean(self) -> int:
        """Give back what dead connections held, of any program; return how many messages.

        They go behind all that waits, as Go's cleaner puts them. Any number of cleaners may run at
        the same time, in any language: none loses or doubles what another one moves.
        A damaged key of a dead connection is logged and left alone; the rest is cleaned.
        """
        return await clean(self._transport, self._layout)

    @asynccontextmanager
    async def cleaner(self, *, every: Seconds = 60) -> AsyncGenerator[None, None]:
        """Clean at once, and then now and then, while the block runs, through outages.

        An error that does not pass, such as ``AccessDenied``, cancels the block and is raised.

        Args:
            every: seconds between two runs.
        """
        every_s = in_seconds("every", every)
        if not every_s > 0:
            raise InvalidValue(f"every must be more than 0 seconds, not {every!r}")
        cleaning = asyncio.create_task(
            clean_forever(self._transport, self._layout, every_s), name="aiorsmq-ng rmq cleaner"
        )
        cleaning.add_done_callback(retrieve_exception)
        try:
            with anyio.CancelScope() as block:
                # An error that no later run mends ends the block.
                cleaning.add_done_callback(
                    lambda task: None if task.cancelled() else block.cancel()
                )
                yield
        finally:
            cleaning.cancel()
            await asyncio.wait([cleaning])
        if not cleaning.cancelled():
            cleaning.result()

    def __repr__(self) -> str:
        """Show where it leads without the URL, which may hold a password."""
        scheme = self._address.scheme if self._address else "client"
        return f"<Rmq by {scheme}, {self._transport!r}>"

    async def _connect(self) -> Driver:
        if self._client is not None:
            return adopt(self._client)
        assert self._address is not None  # noqa: S101 - without a client there is a URL
        return await connect(self._address, self._options)

    async def _close(self) -> None:
        with anyio.move_on_after(_RETIRE_S) as limit:
            try:
                # Workers first: they give back what they have while all goes on.
                async with anyio.create_task_group() as tasks:
                    for leave in list(self._transport.leavers):
                        tasks.start_soon(leave)
                for prefetch in list(self._context.prefetches):
                    prefetch.client_closes()
                for prefetch in list(self._context.prefetches):
                    await prefetch.aclose(_RETIRE_S)
                await self._connections.retire()
            except RSMQError as error:
                logger.warning("what was taken is left to a cleaner: %s", error)
        if limit.cancelled_caught:
            logger.warning("closing took too long: what was taken is left to a cleaner")
        await self._transport.aclose()
