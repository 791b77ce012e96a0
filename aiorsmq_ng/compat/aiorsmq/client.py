"""``AIORSMQ`` and its result types: aiorsmq's names for the operations of ``RSMQ``."""

from __future__ import annotations

import asyncio
import math
import weakref
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

import aiorsmq_ng
from aiorsmq_ng import RSMQ, Options

from .exceptions import InvalidValueException, MessageNotFoundException
from .translation import returned_text, translated_errors

_ID_LENGTH = 32
# aiorsmq accepts any namespace; the colon is the only unusual character seen in practice.
_OPTIONS = Options(nested_ns=True, allow_eviction=True)


@dataclass(slots=True, kw_only=True, eq=False)
class Message:
    """A received message; the times are epoch milliseconds."""

    #: ``str`` from a Redis client with ``decode_responses=True``, ``bytes`` from any other.
    contents: str | bytes = field(repr=False)
    id: str
    #: Time of the first receive, and number of receives.
    fr: int
    rc: int
    #: Send time; NaN if the id was made by another client and does not contain it.
    sent: float


@dataclass(slots=True, kw_only=True, eq=False)
class QueueAttributes:
    """Stored attributes of a queue (seconds, bytes), its counters, and its numbers of messages."""

    vt: int
    delay: int
    max_size: int
    total_recv: int
    total_sent: int
    #: Epoch seconds.
    created: int
    modified: int
    #: All messages, and those of them that cannot be received now.
    messages: int
    hidden_messages: int


