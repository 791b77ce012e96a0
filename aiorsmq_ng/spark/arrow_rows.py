"""The columns of a queue, and the conversion of replies to Arrow batches."""

# pyright: reportMissingImports=false, reportMissingModuleSource=false
from __future__ import annotations

import base64
import difflib
import gzip
import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .._common.message_headers import decode_headers
from .._common.message_ids import ID_LENGTH, PLAUSIBLE_US
from ..errors import InvalidValue

#: The type of the column ``headers``.
HEADERS = MapType(StringType(), StringType())
_TYPES: dict[str, tuple[DataType, ...]] = {
    "id": (StringType(),),
    "queue": (StringType(),),
    "body": (StringType(), BinaryType()),
    "sent_at": (TimestampType(),),
    "visible_at": (TimestampType(),),
    "first_received_at": (TimestampType(),),
    "receive_count": (LongType(),),
    "headers": (HEADERS,),
}
_DIGIT: Any = np.full(256, -1, dtype=np.int64)
_DIGIT[np.frombuffer(b"0123456789", dtype=np.uint8)] = np.arange(10)
_DIGIT[np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", dtype=np.uint8)] = np.arange(10, 36)
_DIGIT[np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", dtype=np.uint8)] = np.arange(10, 36)
_POWERS: Any = 36 ** np.arange(9, -1, -1, dtype=np.int64)
_TIME = pa.timestamp("us", tz="UTC")
#: Spark compares the types of a batch with these.
_ARROW: dict[Any, pa.DataType] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    TimestampType: _TIME,
    LongType: pa.int64(),
}
#: Errors that codecs raise for a body that does not decode.
_UNDECODABLE = (ValueError, EOFError, OSError, zlib.error, msgspec.MsgspecError)


def full_schema(body_type: str, *, headers: bool = False) -> StructType:
    """Return all columns, with bodies as text or as bytes; ``headers`` only if it is asked for."""
    body = BinaryType() if body_type == "binary" else StringType()
    kinds = {name: kinds[0] for name, kinds in _TYPES.items()} | {"body": body}
    if not headers:
        del kinds["headers"]
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def check_schema(schema: StructType) -> None:
    """Raise ``InvalidValue`` for columns that do not exist or have another type."""
    for column in schema.fields:
        if column.name not in _TYPES:
            close = difflib.get_close_matches(column.name, _TYPES, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_TYPES)}"
            raise InvalidValue(f"there is no column {column.name!r}; {hint}")
        check_type(column, _TYPES[column.name])


def check_type(column: StructField, kinds: Sequence[DataType]) -> None:
    """Raise ``InvalidValue`` if a column has none of the types *kinds*."""
    given = column.dataType
    if not any(isinstance(given, type(kind)) for kind in kinds) or (
        HEADERS in kinds and given.simpleString() != HEADERS.simpleString()
    ):
        names = " or ".join(kind.simpleString() for kind in kinds)
        raise InvalidValue(f"column {column.name!r} is {names}, not {given.simpleString()}")


class Undecodable(NamedTuple):
    """A message whose body does not decode, and the reason."""

    id: bytes
    body: bytes
    why: str


