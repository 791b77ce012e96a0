"""gRPC and forks: its core does not survive one, so the child of a process that used it may not."""

from __future__ import annotations

import os

from ..errors import WrongContext

#: The process that used gRPC first, if any did; its children inherit the note.
_users: list[int] = []


def use_grpc() -> None:
    """Take note that this process uses gRPC; to be called before anything of gRPC is made.

    ``WrongContext`` if it is the forked child of a process that did: threads and locks of gRPC's
    core stayed behind, and the next call would hang or crash.
    """
    if not _users:
        _users.append(os.getpid())
    if _users[0] != os.getpid():
        raise WrongContext(
            f"gRPC cannot be used in process {os.getpid()}, forked from process {_users[0]}, which "
            'had used it; start processes by the method "spawn" or "forkserver", or fork before '
            "the first call through a broker"
        )
