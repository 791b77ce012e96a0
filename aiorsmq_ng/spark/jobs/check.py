"""Checks before the slow start of Spark: options, server, queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..._protocol.operations import queues as protocol
from ...errors import QueueNotFound
from ..options import ReadOptions, StreamReadOptions, WriteOptions, parse

_KINDS = {kind.USE: kind for kind in (ReadOptions, StreamReadOptions, WriteOptions)}
#: Placeholder for queues that only the job will know.
_ANY = "any"


def check(
    use: str,
    queues: Sequence[str],
    options: Mapping[str, str] | None = None,
    *,
    timeout_ms: int = 2000,
    any_of: bool = False,
) -> None:
    """Raise what a job with these options would raise at its start. Needs no Spark.

    *use* is ``read``, ``readStream`` or ``write``. ``InvalidValue`` for an option or a name,
    ``Unavailable`` if the server does not answer within *timeout_ms*, ``QueueNotFound`` for a
    queue that does not exist, unless the job would create it; with *any_of*, only if none of them
    exists. Without *queues*, only the server is checked.
    """
    given = [parse(_KINDS[use], {**(options or {}), "queue": name}) for name in queues or [_ANY]]
    client = replace(given[0], timeout_ms=timeout_ms).own_client()
    missing: list[QueueNotFound] = []
    try:
        for one in given:
            try:
                client.run(protocol.attributes(one.keys))
            except QueueNotFound as error:
                if queues and not getattr(one, "create_queue", False):
                    missing.append(error)
        if missing and not (any_of and len(missing) < len(given)):
            raise missing[0]
    finally:
        client.close()
