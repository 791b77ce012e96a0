"""Codec of ``send``: bodies for one queue, with the random part of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._common.message_ids import SUFFIX_LENGTH, mark_headers, suffix
from ...errors import AccessDenied, MessageTooLong
from ...models import Sent
from ..keys import QueueKeys
from ..operation import Argument, Operation, Reply
from ..operations import messages
from ..operations.messages import SendRequest
from .codec import Codec, Entropy, Words

#: The outcome that a script returns after the id of a message with a dedup key.
OUTCOMES = STORED, DUPLICATE = b"stored", b"duplicate"


def _encode(operations: Sequence[Operation[Any]], entropy: Entropy) -> Words:
    """KEYS: queue, markers of dedup keys. ARGV: channel, then header, suffixes, bodies of each."""
    first: SendRequest = operations[0].request
    keys = [first.keys.zset, first.keys.hash]
    args: list[Argument] = [first.channel]
    requests: list[SendRequest] = [operation.request for operation in operations]
    count = sum([len(request.bodies) for request in requests])
    suffixes, at = suffix(entropy(SUFFIX_LENGTH * count)), 0
    for request in requests:
        bodies, dedup, window_ms = request.bodies, request.dedup, 0
        if dedup is not None:
            keys.append(request.keys.marker(dedup.digest))
            window_ms = dedup.window_ms
        start, at = at, at + SUFFIX_LENGTH * len(bodies)
        numbers, own, headers = (
            f"{request.delay_ms} {window_ms} {len(bodies)}",
            suffixes[start:at],
            request.headers,
        )
        if headers:
            numbers, own = f"{numbers} {len(headers)}", mark_headers(own, headers)
        args += (numbers, own, *bodies, *headers)
    return keys, args


def _decode(request: SendRequest, reply: Reply) -> list[str]:
    if len(reply) == 1:
        return [reply[0].decode()]
    if reply[1] in OUTCOMES:
        return [read_outcome(reply)]
    check_refusal(request.keys, reply)
    return [id.decode() for id in reply]


def check_refusal(keys: QueueKeys, reply: Reply) -> None:
    """Raise if the reply says that a body is too long, or that headers cannot be stored."""
    check_size(keys, reply)
    if reply and reply[0] == b"headersRefused":
        why = reply[1].decode(errors="replace")
        raise AccessDenied(f"headers cannot be stored in {keys.headers}: {why}")


def check_size(keys: QueueKeys, reply: Reply) -> None:
    """Raise ``MessageTooLong`` if the reply says that a body is too long for the queue."""
    if reply and reply[0] == b"messageTooLong":
        raise MessageTooLong(keys.queue, reply[1], reply[2])


def read_outcome(reply: Reply) -> Sent:
    """Decode an id that is followed by one of ``OUTCOMES``."""
    sent = Sent(reply[0].decode())
    sent.duplicate = reply[1] == DUPLICATE
    return sent


SEND: Codec[SendRequest, list[str]] = Codec(
    kind=messages.SEND,
    script="send",
    keys=lambda r: (r.keys.zset, r.keys.hash),
    decode=_decode,
    encode_all=_encode,
)

CODECS: tuple[Codec[Any, Any], ...] = (SEND,)
