"""Run a private Redis or Valkey server for as long as a process on this machine uses it.

Plain blocking code: call it from a worker thread. A data folder has one server, which any number
of processes share by means of four ``flock`` files. The kernel releases the locks of a process
that dies, so a crash leaves nothing to repair.

- ``gate.lock`` is held exclusively by a process that starts or stops the server.
- ``users.lock`` is held shared by every user. A user that can lock it exclusively is the last one.
- ``server.lock`` is opened here and inherited by the server. While it is locked the server lives,
  and a second server on the same files cannot start.
- ``watch.lock`` is held by the caretaker, which stops a server whose last user was killed.
"""

from __future__ import annotations

import atexit
import fcntl
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote

from .._common.durations import Seconds, at_least_0
from ..errors import InvalidValue, Unavailable
from .binary import LAYOUT, ServerBinary, find_binary, read_record
from .data_folder import check_owner, explained, prepare, private_folder, resolve, socket_path
from .locks import POLL_S, LockFile, at_fork, gate

_log = logging.getLogger(__name__)

# Seconds that a server keeps running after its last user was killed.
_ALONE_S = 10.0
# Timeout of the shutdown: syncing the append-only file to a slow disk may take long.
_STOP_S = 30.0
# No preamble: a snapshot inside the append-only file would tie the data to one engine and version.
# Daemonized: outside our process tree the server leaves no zombie and needs no parent to reap it.
_OPTIONS = (  # noqa: SIM905 - reads like the command line it is
    "--port 0 --unixsocketperm 700 --appendonly yes --aof-use-rdb-preamble no "
    "--maxmemory-policy noeviction --daemonize yes"
).split()


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """A snapshot: ``binary`` ran last here, ``pid`` is known only while the server runs.

    ``in_use`` is ``None`` if unknown: the folder was never used, or its server is being started or
    stopped. ``kept``: the server keeps running without users until ``stop``. ``users`` are the ids
    of the processes that use it, or ``None`` where the system does not list them (all but Linux).
    """

    #: The data folder.
    folder: Path
    #: Socket on which the server listens.
    socket: Path
    #: True if the server answers.
    running: bool
    #: True if processes use it; ``None`` if unknown.
    in_use: bool | None
    #: Program that ran last here.
    binary: ServerBinary | None
    #: Process of the server, while it runs.
    pid: int | None
    #: True if the server keeps running without users until ``stop``.
    kept: bool = False
    #: Processes that use it; ``None`` where the system does not list them.
    users: tuple[int, ...] | None = None


def _ask(address: Path, *words: bytes) -> bytes | None:
    """Send one command; return the first line of the reply, or None without a reply."""
    request = b"*%d\r\n" % len(words)
    request += b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        connection.connect(os.fsencode(address))
        connection.sendall(request)
        return connection.recv(512).split(b"\r\n")[0] or None
    return None


def _bring_up(folder: Path, address: Path, fsync: str, timeout_s: float) -> ServerBinary:
    """Start the server unless it runs, and wait until it serves; the caller holds the gate."""
    deadline = time.monotonic() + timeout_s
    started: ServerBinary | None = None
    while (reply := _ask(address, b"PING")) is None or reply.startswith(b"-LOADING"):
        if reply is not None:
            # The server is loading its data, which may take any time: restart the timeout.
            deadline = time.monotonic() + timeout_s
        with closing(LockFile(folder / "server.lock")) as lock:
            if lock.attempt(fcntl.LOCK_EX):
                if started is not None:
                    raise _death(folder, started)
                started = find_binary(folder)
                _spawn(started, folder, address, fsync, lock, timeout_s)
                _start_caretaker(folder, address)
        if time.monotonic() > deadline:
            raise Unavailable(
                f"server of {str(folder)!r} did not answer within {timeout_s:g} s; "
                f"look into {str(folder / 'server.log')!r}"
            )
        time.sleep(POLL_S)
    if started is not None:
        _log.info("started %s for %s", started, folder)
        _record(folder, started)
        return started
    _start_caretaker(folder, address)
    if fsync == "always":
        # Another user may have started it with everysec; the safest setting wins.
        _ask(address, b"CONFIG", b"SET", b"appendfsync", b"always")
    return read_record(folder) or find_binary(folder)


def _record(folder: Path, binary: ServerBinary) -> None:
    """Record which program runs here. If the disk is full, the next start tries again."""
    if read_record(folder) == binary:
        return
    draft = folder / "server.json.new"
    try:
        draft.unlink(missing_ok=True)
        with draft.open("x") as file:  # follows no link
            json.dump({"layout": LAYOUT, **asdict(binary)}, file)
        draft.replace(folder / "server.json")
    except OSError as error:
        _log.warning("cannot record in %s which program runs there: %s", folder, error)
        with suppress(OSError):
            draft.unlink()


