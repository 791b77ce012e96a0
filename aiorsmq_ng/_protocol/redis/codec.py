"""How one kind of operation is written as a script call, and how its reply is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ...errors import RSMQError
from ...models import Message
from ..operation import Argument, Kind, Operation, Reply, Request

Q = TypeVar("Q", bound=Request)
R = TypeVar("R")

#: Return that many random bytes, never the same ones twice.
Entropy = Callable[[int], bytes]
#: Keys and arguments of a script call.
Words = tuple[list[str], list[Argument]]


def _failure(request: Request, code: str) -> RSMQError:
    return request.keys.failure(code)


class Codec(Struct, Generic[Q, R], frozen=True, eq=False, kw_only=True):
    """One kind of operation as its script knows it.

    ``keys`` and ``head`` stand once in a call, whatever number of operations share it; ``args``
    are those of one operation. The scripts of kinds that merge answer with one reply for each.
    """

    kind: Kind[R]
    #: Name of the script.
    script: str
    keys: Callable[[Q], Sequence[str]]
    #: Read the reply to one operation, or raise what it says.
    decode: Callable[[Q, Reply], R]
    args: Callable[[Q], Iterable[Argument]] = lambda _: ()
    head: Callable[[Q], Iterable[Argument]] | None = None
    #: Read the reply of a repetition, where the first attempt changes what the next finds.
    decode_repeated: Callable[[Q, Reply], R] | None = None
    #: Return the error that a code word in place of a reply means, for example ``queueNotFound``.
    fail: Callable[[Q, str], RSMQError] = _failure
    #: Return True if the reply to a call holds messages.
    took_messages: Callable[[Reply], bool] | None = None
    #: Return keys and arguments of all operations of a call, for those that need random bytes.
    encode_all: Callable[[Sequence[Operation[Any]], Entropy], Words] | None = None

    def encode(self, operations: Sequence[Operation[Any]], entropy: Entropy) -> Words:
        """Return keys and arguments of the call that *operations* share."""
        if self.encode_all is not None:
            return self.encode_all(operations, entropy)
        first = operations[0].request
        args: list[Argument] = [] if self.head is None else [*self.head(first)]
        for operation in operations:
            args += self.args(operation.request)
        return [*self.keys(first)], args


def read_id(raw: bytes) -> str:
    """Read a message id."""
    # Ids are ASCII; one that a foreign program wrote otherwise is shown, not tripped over.
    return raw.decode("utf-8", "backslashreplace")


def read_messages(reply: Reply) -> list[Message]:
    """Read a flat list of id, body, rc, fr per message."""
    rows = iter(reply)
    return [
        Message(read_id(id), body, rc, fr)
        for id, body, rc, fr in zip(rows, rows, rows, rows, strict=True)
    ]
