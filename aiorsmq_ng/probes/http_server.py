"""Probes over HTTP, from a thread of its own: it answers while the event loop is blocked."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from .._common.listening import cannot_listen
from ..errors import InvalidValue
from .checks import NAMES, SERVER_S, ProbeAnswer, ProbeName, Probes

logger = logging.getLogger("aiorsmq_ng.probes")

#: Pause between two looks at the event loop.
_LOOK_S = 1.0
#: Seconds that the event loop has to answer: more than a blocked one may use without harm.
#: Together with ``SERVER_S`` less than the timeout of a prober, which is a second if not given.
_LOOP_S = 0.4
#: Seconds for a request to arrive, for its reply to be taken, and the longest request.
_ARRIVAL_S, _DRAIN_S, _LONGEST = 1.0, 5.0, 8192
#: Connections at a time. One more closes the oldest that has not sent its request: idle ones must
#: not silence the probes.
_AT_ONCE = 100
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
            500: "Internal Server Error", 503: "Service Unavailable"}  # fmt: skip


class ProbeServer:
    """Serves ``/livez``, ``/readyz`` and ``/startupz``: ``async with ProbeServer(probes, 8080)``.

    Its answers have no bodies of messages and no passwords, and need no token. The program goes on
    in the block; the thread ends with it.

    Args:
        probes: the probes; their event loop is the one that runs.
        listen: ``host:port`` (0: any free port), ``unix:/path``, or a port, as a number or text, on
            all addresses.
    """

    def __init__(self, probes: Probes, listen: str | int) -> None:
        self._probes = probes
        self._listen = listen
        #: The address that it listens on, with the actual port.
        self.address = ""
        self._started, self._ended = asyncio.Event(), asyncio.Event()
        self._fault: Exception | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._connections = 0
        # Those that have not sent their request, oldest first.
        self._arriving: dict[asyncio.StreamWriter, None] = {}
        # When the event loop of the program was asked for a sign; None once it has given it.
        self._asked_at: float | None = None

    async def __aenter__(self) -> Self:
        """Listen; ``InvalidValue`` if the address cannot be listened on."""
        listening = _bind(self._listen)
        self.address = _address(listening)
        program = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=lambda: self._run(listening, program),
            name="aiorsmq-ng probes",
            daemon=True,
        )
        self._thread.start()
        # No thread of the program's pool waits for it: handlers may have filled it.
        await self._started.wait()
        if self._fault is not None:
            raise self._fault
        return self

    async def __aexit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._thread is not None and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            await self._ended.wait()
            self._thread.join()  # it has nothing left to do

    @property
    def blocked_s(self) -> float:
        """Seconds for which the event loop of the program has not answered; 0 if it does."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else time.monotonic() - asked_at

    def _run(self, listening: socket.socket, program: asyncio.AbstractEventLoop) -> None:
        """Run the thread; an error before it listens is raised by ``__aenter__``."""
        try:
            asyncio.run(self._serve(listening, program))
        except Exception as error:
            logger.exception("the thread of the probes has ended")
            self._fault = error
        finally:
            listening.close()
            with suppress(RuntimeError):  # the program has ended
                program.call_soon_threadsafe(self._started.set)
                program.call_soon_threadsafe(self._ended.set)

    async def _serve(self, listening: socket.socket, program: asyncio.AbstractEventLoop) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(
            lambda reader, writer: self._reply(reader, writer, program),
            sock=listening,
            limit=_LONGEST,
        )
        watching = asyncio.create_task(self._watch(program))
        program.call_soon_threadsafe(self._started.set)
        try:
            await self._stop.wait()
        finally:
            watching.cancel()
            server.close()
            if listening.family == socket.AF_UNIX:
                with suppress(OSError):
                    os.unlink(self.address.removeprefix("unix:"))

    async def _watch(self, program: asyncio.AbstractEventLoop) -> None:
        """Ask the event loop of the program for a sign, one at a time."""
        while True:
            if self._asked_at is None:
                self._asked_at = time.monotonic()
                with suppress(RuntimeError):  # closed: it never answers
                    program.call_soon_threadsafe(self._sign)
            await asyncio.sleep(_LOOK_S)

    def _sign(self) -> None:
        self._asked_at = None

    async def _reply(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        program: asyncio.AbstractEventLoop,
    ) -> None:
        self._connections += 1
        self._arriving[writer] = None
        if self._connections > _AT_ONCE:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            oldest.transport.abort()
        try:
            async with asyncio.timeout(_ARRIVAL_S):
                head = await reader.readuntil(b"\r\n\r\n")
            self._arriving.pop(writer, None)
            try:
                status, body = await self._answered(head, program)
            except Exception as error:
                logger.exception("a probe could not be answered")
                status, body = _refusal(500, f"the probe has failed with {type(error).__name__}")
            lines = (
                f"HTTP/1.1 {status} {_REASONS[status]}",
                "content-type: application/json",
                f"content-length: {len(body)}",
                "cache-control: no-store",
                "connection: close",
            )
            shown = b"" if head.startswith(b"HEAD ") else body
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + shown)
            async with asyncio.timeout(_DRAIN_S):
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a request, or its client is gone
        finally:
            self._connections -= 1
            self._arriving.pop(writer, None)
            writer.close()

    async def _answered(self, head: bytes, program: asyncio.AbstractEventLoop) -> tuple[int, bytes]:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3:
            return _refusal(400, "this is no request of HTTP/1")
        if words[0] not in ("GET", "HEAD"):
            return _refusal(405, "probes answer GET and HEAD")
        path = words[1].partition("?")[0]
        for probe in NAMES:
            if path == f"/{probe}":
                answer = await self._probe(probe, program)
                return answer.status, answer.as_json()
        return _refusal(404, "the probes are " + ", ".join(f"/{name}" for name in NAMES))

    async def _probe(self, probe: ProbeName, program: asyncio.AbstractEventLoop) -> ProbeAnswer:
        """Have the program answer; say that its event loop is blocked if it does not."""
        checking = self._probes.check(probe)
        try:
            asked = asyncio.run_coroutine_threadsafe(checking, program)
        except RuntimeError:
            checking.close()
            return ProbeAnswer(probe, "stopped", ("the event loop of the program has ended",))
        try:
            within_s = _LOOP_S + (SERVER_S if probe == "readyz" else 0)
            return await asyncio.wait_for(asyncio.wrap_future(asked), within_s)
        except TimeoutError:
            return self._blocked(probe)

    def _blocked(self, probe: ProbeName) -> ProbeAnswer:
        blocked_s, limit_s = self.blocked_s, self._probes.blocked_limit
        figures = {"blocked_s": round(blocked_s, 1)}
        if probe == "livez" and blocked_s <= limit_s:
            return ProbeAnswer(probe, "blocked", figures=figures)
        reason = (
            f"the event loop has not answered for {max(blocked_s, _LOOP_S):.1f} s; "
            "run what blocks by asyncio.to_thread"
        )
        return ProbeAnswer(probe, "blocked", (reason,), figures)


