"""Writes rows into queues, each once, even if Spark runs tasks again."""

# pyright: reportMissingImports=false
from __future__ import annotations

import difflib
import json
import logging
import uuid
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import add
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from .._common import entropy
from .._common.message_headers import encode_headers
from .._common.message_ids import HEADERS_MARK, SUFFIX_LENGTH, mark_headers, suffix
from .._protocol import argument_checks
from .._protocol.keys import Namespace, QueueKeys
from .._protocol.operations import queues
from .._protocol.operations.spark import bulk_send
from ..errors import InvalidValue
from .arrow_rows import ENCODERS, HEADERS, check_type
from .options import WriteOptions
from .pyspark_versions import (
    DataSourceStreamArrowWriter,  # pyright: ignore[reportAttributeAccessIssue]  # without PySpark
)

if TYPE_CHECKING:
    from .._protocol.operation import Operation
    from .._runtime.sync_client import SyncClient

logger = logging.getLogger("aiorsmq_ng.spark")

_TYPES: dict[str, tuple[DataType, ...]] = {
    "body": (StringType(), BinaryType()),
    "queue": (StringType(),),
    "delay": (ShortType(), IntegerType(), LongType(), FloatType(), DoubleType()),
    "id": (StringType(),),
    "headers": (HEADERS,),
}


@dataclass
class Outcome(WriterCommitMessage):
    """Result of one task: rows per queue, and the names under which it staged them."""

    job: str
    rows: dict[str, int] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    #: Rows dropped because they were too long, per queue.
    dropped: dict[str, int] = field(default_factory=dict)


class BatchSink(DataSourceArrowWriter):
    """Sends the rows of a DataFrame. One copy of it serves all tasks, and the commit."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite)
        self._options = options
        self._job = options.job_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Outcome:
        """Send the rows of one partition, or stage them."""
        return _deliver(self._options, self._job, iterator, staged=self._staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Turn staged rows into messages. Rows sent directly are messages already."""
        _tell_of_dropped(messages)
        if self._staged:
            # A batch is committed only once, unless it has a jobId.
            ttl_ms = self._options.commit_ttl_ms if self._options.job_id else 3_600_000
            _commit(self._options, self._job, 0, messages, ttl_ms)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop staged rows. Rows sent directly stay sent."""
        _discard(self._options, messages)

    @property
    def _staged(self) -> bool:
        return self._options.delivery == "staged"


class StreamSink(DataSourceStreamArrowWriter):
    """Sends the rows of a stream, epoch by epoch. Spark makes a new one for every step."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        _check(options, schema, overwrite)
        if options.job_id:
            # With it, the epochs of a new checkpoint would be taken for those of the old one.
            raise InvalidValue(
                "option 'jobId' is for batches; a stream is identified by its checkpointLocation"
            )
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Outcome:
        """Stage the rows of one partition, or send them."""
        context = TaskContext.get()
        job = context.getLocalProperty("sql.streaming.queryId")
        epoch = context.getLocalProperty("streaming.sql.batchId")
        if self._options.delivery == "direct":
            # A mark per epoch: partitions of the next one have the same numbers.
            outcome = _deliver(self._options, f"{job}.{epoch}", iterator, staged=False)
            return Outcome(job, outcome.rows, dropped=outcome.dropped)
        return _deliver(self._options, job, iterator, staged=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Turn the staged rows of an epoch into messages, once, however often this is called."""
        _tell_of_dropped(messages)
        jobs = {m.job for m in messages if isinstance(m, Outcome)}
        if self._options.delivery != "direct" and jobs:
            _commit(self._options, jobs.pop(), batchId, messages, self._options.commit_ttl_ms)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the staged rows of an epoch."""
        _discard(self._options, messages)


def _check(options: WriteOptions, schema: StructType, overwrite: bool) -> None:
    if overwrite:
        raise InvalidValue(
            "a queue is not overwritten; write with mode('append') or output mode append"
        )
    names = [column.name for column in schema.fields]
    for column in schema.fields:
        if column.name not in _TYPES:
            close = difflib.get_close_matches(column.name, _TYPES, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]!r}, or " if close else ""
            raise InvalidValue(
                f"column {column.name!r} is none of body, queue, delay, id, headers; {hint}do "
                "the rows belong into the body: df.selectExpr('to_json(struct(*)) AS body')"
            )
        check_type(column, _TYPES[column.name])
    if "body" not in names:
        raise InvalidValue("there is no column 'body', which is what is sent")
    if not options.queue and "queue" not in names:
        raise InvalidValue(
            "there is neither an option 'queue' nor a column 'queue': rows need a queue",
            code="missingParameter",
        )


