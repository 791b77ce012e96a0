"""The client: opens the way to Redis and hands out queues."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import WeakValueDictionary

import anyio

from ._common.durations import Seconds, at_least_0
from ._common.queue_defaults import DEFAULT_MAXSIZE, dead_letter_queue
from ._common.tasks import TaskGroup
from ._protocol import argument_checks
from ._protocol.keys import Namespace, QueueKeys
from ._protocol.operation import Operation
from ._protocol.operations import messages, queues, topics
from ._protocol.operations.messages import ReceiveSpec
from ._protocol.operations.topics import TopicKeys
from ._protocol.shards import Shards, check_together
from ._protocol.topic_names import check_part, queue_name
from ._runtime.dead_letter_listeners import DeadLetterReports, DeadLetters
from ._runtime.lease_renewal import LeaseKeeper
from ._runtime.long_poll import LongPoll
from ._runtime.name_listing import list_names
from ._runtime.presence import Presence
from ._runtime.publish_plan import Plans
from ._runtime.queue_context import QueueContext, context_of
from ._runtime.recorder import Recorder
from ._runtime.wait_for_server import retry_through_outages
from ._transport.connect import CallerClient, adopt, connect, make_transport, with_token
from ._transport.driver import Driver
from ._transport.notifier import Notifier
from ._transport.urls import read as read_url
from ._transport.urls import url_or_default
from .codec import JSON, Codec
from .compat.rsmq import RSMQVerbs
from .delivery import Delivery, from_reply
from .doctor import Doctor, Orders, Progress, together
from .errors import AccessDenied, InvalidValue, QueueExists
from .gateway import Gateway
from .models import DoctorReport, ServerStatus
from .options import Options
from .queue import Queue
from .retry import Retry
from .telemetry.environment import outlets_of
from .telemetry.hooks import Telemetry
from .topic import Topic

logger = logging.getLogger("aiorsmq_ng.client")

#: How long closing waits for receives that are in flight.
_CLOSE_LONG_POLLS_S = 2.0
#: How long it waits for workers; longer than a handler that is cancelled may take.
_CLOSE_WORKERS_S = 5.0


class RSMQ(RSMQVerbs):
    """A client of the queues of one namespace, or of several that are used as one.

    Use it with ``async with``, or call ``open`` and ``aclose``. Nothing is connected before that;
    a client that was never opened connects with its first call. From then on it belongs to the
    event loop of that call: ``WrongContext`` in another loop, thread or forked process.
    ``realtime`` makes sends publish on RSMQ's own channel, for subscribers that are not of this
    library. *token* is for a broker (``grpc://``, ``grpcs://``); without one, that in
    ``RSMQ_TOKEN`` is taken.

    Args:
        url: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``,
            ``embedded://``, ``memory://``, ``grpc://``, ``grpcs://`` or ``grpc+unix://``; by
            default ``RSMQ_URL``, then ``REDIS_URL``, then ``redis://localhost:6379``.
        ns: namespace: the prefix of every key; or several that are used as one.
        client: a ``redis.asyncio.Redis`` or ``RedisCluster`` of your own, instead of a URL; it
            stays open.
        realtime: publish sends on RSMQ's own channel ``ns:rt:queue``, for subscribers that are not
            of this library.
        codec: how bodies that are neither ``str`` nor bytes are encoded; JSON by default.
        options: limits and pacing of the client.
        token: the token for a broker (``grpc://``, ``grpcs://``); by default that in
            ``RSMQ_TOKEN``.
        telemetry: outlets for metrics and traces, such as ``telemetry.PrometheusMetrics()``.
            Those that ``RSMQ_TELEMETRY`` names are added, unless this is an empty list.
    """

    def __init__(  # noqa: PLR0913 - one per setting
        self,
        url: str | None = None,
        *,
        ns: str | Sequence[str] = "rsmq",
        client: CallerClient | None = None,
        realtime: bool = False,
        codec: Codec | None = None,
        options: Options | None = None,
        token: str | None = None,
        telemetry: Sequence[Telemetry] | None = None,
    ) -> None:
        if url is not None and client is not None:
            raise InvalidValue("give either a url or a client, not both")
        self._options = options or Options()
        self._shards = Shards.of(ns, nested=self._options.nested_ns)
        self._client = client
        address = read_url(url_or_default(url), self._options) if client is None else None
        self._address = with_token(address, token, self._options)
        self._realtime = realtime
        self._codec: Codec = codec or JSON
        self._transport = make_transport(self._connect, self._options, self._address)
        self._recorder: Recorder | None = None
        if outlets := outlets_of(telemetry):
            self._recorder = Recorder(outlets, self._transport, self._shards.name)
            self._transport.observe(self._recorder)
        self._notifier = Notifier(self._transport)
        self._keeper = LeaseKeeper(self._transport)
        self._presence = Presence(self._transport, self._keeper)
        self._letters = DeadLetterReports(self._codec)
        self._transport.on_event = self._letters.moved_by_receive
        self._transport.close_last = self._keeper.close
        self._plans = Plans()
        self._gateway = Gateway(self._receive)
        self._closing: asyncio.Task[None] | None = None
        self._long_polls: WeakValueDictionary[tuple[ReceiveSpec, ...], LongPoll] = (
            WeakValueDictionary()
        )

    @property
    def ns(self) -> str:
        """The namespace: the prefix of every key. Several are separated by commas."""
        return self._shards.name

    @property
    def codec(self) -> Codec:
        """What turns values into bodies and back."""
        return self._codec

    @property
    def server_status(self) -> ServerStatus:
        """When the server last replied to this client, and whether it is away; no I/O."""
        return self._transport.server_status

    @property
    def dead_letters(self) -> DeadLetters:
        """Reports messages that were moved to dead-letter queues to listeners."""
        return self._letters

    @property
    def gateway(self) -> Gateway:
        """Calls for programs that serve queues to other programs, such as the broker."""
        return self._gateway

    async def open(self, *, wait_for_server: Seconds | None = 0) -> Self:
        """Connect, and make sure that the server answers; ``Unavailable`` if it does not.

        A server that is away is waited for, for *wait_for_server*; with ``None`` for as long as it
        takes, with 0 for ``Options.connect_timeout``. A refusal, such as of a password, is raised
        at once.

        Args:
            wait_for_server: seconds to wait for a server that is away; ``None`` for ever, 0 for one
                attempt.
        """
        try_s, within_s = self._options.connect_timeout, None
        if wait_for_server is not None:
            within_s = at_least_0("wait_for_server", wait_for_server) or try_s
        ends_at = anyio.current_time() + (within_s or 0)

        async def ping() -> None:
            left_s = try_s if within_s is None else min(try_s, ends_at - anyio.current_time())
            await self._transport.ping(left_s, limit_s=within_s)

        await retry_through_outages(ping, within_s)
        return self

    async def aclose(self) -> None:
        """Finish calls in flight, give messages back, and disconnect.

        Given back is what no caller has taken, and what is held: the message of a block that is
        not left yet is visible again at once, and the block cannot settle it any more. A message
        that was only received stays leased until its lease ends.

        Workers of this client that still run are ended first; stop them before for a grace period.
        Takes a few seconds at most. It goes on if the caller is cancelled meanwhile. A client
        whose event loop has ended, or is the parent's after a fork, is left alone.
        """
        if self._transport.is_gone:
            return
        self._transport.check()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(), name="aiorsmq-ng close")
        await asyncio.shield(self._closing)

    def add_close_hook(self, hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Await *hook* first when the client is closed, while calls can still be made.

        All hooks run together, for 5 seconds at most. For what uses the client and has to end
        before it, such as a worker.

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

    async def wait_idle(self, timeout: Seconds) -> None:
        """Wait until no call of this client is in flight, for *timeout* at most; no I/O.

        Then nothing is being taken or given back. Other users of the client may never pause.

        Args:
            timeout: how many seconds at most.
        """
        await self._transport.quiet(at_least_0("timeout", timeout))

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

    def queue(
        self,
        name: str,
        *,
        dead_letter: str | None = None,
        retry: Retry | None = None,
        vt: Seconds | None = None,
    ) -> Queue:
        """Return a handle on the queue *name*; no I/O.

        Without *retry*, as in RSMQ, a message whose block ``async with message`` raises is visible
        again at once, without a limit: one that always fails comes back for ever. With *retry* it
        is released with a growing delay, and a message that was received too often is moved to the
        dead-letter queue by the next receive. (A ``Worker`` has ``Retry()`` by default.) The policy
        belongs to this handle: it is not stored on the queue.

        Args:
            name: name of the queue.
            dead_letter: queue for rejected messages; by default ``<name>-dead``.
            retry: when a message whose block raises is delivered again, and after how many
                deliveries it goes to the dead-letter queue; ``None``: at once, without a limit.
            vt: lease of receives through this handle that name none.
        """
        return Queue(*self._parts(name, dead_letter=dead_letter, retry=retry, vt=vt))

    async def create_queue(
        self,
        name: str,
        *,
        vt: Seconds = 30,
        delay: Seconds = 0,
        maxsize: int = DEFAULT_MAXSIZE,
        exist_ok: bool = False,
    ) -> Queue:
        """Create a queue; ``QueueExists`` unless *exist_ok*, which keeps what is stored on it.

        A queue that another client left half-made is completed. One round trip. With *exist_ok* a
        user or token without the right to create gets a queue that exists, in a second one.

        Args:
            name: name of the queue.
            vt: lease in seconds that is stored on the queue.
            delay: delay in seconds that is stored on the queue.
            maxsize: largest body in bytes, 1024 to 65536; -1 for no limit.
            exist_ok: accept a queue that exists, with what is stored on it.
        """
        keys, queue = self._keys(name), self.queue(name)
        try:
            created = await self._transport.run(
                queues.create(keys, vt=vt, delay=delay, maxsize=maxsize)
            )
        except AccessDenied:
            # Not looked up before: that would leave a half-made queue as it is.
            if not exist_ok or not await queue.exists():
                raise
            return queue
        if not created and not exist_ok:
            raise QueueExists(name, keys.namespace.name)
        return queue

    async def list_queues(self) -> list[str]:
        """Return the names of all queues, sorted.

        One round trip per namespace, and one for each further five thousand queues; what is
        created or deleted between two of these may be listed or not.
        """
        return await self._names(queues.list_queues)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with all its messages; ``QueueNotFound`` if there is nothing of it.

        Args:
            name: name of the queue.
        """
        await self._transport.run(queues.delete(self._keys(name)))

    def topic(self, name: str, *, keep_backlog: Seconds = 0) -> Topic:
        """Return a handle on the topic *name*, any text; no I/O.

        What is published there goes into all its subscriptions, each of them a queue. What waited
        for the first subscription goes to that alone; if it is made with *keep_backlog*, also to
        every consumer that subscribes with it within that many seconds.

        Args:
            name: any text of up to 1000 characters.
            keep_backlog: seconds for which what waited for the first subscription is kept for other
                consumers that subscribe with it.
        """
        kept_ms = argument_checks.seconds_to_ms("keep_backlog", keep_backlog)
        own = self._keys(queue_name(check_part("topic", name)))
        return Topic(TopicKeys(name, own, self._channel), self._parts, self._plans, kept_ms)

    async def list_topics(self) -> list[str]:
        """Return the names of all topics, sorted. Round trips as of ``list_queues``."""
        return await self._names(topics.list_topics)

    async def _names(
        self, page: Callable[[Namespace, bytes], Operation[queues.NamesPage]]
    ) -> list[str]:
        pages = [partial(page, namespace) for namespace in self._shards.namespaces]
        found = await asyncio.gather(*(list_names(self._transport, one) for one in pages))
        return sorted(set().union(*found))

    async def receive(
        self, *names: str | Queue, vt: Seconds | None = None, wait: Seconds = 0
    ) -> Delivery | None:
        """Lease one message from the first queue, in the given order, that has one.

        One round trip for all queues; *wait* waits that long for a message in any of them.

        Args:
            names: queues, by name or handle.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for a message; 0 returns at once.
        """
        received = await self.receive_many(names, 1, vt=vt, wait=wait)
        return received[0] if received else None

    async def receive_many(
        self,
        names: Sequence[str | Queue],
        count: int,
        *,
        vt: Seconds | None = None,
        wait: Seconds = 0,
    ) -> list[Delivery]:
        """Lease up to *count* messages: all that the first queue has, then the second, and so on.

        One round trip for all queues; *wait* is for the first message.

        Args:
            names: queues in the order of their priority, by name or handle.
            count: how many messages at most.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
            wait: seconds to wait for the first message; 0 returns at once.
        """
        wait_s = argument_checks.seconds_to_ms("wait", wait) / 1000
        receiving = self._found(names, count, vt, wait_s)
        if self._recorder is None:
            return await receiving
        queues = [name if isinstance(name, str) else name.name for name in names]
        return await self._recorder.receive(self.ns, queues, count, wait_s, receiving)

    async def watch(self, *names: str | Queue) -> AsyncGenerator[set[str], None]:
        """Yield the names of queues in which something may have arrived, until the client closes.

        Nothing is taken. The first set names all queues at once; a queue is named again when the
        subscription to its wake-ups stands, also after an outage, so a caller that looks whenever
        it is named misses no arrival that is announced. Arrivals gather until the next set is asked
        for. A message whose delay or lease ends is no arrival.

        Args:
            names: queues, by name or handle.
        """
        keys = [self._keys(n) if isinstance(n, str) else context_of(n).keys for n in names]
        await self._transport.start()
        channels = {key.queue: (key.realtime, key.wake) for key in keys}
        async with aclosing(self._notifier.arrivals(channels)) as arrivals:
            async for arrived in arrivals:
                yield arrived

    async def doctor(
        self,
        *names: str | Queue,
        fix: bool = False,
        max_hidden: Seconds | None = None,
        progress: Progress | None = None,
        server_only: bool = False,
    ) -> DoctorReport:
        """Look for damage in the queues *names*, or in all, and for dangers in server settings.

        With *fix* the damage is repaired; queues may be in use meanwhile, nothing is lost or
        doubled by it. Messages hidden for longer than *max_hidden* count as damage, too; otherwise
        those hidden for longer than RSMQ allows. *progress* is called with what is looked at, how
        much of it was, and how much there is (0 if unknown). Many small calls, each atomic.

        Args:
            names: queues to examine, by name or handle; all if none is given.
            fix: repair what is damaged.
            max_hidden: messages hidden for more seconds than this count as damage.
            progress: called with what is looked at, how much of it was, and how much there is (0 if
                unknown).
            server_only: look at the settings of the server only, and at no queue.
        """
        if server_only:
            doctor = Doctor(self._transport, self._shards.namespaces[0], self._channel)
            return await doctor.examine_server()
        keys = [self._keys(n) if isinstance(n, str) else context_of(n).keys for n in names]
        orders = Orders(fix, argument_checks.optional_ms("max_hidden", max_hidden), progress)
        reports = []
        for namespace in self._shards.namespaces:
            own = [key.queue for key in keys if key.namespace == namespace]
            if own or not keys:
                doctor = Doctor(self._transport, namespace, self._channel)
                reports.append(await doctor.examine(own, orders))
        return together(reports)

    def __repr__(self) -> str:
        """Show where it leads without the URL, which may hold a password."""
        scheme = self._address.scheme if self._address else "client"
        return f"<RSMQ ns={self.ns!r} by {scheme}, {self._transport!r}>"

    async def _close(self) -> None:
        # Workers first: they give back what they have while all goes on.
        for enders, limit_s in (
            (self._transport.leavers, _CLOSE_WORKERS_S),
            ([long_poll.aclose for long_poll in self._long_polls.values()], _CLOSE_LONG_POLLS_S),
        ):
            with anyio.move_on_after(limit_s):
                async with TaskGroup() as tasks:
                    for end in list(enders):
                        tasks.start_soon(_run_close_hook, end)
        await self._transport.aclose()

    async def _receive(
        self, names: Sequence[str | Queue], count: int, vt: Seconds | None, wait_s: float
    ) -> tuple[list[Delivery], int]:
        if isinstance(names, str):
            raise InvalidValue(
                "receive_many takes a list of queues; use Queue.receive_many for one"
            )
        if not names:
            raise InvalidValue("no queue name given", code="missingParameter")
        contexts = [context_of(n if isinstance(n, Queue) else self.queue(n)) for n in names]
        check_together(*(context.keys for context in contexts))
        received = await self._long_poll(*(context.receive_spec for context in contexts)).receive(
            argument_checks.check_count(count), argument_checks.optional_ms("vt", vt), wait_s
        )
        found = from_reply(received, {context.keys.queue: context for context in contexts})
        return found, received.next_visible_ms

    async def _found(
        self, names: Sequence[str | Queue], count: int, vt: Seconds | None, wait_s: float
    ) -> list[Delivery]:
        return (await self._receive(names, count, vt, wait_s))[0]

    async def _connect(self) -> Driver:
        if self._client is not None:
            return adopt(self._client)
        assert self._address is not None  # noqa: S101 - without a client there is a URL
        names = tuple(namespace.name for namespace in self._shards.namespaces)
        return await connect(self._address, self._options, names)

    def _parts(
        self,
        name: str,
        *,
        dead_letter: str | None = None,
        retry: Retry | None = None,
        vt: Seconds | None = None,
    ) -> tuple[QueueContext, LongPoll]:
        """Return what a handle on a queue is made of."""
        if dead_letter == name:
            raise InvalidValue(f"queue {name!r} cannot be its own dead-letter queue")
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidValue(f"retry must be a Retry, not {retry!r}")
        keys = self._keys(name)
        if dead_letter and len(self._shards.namespaces) > 1:
            self._beside(keys, dead_letter)
        context = QueueContext(
            keys=keys,
            transport=self._transport,
            keeper=self._keeper,
            presence=self._presence,
            letters=self._letters,
            codec=self._codec,
            sibling=partial(self._beside, keys),
            channel=self._channel,
            dead_letter=dead_letter or dead_letter_queue(name),
            retry=retry,
            vt_ms=argument_checks.optional_ms("vt", vt),
            dedup_window_ms=max(
                1, argument_checks.seconds_to_ms("dedup_window", self._options.dedup_window)
            ),
            recorder=self._recorder,
        )
        return context, self._long_poll(context.receive_spec)

    def _keys(self, name: str) -> QueueKeys:
        return self._shards.queue(
            argument_checks.check_name(name, foreign=self._options.foreign_names)
        )

    def _beside(self, keys: QueueKeys, name: str) -> QueueKeys:
        """Return the keys of another queue, if one call can reach both."""
        argument_checks.check_room_for_dead_letters(keys.queue, name)
        other = self._keys(name)
        check_together(keys, other)
        return other

    def _channel(self, keys: QueueKeys) -> str:
        return keys.realtime if self._realtime else keys.wake

    def _long_poll(self, *specs: ReceiveSpec) -> LongPoll:
        long_poll = self._long_polls.get(specs)
        if long_poll is None:
            long_poll = LongPoll(
                self._transport,
                self._notifier,
                partial(messages.source, specs),
                self._options,
            )
            self._long_polls[specs] = long_poll
        return long_poll


async def _run_close_hook(hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await *hook*; an error of it is logged, and keeps neither the others nor the client."""
    try:
        await hook()
    except Exception:
        logger.exception("a close hook failed; the client is closed all the same")