class BatchBuilder:
    """Makes Arrow batches of a schema from columns of replies."""

    def __init__(self, schema: StructType, queue: str, codec: str, on_error: str) -> None:
        #: The messages that the last batch lacks because of ``on_error="deadletter"``.
        self.undecodable: list[Undecodable] = []
        self._codec = codec
        self._schema = pa.schema(
            [pa.field(f.name, _arrow_type(f.dataType), f.nullable) for f in schema.fields]
        )
        self._queue = queue
        self._decode = _DECODERS[codec]
        self._on_error = on_error
        self._names = self._schema.names

    @property
    def wants_bodies(self) -> bool:
        """True if bodies must be read."""
        return "body" in self._names

    @property
    def wants_counts(self) -> bool:
        """True if the counts must be read."""
        return bool({"receive_count", "first_received_at"} & set(self._names))

    @property
    def wants_scores(self) -> bool:
        """True if the times at which messages become visible must be read."""
        return "visible_at" in self._names

    @property
    def wants_headers(self) -> bool:
        """True if headers must be read."""
        return "headers" in self._names

    def build(
        self,
        ids: Ids,
        bodies: Sequence[bytes],
        counts: pa.Array,
        firsts: pa.Array,
        visible: pa.Array | None = None,
        headers: Sequence[bytes] = (),
    ) -> pa.RecordBatch:
        """Return one batch; rows whose body does not decode may be missing from it.

        *headers* has id and headers, as they are stored, of the messages that have some.
        """
        self.undecodable = []
        columns: list[pa.Array] = []
        keep: list[bool] | None = None
        for column in self._schema:
            match column.name:
                case "id":
                    columns.append(ids.array())
                case "queue":
                    columns.append(pa.repeat(pa.scalar(self._queue, pa.string()), len(ids)))
                case "body":
                    values, keep = self._bodies(ids, bodies, column.type)
                    columns.append(values)
                case "sent_at":
                    columns.append(ids.sent_at())
                case "visible_at":
                    columns.append(pa.nulls(len(ids), _TIME) if visible is None else visible)
                case "first_received_at":
                    columns.append(firsts)
                case "headers":
                    columns.append(_headers(ids, headers, column.type))
                case _:
                    columns.append(counts)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        return batch if keep is None else batch.filter(pa.array(keep))

    def _bodies(
        self, ids: Ids, bodies: Sequence[bytes], kind: Any
    ) -> tuple[pa.Array, list[bool] | None]:
        if self._decode is None:
            try:
                return _bytes(bodies, kind), None
            except (pa.ArrowInvalid, UnicodeDecodeError):
                pass  # the loop below finds the row
        decode = self._decode or (lambda body: body)
        values: list[bytes | None] = []
        for id, body in zip(ids.list(), bodies, strict=True):
            try:
                value = decode(body)
                if kind == pa.string():
                    value.decode()
                values.append(value)
            except _UNDECODABLE as error:
                if self._on_error == "fail":
                    raise InvalidValue(
                        f"body of message {id.decode(errors='replace')} of queue {self._queue!r} "
                        f"does not decode ({type(error).__name__}); read it with bodyType=binary, "
                        "or set onDecodeError to null, drop or (streams) deadletter"
                    ) from None
                if self._on_error == "deadletter":
                    self.undecodable.append(Undecodable(id, body, _why(self._codec, error)))
                values.append(None)
        keep = None if self._on_error == "null" else [v is not None for v in values]
        return pa.array(values, kind), keep


class Ids:
    """The ids of a page, as one text if they have the usual length."""

    def __init__(self, ids: Sequence[bytes] | bytes) -> None:
        """Store a list of ids, or a text of concatenated ids of the usual length."""
        self._text: bytes | None = None
        self._list: Sequence[bytes] = ()
        if isinstance(ids, bytes):
            self._text = ids
        else:
            self._list = ids
            if set(map(len, ids)) <= {ID_LENGTH}:
                self._text = b"".join(ids)

    def __len__(self) -> int:
        return len(self._list) if self._text is None else len(self._text) // ID_LENGTH

    def list(self) -> Sequence[bytes]:
        """Return the ids as a list."""
        if not self._list and self._text:
            text = self._text
            self._list = [text[at : at + ID_LENGTH] for at in range(0, len(text), ID_LENGTH)]
        return self._list

    def array(self) -> pa.Array:
        """Return the ids as a column."""
        if self._text is None or not self._text.isascii():
            return pa.array(self.list(), pa.string())
        ends: Any = np.arange(0, len(self._text) + 1, ID_LENGTH, dtype=np.int32)
        buffers = (pa.py_buffer(ends), pa.py_buffer(self._text))
        return pa.StringArray.from_buffers(len(self), *buffers)

    def sent_at(self) -> pa.Array:
        """Return the times of sending, read from the ids; null for ids without one."""
        text = self._text
        if text is None:
            text = b"".join(id if len(id) == ID_LENGTH else b"~" * ID_LENGTH for id in self.list())
        digits = _DIGIT[np.frombuffer(text, dtype=np.uint8).reshape(-1, ID_LENGTH)[:, :10]]
        micros = digits @ _POWERS
        unknown = (digits < 0).any(axis=1) | (micros < PLAUSIBLE_US.start)
        return pa.array(micros, mask=unknown).cast(_TIME)


