"""A proxy between client and server that injects faults."""

from __future__ import annotations

import asyncio
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from .._common.durations import Duration
from ..errors import InvalidValue
from .intercepts import Intercept, Matching
from .resp_splitter import Splitter

_READ_SIZE = 65536
#: With a limited bandwidth, the proxy sends what is allowed for this many seconds at a time.
_PORTION_S = 0.02


class ProxiedConnection:
    """One connection of a client through the proxy."""

    def __init__(self, proxy: FaultProxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._held = False
        self._muted = False
        self._passed = 0
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._answered.set()

    def mute(self) -> None:
        """Discard all further replies on this connection."""
        self._muted = True

    def cut(self) -> None:
        """Reset this connection. A held request can still reach the server later."""
        _reset(self._client)
        if self._server is not None and not self._held:
            _reset(self._server)

    async def run(self, reader: asyncio.StreamReader) -> None:
        """Pass bytes both ways until one side closes the connection.

        Args:
            reader: stream of the client's requests.
        """
        try:
            await self._proxy.opening.wait()
            replies, self._server = await self._proxy.connect()
        except OSError:
            _reset(self._client)
            return
        server = self._server
        pumps = [
            asyncio.create_task(self._requests(reader, server)),
            asyncio.create_task(self._replies(replies)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for end in (self._client, server):
                end.close()
                with suppress(OSError):
                    await end.wait_closed()

    async def _requests(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        splitter = Splitter()
        with suppress(OSError):
            while data := await reader.read(_READ_SIZE):
                for request in splitter.feed(data):
                    intercept = self._proxy.intercept_for(request)
                    if intercept is None:
                        await self._pass_request(request, server)
                    elif intercept.kind == "drop":
                        await intercept.spring(partial(self._execute_only, request, server))
                        return
                    else:
                        self._held = True
                        await intercept.spring(partial(self._execute_late, request, server))
                        self._held = False

    async def _pass_request(self, request: bytes, server: asyncio.StreamWriter) -> None:
        self._unanswered += 1
        self._answered.clear()
        await self._forward(request, server)

    async def _execute_only(self, request: bytes, server: asyncio.StreamWriter) -> None:
        """Let the server execute *request*, discard its reply and reset the connection."""
        await self._answered.wait()  # replies to earlier requests are not lost
        self._muted = True
        await self._pass_request(request, server)
        await self._answered.wait()
        self.cut()

    async def _execute_late(self, request: bytes, server: asyncio.StreamWriter) -> None:
        await self._pass_request(request, server)
        # The client may have disconnected; the server must read the request before we close.
        await self._answered.wait()

    async def _replies(self, server: asyncio.StreamReader) -> None:
        splitter = Splitter()
        try:
            while data := await server.read(_READ_SIZE):
                replies = splitter.feed(data)
                if not (self._muted or self._proxy.is_half_open):
                    with suppress(OSError) if self._held else nullcontext():
                        await self._forward(data, self._client)
                # Push messages are not replies.
                answers = sum(not reply.startswith(b">") for reply in replies)
                self._unanswered = max(0, self._unanswered - answers)
                if not self._unanswered:
                    self._answered.set()
        except OSError:
            pass
        finally:
            self._answered.set()

    async def _forward(self, data: bytes, to: asyncio.StreamWriter) -> None:
        proxy = self._proxy
        if proxy.latency:
            await asyncio.sleep(proxy.latency)
        for piece in _pieces(data, proxy.portion()):
            await proxy.opening.wait()
            part = piece
            if proxy.reset_after is not None:
                part = piece[: max(0, proxy.reset_after - self._passed)]
                self._passed += len(part)
            to.write(part)
            await to.drain()
            if proxy.reset_after is not None and self._passed >= proxy.reset_after:
                await asyncio.sleep(0)
                self.cut()
                return
            await asyncio.sleep(len(part) / proxy.bandwidth if proxy.bandwidth else 0)


class FaultProxy:
    """A proxy for the server at *url*, which passes everything on until a fault is set.

    ``async with FaultProxy(url) as proxy`` listens; clients connect to ``proxy.url``. It listens
    in the same way as the server (unix socket or TCP on loopback) unless *listen* says otherwise.
    Faults may be combined, and changed at any time; ``resume`` ends them all. TLS is not
    supported.

    Args:
        url: URL of the server behind the proxy.
        listen: ``unix`` or ``tcp``; by default the same way as the server.
    """

    #: Delay of every chunk of bytes, each way; in seconds or as a timedelta, read as seconds.
    latency = Duration(0.0, or_0=True)

    def __init__(self, url: str, *, listen: Literal["unix", "tcp"] | None = None) -> None:
        scheme = urlsplit(url).scheme
        if scheme not in ("unix", "redis"):
            raise InvalidValue(f"a proxy needs a unix:// or redis:// url, not {scheme}://")
        #: URL of the server for new connections; may be changed.
        self.target = url
        self._listen = listen or ("unix" if scheme == "unix" else "tcp")
        self._listener: asyncio.Server | None = None
        self._folder: Path | None = None
        self._port = 0
        self._intercepts: list[Intercept] = []
        self._connections: dict[asyncio.Task[None], ProxiedConnection] = {}
        #: Number of connections accepted so far.
        self.accepted = 0
        #: Bytes per second each way, per connection; 0 for no limit.
        self.bandwidth = 0.0
        #: Forward requests and replies one byte at a time.
        self.split = False
        #: Reset a connection after this many bytes, both ways together.
        self.reset_after: int | None = None
        #: True while replies are discarded.
        self.is_half_open = False
        #: Cleared while a black hole lets nothing through.
        self.opening = asyncio.Event()
        self.opening.set()

    @property
    def url(self) -> str:
        """The URL for clients: that of the server, with the address of the proxy."""
        target = urlsplit(self.target)
        login = target.netloc.rpartition("@")[0]
        login = f"{login}@" if login else ""
        query = parse_qs(target.query)
        db = query.get("db", ["0"])[0]
        if target.scheme == "redis":
            db = target.path.strip("/") or db
        if self._listen == "unix":
            return f"unix://{login}{quote(str(self._path))}?db={db}"
        return f"redis://{login}127.0.0.1:{self._port}/{db}"

    @property
    def connections(self) -> list[ProxiedConnection]:
        """The open connections, in the order in which they were accepted."""
        return list(self._connections.values())

    async def start(self) -> Self:
        """Start to listen for connections."""
        if self._listen == "unix" and self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="proxy-"))
        await self._accept()
        return self

    async def resume(self) -> None:
        """End all faults: accept connections and pass everything on.

        Bytes that a black hole kept are delivered now. Replies that a half-open connection
        discarded stay lost, and a held request stays held.
        """
        self.latency, self.bandwidth, self.split, self.reset_after = 0.0, 0.0, False, None
        self.is_half_open = False
        self.opening.set()
        self._intercepts.clear()
        await self._accept()

    async def refuse(self) -> None:
        """Reset all connections and refuse new ones, as if the server were down."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._listen == "unix":
            self._path.unlink(missing_ok=True)
        await self.cut()

    async def cut(self) -> None:
        """Reset all connections, once; new ones are accepted."""
        for connection in self.connections:
            connection.cut()
        await asyncio.sleep(0)

    def half_open(self) -> None:
        """Pass requests on and discard replies: the connection looks alive and is not."""
        self.is_half_open = True

    def black_hole(self) -> None:
        """Let nothing through. Connections stay open and new ones are accepted.

        As TCP would, the proxy keeps what is sent and delivers it after ``resume``, also the bytes
        of a client that has disconnected since.
        """
        self.opening.clear()

    def drop_reply(self, matching: Matching, nth: int = 1) -> Intercept:
        """Discard the reply of the *nth* matching request from now on.

        The server executes it; then the connection is reset. Replies to earlier requests arrive.

        Args:
            matching: bytes that occur in the request, a function of the request, or
                ``operation(name)``.
            nth: which of the matching requests, counted from now on.
        """
        return self._set(Intercept(matching, nth, "drop"))

    def hold_request(self, matching: Matching, nth: int = 1) -> Intercept:
        """Hold the *nth* matching request from now on until ``release`` is called.

        It reaches the server then, even if its client has closed the connection since.

        Args:
            matching: bytes that occur in the request, a function of the request, or
                ``operation(name)``.
            nth: which of the matching requests, counted from now on.
        """
        return self._set(Intercept(matching, nth, "hold"))

    def intercept_for(self, request: bytes) -> Intercept | None:
        """Return the intercept that catches *request*, if any, and remove it.

        Args:
            request: the bytes of a request.
        """
        for intercept in self._intercepts:
            if intercept.catches(request):
                self._intercepts.remove(intercept)
                return intercept
        return None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to the server."""
        target = urlsplit(self.target)
        if target.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(target.path))
        return await asyncio.open_connection(target.hostname or "localhost", target.port or 6379)

    def portion(self) -> int:
        """Return how many bytes may go out at once."""
        if self.split:
            return 1
        return max(1, int(self.bandwidth * _PORTION_S)) if self.bandwidth else _READ_SIZE

    async def aclose(self) -> None:
        """Stop listening and reset all connections; held requests never reach the server."""
        await self.refuse()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "listening" if self._listener else "refusing"
        return f"<FaultProxy {state}, {len(self._connections)} connections>"

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise InvalidValue("the proxy is not started; use it with async with")
        return self._folder / "proxy.sock"

    async def _accept(self) -> None:
        if self._listener is not None:
            return
        if self._listen == "unix":
            self._path.unlink(missing_ok=True)
            self._listener = await asyncio.start_unix_server(self._serve, self._path)
        else:
            self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._listener.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - called as one
        connection = self._connections[task] = ProxiedConnection(self, writer)
        try:
            await connection.run(reader)
        except asyncio.CancelledError:
            pass  # the proxy is closing; asyncio's stream server would log the cancellation
        finally:
            _reset(writer)
            del self._connections[task]

    def _set(self, intercept: Intercept) -> Intercept:
        self._intercepts.append(intercept)
        return intercept


def _pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def _reset(writer: asyncio.StreamWriter) -> None:
    """Abort the connection: RST on TCP, a plain close on a unix socket."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.family != socket.AF_UNIX:
        with suppress(OSError):
            linger = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()