def _start_caretaker(folder: Path, address: Path) -> None:
    """Start the caretaker unless one runs; without it only a user can stop the server."""
    with closing(LockFile(folder / "watch.lock")) as watch:
        if not watch.attempt(fcntl.LOCK_EX):
            return
        watch.unlock()
    script = Path(__file__).with_name("caretaker.py")
    name = Path(sys.executable or "").name
    # Where Python is embedded in another program, sys.executable is not an interpreter.
    python = sys.executable if name.startswith(("python", "pypy")) else shutil.which("python3")
    where = address.name if address.parent == folder else str(address)
    command = [python or "python3", "-I", "-S", str(script), str(folder), where, str(_ALONE_S)]
    try:
        subprocess.run(  # noqa: S603 - the interpreter that runs this
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("the server of %s has no caretaker: %s", folder, error)


def _spawn(
    binary: ServerBinary, folder: Path, address: Path, fsync: str, lock: LockFile, timeout_s: float
) -> None:
    log, pidfile = folder / "server.log", folder / "server.pid"
    pidfile.unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        log.replace(folder / "server.log.old")
    command = [binary.path, *_OPTIONS, "--save", "", "--appendfsync", fsync, "--dir", str(folder)]
    command += ["--unixsocket", str(address), "--logfile", str(log), "--pidfile", str(pidfile)]
    try:
        with log.open("xb") as output:  # follows no link
            subprocess.run(  # noqa: S603 - the user chooses the program
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Redis 7 does not start in a locale that the machine lacks, and needs none.
                env={**os.environ, "LC_ALL": "C"},
                pass_fds=(lock.fd,),
                start_new_session=True,
                timeout=timeout_s,
                check=True,
            )
    except (OSError, subprocess.SubprocessError) as error:
        raise _death(folder, binary) from error


def _death(folder: Path, binary: ServerBinary) -> Unavailable:
    lines = (folder / "server.log").read_text(errors="replace").splitlines()
    said = " | ".join(filter(None, map(str.strip, lines[-5:]))) or "nothing"
    return Unavailable(
        f"{binary} died at start and logged: {said}; fix the cause, or choose another data "
        f"folder than {str(folder)!r}"
    )


def _stop(folder: Path, address: Path) -> None:
    """Shut the server down and wait until it has exited; the caller holds the gate."""
    deadline = time.monotonic() + _STOP_S
    with closing(LockFile(folder / "server.lock")) as lock:
        while not lock.attempt(fcntl.LOCK_EX):
            # NOSAVE concerns snapshots; the append-only file is flushed and synced.
            reply = _ask(address, b"SHUTDOWN", b"NOSAVE")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"server of {str(folder)!r} did not stop within {_STOP_S:g} s and replied "
                    f"{reply!r}; look into its server.log, and end process {_read_pid(folder)}"
                )
            time.sleep(POLL_S)
    _log.info("stopped the server of %s", folder)


