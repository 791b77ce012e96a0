"""Servers of a test's own: to be killed, paused, restarted and replicated.

Every server has a guardian, a shell that started it and waits on a pipe. When this process ends,
however it ends, the pipe closes and the guardian kills the server and removes its folder.
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
from .._transport.redis_calls import RedisDriver, WrongLayout
from ..embedded import find_binary
from ..errors import RSMQError, Unavailable
from ..options import Options

Persistence = Literal["none", "everysec", "always"]

HOST = "127.0.0.1"
#: How long a server, or a group of them, may take to become ready.
READY_S = 30.0
_POLL_S = 0.02
_START_AGAIN = 3

# A word on the pipe ends the server alone; the end of the pipe its folder, too.
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
    """A server that shall answer is dead."""


class PrivateServer:
    """A server on loopback, from the same program as the embedded one.

    ``async with PrivateServer() as server`` starts it and kills it at the end; a server that this
    process leaves behind, even when it is killed, is killed too. *words* are further settings as
    on the command line (``"--maxmemory", "10mb"``). With *persistence* data survive ``restart``:
    ``everysec`` and ``always`` are those of the append-only file. *folder* is kept; without one the
    data lie in a temporary folder.

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
        #: The port that it listens on; 0 until it is started.
        self.port = 0

    @property
    def url(self) -> str:
        """The address for clients."""
        login = f":{quote(self._password, safe='')}@" if self._password else ""
        return f"redis://{login}{HOST}:{self.port}/0"

    @property
    def folder(self) -> Path:
        """Where its data and its log are."""
        if self._folder is None:
            raise Unavailable("the server was never started, or is closed")
        return self._folder

    @property
    def running(self) -> bool:
        """Return True if it was started and not killed since; a paused one counts."""
        return self._guardian is not None

    async def start(self) -> Self:
        """Start it and wait until it answers."""
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
                # Somebody else may have taken the port in the meantime.
                if fixed or attempt == _START_AGAIN or "already in use" not in self.log():
                    said = " | ".join(self.log().splitlines()[-5:]) or "nothing"
                    raise Unavailable(f"{error}; it said: {said}") from None
        return self

    def kill(self) -> None:
        """Kill it (SIGKILL) and return when it is dead; port and folder stay its own."""
        guardian, self._guardian = self._guardian, None
        if guardian is None:
            return
        assert guardian.stdin is not None  # noqa: S101 - it has a pipe
        assert guardian.stdout is not None  # noqa: S101
        try:
            guardian.stdin.write(b"end\n")
            guardian.stdin.close()
        except BrokenPipeError:
            # Somebody killed the guardian.
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        guardian.stdout.close()
        guardian.wait()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP): connections stay, the server does not answer."""
        self._signal(signal.SIGSTOP)
        # It may serve for another moment; where the system can tell, wait until it does not.
        for _ in range(5000):
            if _state(self._pid) in ("T", None):
                break
            time.sleep(0.001)

    def resume(self) -> None:
        """Let it go on after ``pause``."""
        self._signal(signal.SIGCONT)

    async def restart(self) -> None:
        """Kill it if it runs, and start it again: same port, same folder, same settings."""
        self.kill()
        await self.start()

    async def replica(self, *words: str, by: str | None = None) -> PrivateServer:
        """Start a replica of it and wait until it has everything.

        It has the same settings, and *words* besides. *by* is another url to reach this server,
        for example that of a proxy. The replica is a server of its own: close it, too.

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
        """Return True if it is a replica whose link to its master stands."""
        return (await self.info("replication")).get("master_link_status") == "up"

    def log(self) -> str:
        """Return what it wrote so far."""
        return (self.folder / "log").read_text(errors="replace")

    async def aclose(self) -> None:
        """Kill it and remove its temporary folder."""
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
        # A replica is served at once, and is told often that its master lives.
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
            # An interrupt at the keyboard is for the tests, which clean up.
            start_new_session=True,
        )
        assert self._guardian.stdout is not None  # noqa: S101 - it has a pipe
        self._pid = int(self._guardian.stdout.readline())

    async def _answers(self) -> bool:
        if not _lives(self._pid):
            raise _Died(f"the server on port {self.port} died at its start")
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
    """Return the letter for what a process does, if the system tells: T for standing still."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return None


def _lives(pid: int) -> bool:
    """Return True if a process runs; a dead one may or may not have been waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True  # the system does not tell; or it went just now, and the next look shows it
    return state != b"Z"


def free_ports(count: int) -> list[int]:
    """Return ports of loopback that are free."""
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

    A condition that cannot be asked (no answer) does not hold yet.
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
    raise Unavailable(f"it did not happen within {within_s:g} s that {what}{trouble}")