class _Lot(NamedTuple):
    """Rows of one partition for one queue, from number *start* on."""

    keys: QueueKeys
    start: int
    rows: bulk_send.Rows


class _Digest:
    """A digest of the rows of a partition so far, by which a retry with other rows is noticed.

    If it did not notice them, rows would be lost and others doubled. So it is a hash without known
    collisions, and no checksum. Bodies, their lengths and headers are hashed apart: the same rows
    give the same digest, however they are divided into lots, and no others do.
    """

    def __init__(self) -> None:
        self._hashes = [blake2b(digest_size=16) for _ in range(3)]
        self._count = 0

    def after(self, rows: bulk_send.Rows) -> bytes:
        """Add *rows* and return the digest."""
        bodies, lengths, headers = self._hashes
        bodies.update(b"".join(rows.bodies))
        lengths.update(array("Q", map(len, rows.bodies)).tobytes())
        for number, text in enumerate(rows.headers, self._count):
            if text:
                headers.update(b"%d %d %s" % (number, len(text), text))
        self._count += rows.count
        together = b"".join(part.digest() for part in self._hashes)
        return blake2b(together, digest_size=16).hexdigest().encode()


def _deliver(
    options: WriteOptions, job: str, batches: Iterable[pa.RecordBatch], *, staged: bool
) -> Outcome:
    client, outcome = options.client(), Outcome(job)
    lots = _lots(options, batches)
    if options.create_queue:
        lots = _creating(client, lots)
    deliver = (
        _stage(options, client, outcome, lots) if staged else _send(options, client, job, lots)
    )
    for queue, stored, dropped in deliver:
        outcome.rows[queue] = outcome.rows.get(queue, 0) + stored
        outcome.dropped[queue] = outcome.dropped.get(queue, 0) + dropped
    return outcome


def _creating(client: SyncClient, lots: Iterable[_Lot]) -> Iterator[_Lot]:
    """Create the queue of a lot before the first lot for it."""
    ready: set[str] = set()
    for lot in lots:
        if lot.keys.queue not in ready:
            client.run(queues.create(lot.keys, vt=30, delay=0, maxsize=65536))
            ready.add(lot.keys.queue)
        yield lot


#: Queue, rows sent or staged, and rows dropped.
_Delivered = tuple[str, int, int]


def _send(
    options: WriteOptions, client: SyncClient, job: str, lots: Iterable[_Lot]
) -> Iterator[_Delivered]:
    """Send lots in order; the next lot is made while one is in flight."""
    partition, sent_lots = str(TaskContext.get().partitionId()), deque[_Lot]()
    digests: dict[str, _Digest] = {}
    #: Rows that an earlier attempt sent beyond those of this one.
    beyond: dict[str, int] = {}

    def operations() -> Iterator[Operation[bulk_send.BulkSent]]:
        for lot in lots:
            sent_lots.append(lot)
            digest = digests.setdefault(lot.keys.queue, _Digest()).after(lot.rows)
            yield bulk_send.send(
                lot.keys,
                lot.rows,
                bulk_send.Place(job, partition, lot.start, digest),
                ttl_s=options.mark_ttl_ms // 1000,
                oversize=options.on_oversize,  # type: ignore[arg-type]
            )

    for sent in client.run_ahead(operations()):
        lot = sent_lots.popleft()
        beyond[lot.keys.queue] = sent.skipped - lot.rows.count
        yield lot.keys.queue, sent.stored, sent.dropped
    for queue, rows in beyond.items():
        if rows > 0:
            raise bulk_send.other_rows(job, partition, queue, f"{rows} more rows")


