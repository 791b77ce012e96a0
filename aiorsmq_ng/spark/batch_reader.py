"""Reads queues as a table: snapshots that change nothing in the queues."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .._protocol.operations.spark import snapshots
from ..errors import QueueCorrupt, QueueNotFound
from .arrow_rows import BatchBuilder, Ids, between, check_schema, numbers, times
from .options import ReadOptions
from .paging import read_pages
from .queue_selection import selected_queues

if TYPE_CHECKING:
    from .._protocol.keys import QueueKeys
    from .._protocol.operation import Operation

logger = logging.getLogger("aiorsmq_ng.spark")

#: Messages in one page of a snapshot; a larger queue takes several pages.
SNAPSHOT_PAGE = 200_000
#: Limit of tasks, unless an option sets their number.
MAX_PARTITIONS = 64
#: Messages, and bytes of bodies, that one task reads. The server answers two or three tasks as fast
#: as it can, and each task costs Spark some hundredths of a second.
TASK_MESSAGES = 500_000
TASK_BYTES = 128 * 2**20
#: Messages for which one more task is worth starting while a processor is idle.
WORTH_A_TASK = 20_000


@dataclass
class SnapshotPartition(InputPartition):
    """Ranges of ranks of snapshots, for one task."""

    ranges: list[tuple[QueueKeys, snapshots.SnapshotRange]]


class SnapshotReader(DataSourceReader):
    """Takes a snapshot of every queue on the driver; tasks read them rank by rank."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Take the snapshots, once per DataFrame, and divide them into partitions."""
        options, snapshot = self._options, uuid.uuid4().hex
        pages: list[tuple[QueueKeys, snapshots.SnapshotRange]] = []
        size_bytes = 0
        for keys in selected_queues(options):
            try:
                state = self._take(keys, snapshot)
            except (QueueNotFound, QueueCorrupt) as error:
                if not options.skips_missing:
                    raise
                logger.warning("%s; the other queues are read", error)
                continue
            sizes, size_bytes = state.sizes, size_bytes + state.bytes
            for page, size in enumerate(sizes):
                pages.append((keys, snapshots.SnapshotRange(snapshot, len(sizes), page, 0, size)))
        noted = sum(page.stop for _, page in pages)
        by_size = tasks_for(noted, size_bytes, options.max_records_per_partition)
        tasks = max(1, min(options.num_partitions or by_size, noted))
        bounds = [noted * n // tasks for n in range(tasks + 1)]
        return [SnapshotPartition(list(_cut(pages, *pair))) for pair in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the messages of one partition that still exist."""
        if not isinstance(partition, SnapshotPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        options, client = self._options, self._options.client()
        for keys, part in partition.ranges:
            builder = BatchBuilder(self._schema, keys.queue, options.codec, options.on_decode_error)
            read = partial(self._read, builder, keys, part)
            for page in read_pages(client, part.start, part.stop, options.fetch_size, read):
                yield self._batch(builder, page)

    def _take(self, keys: QueueKeys, snapshot: str) -> snapshots.SnapshotState:
        """Take a snapshot of one queue; return what it has."""
        options, state = self._options, snapshots.SnapshotState()
        while state.now_ms is None or state.last:
            state = options.client().run(
                snapshots.take_snapshot(
                    keys,
                    snapshot,
                    state,
                    visibility=options.visibility,  # type: ignore[arg-type]
                    ttl_s=options.snapshot_ttl_ms // 1000,
                    step=SNAPSHOT_PAGE,
                )
            )
        return state

    def _read(
        self,
        builder: BatchBuilder,
        keys: QueueKeys,
        part: snapshots.SnapshotRange,
        start: int,
        stop: int,
    ) -> Operation[snapshots.SnapshotPage]:
        return snapshots.read_snapshot(
            keys,
            part._replace(start=start, stop=stop),
            ttl_s=self._options.snapshot_ttl_ms // 1000,
            bodies=builder.wants_bodies,
            counts=builder.wants_counts,
            max_bytes=self._options.fetch_bytes,
            headers=builder.wants_headers,
        )

    def _batch(self, builder: BatchBuilder, page: snapshots.SnapshotPage) -> Any:
        names, scores = page.range[0::2], page.range[1::2]
        bodies, counts, firsts = page.bodies, page.counts, page.firsts
        if None in bodies:
            kept = [i for i, body in enumerate(bodies) if body is not None]
            names, scores = [names[i] for i in kept], [scores[i] for i in kept]
            bodies = [bodies[i] for i in kept]
            if counts:
                counts, firsts = [counts[i] for i in kept], [firsts[i] for i in kept]
        ids, size = Ids(names), len(names)
        batch = builder.build(
            ids,
            bodies,  # type: ignore[arg-type]
            numbers(counts, size),
            times(firsts, size),
            times(scores, size) if builder.wants_scores else None,
            page.headers,
        )
        after, before = self._options.sent_after, self._options.sent_before
        if after is None and before is None:
            return batch
        return between(batch, ids, after, before)


def tasks_for(messages: int, size_bytes: int, most: int) -> int:
    """Return the number of tasks; *most* is ``maxRecordsPerPartition``, 0 if it is not given.

    A source is not given Spark's parallelism. The processors counted are those of the machine that
    plans the query: all that there are with ``local[*]``.
    """
    if most:
        tasks = -(-messages // most)
    else:
        tasks = max(
            -(-messages // TASK_MESSAGES),
            -(-size_bytes // TASK_BYTES),
            min(os.cpu_count() or 1, messages // WORTH_A_TASK),
        )
    return min(MAX_PARTITIONS, tasks)


def _cut(
    pages: Sequence[tuple[QueueKeys, snapshots.SnapshotRange]], start: int, stop: int
) -> Iterator[tuple[QueueKeys, snapshots.SnapshotRange]]:
    """Return the ranges of *pages* that contain the messages from *start* up to *stop*."""
    first = 0
    for keys, page in pages:
        low, high = max(start - first, 0), min(stop - first, page.stop)
        if low < high:
            yield keys, page._replace(start=low, stop=high)
        first += page.stop
