"""Reads a queue as a table: a snapshot that changes nothing in the queue."""

# pyright: reportMissingImports=false
from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from .._protocol.operations.spark import bulk
from .arrow_rows import BatchBuilder, Ids, between, check_schema, numbers, times
from .options import ReadOptions
from .paging import read_pages

if TYPE_CHECKING:
    from .._protocol.operation import Operation

#: Limit of tasks, unless an option sets their number.
MAX_PARTITIONS = 64


@dataclass
class SnapshotPartition(InputPartition):
    """A range of ranks of a snapshot, for one task."""

    parts: list[bulk.SnapshotRange]


class SnapshotReader(DataSourceReader):
    """Takes a snapshot of the queue on the driver; tasks read it rank by rank."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Take the snapshot, once per DataFrame, and divide it into partitions."""
        options, snapshot = self._options, uuid.uuid4().hex
        client, state = options.client(), bulk.SnapshotState()
        while state.now_ms is None or state.last:
            state = client.run(
                bulk.take_snapshot(
                    options.keys,
                    snapshot,
                    state,
                    visibility=options.visibility,  # type: ignore[arg-type]
                    ttl_s=options.snapshot_ttl_ms // 1000,
                )
            )
        noted = sum(state.sizes)
        by_size = min(MAX_PARTITIONS, -(-noted // options.max_records_per_partition))
        parts = max(1, min(options.num_partitions or by_size, noted))
        bounds = [noted * n // parts for n in range(parts + 1)]
        return [
            SnapshotPartition(list(_cut(snapshot, state.sizes, *pair))) for pair in pairwise(bounds)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the messages of one partition that still exist."""
        if not isinstance(partition, SnapshotPartition):
            raise TypeError(f"not a partition of this source: {partition!r}")
        options = self._options
        builder = BatchBuilder(self._schema, options.queue, options.codec, options.on_decode_error)
        client = options.client()
        for part in partition.parts:
            read = partial(self._read, builder, part)
            for page in read_pages(client, part.start, part.stop, options.fetch_size, read):
                yield self._batch(builder, page)

    def _read(
        self, builder: BatchBuilder, part: bulk.SnapshotRange, start: int, stop: int
    ) -> Operation[bulk.SnapshotPage]:
        return bulk.read_snapshot(
            self._options.keys,
            part._replace(start=start, stop=stop),
            ttl_s=self._options.snapshot_ttl_ms // 1000,
            bodies=builder.wants_bodies,
            counts=builder.wants_counts,
            max_bytes=self._options.fetch_bytes,
        )

    def _batch(self, builder: BatchBuilder, page: bulk.SnapshotPage) -> Any:
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
        )
        after, before = self._options.sent_after, self._options.sent_before
        if after is None and before is None:
            return batch
        return between(batch, ids, after, before)


def _cut(
    snapshot: str, sizes: Sequence[int], start: int, stop: int
) -> Iterator[bulk.SnapshotRange]:
    """Return the pages of a snapshot that contain the messages from *start* up to *stop*."""
    first = 0
    for page, size in enumerate(sizes):
        low, high = max(start - first, 0), min(stop - first, size)
        if low < high:
            yield bulk.SnapshotRange(snapshot, len(sizes), page, low, high)
        first += size
