"""Lock files (``flock``) that the kernel releases when their process dies."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ..errors import Unavailable
from .data_folder import explained

# A start or stop takes 0.1 s on an idle machine; 60 s are enough for hundreds of waiting processes.
_GATE_S = 60.0
POLL_S = 0.005

# A forked child shares the open lock files, and would keep a lock that the parent released. So a
# child closes them at once. The guard prevents a fork between the opening of a file and its
# registration in _open_fds.
_fork_guard = threading.RLock()
_open_fds: set[int] = set()
# Further cleanup callbacks that run in a forked child.
at_fork: list[Callable[[], None]] = []


def _close_in_child() -> None:
    for fd in _open_fds:
        with suppress(OSError):
            os.close(fd)
    _open_fds.clear()
    for forget in at_fork:
        forget()
    _fork_guard.release()


os.register_at_fork(
    before=_fork_guard.acquire,
    after_in_parent=_fork_guard.release,
    after_in_child=_close_in_child,
)


class LockFile:
    """One opening of a lock file; two openings exclude each other even within a process."""

    def __init__(self, path: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with _fork_guard:
            self.fd = os.open(path, flags, 0o600)
            _open_fds.add(self.fd)

    def attempt(self, mode: int) -> bool:
        """Try to lock without blocking; return True if the lock was acquired."""
        try:
            fcntl.flock(self.fd, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Release the lock."""
        # Closing is not enough: a process that is being forked may have the file open, too.
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file descriptor; call ``unlock`` first."""
        with _fork_guard:
            _open_fds.discard(self.fd)
            os.close(self.fd)


@contextmanager
def gate(folder: Path, timeout_s: float = _GATE_S) -> Iterator[None]:
    """Hold the gate of *folder*: only one process at a time starts or stops its server."""
    deadline = time.monotonic() + timeout_s
    with explained(folder), closing(LockFile(folder / "gate.lock")) as gate:
        while not gate.attempt(fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                raise Unavailable(
                    f"another process has been starting or stopping the server of {str(folder)!r} "
                    f"for {timeout_s:g} s; look for a hanging process that uses this folder"
                )
            time.sleep(POLL_S)
        try:
            if os.fstat(gate.fd).st_nlink == 0:
                raise FileNotFoundError("it was removed while this process waited for it")
            yield
        finally:
            gate.unlock()
