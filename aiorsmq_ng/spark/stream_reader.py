"""The reader of a stream: consumes queues by claims, which Spark can read repeatedly."""

# pyright: reportMissingImports=false
from __future__ import annotations

import atexit
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .._common.message_ids import ID_LENGTH
from .._protocol.operations import queues
from .._protocol.operations.spark import claims as operations
from ..errors import ClaimLost, QueueNotFound, RSMQError
from .arrow_rows import BatchBuilder, Ids, Undecodable, check_schema, numbers, repeated, times
from .offsets import StreamOffset
from .options import StreamReadOptions
from .paging import read_pages
from .stream_claims import ClaimSlice
from .stream_queues import StreamQueues, connections

if TYPE_CHECKING:
    from .._protocol.keys import QueueKeys
    from .._protocol.operation import Operation
    from .._runtime.sync_client import SyncClient

logger = logging.getLogger("aiorsmq_ng.spark")

#: More than any queue holds.
_ALL = 2**40
#: Spark asks for the backlog with every poll, up to a hundred times a second.
_BACKLOG_S = 1.0


@dataclass
class ClaimRange(InputPartition):
    """Slices of claims, for one task."""

    slices: list[ClaimSlice]


class ClaimReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Claims on the driver, reads in tasks.

    Spark makes several of these in different processes: offsets and partitions come from one,
    rows from copies of another. Partitions carry everything that tasks need.
    """

    def __init__(self, options: StreamReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema
        #: Client and claims of the process that Spark runs for the query; ``None`` elsewhere.
        self._driver: tuple[SyncClient, StreamQueues] | None = None
        self._backlog: tuple[float, dict[str, int]] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the first offset. It is always the same, because Spark asks more than once."""
        return StreamOffset().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch."""
        return ReadMaxRows(self._options.max_messages_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Acknowledge what is done, claim what is ready."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else _ALL
        client, claims = self._on_driver()
        before = StreamOffset.of(start)
        latest = client.call(claims.latest(before, most))
        if latest == before:
            # Spark compares texts, and this one may be of an earlier form.
            return start
        self._backlog = None
        return latest.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return backlog and counts for the query's progress: Spark asks sources for no metrics."""
        now = time.monotonic()
        if self._backlog is None or now - self._backlog[0] > _BACKLOG_S:
            client, claims = self._on_driver()
            backlog = client.call(claims.backlog())
            done = claims.metrics
            shown = {
                "visible": backlog.visible,
                "hidden": backlog.hidden,
                "oldestAgeMs": backlog.oldest_age_ms,
                "claimed": done.claimed,
                "renewed": done.renewed,
                "takenByOthers": done.taken,
                "outages": done.outages,
            }
            self._backlog = (now, shown)
        return self._backlog[1]

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Consume what is ready now, then end."""
        client, claims = self._on_driver()
        client.call(claims.stop_at_now())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Divide what was claimed between two offsets."""
        client, claims = self._on_driver()
        work = claims.plan(StreamOffset.of(start), StreamOffset.of(end))
        return [ClaimRange(slices) for slices in client.call(work)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the messages of one partition."""
        if not isinstance(partition, ClaimRange):
            raise TypeError(f"not a partition of this source: {partition!r}")
        for slice in partition.slices:
            try:
                yield from self._read(slice)
            except (QueueNotFound, ClaimLost) as error:
                if not self._is_missing(slice.ledger.keys):
                    raise
                logger.warning("%s; its messages are left out", error)

    def _read(self, slice: ClaimSlice) -> Iterator[Any]:
        options, queue = self._options, slice.ledger.keys.queue
        builder = BatchBuilder(self._schema, queue, options.codec, options.on_decode_error)

        def read(start: int, stop: int) -> Operation[operations.ClaimPage]:
            return operations.read(
                slice.ledger,
                slice.claim,
                start,
                stop,
                bodies=builder.wants_bodies,
                max_bytes=options.fetch_bytes,
                headers=builder.wants_headers,
            )

        client, at = options.client(), slice.start
        for page in read_pages(client, slice.start, slice.stop, options.fetch_size, read):
            if page.taken and options.fail_on_data_loss:
                raise RSMQError(
                    f"{page.taken} messages of queue {queue!r} that this query had claimed "
                    "were received by others; start it with failOnDataLoss=false to continue "
                    "without them, and use a longer leaseMs"
                )
            batch = _batch(builder, page)
            # Before the batch: when this task succeeds, its dead letters are where they belong.
            self._dead_letter(slice, at, page, builder.undecodable)
            at += page.size
            yield batch

    def _dead_letter(
        self,
        slice: ClaimSlice,
        first: int,
        page: operations.ClaimPage,
        undecodable: list[Undecodable],
    ) -> None:
        """Move messages of a page, which begins at number *first*, to the dead-letter queue.

        A task that runs again does not find them any more.
        """
        if not undecodable:
            return
        options, keys = self._options, slice.ledger.keys
        dead, places = (
            options.dead_letters_of(keys),
            {id: n for n, id in enumerate(page.ids, first)},
        )
        letters = [operations.DeadLetter(places[one.id], *one) for one in undecodable]
        for lot in _lots(letters, options.claim_bytes):
            options.client().run(operations.dead_letter(slice.ledger, slice.claim, lot, dead))
        logger.warning(
            "%d messages of queue %r do not decode; those still held go to %r; the first one %s",
            *(len(letters), keys.queue, dead.queue, letters[0].why),
        )

    def _is_missing(self, keys: QueueKeys) -> bool:
        """Return True if a queue does not exist, and the options allow that."""
        return self._options.skips_missing and not self._options.client().run(queues.exists(keys))

    def commit(self, end: dict[str, Any]) -> None:
        """Acknowledge what Spark has finished."""
        client, claims = self._on_driver()
        client.call(claims.commit(StreamOffset.of(end)))

    def stop(self) -> None:
        """Stop renewing, and give back what Spark does not know. Nothing depends on this call."""
        if self._driver is not None:
            with _uninterrupted():
                (client, claims), self._driver = self._driver, None
                atexit.unregister(self.stop)
                client.call(claims.aclose())
                client.close()

    def _on_driver(self) -> tuple[SyncClient, StreamQueues]:
        if self._driver is None:
            client = self._options.own_client(connections(self._options))
            self._driver = client, StreamQueues(self._options, client.transport)
            # Spark ends this process with a signal; the handler leads to stop(). If the signal
            # arrives when stop() is about to begin, the exit of the process calls it again.
            atexit.register(self.stop)
            with suppress(ValueError):
                if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
                    signal.signal(signal.SIGTERM, _exit)
        return self._driver


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore SIGTERM inside if it would lead to ``_exit``, and then let it end the process.

    Spark closes the socket and sends a signal; the later one must not interrupt the give-back.
    """
    is_ours = signal.getsignal(signal.SIGTERM) is _exit
    with suppress(ValueError):
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        with suppress(ValueError):
            if is_ours:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(*_: object) -> None:
    """End the process as if it had reached its end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def _lots(
    letters: list[operations.DeadLetter], most_bytes: int
) -> Iterator[list[operations.DeadLetter]]:
    """Divide *letters* into lots for one call each; one that reaches the bytes ends its lot."""
    lot: list[operations.DeadLetter] = []
    size = 0
    for letter in letters:
        lot.append(letter)
        size += len(letter.body)
        if size >= most_bytes or len(lot) == operations.MAX_DEAD_LETTERS:
            yield lot
            lot, size = [], 0
    if lot:
        yield lot


def _batch(builder: BatchBuilder, page: operations.ClaimPage) -> Any:
    """Make rows of the messages that the query still holds."""
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
    return builder.build(ids, bodies, counts, firsts, headers=page.headers)  # type: ignore[arg-type]
