"""Clean up after a stopped query: acknowledge its last batch, or release its claims."""

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
    """
    folder = _local(checkpoint)
    done = [int(f.name) for f in (folder / "commits").glob("*") if f.name.isdecimal()]
    if not done:
        return 0
    finished = 0
    logged = max(int(f.name) for f in (folder / "offsets").glob("*") if f.name.isdecimal())
    planned = {o.ledger: o.claim for o in _offsets(folder / "offsets" / str(logged))}
    for offset in _offsets(folder / "offsets" / str(max(done))):
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


def _local(checkpoint: str | Path) -> Path:
    text = str(checkpoint)
    parts = urlsplit(text)
    if parts.scheme not in ("", "file"):
        raise InvalidValue(f"the checkpoint must be on a local or mounted path, not {text!r}")
    return Path(unquote(parts.path) if parts.scheme else text)


def _offsets(log: Path) -> Iterator[Offset]:
    """Read one entry of Spark's offset log: a version, metadata, then a line per source."""
    for line in log.read_text().splitlines()[2:]:
        try:
            known = json.loads(line)
        except ValueError:
            continue
        if is_offset(known):
            yield from StreamOffset.of(known).parts.values()


def _texts(options: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