def _refusal(status: int, reason: str) -> tuple[int, bytes]:
    return status, json.dumps({"error": reason}).encode() + b"\n"


def _bind(listen: str | int) -> socket.socket:
    """Return a socket that listens on an address; ``InvalidValue`` if there can be none."""
    try:
        if isinstance(listen, str) and listen.startswith("unix:"):
            return _bind_file(listen.removeprefix("unix:"))
        host, colon, port = str(listen).rpartition(":")
        if (colon and not host) or not (port.isascii() and port.isdecimal() and int(port) < 65536):
            raise InvalidValue(f"address {listen!r} is not a port, host:port or unix:/path")
        host = host.removeprefix("[").removesuffix("]")
        if not host and socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", int(port)), family=socket.AF_INET6, dualstack_ipv6=True
            )
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except OSError as error:
        raise cannot_listen(listen, error) from error


def _bind_file(path: str) -> socket.socket:
    """Return a socket at *path*, for this user only; one of a process that has died is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
            trial.settimeout(1.0)
            try:
                trial.connect(path)
            except ConnectionRefusedError:
                os.unlink(path)
            except OSError:
                pass
        listening.bind(path)
        os.chmod(path, 0o600)
        listening.listen(_AT_ONCE)
    except BaseException:
        listening.close()
        raise
    return listening


def _address(listening: socket.socket) -> str:
    name: Any = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return f"unix:{name}"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