def _read_pid(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int((folder / "server.pid").read_text())
    return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _keep_note(folder: Path) -> Path:
    """Return the path of the marker file: while it exists, the server runs without users."""
    return folder / "keep"


class EmbeddedServer:
    """A reference-counted hold on the server of a data folder; the last release stops the server.

    A hold belongs to the process that acquired it. A forked child may use the address while its
    parent keeps the hold, and acquires a hold of its own to be independent. Holds that are left
    when the interpreter exits are released then. If the last user was killed, the caretaker stops
    the server after about 10 s.
    """

    def __init__(self, folder: Path, fsync: str, startup_timeout_s: float, remove: bool) -> None:
        self.folder = folder
        self.socket = socket_path(folder)
        self._fsync = fsync
        self._remove = remove
        self._startup_timeout_s = startup_timeout_s
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._users: LockFile | None = None
        self._entry = str(folder / "users.lock")
        with gate(folder):
            users = LockFile(folder / "users.lock")
            try:
                fcntl.flock(users.fd, fcntl.LOCK_SH)
                self.binary = _bring_up(folder, self.socket, fsync, startup_timeout_s)
            except BaseException:
                users.unlock()
                users.close()
                raise
        self._users = users
        self._identity = _identity(os.fstat(users.fd))
        _holds.add(self)

    @classmethod
    def acquire(
        cls,
        folder: Path | None = None,
        *,
        fsync: Literal["always", "everysec"] = "always",
        startup_timeout: Seconds = 15.0,
    ) -> Self:
        """Become a user of the server of *folder*, and start it unless it runs.

        *folder* is created with mode 700 if it is missing. *fsync* is ``always`` (nothing is lost
        when the server is killed or the power fails) or ``everysec`` (faster; either event may
        lose up to 2 s of data). *startup_timeout* is the longest time that a starting server may
        not answer; a server that is loading its data does answer. Raise ``Unavailable`` for a
        missing program, an unusable folder, or a server that fails.
        """
        if fsync not in ("everysec", "always"):
            raise InvalidValue(f"fsync is {fsync!r}; give 'everysec' or 'always'")
        timeout_s = at_least_0("startup_timeout", startup_timeout)
        folder = resolve(folder)
        with explained(folder):
            prepare(folder)
        return cls(folder, fsync, timeout_s, remove=False)

    @classmethod
    def ephemeral(cls) -> Self:
        """Start a server on a new temporary folder, which the last release removes."""
        parent = private_folder(tempfile.gettempdir())
        for left in parent.glob("run-*"):
            # Its owner was killed, and no other process will ever remove that folder.
            with suppress(Unavailable):
                if status(left).in_use is False:
                    cls(left.resolve(), "everysec", 15.0, remove=True).release()
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=parent)).resolve()
        try:
            return cls(folder, "everysec", 15.0, remove=True)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """The URL of the server, in the form that ``redis.asyncio.from_url`` takes."""
        return f"unix://{quote(str(self.socket))}"

    def check_folder(self) -> None:
        """Raise ``Unavailable`` if the data folder is no longer the one that was acquired.

        A server whose folder was removed writes to files that cannot be opened again. Costs one
        ``stat`` and no other I/O.
        """
        if self._users is not None and not self._is_there():
            raise Unavailable(
                f"data folder {str(self.folder)!r} was removed, renamed or replaced while in use, "
                f"and what is sent now could be lost; put the folder back, or close the client and "
                f"open it again"
            )

    def _is_there(self) -> bool:
        try:
            return _identity(os.stat(self._entry)) == self._identity
        except OSError:
            return False

    def ensure_running(self) -> None:
        """Start the server again, on the same socket and data, if it died under this hold."""
        if self._users is None or self._pid != os.getpid():
            raise Unavailable(
                f"this process no longer holds the server of {str(self.folder)!r}; acquire it again"
            )
        self.check_folder()
        with gate(self.folder):
            self.check_folder()
            self.binary = _bring_up(self.folder, self.socket, self._fsync, self._startup_timeout_s)

    def keep(self) -> None:
        """Keep the server running without users, until ``stop`` is called."""
        with gate(self.folder):
            _keep_note(self.folder).touch(mode=0o600)

    def release(self) -> None:
        """Release the hold; the last user stops the server and waits until it has exited.

        Releasing again, or in a forked child, does nothing. Raise ``Unavailable`` if the server
        does not stop; the hold is released all the same. If the folder was removed or renamed in
        the meantime, the caretaker stops the server soon.
        """
        if self._pid != os.getpid():
            return
        with self._mutex:
            users, self._users = self._users, None
        if users is None:
            return
        _holds.discard(self)
        if not self._is_there():
            # A folder of that name would be another one. The caretaker stops the server.
            users.unlock()
            users.close()
            _log.warning(
                "data folder %s was removed, renamed or replaced while in use", self.folder
            )
            return
        with closing(users), gate(self.folder):
            try:
                if users.attempt(fcntl.LOCK_EX) and not _keep_note(self.folder).exists():
                    _stop(self.folder, self.socket)
                    if self._remove:
                        shutil.rmtree(self.folder, ignore_errors=True)
            finally:
                # Still holding the gate: the next process to release must not see this hold.
                users.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "released" if self._users is None else "held"
        return f"<EmbeddedServer {self.url} {self.binary} {state}>"


_holds: set[EmbeddedServer] = set()
at_fork.append(_holds.clear)


@atexit.register
def _release_all() -> None:
    for hold in list(_holds):
        with suppress(Unavailable):
            hold.release()


def stop(folder: Path | None = None) -> bool:
    """Stop the server of *folder*; return True if it is stopped, False if it is still in use.

    Undoes ``EmbeddedServer.keep``. A server that is in use keeps running until its last user
    releases it.
    """
    folder = resolve(folder)
    if not (folder / "users.lock").exists():
        return True
    check_owner(folder)
    with gate(folder), closing(LockFile(folder / "users.lock")) as users:
        _keep_note(folder).unlink(missing_ok=True)
        if not users.attempt(fcntl.LOCK_EX):
            return False
        try:
            _stop(folder, socket_path(folder))
        finally:
            users.unlock()
    return True


def status(folder: Path | None = None) -> EmbeddedStatus:
    """Report on the server of *folder* without starting, stopping or creating anything."""
    folder = resolve(folder)
    address = socket_path(folder)
    running, in_use = _ask(address, b"PING") is not None, None
    holders: tuple[int, ...] | None = None
    if (folder / "users.lock").exists():
        check_owner(folder)
        with (
            suppress(Unavailable),
            # The caretaker holds the gate briefly, too.
            gate(folder, timeout_s=0.1),
            closing(LockFile(folder / "users.lock")) as users,
            closing(LockFile(folder / "server.lock")) as server,
        ):
            running = not server.attempt(fcntl.LOCK_EX)
            holders = _holders(users)
            in_use = not users.attempt(fcntl.LOCK_EX)
    pid = _read_pid(folder) if running else None
    kept = _keep_note(folder).exists()
    return EmbeddedStatus(folder, address, running, in_use, read_record(folder), pid, kept, holders)


def _holders(users: LockFile) -> tuple[int, ...] | None:
    """Return the processes that hold a lock file, or None where the system does not list them."""
    inode = str(os.fstat(users.fd).st_ino)
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    # 1: FLOCK  ADVISORY  READ 4711 08:01:1234567 0 EOF
    fields = (line.split() for line in lines)
    found = {int(f[4]) for f in fields if f[1] == "FLOCK" and f[5].rpartition(":")[2] == inode}
    return tuple(sorted(found))
