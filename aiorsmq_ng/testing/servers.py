"""Private servers for tests, which can be killed, paused, restarted and replicated.

Every server has a guardian: a shell that starts it and then waits on a pipe. When this process
ends, even by SIGKILL, the pipe closes, and the guardian kills the server and removes its folder.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

from .._transport.connect import connect
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.script_calls import RedisDriver, WrongLayout
from ..embedded import find_binary
from ..errors import RSMQError, Unavailable
from ..options import Options

Persistence = Literal["none", "everysec", "always"]

HOST = "127.0.0.1"
#: Timeout in seconds for a server, or a group of servers, to become ready.
READY_S = 30.0
_POLL_S = 0.02
_START_AGAIN = 3

# A line on the pipe kills only the server; the end of the pipe also removes the folder.
_GUARDIAN = """
log=$1 folder=$2; shift 2
"$@" </dev/null >>"$log" 2>&1 &
echo $!
read -r word || gone=yes
kill -9 $! 2>/dev/null
wait $! 2>/dev/null
if [ "$gone" = yes ] && [ -n "$folder" ]; then rm -rf "$folder"; fi
"""


class _Died(Exception):
    """Raised when a server exits before it answers."""


class PrivateServer:
    """A server on loopback, from the same program as the embedded one.

    ``async with PrivateServer() as server`` starts it and kills it at the end. If this process
    ends without closing it, even by SIGKILL, the server is killed, too. *words* are further
    settings as on the command line (``"--maxmemory", "10mb"``). With *persistence* data survive
    ``restart``: ``everysec`` and ``always`` are ``appendfsync`` settings of the append-only file.
    *folder* is kept; without one the data are in a temporary folder.

    Args:
        words: settings as on the command line of the server.
        persistence: ``none``, ``everysec`` or ``always``.
        password: password that clients need.
        folder: data folder, which is kept; a temporary one by default.
    """

    def __init__(
        self,
        *words: str,
        persistence: Persistence = "none",
        password: str | None = None,
        folder: Path | None = None,
    ) -> None:
        self._words = words
        self._persistence: Persistence = persistence
        self._password = password
        self._temporary = folder is None
        self._folder = folder
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pid = 0
        #: The port on which the server listens; 0 until it is started.
        self.port = 0

    @property
    def url(self) -> str:
        """The URL for clients."""
        login = f":{quote(self._password, safe='')}@" if self._password else ""
        return f"redis://{login}{HOST}:{self.port}/0"

    @property
    def folder(self) -> Path:
        """The folder of its data and its log."""
        if self._folder is None:
            raise Unavailable("the server was never started, or is closed")
        return self._folder

    @property
    def running(self) -> bool:
        """True if the server was started and not killed since; also while it is paused."""
        return self._guardian is not None

    async def start(self) -> Self:
        """Start the server and wait until it answers."""
        fixed = self.port != 0
        for attempt in range(1, _START_AGAIN + 1):
            if not fixed:
                self._choose_ports()
            try:
                self._spawn()
                await eventually(self._answers, f"the server on port {self.port} answers")
                break
            except BaseException as error:
                self.kill()
                if not isinstance(error, _Died):
                    raise
                # Another process may have taken the port in the meantime.
                if fixed or attempt == _START_AGAIN or "already in use" not in self.log():
                    said = " | ".join(self.log().splitlines()[-5:]) or "nothing"
                    raise Unavailable(f"{error}; it logged: {said}") from None
        return self

    def kill(self) -> None:
        """Kill the server (SIGKILL) and wait for its end; it keeps its port and folder."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None  # noqa: S101 - it has a pipe
        assert guardian.stdout is not None  # noqa: S101
        try:
            guardian.stdin.write(b"end\n")
            guardian.stdin.close()
        except BrokenPipeError:
            # The guardian was killed.
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        guardian.stdout.close()
        guardian.wait()

    def pause(self) -> None:
        """Suspend the server (SIGSTOP): connections stay open, without replies."""
        self._signal(signal.SIGSTOP)
        # The signal takes effect with a delay; wait for it where /proc shows the state.
        for _ in range(5000):
            if _state(self._pid) in ("T", None):
                break
            time.sleep(0.001)

    def resume(self) -> None:
        """Continue after ``pause`` (SIGCONT)."""
        self._signal(signal.SIGCONT)

    async def restart(self) -> None:
        """Kill the server if it runs, and start it with the same port, folder and settings."""
        self.kill()
        await self.start()

    async def replica(self, *words: str, by: str | None = None) -> PrivateServer:
        """Start a replica of this server and wait until it is synchronized.

        It has the same settings, and *words* in addition. *by* is another URL of this server, for
        example that of a proxy. The replica is a server of its own: close it, too.

        Args:
            words: settings as on the command line of the server.
            by: URL of a ``FaultProxy`` between the two.
        """
        way = urlsplit(by or self.url)
        more = ["--replicaof", str(way.hostname), str(way.port)]
        if self._password:
            more += ["--masterauth", self._password]
        replica = PrivateServer(
            *self._words, *words, *more, persistence=self._persistence, password=self._password
        )
        await replica.start()
        try:
            await eventually(replica.is_synchronized, "the replica has everything")
        except BaseException:
            await replica.aclose()
            raise
        return replica

    async def command(self, *words: str | int | bytes) -> Any:
        """Send one command on a connection of its own and return the undecoded reply.

        Args:
            words: the command and its arguments.
        """
        driver = await connect(self.url, Options(connect_timeout=2))
        try:
            assert isinstance(driver, RedisDriver)  # noqa: S101 - the URL is a server's
            return await driver.command(*words)
        except (NotExecuted, ReplyLost, WrongLayout) as error:
            raise Unavailable(f"{words[0]!r} failed: {error}") from error
        finally:
            await driver.aclose()

    async def info(self, section: str = "default") -> dict[str, str]:
        """Return a section of INFO, by field.

        Args:
            section: name of the section of INFO.
        """
        lines = (await self.command("INFO", section)).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    async def is_synchronized(self) -> bool:
        """Return True if the server is a replica whose link to its primary is up."""
        return (await self.info("replication")).get("master_link_status") == "up"

    def log(self) -> str:
        """Return the server's log so far."""
        return (self.folder / "log").read_text(errors="replace")

    async def aclose(self) -> None:
        """Kill the server and remove its temporary folder."""
        self.kill()
        if self._temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "running" if self.running else "not running"
        return f"<{type(self).__name__} on port {self.port}, {state}>"

    def _choose_ports(self) -> None:
        (self.port,) = free_ports(1)

    def _arguments(self) -> list[str]:
        own = ["--port", str(self.port), "--bind", HOST, "--dir", str(self.folder), "--save", ""]
        # Replicas synchronize without delay, and are pinged every second.
        own += ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"]
        own += ["--appendonly", "no" if self._persistence == "none" else "yes"]
        if self._persistence != "none":
            own += ["--appendfsync", self._persistence]
        if self._password:
            own += ["--requirepass", self._password]
        return [*own, *self._words]

    def _spawn(self) -> None:
        if self._guardian is not None:
            raise Unavailable(f"the server on port {self.port} runs already")
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="server-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = str(self._folder) if self._temporary else ""
        guard = ["/bin/sh", "-c", _GUARDIAN, "guardian", str(self._folder / "log"), folder]
        self._guardian = subprocess.Popen(  # noqa: S603 - the user chooses the program
            [*guard, find_binary().path, *self._arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            # Ctrl-C must interrupt only the tests, which clean up.
            start_new_session=True,
        )
        assert self._guardian.stdout is not None  # noqa: S101 - it has a pipe
        self._pid = int(self._guardian.stdout.readline())

    async def _answers(self) -> bool:
        if not _lives(self._pid):
            raise _Died(f"the server on port {self.port} died at start")
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            writer.write(b"PING\r\n")
            reply = await reader.readline()
        finally:
            writer.close()
        return reply.startswith((b"+PONG", b"-NOAUTH"))

    def _signal(self, number: signal.Signals) -> None:
        if self._guardian is None:
            raise Unavailable(f"the server on port {self.port} does not run")
        os.kill(self._pid, number)


def _state(pid: int) -> str | None:
    """Return the state letter of a process from /proc (T: stopped), or None if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def _lives(pid: int) -> bool:
    """Return True if a process runs; False also for a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True  # no /proc; or the process exited just now, and the next call sees it
    return state != b"Z"


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that are not in use."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


async def eventually(
    condition: Callable[[], Awaitable[bool]], what: str, within_s: float = READY_S
) -> None:
    """Wait until *condition* holds; ``Unavailable`` if it does not within *within_s*.

    A condition that fails with an error of the connection does not hold yet.
    """
    trouble = ""
    loop = asyncio.get_running_loop()
    until = loop.time() + within_s
    while loop.time() < until:
        try:
            async with asyncio.timeout_at(until):
                if await condition():
                    return
        except (OSError, TimeoutError, RSMQError) as error:
            trouble = f" ({error})"
        await asyncio.sleep(_POLL_S)
    raise Unavailable(f"not within {within_s:g} s: {what}{trouble}")
