"""gRPC and forks: its core does not survive a fork, so children of a user may not use it."""

from __future__ import annotations

import os

from ..errors import WrongContext

#: Id of the first process that used gRPC, if any; forked children inherit it.
_users: list[int] = []


def use_grpc() -> None:
    """Record that this process uses gRPC; call it before any gRPC object is created.

    ``WrongContext`` if it is the forked child of a process that did: threads and locks of gRPC's
    core were not copied, and the next call would hang or crash.
    """
    if not _users:
        _users.append(os.getpid())
    if _users[0] != os.getpid():
        raise WrongContext(
            f"gRPC cannot be used in process {os.getpid()}, forked from process {_users[0]}, which "
            'had used it; start processes by the method "spawn" or "forkserver", or fork before '
            "the first call through a broker"
        )
