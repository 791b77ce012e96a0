"""Ends the server of a data folder when the last of its users is gone, however it ended.

A program of its own, because no other process is left when the last user is killed. The process
that starts the server, or finds it without a caretaker, starts this one:
``python -I -S caretaker.py FOLDER SOCKET SECONDS``. It needs nothing but the standard library and
sleeps nearly all the time. It ends with the server, or when the server shall go on without users.
It works inside the folder, so a folder that is renamed stays its own; and over its connection it
also stops a server whose folder was removed.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import sys
import time

_TICK_S = 2.0
#: How long it waits for a server that is starting, and how often it tries.
_START_S, _POLL_S = 1.0, 0.005
#: How long it waits for the gate, which is held for a moment by everybody who comes or goes.
_BUSY_S = 0.2
#: Syncing the append-only file to a slow disk is what takes time at the end.
_STOP_S = 30.0


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Caretaker:
    """Looks after the server of the current folder."""

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
        """Look once; return after how many seconds to look again, or None if there is no need."""
        if not _lock(self._gate):
            return _BUSY_S
        try:
            if self._line is None:
                self.connect(0)
            if self._is_done():
                # Inside the gate: the next process must see that it has no caretaker.
                fcntl.flock(watch, fcntl.LOCK_UN)
                return None
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)
        return min(_TICK_S, self._alone_s / 4)

    def rest(self, seconds: float) -> None:
        """Wait, but not longer than the server lives."""
        if self._line is None:
            time.sleep(seconds)
        elif select.select([self._line], [], [], seconds)[0]:
            # It is gone: nothing else is said on this connection but the answer to a SHUTDOWN.
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
        """Connect to the server, which may be just starting."""
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
    """Look after the server of *folder*, in the background."""
    os.chdir(folder)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    watch = os.open("watch.lock", flags, 0o600)
    if not _lock(watch):
        return
    caretaker = Caretaker(address, float(alone_s))
    caretaker.connect(_START_S)
    # Outside the tree of the process that started it, which need not wait for its end.
    if os.fork():
        return
    while (pause_s := caretaker.look(watch)) is not None:
        caretaker.rest(pause_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
