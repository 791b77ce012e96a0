"""Clean up after a stopped query: acknowledge its last batch, or release its claims."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .._protocol.operations.spark import claims
from ..errors import InvalidValue
from . import options as choices
from .offsets import Offset, StreamOffset, is_offset
from .stream_claims import Calls, acknowledge, give_back, retire

if TYPE_CHECKING:
    from .._protocol.keys import QueueKeys


def finalize(checkpoint: str | Path, **options: Any) -> int:
    """Acknowledge what the query of *checkpoint* has finished; return the number of claims.

    Spark reports that a batch is done when it asks for the next one. A query that was stopped in
    between, or ran with ``trigger(once=True)``, leaves its last batch in the queue, and would
    acknowledge it when it is started again. Call this only while the query does not run: it takes
    over the ledgers of all queues. *options* are those of the connection (``url`` ...).

    A checkpoint of another file system than the local one (``s3a://``, ``hdfs://``) is read by the
    Spark session of this process.
    """
    log = _open(checkpoint)
    done = log.numbers("commits")
    if not done:
        return 0
    finished = 0
    logged = max(log.numbers("offsets"))
    planned = {o.ledger: o.claim for o in _offsets(log.read("offsets", logged))}
    for offset in _offsets(log.read("offsets", max(done))):
        given = {"queue": offset.queue, "namespace": offset.namespace, **_texts(options)}
        parsed = choices.parse(choices.StreamReadOptions, given)
        last = planned.get(offset.ledger, offset.claim)
        with closing(parsed.own_client()) as client:
            finished += client.call(_finalize(client.transport, offset.keys, offset, last))
    return finished


async def _finalize(transport: Calls, keys: QueueKeys, done: Offset, planned: int) -> int:
    """Acknowledge the claims up to *done*; give back those after *planned*, which Spark lacks."""
    ledger = await transport.run(claims.take_over(keys, done.ledger))
    finished = range(ledger.acked + 1, done.claim + 1)
    for number in finished:
        await acknowledge(transport, ledger, number)
    for number in ledger.live:
        if number > planned:
            await give_back(transport, ledger, number)
    return len(finished)


def release(queue: str, ledger: str, **options: Any) -> int:
    """Give back what the reader *ledger* of *queue* holds; return the number of messages.

    *queue* may be several names, separated by commas. *ledger* is the name of a named reader, or
    the id from a checkpoint. A query that still runs with it fails at its next step. If the query
    is never started again, this is how messages that were moved out of the queue return.
    """
    parsed = choices.parse(choices.StreamReadOptions, {"queue": queue, **_texts(options)})
    given = 0
    with closing(parsed.own_client()) as client:
        for name in parsed.names:
            keys = parsed.keys_of(name)
            named = client.run(claims.find_group_ledger(keys, ledger))
            given += client.call(retire(client.transport, keys, named or ledger))
    return given


class _LocalLog:
    """The files of a checkpoint, numbered in folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self, folder: str) -> list[int]:
        names = (file.name for file in (self._folder / folder).glob("*"))
        return [int(name) for name in names if name.isdecimal()]

    def read(self, folder: str, number: int) -> str:
        return (self._folder / folder / str(number)).read_text()


class _RemoteLog:
    """The same on any file system that Spark reads; through Spark, whose session has the access."""

    def __init__(self, place: str) -> None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - local checkpoints need no Spark

        session = SparkSession.getActiveSession()
        if session is None:
            raise InvalidValue(
                f"the checkpoint {place!r} is not on a local path, so it is read by the Spark "
                "session of this process, and there is none: start one"
            )
        self._files = session.read.format("binaryFile")
        self._place = place

    def numbers(self, folder: str) -> list[int]:
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        try:
            found = self._files.load(f"{self._place}/{folder}").select("path").collect()
        except AnalysisException as error:
            if "PATH_NOT_FOUND" not in str(error):
                raise
            return []
        names = (row.path.rpartition("/")[2] for row in found)
        return [int(name) for name in names if name.isdecimal()]

    def read(self, folder: str, number: int) -> str:
        file = self._files.load(f"{self._place}/{folder}/{number}")
        (row,) = file.select("content").collect()
        return bytes(row.content).decode()


def _open(checkpoint: str | Path) -> _LocalLog | _RemoteLog:
    text = str(checkpoint)
    parts = urlsplit(text)
    if parts.scheme not in ("", "file"):
        return _RemoteLog(text.rstrip("/"))
    return _LocalLog(Path(unquote(parts.path) if parts.scheme else text))


def _offsets(entry: str) -> Iterator[Offset]:
    """Read one entry of Spark's offset log: a version, metadata, then a line per source."""
    for line in entry.splitlines()[2:]:
        try:
            known = json.loads(line)
        except ValueError:
            continue
        if is_offset(known):
            yield from StreamOffset.of(known).offsets.values()


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
