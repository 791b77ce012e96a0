"""Prefetch: takes payloads ahead for a consumer, and hands them out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from .._common.backoff import Backoff
from .._protocol.operations.rmq import registry
from .._protocol.operations.rmq.messages import move
from .._protocol.rmq_keys import RmqKeys, SetKey
from .._protocol.rmq_payload import BadHeader, unpack
from .._runtime.background_acks import BackgroundAcks
from .._runtime.wait_for_server import retry_through_outages
from .._transport.driver import ListWaiter, NotExecuted, ReplyLost
from ..errors import ClientClosed, RSMQError
from .connection import Connection, Held, unique_name
from .delivery import Origin, RmqAcks, RmqDelivery, number_of, release_nowait
from .rmq_context import RmqContext

logger = logging.getLogger("aiorsmq_ng.rmq")

#: How long one wait on the server lasts; then the unacked list is compared with what is known.
_WAIT_S = 10
#: Payloads that one call takes at most, so that other clients can go on.
_MOST = 500
#: How long give-backs are gathered: handlers that are cancelled together do not end in one tick.
_GATHER_S = 0.01


class RmqPrefetch:
    """Keeps up to *size* deliveries of one queue in hand, until it is closed.

    Those that were handed out and are not settled yet count, too. It does not refer to its
    consumer, which may be collected.
    """

    def __init__(
        self,
        context: RmqContext,
        keys: RmqKeys,
        size: int,
        push: RmqKeys | None,
        *,
        background: bool = False,
        on_malformed: Callable[[bytes], object] | None = None,
    ) -> None:
        #: Acks blocks that have ended; ``None`` if each waits for its own ack.
        self.acks = BackgroundAcks(context.transport, RmqAcks()) if background else None
        self._context = context
        self._keys = keys
        self._size = size
        self._push = push
        self._on_malformed = on_malformed
        self._consumer = unique_name(context.tag)
        self._buffer: deque[RmqDelivery] = deque()
        #: Deliveries that are not settled, the buffered ones included; name of their connection.
        self._in_hand = 0
        self._name = ""
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = asyncio.Event()
        self._waiting: anyio.CancelScope | None = None
        #: True while a take is in flight.
        self._taking = False
        #: Deliveries that wait to be given back together, and what is done when they are.
        self._returned: list[RmqDelivery] = []
        self._gathering: asyncio.Future[None] | None = None
        self._gathered = False
        self._giving_back: list[asyncio.Future[Any]] = []
        self._failure: Exception | None = None
        self.closed = False
        context.transport.closers.add(self.client_closes)

    async def run(self) -> None:
        """Take payloads whenever there is room, through outages, until closed."""
        self._context.prefetches.add(self)
        try:
            await self._serve()
            if self.acks is not None:
                # Before a client that is closed gives back what is in the unacked list.
                await self.acks.drain()
        finally:
            self._context.prefetches.discard(self)
            self._context.transport.closers.discard(self.client_closes)
            self._ended.set()

    def take_now(self) -> RmqDelivery | None:
        """Hand out the next delivery if there is one."""
        while self._buffer and not self.closed:
            delivery = self._buffer.popleft()
            if not self._buffer:
                self._room.set()
            if not delivery.lease_lost:
                return delivery
        return None

    async def take(self) -> RmqDelivery:
        """Hand out the next delivery, waiting for one; ``StopAsyncIteration`` once closed."""
        while (delivery := self.take_now()) is None:
            if self._failure is not None:
                raise self._failure
            if self.closed:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        return delivery

    async def take_many(self, count: int, wait_s: float) -> list[RmqDelivery]:
        """Hand out *count* deliveries, or those that arrived within *wait_s* after the first.

        If the caller is cancelled they stay in the buffer.
        """
        taken = [await self.take()]
        try:
            with anyio.move_on_after(wait_s):
                while len(taken) < count:
                    taken.append(await self.take())
        except StopAsyncIteration:
            self.give_back(taken)
            raise
        except BaseException:
            self.put_back(taken)
            raise
        return taken

    def put_back(self, deliveries: list[RmqDelivery]) -> None:
        """Put back deliveries on which no work has begun."""
        if self.closed:
            self.give_back(deliveries)
        else:
            self._buffer.extendleft(reversed(deliveries))
            self._arrived.set()

    def give_back(self, deliveries: Sequence[RmqDelivery]) -> asyncio.Future[None]:
        """Begin to give deliveries back, and what is buffered with them, in the order of taking.

        Each give-back goes to the front of the queue. So what was taken later must not follow: it
        goes along, and a take that is in flight ends first.
        """
        self._context.transport.check()
        for delivery in deliveries:
            if not delivery.settled:
                delivery.outcome = "released"
                self._returned.append(delivery)
        if self._gathering is None:
            loop = asyncio.get_running_loop()
            self._gathering = loop.create_future()
            loop.call_later(_GATHER_S, self._end_gathering)
        return self._gathering

    def close(self) -> None:
        """Stop taking, and begin to give back what was not handed out."""
        if self.closed:
            return
        self.closed = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._room.set()
        self._arrived.set()
        self._give_back_if_due()

    async def aclose(self, within_s: float) -> None:
        """Close, and wait until everything is given back, at most *within_s*."""
        self.close()
        with anyio.move_on_after(within_s):
            # A take that is in flight ends first, and gives back what it has taken.
            await self._ended.wait()
            if self._gathering is not None:
                await asyncio.wait([self._gathering])
            if self._giving_back:
                await asyncio.wait(self._giving_back)

    def client_closes(self) -> None:
        """Close because the client does: waiting callers get ``ClientClosed``."""
        self._failure = ClientClosed("the client was closed")
        self.close()

    async def _serve(self) -> None:
        try:
            while not self.closed:
                await retry_through_outages(self._serve_one_connection)
        except Exception as error:
            self._failure = error
            self._arrived.set()

    async def _serve_one_connection(self) -> None:
        """Take payloads under one name, until that is lost or the prefetch is closed."""
        connection = await self._context.connections.present()
        held = await connection.hold(self._keys)
        if self._name != connection.name:
            # What was taken under a name that is lost does not count any more.
            self._name, self._in_hand = connection.name, 0
            self._buffer.clear()
        consumers = SetKey(self._keys.consumers(connection.name))
        run = self._context.transport.run
        await run(registry.add(self._keys.layout.queues, self._keys.queue))
        await run(registry.add(consumers, self._consumer))
        driver = await self._context.transport.driver()
        waiter = driver.list_waiter()
        try:
            await self._take_all(connection, held, waiter)
        finally:
            with anyio.CancelScope(shield=True):
                await waiter.aclose()
        if self.closed and not connection.lost:
            with suppress(RSMQError):
                await run(registry.remove(consumers, self._consumer))

    async def _take_all(self, connection: Connection, held: Held, waiter: ListWaiter) -> None:
        options = self._context.options
        backoff = Backoff(options.poll_base, options.poll_cap)
        while not self.closed and not connection.lost:
            room = await self._wait_for_room()
            if not room:
                return
            self._taking = True
            try:
                payloads = await held.take(min(room, _MOST))
                self._store(held, payloads)
            finally:
                self._taking = False
                self._give_back_if_due()
            if payloads:
                backoff = Backoff(options.poll_base, options.poll_cap)
            elif not connection.lost and not self.closed:
                await self._wait_for_arrival(held, waiter, backoff)

    async def _wait_for_room(self) -> int:
        """Wait until half of the deliveries are settled, or all that were taken are handed out."""
        while not self.closed:
            room = self._size - self._in_hand
            if room > 0 and (not self._buffer or 2 * room >= self._size):
                return room
            self._room.clear()
            await self._room.wait()
        return 0  # closed

    async def _wait_for_arrival(self, held: Held, waiter: ListWaiter, backoff: Backoff) -> None:
        """Wait until the queue has something, for some seconds; take nothing."""
        began_at = anyio.current_time()
        with anyio.CancelScope() as self._waiting:
            try:
                await waiter.wait(self._keys.ready, _WAIT_S)
            except (NotExecuted, ReplyLost) as error:
                # A server before 6.2, or a right that is missing: look now and then.
                logger.debug("cannot wait for queue %r: %s", self._keys.queue, error)
                await anyio.sleep(backoff.next_s())
        self._waiting = None
        if anyio.current_time() - began_at >= _WAIT_S and not self.closed:
            await held.look_for_strays()

    def _store(self, held: Held, payloads: list[bytes]) -> None:
        """Buffer what was taken."""
        origin = Origin(
            held,
            self._context.codec,
            self._push,
            on_settled=partial(self._one_settled, held.connection.name),
            acks=self._acks_if_open,
            give_back=self.give_back,
        )
        for payload in payloads:
            try:
                parts = unpack(payload)
            except BadHeader as fault:
                self._refuse(held, payload, str(fault))
                continue
            self._in_hand += 1
            self._buffer.append(RmqDelivery(origin, payload, parts))
        if self._buffer:
            self._arrived.set()

    def _end_gathering(self) -> None:
        self._gathered = True
        self._give_back_if_due()

    def _give_back_if_due(self) -> None:
        """Give back all that no holder works on, by one call, unless there is more to wait for."""
        gathering = self._gathering
        due = self.closed if gathering is None else self._gathered
        if self._taking or not due:
            return
        batch = sorted([*self._returned, *self._buffer], key=number_of)
        self._returned, self._gathering, self._gathered = [], None, False
        self._buffer.clear()
        futures: list[asyncio.Future[Any]] = []
        with suppress(ClientClosed):  # closing the client gives them back
            futures = release_nowait(batch)
        self._giving_back = [future for future in self._giving_back if not future.done()] + futures
        if gathering is not None:
            done = asyncio.gather(*futures, return_exceptions=True)
            done.add_done_callback(lambda _: gathering.set_result(None))

    def _refuse(self, held: Held, payload: bytes, fault: str) -> None:
        """Reject a payload that no consumer can read, as Go's consumers do."""
        logger.warning("a payload of queue %r is rejected: %s", self._keys.queue, fault)
        operation = move(self._keys, held.connection.name, [payload], self._keys.rejected)
        future = self._context.transport.submit(operation)
        future.add_done_callback(partial(self._refused, held, payload))

    def _refused(self, held: Held, payload: bytes, future: asyncio.Future[list[bool]]) -> None:
        # One that failed is still in the unacked list, is found there, and is rejected again.
        held.settled([payload])
        is_done = not future.cancelled() and future.exception() is None and future.result()[0]
        if not is_done:
            held.doubt()
        elif self._on_malformed is not None:
            try:
                self._on_malformed(payload)
            except Exception:
                logger.exception("the callback for a malformed payload failed")

    def _acks_if_open(self) -> BackgroundAcks[RmqDelivery] | None:
        """Return what acks in the background; after the end a block waits for its own ack."""
        return None if self.closed or self._failure is not None else self.acks

    def _one_settled(self, connection: str) -> None:
        if connection == self._name:
            self._in_hand -= 1
            self._room.set()