def _stage(
    options: WriteOptions, client: SyncClient, outcome: Outcome, lots: Iterable[_Lot]
) -> Iterator[_Delivered]:
    """Stage lots in order; each call has the number of rows that earlier calls staged."""
    attempt = uuid.uuid4().hex
    rows: dict[str, int] = {}
    for lot in lots:
        queue = lot.keys.queue
        before = rows.get(queue, 0)
        staged = client.run(
            bulk_send.stage(
                lot.keys,
                attempt,
                lot.rows,
                before=before,
                ttl_s=options.mark_ttl_ms // 1000,
                oversize=options.on_oversize,  # type: ignore[arg-type]
            )
        )
        rows[queue] = staged.rows
        outcome.staged[queue] = attempt
        yield queue, staged.rows - before, staged.dropped


def _lots(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[_Lot]:
    """Divide rows by queue into lots of *send_size*, or fewer if their bodies are long."""
    waiting: dict[str, bulk_send.Rows] = {}
    starts: dict[str, int] = {}

    def lot(queue: str, rows: bulk_send.Rows) -> _Lot:
        start = starts.get(queue, 0)
        starts[queue] = start + rows.count
        return _Lot(options.keys_of(queue), start, rows)

    for batch in _sliced(options, batches):
        for queue, rows in _by_queue(options, batch):
            if queue in waiting and waiting[queue].count:
                waiting[queue].extend(rows)
            else:
                waiting[queue] = rows
            while full := _full(options, waiting[queue]):
                first, waiting[queue] = waiting[queue].split(full)
                yield lot(queue, first)
    for queue, rows in waiting.items():
        if rows.count:
            yield lot(queue, rows)


def _sliced(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Divide batches into parts of about one call: few rows are Python values at a time."""
    for batch in batches:
        fit = options.send_bytes * batch.num_rows // max(1, batch.nbytes)
        rows = max(1, min(options.send_size, fit))
        yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _full(options: WriteOptions, rows: bulk_send.Rows) -> int:
    """Return how many rows are the first full lot; 0 if all rows are less than a lot."""
    most, size = options.send_size, 0
    sizes = [len(body) for body in rows.bodies[:most]]
    if rows.headers:
        sizes = list(map(add, sizes, map(len, rows.headers)))
    if sum(sizes) < options.send_bytes:
        return most if len(sizes) >= most else 0
    for count, one in enumerate(sizes, 1):
        size += one
        if size >= options.send_bytes:
            return count
    return 0


def _by_queue(options: WriteOptions, batch: pa.RecordBatch) -> Iterator[tuple[str, bulk_send.Rows]]:
    rows = _rows(options, batch)
    if "queue" not in batch.schema.names:
        yield options.queue, rows
        return
    places: dict[str, list[int]] = {}
    for at, queue in enumerate(batch.column("queue").to_pylist()):
        places.setdefault(queue or options.queue, []).append(at)
    if "" in places:
        raise InvalidValue(
            "a row has no queue; give option 'queue' for such rows, or filter them out: "
            "df.where('queue IS NOT NULL')"
        )
    for queue, chosen in places.items():
        yield queue, rows.choose(chosen)


def _rows(options: WriteOptions, batch: pa.RecordBatch) -> bulk_send.Rows:
    """Return the rows of a batch, checked."""
    size, names = batch.num_rows, batch.schema.names
    bodies = batch.column("body").cast(pa.binary()).to_pylist()
    if batch.column("body").null_count:
        raise InvalidValue("a row has no body; filter such rows out: df.where('body IS NOT NULL')")
    encode = ENCODERS[options.codec]
    if encode is not None:
        try:
            bodies = [encode(body) for body in bodies]
        except msgspec.MsgspecError as error:
            raise InvalidValue(f"a body is not JSON: {error}") from None
    fresh = suffix(entropy.take(SUFFIX_LENGTH * size))
    rows = bulk_send.Rows(fresh, -1, bodies)
    if "headers" in names and batch.column("headers").null_count < size:
        texts = [encode_headers(dict(pairs or ())) for pairs in batch["headers"].to_pylist()]
        if any(texts):
            rows.ids, rows.headers = mark_headers(fresh, texts), texts
    if "id" in names:
        given = batch.column("id").to_pylist()
        rows.ids = [
            new if id is None else _kept(id, headers)
            for new, id, headers in zip(rows.each_id(), given, rows.each_headers(), strict=True)
        ]
    if "delay" in names:
        rows.delays_ms = [
            argument_checks.optional_ms("delay", d) for d in batch.column("delay").to_pylist()
        ]
    return rows


def _kept(id: str, headers: bytes) -> bytes:
    """Return the entry for a row whose message gets the id that the row names."""
    if headers and not argument_checks.check_id(id).endswith(HEADERS_MARK.decode()):
        raise InvalidValue(
            f"a row has headers, and the id {id!r} of a message without: ids of messages with "
            f"headers end in {HEADERS_MARK.decode()!r}; leave out the id or the headers"
        )
    return bulk_send.kept(argument_checks.check_id(id))


def _commit(
    options: WriteOptions,
    job: str,
    epoch: int,
    messages: list[WriterCommitMessage | None],
    ttl_ms: int,
) -> None:
    """Turn the staged rows of an epoch into messages, or complete an interrupted commit of it.

    One record, in a place that does not depend on the rows, decides which attempts belong to the
    epoch, also for queues in other namespaces: no script can reach those together with the record.
    Their rows are kept for as long as the record before it is written.
    """
    client, ttl_s = options.client(), ttl_ms // 1000
    pairs = sorted(
        (queue, attempt)
        for message in messages
        if isinstance(message, Outcome)
        for queue, attempt in message.staged.items()
    )
    ours = json.dumps(pairs)
    beside: list[str] = []
    for keys, names in _by_namespace(options, pairs):
        if keys.namespace == options.records.namespace:
            beside = names
        else:
            client.run(bulk_send.keep_staged(keys, names, ttl_s=ttl_s))
    record = client.run(
        bulk_send.begin_epoch(options.records, job, epoch, ours, beside, ttl_s=ttl_s)
    )
    if record:
        for queue, attempt in json.loads(record):
            while client.run(_move(options, queue, attempt)):
                pass
        client.run(bulk_send.end_epoch(options.records, job, epoch, ttl_s=ttl_s))
    if record != ours:
        _discard(options, messages)


def _move(options: WriteOptions, queue: str, attempt: str) -> Operation[int]:
    keys, most = options.keys_of(queue), options.send_bytes
    return bulk_send.move_staged(keys, attempt, count=1000, max_bytes=most)


def _by_namespace(
    options: WriteOptions, pairs: Iterable[tuple[str, str]]
) -> Iterable[tuple[QueueKeys, list[str]]]:
    """Return a queue of each namespace, and the names of the rows staged there."""
    found: dict[Namespace, tuple[QueueKeys, list[str]]] = {}
    for queue, attempt in pairs:
        keys = options.keys_of(queue)
        found.setdefault(keys.namespace, (keys, []))[1].append(keys.staged(attempt))
    return found.values()


def _tell_of_dropped(messages: list[WriterCommitMessage | None]) -> None:
    """Log what onOversize=drop dropped."""
    dropped: dict[str, int] = {}
    for message in messages:
        if isinstance(message, Outcome):
            for queue, rows in message.dropped.items():
                dropped[queue] = dropped.get(queue, 0) + rows
    for queue, rows in dropped.items():
        if rows:
            logger.warning("%d rows for queue %r exceed its maxsize and were dropped", rows, queue)


def _discard(options: WriteOptions, messages: list[WriterCommitMessage | None]) -> None:
    """Remove the staged rows of attempts."""
    pairs = (
        pair
        for message in messages
        if isinstance(message, Outcome)
        for pair in message.staged.items()
    )
    for keys, names in _by_namespace(options, pairs):
        options.client().run(bulk_send.discard(keys, names))
