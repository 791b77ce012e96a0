"""A client that speaks raw HTTP/2, for what gRPC's own clients would never do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import h2.config
import h2.connection
import h2.events
import h2.exceptions


@dataclass
class _Rest:
    """Bytes to be sent: some, then zeros; and whether the stream ends with them."""

    head: bytes = b""
    zeros: int = 0
    ends: bool = False

    def take(self, most: int) -> bytes:
        """Return up to *most* of them."""
        part, self.head = self.head[: max(0, most)], self.head[max(0, most) :]
        fill = max(0, min(most - len(part), self.zeros))
        self.zeros -= fill
        return part + bytes(fill)


class RawClient:
    """One connection. What it sends is what the server's flow control lets it send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._h2 = h2.connection.H2Connection(
            config=h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        )
        #: What is still to be sent on each stream.
        self._waiting: dict[int, _Rest] = {}
        self._changed = asyncio.Event()
        #: Bytes of messages that the server took, on each stream.
        self.accepted: dict[int, int] = {}
        #: Status of gRPC of the streams that were answered; -1: reset without one.
        self.statuses: dict[int, int] = {}
        #: Bytes of replies that came.
        self.received = 0
        #: Whether replies may go on: without it, the server can send 64 KiB and no more.
        self.reads = True
        self.closed = False

    @property
    def most_streams(self) -> int:
        """How many streams the server wants to see on a connection."""
        return self._h2.remote_settings.max_concurrent_streams

    def open(
        self,
        method: str,
        message: bytes = b"",
        *,
        missing: int = 0,
        headers: Iterable[tuple[str, str]] = (),
    ) -> int:
        """Begin a call. *missing*: bytes that its message announces and that never come."""
        stream = self._h2.get_next_available_stream_id()
        self._h2.send_headers(
            stream,
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method),
                (":authority", "localhost"),
                ("te", "trailers"),
                ("content-type", "application/grpc"),
                *headers,
            ],
        )
        prefix = b"\0" + (len(message) + missing).to_bytes(4, "big")
        self.accepted[stream] = 0
        self._waiting[stream] = _Rest(prefix + message, ends=not missing)
        self._send()
        return stream

    def push(self, stream: int, size: int) -> None:
        """Send *size* more bytes, as soon as the server takes them."""
        self._waiting.setdefault(stream, _Rest()).zeros += size
        self._send()

    async def until(self, condition, within_s: float = 30.0) -> None:
        """Wait until *condition*, a function of nothing, holds."""
        async with asyncio.timeout(within_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def quiet(self, for_s: float = 0.5) -> None:
        """Wait until nothing has come for a while."""
        while not self.closed:
            self._changed.clear()
            try:
                async with asyncio.timeout(for_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    def abort(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()

    async def _run(self) -> None:
        with suppress(OSError, h2.exceptions.ProtocolError):
            while data := await self._reader.read(1 << 16):
                for event in self._h2.receive_data(data):
                    self._take(event)
                self._send()
                self._changed.set()
        self.closed = True
        self._changed.set()

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived():
                self.received += len(event.data)
                if self.reads:
                    with suppress(h2.exceptions.ProtocolError):
                        self._h2.acknowledge_received_data(
                            event.flow_controlled_length, event.stream_id
                        )
            case h2.events.TrailersReceived() | h2.events.ResponseReceived():
                status = dict(event.headers).get("grpc-status")
                if status is not None:
                    self.statuses[event.stream_id] = int(status)
            case h2.events.StreamReset():
                self.statuses.setdefault(event.stream_id, -1)
                self._waiting.pop(event.stream_id, None)
            case h2.events.StreamEnded():
                self._waiting.pop(event.stream_id, None)

    def _send(self) -> None:
        sent = True
        while sent:  # in turn, a frame each
            sent = False
            for stream, rest in list(self._waiting.items()):
                try:
                    room = self._h2.local_flow_control_window(stream)
                    part = rest.take(min(room, self._h2.max_outbound_frame_size))
                    if part:
                        done = not rest.head and not rest.zeros
                        self._h2.send_data(stream, part, end_stream=rest.ends and done)
                        self.accepted[stream] += len(part)
                        sent = True
                except h2.exceptions.ProtocolError:  # the server has ended it
                    rest.head, rest.zeros = b"", 0
                if not rest.head and not rest.zeros:
                    del self._waiting[stream]
        self._flush()

    def _flush(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(self._h2.data_to_send())

    async def _begin(self) -> None:
        self._h2.initiate_connection()
        self._flush()


@asynccontextmanager
async def raw_client(address: str) -> AsyncIterator[RawClient]:
    """Connect to *address*, ``host:port``."""
    host, _, port = address.rpartition(":")
    client = RawClient(*await asyncio.open_connection(host, int(port)))
    await client._begin()
    running = asyncio.create_task(client._run())
    try:
        await client.until(lambda: client.closed or client.most_streams < 2**32 - 1)
        yield client
    finally:
        client.abort()
        await running
