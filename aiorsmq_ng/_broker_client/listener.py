"""Wake-ups: ``Watch`` behind the seam of a connection that receives publications."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from .._transport.driver import Heard, NotExecuted
from ..errors import RSMQError
from .channel import BrokerChannel
from .errors import Answered, Failure

#: Streams at most; with more, all are replaced by as few as possible.
_MOST_STREAMS = 4


class WatchListener:
    """Watches the queues of some channels. A lost stream is an error and the end of the listener.

    What is subscribed later is watched by a stream of its own, so that the others go on.
    """

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel
        self._channels: dict[str, set[str]] = {}
        self._streams: dict[asyncio.Task[None], set[str]] = {}
        self._arrived: asyncio.Queue[str | Exception] = asyncio.Queue()

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""
        await self._channel.ready()
        fresh = set()
        for channel in channels:
            queue = self._queue(channel)
            if queue not in self._channels:
                fresh.add(queue)
            self._channels.setdefault(queue, set()).add(channel)
        if len(self._streams) >= _MOST_STREAMS:
            old, self._streams = self._streams, {}
            self._watch(set(self._channels))
            await _end(old)
        else:
            self._watch(fresh)

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""
        for channel in channels:
            queue = self._queue(channel)
            self._channels.get(queue, set()).discard(channel)
            if not self._channels.get(queue):
                self._channels.pop(queue, None)
        idle = [task for task, queues in self._streams.items() if not queues & set(self._channels)]
        await _end({task: self._streams.pop(task) for task in idle})

    async def next_heard(self) -> Heard | None:
        """Wait until something may have arrived."""
        found = await self._arrived.get()
        if isinstance(found, Exception):
            raise found
        return Heard(found, b"")

    async def aclose(self) -> None:
        """End all streams."""
        streams, self._streams = self._streams, {}
        await _end(streams)

    def _watch(self, queues: set[str]) -> None:
        names = sorted(queues)
        most = self._channel.max_batch
        for at in range(0, len(names), most):
            page = names[at : at + most]
            task = asyncio.create_task(self._read(page), name="aiorsmq-ng watch")
            self._streams[task] = set(page)

    async def _read(self, queues: list[str]) -> None:
        """Pass on what one stream says, and how it ends."""
        stream: Any = self._channel.watch(queues)
        try:
            async for response in stream:
                for queue in response.queues:
                    for channel in self._channels.get(queue, ()):
                        self._arrived.put_nowait(channel)
            ended: Exception = NotExecuted("the broker ended the stream of wake-ups")
        except grpc.aio.AioRpcError as error:
            ended = Failure.of("Watch", error).error()
            if isinstance(ended, Answered):
                ended = ended.error
            elif not isinstance(ended, RSMQError):
                ended = NotExecuted(str(ended))
        finally:
            stream.cancel()
        self._arrived.put_nowait(ended)

    def _queue(self, channel: str) -> str:
        """Return the queue whose arrivals are announced on *channel*."""
        name = channel.removeprefix(f"{self._channel.namespace}:")
        queue, called, _ = name.partition(":ng:wake")
        return queue if called else name.removeprefix("rt:")


async def _end(streams: dict[asyncio.Task[None], set[str]]) -> None:
    for task in streams:
        task.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