def between(batch: pa.RecordBatch, ids: Ids, low: int | None, high: int | None) -> Any:
    """Return the rows of *batch* that were sent from *low* to before *high* (microseconds)."""
    sent = ids.sent_at()
    mask = pc.is_valid(sent)
    if low is not None:
        mask = pc.and_(mask, pc.greater_equal(sent, pa.scalar(low, _TIME)))
    if high is not None:
        mask = pc.and_(mask, pc.less(sent, pa.scalar(high, _TIME)))
    return batch.filter(pc.fill_null(mask, False))


def numbers(counts: Sequence[bytes | None], size: int) -> pa.Array:
    """Return counts as numbers; 0 where there is none."""
    if not any(counts):
        return pa.array(np.zeros(size, dtype=np.int64))
    return pa.array(np.array([c or b"0" for c in counts], dtype="S").astype(np.int64))


def times(stamps: Sequence[bytes | None], size: int) -> pa.Array:
    """Convert epoch milliseconds in text form to times; null where there is none."""
    if not any(stamps):
        return pa.nulls(size, _TIME)
    missing: Any = np.zeros(size, dtype=bool)
    if None in stamps:
        missing = np.array([not s for s in stamps], dtype=bool)
        stamps = [s or b"0" for s in stamps]
    numbers = np.array(stamps, dtype="S").astype(np.float64)
    # Other clients may have stored something that is not a time.
    missing |= ~((numbers >= 0) & (numbers < 2**53))
    micros = np.where(missing, 0, numbers * 1000).astype(np.int64)
    return pa.array(micros, mask=missing).cast(_TIME)


def repeated(values: pa.Array, sizes: Sequence[int]) -> pa.Array:
    """Return each of *values* as often as *sizes* says."""
    if len(sizes) == 1:
        return pa.repeat(values[0], sizes[0])
    return values.take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))


def _bytes(values: Sequence[bytes], kind: Any) -> pa.Array:
    """Return bytes as a column; as text they must be UTF-8."""
    column = pa.array(values, pa.binary())
    if kind != pa.string():
        return column
    text = column.buffers()[2]
    if text is None or np.frombuffer(text, dtype=np.int8).min(initial=0) >= 0:
        # All of it is ASCII, so there is nothing to check.
        return column.view(pa.string())
    return pa.array(values, pa.string())


def _headers(ids: Ids, stored: Sequence[bytes], kind: Any) -> pa.Array:
    """Return headers as a column of maps; null for a message that has none."""
    if not stored:
        return pa.nulls(len(ids), kind)
    texts = dict(zip(stored[0::2], stored[1::2], strict=True))
    maps = (decode_headers(texts.get(id, b"")) for id in ids.list())
    return pa.array([list(one.items()) or None for one in maps], kind)


def _arrow_type(kind: DataType) -> Any:
    # Versions of PySpark differ in the type that they expect for a map.
    return to_arrow_type(kind) if isinstance(kind, MapType) else _ARROW[type(kind)]


def _why(codec: str, error: Exception) -> str:
    """Return the reason for the dead-letter queue, in one line of moderate length."""
    said = " ".join(str(error).split())
    return f"does not decode with codec={codec} ({type(error).__name__}: {said[:200]})"


def _json(body: bytes) -> bytes:
    msgspec.json.decode(body, type=msgspec.Raw)
    return body


#: Decoders of bodies after reading; ``None`` leaves them as they are.
_DECODERS: dict[str, Callable[[bytes], bytes] | None] = {
    "plain": None,
    "json": _json,
    "base64": lambda body: base64.b64decode(body, validate=True),
    "gzip": gzip.decompress,
}
#: Encoders of bodies before writing; ``None`` leaves them as they are.
ENCODERS: dict[str, Callable[[bytes], bytes] | None] = {
    "plain": None,
    "json": _json,
    "base64": base64.b64encode,
    "gzip": lambda body: gzip.compress(body, mtime=0),
}
