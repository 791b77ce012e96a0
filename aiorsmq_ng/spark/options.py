"""The options of the data source: names, types, defaults, and errors with a next step."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .._common.queue_defaults import DEAD_SUFFIX, dead_letter_queue, has_dead_letters
from .._protocol import argument_checks
from .._protocol.keys import QueueKeys
from .._protocol.operations.spark import READ_BYTES, WRITE_BYTES
from .._protocol.operations.spark.bulk_send import MAX_ROWS
from .._protocol.operations.spark.claims import MAX_CHUNK, MAX_FETCH
from .._protocol.shards import Shards, check_together
from .._transport.urls import url_or_default
from ..errors import InvalidValue
from ..options import Options

if TYPE_CHECKING:
    from .._runtime.sync_client import SyncClient

O = TypeVar("O", bound="CommonOptions")  # noqa: E741 - options

#: Connections of one process to a server. A task has one call in flight, a query a few.
MAX_CONNECTIONS = 4
DAY_MS = 86_400_000
#: Bytes of bodies that a call may be allowed.
MAX_BYTES = 2**30

#: Other names for options: those of Spark's own sources, and those of Kafka's source.
ALIASES = {
    "path": "queue",
    "paths": "queues",
    "subscribe": "queues",
    "subscribepattern": "queuespattern",
    "ns": "namespace",
    "groupid": "ledger",
    "maxoffsetspertrigger": "maxmessagespertrigger",
    "minoffsetspertrigger": "minmessagespertrigger",
}
#: URL schemes of other clients, and why Spark's processes cannot use them.
_UNUSABLE = {
    "memory": "its processes share no memory",
    "grpc": "a broker has no calls for claims and bulk writes; use the URL of its Redis",
    "grpcs": "a broker has no calls for claims and bulk writes; use the URL of its Redis",
    "grpc+unix": "a broker has no calls for claims and bulk writes; use the URL of its Redis",
}
#: Options that Spark passes to every source and sink.
_OF_SPARK = frozenset({"checkpointlocation", "queryname", "outputmode", "mergeschema"})


def _number(default: int, low: int, high: int = 2**53) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


def _one_of(default: str, *others: str) -> Any:
    return field(default=default, metadata={"choices": (default, *others)})


def _time() -> Any:
    return field(default=None, metadata={"time": True})


class _ClientOptions(Options):
    """Options of a client of the data source: its errors name the options of the data source."""

    def how_to_allow(self, setting: str) -> str:
        """Return the option of the data source for *setting*; empty if there is none."""
        if setting not in CommonOptions.__dataclass_fields__:
            return ""
        return f"option {_camel(setting)!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonOptions:
    """Options that reading and writing share."""

    #: The use of the source that has these options, for error messages.
    USE: ClassVar[str] = ""
    #: False if a column can name the queue instead of an option.
    QUEUE_NEEDED: ClassVar[bool] = True

    queue: str = ""
    url: str = ""
    url_env: str = ""
    password_env: str = ""
    #: True if a password may be sent to another machine in clear text.
    plain_password: bool = False
    #: True if the server may evict queues when its memory is full.
    allow_eviction: bool = False
    #: One namespace, or several that are used as one, separated by commas.
    namespace: str = "rsmq"
    #: Timeout of one call to Redis, outages included.
    timeout_ms: int = _number(60_000, 100)

    @property
    def keys(self) -> QueueKeys:
        """The keys of the queue."""
        return self.keys_of(self.queue)

    def keys_of(self, queue: str) -> QueueKeys:
        """Return the keys of another queue, in the namespace chosen by its name."""
        return self.shards.queue(argument_checks.check_name(queue))

    @property
    def shards(self) -> Shards:
        """The namespaces, checked."""
        return _shards(self.namespace)

    def client(self) -> SyncClient:
        """Return the client that this process shares for these settings; do not close it."""
        return self._client(own=False)

    def own_client(self, connections: int = MAX_CONNECTIONS) -> SyncClient:
        """Return a client for the caller alone, which must close it."""
        return self._client(own=True, connections=connections)

    def _client(self, *, own: bool, connections: int = MAX_CONNECTIONS) -> SyncClient:
        # Most processes that Spark starts only read options, and redis-py is slow to import.
        from .._runtime.sync_client import SyncClient, shared_client  # noqa: PLC0415

        url = url_or_default(self.url or _from(self.url_env))
        scheme = url.partition("://")[0]
        if scheme in _UNUSABLE:
            raise InvalidValue(f"a {scheme}:// url cannot be used from Spark: {_UNUSABLE[scheme]}")
        return (SyncClient if own else shared_client)(
            url,
            _ClientOptions(
                deadline=self.timeout_ms / 1000,
                max_connections=connections,
                plain_password=self.plain_password,
                allow_eviction=self.allow_eviction,
            ),
            password=_from(self.password_env),
            namespaces=tuple(namespace.name for namespace in self.shards.namespaces),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading(CommonOptions):
    #: Names of queues, separated by commas, or a regular expression for names; instead of *queue*.
    queues: str = ""
    queues_pattern: str = ""
    #: Empty: skip with a pattern, else fail.
    on_missing_queue: str = _one_of("", "fail", "skip")
    body_type: str = _one_of("string", "binary")
    #: True if readers that name no columns get the column ``headers``, too.
    include_headers: bool = False
    codec: str = _one_of("plain", "json", "base64", "gzip")
    on_decode_error: str = _one_of("fail", "null", "drop")
    fetch_size: int = _number(500, 1, MAX_FETCH)
    #: Bytes of bodies that one call reads; the message that reaches them is its last one.
    fetch_bytes: int = _number(READ_BYTES, 1, MAX_BYTES)
    #: 0: chosen by the reader.
    max_records_per_partition: int = _number(0, 1)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the queues; empty if a pattern selects them."""
        return _names(self.queue or self.queues)

    @property
    def is_single(self) -> bool:
        """True if the options name one queue, and no others can be added to it."""
        return bool(self.queue) and len(self.names) == 1

    @property
    def skips_missing(self) -> bool:
        """True if a queue that does not exist is left out, instead of an error."""
        return (self.on_missing_queue or ("skip" if self.queues_pattern else "fail")) == "skip"

    def matches(self, name: str) -> bool:
        """Return True if the pattern selects the queue *name*."""
        return bool(re.fullmatch(self.queues_pattern, name))

    def _check_selection(self) -> None:
        given = [n for n in ("queue", "queues", "queues_pattern") if getattr(self, n)]
        if len(given) > 1:
            raise InvalidValue(
                f"options {_camel(given[0])!r} and {_camel(given[1])!r} both name queues; use one "
                "of them"
            )
        for name in self.names:
            argument_checks.check_name(name)
        if len(set(self.names)) < len(self.names):
            raise InvalidValue(f"option {_camel(given[0])!r} names a queue twice")
        try:
            re.compile(self.queues_pattern)
        except re.error as error:
            raise InvalidValue(
                f"option 'queuesPattern' is a regular expression for names of queues, not "
                f"{self.queues_pattern!r}: {error}"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions(_Reading):
    """Options of ``spark.read``."""

    USE: ClassVar[str] = "read"

    visibility: str = _one_of("all", "visible", "hidden")
    #: Only messages sent at or after the first, and before the second (epoch microseconds).
    sent_after: int | None = _time()
    sent_before: int | None = _time()
    #: 0: chosen by the number of messages.
    num_partitions: int = _number(0, 0, 100_000)
    snapshot_ttl_ms: int = _number(3_600_000, 1000)

    def __post_init__(self) -> None:
        self._check_selection()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamReadOptions(_Reading):
    """Options of ``spark.readStream``."""

    USE: ClassVar[str] = "readStream"

    ledger: str = ""
    claim_mode: str = _one_of("lease", "move")
    lease_ms: int = _number(600_000, 1000, 1000 * argument_checks.MAX_SECONDS)
    max_messages_per_trigger: int = _number(100_000, 1)
    #: A batch begins when this number of messages is visible, or after the delay; 0: with any.
    min_messages_per_trigger: int = _number(0, 0)
    max_trigger_delay_ms: int = _number(900_000, 0)
    #: 0: any number.
    max_messages_per_second: int = _number(0, 0)
    #: 0: any number.
    max_bytes_per_trigger: int = _number(0, 0)
    min_partitions: int = _number(1, 1, 100_000)
    claim_chunk: int = _number(1000, 1, MAX_CHUNK)
    #: Bytes of bodies that one call moves.
    claim_bytes: int = _number(WRITE_BYTES, 1, MAX_BYTES)
    #: A stream can put a message aside for good.
    on_decode_error: str = _one_of("fail", "null", "drop", "deadletter")
    #: Queue for such messages; empty: the default dead-letter queue of each queue.
    dead_letter_queue: str = ""
    #: True if the next batch is claimed while one runs, if that one was full.
    claim_ahead: bool = True
    ack_on: str = _one_of("start", "commit")
    fail_on_data_loss: bool = True
    ledger_ttl_ms: int = _number(7 * DAY_MS, 60_000)
    #: How often queues that begin to match the pattern are looked for, and missing ones tried.
    discover_every_ms: int = _number(10_000, 100)

    def __post_init__(self) -> None:
        self._check_selection()
        if self.ledger and not re.fullmatch(r"[\w.-]{1,100}", self.ledger):
            raise InvalidValue(
                f"option 'ledger' is a name of letters, digits, '.', '-' and '_', not "
                f"{self.ledger!r}"
            )
        if self.claim_mode == "move" and not self.ledger:
            raise InvalidValue(
                "option 'claimMode' = 'move' needs a name in option 'ledger', by which its "
                "messages can be found again if the checkpoint is lost"
            )
        self._check_dead_letters()

    def matches(self, name: str) -> bool:
        """Return True if the pattern selects the queue *name*.

        A pattern never selects the queues that get this query's dead letters.
        """
        if self.on_decode_error == "deadletter" and (
            name == self.dead_letter_queue or name.endswith(DEAD_SUFFIX)
        ):
            return False
        return _Reading.matches(self, name)

    def dead_letters_of(self, keys: QueueKeys) -> QueueKeys:
        """Return the dead-letter queue of a queue; it is in the same namespace."""
        if not self.dead_letter_queue:
            if not has_dead_letters(keys.queue):
                raise InvalidValue(
                    f"queue {keys.queue!r} has no default dead-letter queue, because its name is "
                    "too long for '-dead' after it; name another in option 'deadLetterQueue'"
                )
            return keys.namespace.queue(dead_letter_queue(keys.queue))
        dead = self.keys_of(self.dead_letter_queue)
        check_together(keys, dead)
        return dead

    def _check_dead_letters(self) -> None:
        if self.on_decode_error != "deadletter":
            if self.dead_letter_queue:
                raise InvalidValue("option 'deadLetterQueue' needs 'onDecodeError' = 'deadletter'")
            return
        if self.dead_letter_queue in self.names:
            raise InvalidValue(
                f"option 'deadLetterQueue' names {self.dead_letter_queue!r}, which the query reads"
            )
        if self.dead_letter_queue and self.queues_pattern and len(self.shards.namespaces) > 1:
            raise InvalidValue(
                "option 'deadLetterQueue' needs one namespace if 'queuesPattern' selects the "
                "queues; without it each queue has its own, <queue>-dead"
            )
        for name in self.names:
            self.dead_letters_of(self.keys_of(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(CommonOptions):
    """Options of ``df.write`` and ``df.writeStream``."""

    USE: ClassVar[str] = "write"
    QUEUE_NEEDED: ClassVar[bool] = False

    codec: str = _one_of("plain", "json", "base64", "gzip")
    #: Empty: direct for a batch, staged for a stream.
    delivery: str = _one_of("", "direct", "staged")
    job_id: str = ""
    send_size: int = _number(1000, 1, MAX_ROWS)
    #: Bytes of bodies that one call sends, stages or commits.
    send_bytes: int = _number(WRITE_BYTES, 1, MAX_BYTES)
    on_oversize: str = _one_of("fail", "drop")
    #: True if missing queues are created; else they are an error.
    create_queue: bool = False
    #: How long marks and staged rows of failed attempts are kept ...
    mark_ttl_ms: int = _number(DAY_MS, 60_000)
    #: ... and the record of a commit, which a restarted query may need.
    commit_ttl_ms: int = _number(30 * DAY_MS, 60_000)

    def __post_init__(self) -> None:
        if self.queue:
            argument_checks.check_name(self.queue)
        if self.job_id and not re.fullmatch(r"[\w.-]{1,100}", self.job_id):
            raise InvalidValue(
                f"option 'jobId' is a name of letters, digits, '.', '-' and '_', not "
                f"{self.job_id!r}"
            )

    @property
    def records(self) -> QueueKeys:
        """The keys beside which commits are recorded: those of the queue, if the options name one.

        The place must not depend on rows, because a commit that is repeated must find the record.
        """
        return self.keys_of(self.queue or "spark-sink")


#: Spark stores the options of a table, and passes them to no source that is written in Python.
_IN_SQL = "in SQL, name it by CREATE TEMPORARY VIEW ... USING rsmq OPTIONS (queue 'jobs')"
_KINDS = (ReadOptions, StreamReadOptions, WriteOptions)


def parse(kind: type[O], given: Mapping[str, str]) -> O:
    """Convert what Spark passes (lower-case names, all text) to options of *kind*."""
    known = {_camel(f.name).lower(): f for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        key = ALIASES.get(name.lower(), name.lower())
        if key in known:
            values[known[key].name] = _value(known[key], text)
        elif not _of_spark(key):
            raise _misplaced(name, kind) or _unknown(name, known)
    if kind.QUEUE_NEEDED:
        check_queue(given)
    _shards(values.get("namespace", "rsmq"))
    return kind(**values)


def check(given: Mapping[str, str]) -> None:
    """Raise ``InvalidValue`` for an option that no use of the source knows or accepts.

    Which use it will be is not known yet when a DataFrame is defined.
    """
    if "provider" in given:  # Spark adds it for CREATE TABLE alone
        raise InvalidValue(f"a queue cannot be a table of the catalog; {_IN_SQL}")
    known: dict[str, list[dataclasses.Field[Any]]] = {}
    for kind in _KINDS:
        for one in dataclasses.fields(kind):
            known.setdefault(_camel(one.name).lower(), []).append(one)
    for name, text in given.items():
        key = ALIASES.get(name.lower(), name.lower())
        if key in known:
            _accepted(known[key], text)
        elif not _of_spark(key):
            raise _unknown(name, {key: fields[0] for key, fields in known.items()})


def check_queue(given: Mapping[str, str]) -> None:
    """Raise ``InvalidValue`` if the options name no queue."""
    names = {ALIASES.get(name.lower(), name.lower()) for name, text in given.items() if text}
    if not names & {"queue", "queues", "queuespattern"}:
        raise InvalidValue(
            f"option 'queue' is missing: the name of a queue; {_IN_SQL}",
            code="missingParameter",
        )


def _accepted(fields: list[dataclasses.Field[Any]], text: str) -> None:
    """Raise the error of the first of *fields* if none of them accepts *text*."""
    errors: list[InvalidValue] = []
    for one in fields:
        try:
            _value(one, text)
        except InvalidValue as error:
            errors.append(error)
    if len(errors) == len(fields):
        raise errors[0]


def _of_spark(key: str) -> bool:
    return key in _OF_SPARK or key.startswith(("spark.", "asyncprogress"))


@lru_cache
def _names(text: str) -> tuple[str, ...]:
    """Return names separated by commas; a list of paths comes from Spark as JSON."""
    if text.startswith("["):
        try:
            return tuple(map(str, json.loads(text)))
        except ValueError:
            pass
    return tuple(name.strip() for name in text.split(",")) if text else ()


@lru_cache
def _shards(namespaces: str) -> Shards:
    return Shards.of([name.strip() for name in namespaces.split(",")], nested=False)


def _misplaced(name: str, kind: type[CommonOptions]) -> InvalidValue | None:
    """Return the error for an option of another use; ``None`` if no use has it."""
    for other in _KINDS:
        mine = {_camel(f.name).lower(): f.name for f in dataclasses.fields(other)}
        if name.lower() in mine:
            return InvalidValue(
                f"option {_camel(mine[name.lower()])!r} is one of {other.USE}, not of {kind.USE}"
            )
    return None


def _unknown(name: str, known: Mapping[str, Any]) -> InvalidValue:
    names = {**{key: _camel(f.name) for key, f in known.items()}, "ns": "ns"}
    close = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean {names[close[0]]!r}?" if close else ""
    every = "" if close else f"; there are {', '.join(sorted(names.values()))}"
    return InvalidValue(f"option {name!r} is not known{hint}{every}")


def _value(of: dataclasses.Field[Any], text: str) -> Any:
    name, rule = _camel(of.name), of.metadata
    if "choices" in rule:
        if text.lower() not in rule["choices"]:
            choices = ", ".join(repr(c) for c in rule["choices"] if c)
            raise InvalidValue(f"option {name!r} is one of {choices}, not {text!r}")
        return text.lower()
    if "low" in rule:
        if not re.fullmatch(r"\d{1,16}", text) or not rule["low"] <= int(text) <= rule["high"]:
            raise InvalidValue(
                f"option {name!r} is a whole number from {rule['low']} to {rule['high']}, "
                f"not {text!r}"
            )
        return int(text)
    if "time" in rule:
        return _microseconds(name, text)
    if isinstance(of.default, bool):
        if text.lower() not in ("true", "false"):
            raise InvalidValue(f"option {name!r} is true or false, not {text!r}")
        return text.lower() == "true"
    return text


def _microseconds(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(
            f"option {name!r} is a time such as '2026-11-16T15:00:00Z', not {text!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _from(variable: str) -> str | None:
    if not variable:
        return None
    value = os.environ.get(variable)
    if value is None:
        raise InvalidValue(
            f"environment variable {variable!r} is not set; executors need it as well as the driver"
        )
    return value