class AIORSMQ:
    """Queues on a Redis client that the caller owns.

    Nothing has to be opened or closed: the first call starts a background task, which ends with
    the event loop or with this object. *client* may have any decode setting. Its own encoding is
    used; *client_encoding* is accepted and ignored. *real_time* publishes the number of messages
    on ``<namespace>:rt:<queue>`` with each send.

    Every method raises ``InvalidValueException`` for an invalid name or number, and all but two
    raise ``QueueNotFoundException``. redis-py's own errors are raised when Redis fails.
    """

    def __init__(
        self,
        *,
        client: Redis,
        client_encoding: str = "utf-8",
        namespace: str = "rsmq",
        real_time: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._real_time = real_time
        self._encoder: Any = client.get_encoder()  # type: ignore[no-untyped-call]
        # Created here so that an invalid namespace is refused at once.
        self._rsmq = self._make()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: weakref.finalize[[asyncio.AbstractEventLoop, RSMQ], AIORSMQ] | None = None

    async def create_queue(
        self, queue_name: str, vt: int = 30, delay: int = 0, max_size: int = 65536
    ) -> None:
        """Create a queue; ``QueueExistsException`` if it exists.

        *vt* and *delay* are whole seconds, *max_size* is in bytes or -1 for no limit.
        """
        with translated_errors():
            await self._open().create_queue(queue_name, vt=vt, delay=delay, maxsize=max_size)

    async def list_queues(self) -> list[str]:
        """Return the names of all queues of the namespace, sorted."""
        with translated_errors():
            return [self._text(name) for name in await self._open().list_queues()]

    async def delete_queue(self, queue_name: str) -> None:
        """Delete a queue with all its messages."""
        with translated_errors():
            await self._open().delete_queue(queue_name)

    async def get_queue_attributes(self, queue_name: str) -> QueueAttributes:
        """Return the attributes of a queue."""
        with translated_errors():
            return _attributes(await self._open().get_queue_attributes(queue_name))

    async def set_queue_attributes(
        self,
        queue_name: str,
        vt: int | None = None,
        delay: int | None = None,
        max_size: int | None = None,
    ) -> QueueAttributes:
        """Change stored attributes of a queue, and return all of its attributes.

        ``NoAttributesSpecified`` if there is nothing to change.
        """
        with translated_errors():
            return _attributes(
                await self._open().set_queue_attributes(
                    queue_name, vt=vt, delay=delay, maxsize=max_size
                )
            )

    async def send_message(
        self, queue_name: str, contents: str | bytes, delay: int | None = None
    ) -> str:
        """Send a message and return its id; *delay* in seconds, by default the queue's.

        ``InvalidValueException`` also for contents of more bytes than the queue allows, and for
        contents that are neither text nor bytes.
        """
        if not isinstance(contents, str | bytes | bytearray | memoryview):
            raise InvalidValueException(
                f"contents of type {type(contents).__name__} cannot be sent; give text or bytes"
            )
        # Text is encoded as the Redis client does it.
        body = self._encoder.encode(contents) if isinstance(contents, str) else bytes(contents)
        with translated_errors():
            return await self._open().send_message(queue_name, body, delay=delay)

    async def receive_message(self, queue_name: str, vt: int | None = None) -> Message | None:
        """Receive a message and hide it for *vt* seconds, by default the queue's.

        Returns ``None`` at once if there is none. Delete the message when it is done, or it can
        be received again.
        """
        with translated_errors():
            return self._message(await self._open().receive_message(queue_name, vt=vt))

    async def delete_message(self, queue_name: str, id: str) -> None:
        """Delete a message; ``MessageNotFoundException`` if it or the queue does not exist."""
        _check_id(id)
        with translated_errors():
            deleted = await self._open().delete_message(queue_name, id)
        _require(deleted, queue_name, id)

    async def pop_message(self, queue_name: str) -> Message | None:
        """Receive a message and delete it, or return ``None`` at once if there is none.

        At most once: if the reply is lost, so is the message.
        """
        with translated_errors():
            return self._message(await self._open().pop_message(queue_name))

    async def change_message_visibility(self, queue_name: str, id: str, vt: int) -> None:
        """Hide a message for *vt* seconds from now; 0 makes it visible.

        ``MessageNotFoundException`` if it is not in the queue.
        """
        _check_id(id)
        with translated_errors():
            changed = await self._open().change_message_visibility(queue_name, id, vt)
        _require(changed, queue_name, id)

    async def quit(self) -> None:
        """End the background task and close the Redis client that was passed in."""
        await self.aclose()
        await self._client.aclose()

    async def aclose(self) -> None:
        """End the background task; the Redis client stays open.

        aiorsmq has no such method, and calling it is optional. A later call starts a new task.
        """
        ending, loop = self._ending, self._loop
        self._ending = self._loop = None
        if ending is None:
            return
        if loop is asyncio.get_running_loop():
            ending.detach()
            await self._rsmq.aclose()
        else:
            ending()

    def _open(self) -> RSMQ:
        """Return a client for the running event loop.

        An ``RSMQ`` client belongs to one event loop. An ``AIORSMQ`` may be used on several, one
        ``asyncio.run`` after another.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._ending is not None:
                self._ending()
            self._rsmq, self._loop = self._make(), loop
            self._ending = weakref.finalize(self, _end, loop, self._rsmq)
            self._ending.atexit = False
        return self._rsmq

    def _make(self) -> RSMQ:
        with translated_errors():
            return RSMQ(
                client=self._client,
                ns=self._namespace,
                realtime=self._real_time,
                options=_OPTIONS,
            )

    def _message(self, message: aiorsmq_ng.Message | None) -> Message | None:
        if message is None:
            return None
        return Message(
            contents=self._encoder.decode(message.body),
            id=self._text(message.id),
            fr=message.fr,
            rc=message.rc,
            sent=math.nan if message.sent is None else message.sent,
        )

    def _text(self, text: str) -> str:
        return returned_text(text, decoded=self._encoder.decode_responses)


def _attributes(attributes: aiorsmq_ng.QueueAttributes) -> QueueAttributes:
    return QueueAttributes(
        vt=int(attributes.vt),
        delay=int(attributes.delay),
        max_size=attributes.maxsize,
        total_recv=attributes.totalrecv,
        total_sent=attributes.totalsent,
        created=attributes.created,
        modified=attributes.modified,
        messages=attributes.msgs,
        hidden_messages=attributes.hiddenmsgs,
    )


def _check_id(id: str) -> None:
    # RSMQ itself accepts ids of other lengths, which some clients make; aiorsmq does not.
    if not isinstance(id, str) or len(id) != _ID_LENGTH:
        raise InvalidValueException(f"message id {id!r} is not allowed: ids have 32 characters")


def _require(found: bool, queue: str, id: str) -> None:
    if not found:
        raise MessageNotFoundException(f"message {id} is not in queue {queue!r}")


_closing: set[asyncio.Task[None]] = set()


def _end(loop: asyncio.AbstractEventLoop, rsmq: RSMQ) -> None:
    """Close *rsmq* in its event loop; called from any thread when it is no longer referenced."""

    def close() -> None:
        task = loop.create_task(rsmq.aclose())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    if not loop.is_closed():
        loop.call_soon_threadsafe(close)
