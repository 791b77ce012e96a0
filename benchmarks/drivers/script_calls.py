"""The package's own scripts as words of commands, for drivers that call them without its client."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operation import Argument, Operation
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec
from aiorsmq_ng._protocol.redis_codecs import encode
from aiorsmq_ng._protocol.scripts import load

KEYS = Namespace("bench").queue("jobs")
#: Scripts that the calls below name.
SCRIPTS = ("send", "receive", "delete", "create_queue")

CREATE = queues.create(KEYS, vt=30, delay=0, maxsize=-1)


def send(bodies: Sequence[bytes]) -> Operation[list[str]]:
    """Build the send of *bodies*."""
    return messages.send(KEYS, bodies, delay_ms=-1, channel=KEYS.wake)


def receive(count: int) -> Operation[Any]:
    """Build a receive of up to *count* messages."""
    return messages.receive(ReceiveSpec(KEYS), count, vt_ms=-1)


class Calls:
    """Numbers the calls of one client."""

    def __init__(self, client: str) -> None:
        self._record = KEYS.call_record(client)
        self._numbers: Iterator[int] = itertools.count(1)

    def words(self, *operations: Operation[Any]) -> tuple[Argument, ...]:
        """Return the command of the call that these operations share."""
        numbered = operations[0].kind.numbered
        call = encode(operations, self._record if numbered else None, os.urandom)
        first_attempt = (next(self._numbers), 1) if numbered else ()
        return ("EVALSHA", call.script.sha, len(call.keys), *call.keys, *first_attempt, *call.args)


def delete_words(rows: list[Any]) -> tuple[Argument, ...]:
    """Return the fenced delete of leased messages, given as id, body, rc, fr for each."""
    receipts = [len(rows) // 4]
    for at in range(0, len(rows), 4):
        receipts += (rows[at], rows[at + 2], rows[at + 3])
    return ("EVALSHA", load("delete").sha, 3, *KEYS.with_deliveries, *receipts)
