"""Stops the server of a data folder when its last user is gone, even if that user was killed.

This is a separate program, because no other process is left when the last user is killed. The
process that starts the server, or finds it without a caretaker, runs
``python -I -S caretaker.py FOLDER SOCKET SECONDS``. The caretaker needs only the standard library
and sleeps nearly all the time. It exits with the server, or when the server is to be kept without
users (``keep``). Its working directory is the folder, so it still watches a folder that was
renamed. Over its connection it also stops a server whose folder was removed.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
import time

_TICK_S = 2.0
#: How long to wait for a starting server, and the interval between attempts.
_START_S, _POLL_S = 1.0, 0.005
#: Pause before another attempt at the gate lock, which users hold briefly to acquire or release.
_BUSY_S = 0.2
#: Timeout of the shutdown: syncing the append-only file to a slow disk may take long.
_STOP_S = 30.0


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Caretaker:
    """Watches the server of the current directory and stops it when it has no users."""

    def __init__(self, address: str, alone_s: float) -> None:
        self._address = address
        self._alone_s = alone_s
        self._alone_since: float | None = None
        self._line: socket.socket | None = None
        self._gate, self._users, self._server = (
            os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            for name in ("gate.lock", "users.lock", "server.lock")
        )

    def look(self, watch: int) -> float | None:
        """Check once; return the seconds until the next check, or None to exit."""
        if not _lock(self._gate):
            return _BUSY_S
        try:
            if self._line is None:
                self.connect(0)
            if self._is_done():
                # Still holding the gate: the next process must see that there is no caretaker.
                fcntl.flock(watch, fcntl.LOCK_UN)
                return None
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return min(_TICK_S, self._alone_s / 4)

    def rest(self, seconds: float) -> None:
        """Sleep, and return early if the server exits."""
        if self._line is None:
            time.sleep(seconds)
        elif select.select([self._line], [], [], seconds)[0]:
            # Readable means closed: the only reply ever expected here is that of SHUTDOWN.
            self._line.close()
            self._line = None

    def _is_done(self) -> bool:
        if not _lock(self._users):
            self._alone_since = None
            return False
        try:
            if _lock(self._server):
                fcntl.flock(self._server, fcntl.LOCK_UN)
                return True
            if os.path.exists("keep"):
                return True
            now = time.monotonic()
            if self._alone_since is None:
                self._alone_since = now
            if now - self._alone_since >= self._alone_s:
                self._shut_down()
            return False
        finally:
            fcntl.flock(self._users, fcntl.LOCK_UN)

    def connect(self, patience_s: float) -> None:
        """Connect to the server; retry for *patience_s* seconds while it is starting."""
        deadline = time.monotonic() + patience_s
        while self._line is None:
            line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                line.connect(self._address)
                self._line = line
            except OSError:
                line.close()
                if time.monotonic() >= deadline:
                    return
                time.sleep(_POLL_S)

    def _shut_down(self) -> None:
        if self._line is None:
            return
        self._line.settimeout(_STOP_S)
        try:
            self._line.sendall(b"SHUTDOWN NOSAVE\r\n")
            self._line.recv(512)
        except OSError:
            pass
        self._line.close()
        self._line = None


def main(folder: str, address: str, alone_s: str) -> None:
    """Watch the server of *folder*, in a background process."""
    os.chdir(folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    watch = os.open("watch.lock", flags, 0o600)
    if not _lock(watch):
        return
    caretaker = Caretaker(address, float(alone_s))
    caretaker.connect(_START_S)
    # Detach: the process that started the caretaker need not wait for it.
    if os.fork():
        return
    while (pause_s := caretaker.look(watch)) is not None:
        caretaker.rest(pause_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
