"""Reading a queue as a table: a snapshot, looked at and left alone."""

# pyright: reportMissingImports=false
from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..protocol import bulk
from .options import ReadOptions
from .rows import BatchBuilder, between, check_schema

#: More tasks than this are not made unless asked for.
MAX_PARTITIONS = 64


@dataclass
class SnapshotRange(InputPartition):
    """The messages that a snapshot has at these ranks."""

    snapshot: str
    start: int
    stop: int


class SnapshotReader(DataSourceReader):
    """Notes on the driver what the queue holds; tasks read it rank by rank."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Make the snapshot, once per DataFrame, and divide it."""
        options, snapshot = self._options, uuid.uuid4().hex
        runner, state = options.runner(), bulk.SnapshotState()
        while state.now_ms is None or state.last:
            state = runner.run(
                bulk.note(
                    options.keys,
                    snapshot,
                    state,
                    visibility=options.visibility,  # type: ignore[arg-type]
                    ttl_s=options.snapshot_ttl_ms // 1000,
                )
            )
        by_size = min(MAX_PARTITIONS, -(-state.noted // options.max_records_per_partition))
        parts = max(1, min(options.num_partitions or by_size, state.noted))
        bounds = [state.noted * n // parts for n in range(parts + 1)]
        return [SnapshotRange(snapshot, *pair) for pair in pairwise(bounds)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the messages of one partition that are still there."""
        if not isinstance(partition, SnapshotRange):
            raise TypeError(f"not a partition of ours: {partition!r}")
        options = self._options
        builder = BatchBuilder(self._schema, options.queue, options.codec, options.on_decode_error)
        runner = options.runner()
        for start in range(partition.start, partition.stop, options.fetch_size):
            page = runner.run(
                bulk.read_noted(
                    options.keys,
                    partition.snapshot,
                    start,
                    min(partition.stop, start + options.fetch_size),
                    ttl_s=options.snapshot_ttl_ms // 1000,
                    bodies=builder.wants_bodies,
                    counts=builder.wants_counts,
                )
            )
            yield self._batch(builder, page)

    def _batch(self, builder: BatchBuilder, page: bulk.SnapshotPage) -> Any:
        ids, scores, bodies, counts, firsts = page
        if None in bodies:
            kept = [i for i, body in enumerate(bodies) if body is not None]
            ids, scores = [ids[i] for i in kept], [scores[i] for i in kept]
            bodies = [bodies[i] for i in kept]
            if counts:
                counts, firsts = [counts[i] for i in kept], [firsts[i] for i in kept]
        batch = builder.build(ids, bodies, counts, firsts, scores)  # type: ignore[arg-type]
        after, before = self._options.sent_after, self._options.sent_before
        if after is None and before is None:
            return batch
        return between(batch, ids, after, before)
