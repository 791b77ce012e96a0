"""The driver for a broker: a typed request becomes protobuf, protobuf becomes the typed result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc.aio

from .._common.durability import Durability
from .._common.pages import pages
from .._protocol.operation import Kind
from .._transport.call import Call
from .._transport.driver import Heard, NotExecuted, ReplyLost
from ..errors import NotSupported, RSMQError
from ..options import Options
from . import call_table, message_calls
from .attempt import Attempt, Handler
from .channel import BrokerChannel
from .status_to_error import Answered, call_error

#: What a broker offers.
HANDLERS: dict[Kind[Any], Handler] = message_calls.HANDLERS | call_table.HANDLERS
#: Streams of wake-ups at most; with more, all are replaced by as few as possible.
_MOST_STREAMS = 4


class BrokerDriver:
    """Makes calls of ``aiorsmq.v1``."""

    calls_per_connection = 1
    immediate = None

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*; see ``Driver``."""
        handler = HANDLERS.get(call.kind)
        if handler is None:
            raise NotSupported("this call cannot be done through a broker; connect to its Redis")
        # The broker process must be known before anything is asked for that may be repeated.
        await self._channel.ready()
        attempt = Attempt(self._channel, call)
        try:
            return await handler(attempt, [operation.request for operation in call.operations])
        except Answered as answered:
            return [answered.error] * len(call.operations)
        except (NotExecuted, RSMQError) as error:
            if attempt.acted:
                # A part of it may have run.
                raise ReplyLost(str(error)) from None
            raise

    async def ping(self) -> None:
        """Return if the broker answers."""
        await self._channel.ready(again=True)

    async def check(self, options: Options) -> Durability:
        """Return what sends wait for: the broker says what each reached."""
        await self.ping()
        return Durability.parse(options.durability)

    async def setting(self, name: str) -> str | None:
        """Return nothing: a broker does not tell how its server is set up."""
        return None

    async def forget(self, records: Sequence[str]) -> None:
        """Do nothing: what a broker remembers of calls expires by itself."""

    def listener(self) -> WatchListener:
        """Return a listener that is not connected yet."""
        return WatchListener(self._channel)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


class WatchListener:
    """Watches the queues of some channels. A lost stream is an error and the end of the listener.

    What is subscribed later is watched by a stream of its own, so that the others go on.
    """

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        #: Channel -> the queue whose arrivals are announced there.
        self._queues: dict[str, str] = {}
        self._streams: dict[asyncio.Task[None], set[str]] = {}
        self._arrived: asyncio.Queue[str | Exception] = asyncio.Queue()

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""
        await self._channel.ready()
        surplus = list(self._streams) if len(self._streams) >= _MOST_STREAMS else []
        watched = set() if surplus else set(self._queues.values())
        self._queues |= {channel: self._queue(channel) for channel in channels}
        for page in pages(sorted({*self._queues.values()} - watched), self._channel.max_batch):
            task = asyncio.create_task(self._read(page), name="aiorsmq-ng watch")
            self._streams[task] = set(page)
        await self._end(surplus)

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""
        for channel in channels:
            self._queues.pop(channel, None)
        watched = set(self._queues.values())
        await self._end([task for task, queues in self._streams.items() if not queues & watched])

    async def next_heard(self) -> Heard | None:
        """Wait until something may have arrived."""
        found = await self._arrived.get()
        if isinstance(found, Exception):
            raise found
        return Heard(found, b"")

    async def aclose(self) -> None:
        """End all streams."""
        await self._end(list(self._streams))

    async def _read(self, queues: Sequence[str]) -> None:
        """Pass on what one stream says, and how it ends."""
        stream: Any = self._channel.watch(queues)
        ended: Exception = NotExecuted("the broker ended the stream of wake-ups")
        try:
            async for response in stream:
                named = set(response.queues)
                for channel in [c for c, queue in self._queues.items() if queue in named]:
                    self._arrived.put_nowait(channel)
        except grpc.aio.AioRpcError as error:
            ended = call_error("Watch", error)
        finally:
            stream.cancel()
        self._arrived.put_nowait(ended.error if isinstance(ended, Answered) else ended)

    async def _end(self, streams: list[asyncio.Task[None]]) -> None:
        for stream in streams:
            del self._streams[stream]
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def _queue(self, channel: str) -> str:
        name = channel.removeprefix(f"{self._channel.namespace}:")
        queue, called, _ = name.partition(":ng:wake")
        return queue if called else name.removeprefix("rt:")
