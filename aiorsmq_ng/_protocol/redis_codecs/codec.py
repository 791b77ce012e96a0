"""Codec: encodes operations of one kind as a script call, and decodes the reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ...errors import RSMQError
from ...models import Message
from ..operation import Argument, Kind, Operation, Reply, Request

Q = TypeVar("Q", bound=Request)
R = TypeVar("R")

#: Return the given number of random bytes, never the same ones twice.
Entropy = Callable[[int], bytes]
#: Keys and arguments of a script call.
Words = tuple[list[str], list[Argument]]


def _failure(request: Request, code: str) -> RSMQError:
    return request.keys.failure(code)


class Codec(Struct, Generic[Q, R], frozen=True, eq=False, kw_only=True):
    """Encoding of one kind of operation.

    ``keys`` and ``head`` appear once in a call, however many operations share it; ``args`` are
    those of one operation. The script of a kind that merges returns one reply per operation.
    """

    kind: Kind[R]
    #: Name of the script.
    script: str
    keys: Callable[[Q], Sequence[str]]
    #: Return the result in the reply to one operation, or raise its error.
    decode: Callable[[Q, Reply], R]
    args: Callable[[Q], Iterable[Argument]] = lambda _: ()
    head: Callable[[Q], Iterable[Argument]] | None = None
    #: The same for the reply of a repetition, if the first attempt changes what the next one finds.
    decode_repeated: Callable[[Q, Reply], R] | None = None
    #: Return the error for a code in place of a reply, for example ``queueNotFound``.
    fail: Callable[[Q, str], RSMQError] = _failure
    #: Return True if the reply to a call contains messages.
    took_messages: Callable[[Reply], bool] | None = None
    #: Return keys and arguments of all operations of a call; for kinds that need random bytes.
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
    """Decode a message id."""
    # Ids are ASCII. A foreign program may have written others: they are shown, not refused.
    return raw.decode("utf-8", "backslashreplace")


def read_messages(reply: Reply) -> list[Message]:
    """Decode a flat list of id, body, rc, fr per message, and last perhaps one of headers."""
    headers = take_headers(reply)
    rows = iter(reply)
    return [
        Message(read_id(id), body, rc, fr, headers.get(id, b""))
        for id, body, rc, fr in zip(rows, rows, rows, rows, strict=True)
    ]


def take_headers(reply: list[Any]) -> dict[bytes, bytes]:
    """Remove the list of id, headers that a reply may end with; return headers by id."""
    return pairs(reply.pop()) if reply and isinstance(reply[-1], list) else {}


def pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return a flat list of name, value as a mapping."""
    return dict(zip(flat[::2], flat[1::2], strict=True))
