"""Reading a queue as a stream: claims that can be read again until they are acknowledged."""

# pyright: reportMissingImports=false
from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .._common.ids import ID_LENGTH
from .._protocol.spark import claims
from ..errors import RSMQError
from .arrow import BatchBuilder, Ids, check_schema, numbers, repeated, times
from .options import StreamReadOptions
from .stream_claims import ClaimSlice, Offset, StreamClaims

#: More than any queue holds.
_ALL = 2**40
#: Spark asks for the backlog with every poll, up to a hundred times a second.
_BACKLOG_S = 1.0


@dataclass
class ClaimRange(InputPartition):
    """A part of a claim, for one task."""

    slice: ClaimSlice


class ClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims on the driver, reads in tasks.

    Spark makes several of these, in different processes: offsets and partitions come from one,
    rows from copies of another. What tasks need travels in the partitions.
    """

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        self._claimant: StreamClaims | None = None
        self._backlog: tuple[float, dict[str, int]] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the same offset always: Spark asks more than once."""
        options = self._options
        return Offset(options.queue, options.namespace).to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may hold."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Acknowledge what is done, claim what is ready."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _ALL
        latest = self._on_driver.latest(Offset.of(start), most).to_dict()
        if latest != start:
            self._backlog = None
        return latest

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Tell what waits, for the query's progress."""
        now = time.monotonic()
        if self._backlog is None or now - self._backlog[0] > _BACKLOG_S:
            backlog = self._on_driver.backlog()
            self._backlog = (now, {"visible": backlog.visible, "hidden": backlog.hidden})
        return self._backlog[1]

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what is ready now, and then end."""
        self._on_driver.stop_at_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide what was claimed between two offsets."""
        return [ClaimRange(p) for p in self._on_driver.plan(Offset.of(start), Offset.of(end))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the messages of one partition."""
        if not isinstance(partition, ClaimRange):
            raise TypeError(f"not a partition of ours: {partition!r}")
        options, slice = self._options, partition.slice
        builder = BatchBuilder(self._schema, options.queue, options.codec, options.on_decode_error)
        runner = options.runner()
        for start in range(slice.start, slice.stop, options.fetch_size):
            stop = min(slice.stop, start + options.fetch_size)
            page = runner.run(
                claims.read(slice.ledger, slice.claim, start, stop, bodies=builder.wants_bodies)
            )
            if page.taken and options.fail_on_data_loss:
                raise RSMQError(
                    f"{page.taken} messages of queue {options.queue!r} that this query had claimed "
                    "were received by others; start it with failOnDataLoss=false to go on without "
                    "them, and use a longer leaseMs"
                )
            yield _batch(builder, page)

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what Spark has finished with."""
        self._on_driver.commit(Offset.of(end))

    def stop(self) -> None:
        """Stop renewing, give back what was claimed ahead; nothing depends on this being called."""
        if self._claimant is not None:
            # Spark closes the line and sends the signal; the second of them must not end this.
            with suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._claimant.close()

    @property
    def _on_driver(self) -> StreamClaims:
        if self._claimant is None:
            self._claimant = StreamClaims(self._options)
            # Spark ends this process by a signal; so it comes to stop().
            with suppress(ValueError):
                if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self._claimant


def _batch(builder: BatchBuilder, page: claims.ClaimPage) -> Any:
    """Make rows of the messages that are still the query's."""
    sizes = [run.size for run in page.runs]
    size = len(sizes)
    counts = repeated(numbers([run.rc for run in page.runs], size), sizes)
    firsts = repeated(times([run.fr for run in page.runs], size), sizes)
    bodies = page.bodies
    if page.taken or page.gone:
        held = pa.array([body is not None for body in bodies])
        counts, firsts = counts.filter(held), firsts.filter(held)
        bodies = [body for body in bodies if body is not None]
        ids = Ids(page.held)
    elif all(run.width == ID_LENGTH for run in page.runs):
        ids = Ids(b"".join(run.ids for run in page.runs))
    else:
        ids = Ids(page.held)
    return builder.build(ids, bodies, counts, firsts)  # type: ignore[arg-type]
