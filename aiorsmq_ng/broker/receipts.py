"""Receipts: a client settles a delivery with one. Signed, so that none can be forged."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

import msgspec

#: Bytes of the signature: guessing one right takes 2^127 tries on average.
_SIGNATURE = 16
#: A receipt that is longer was not made here.
_LONGEST = 1024


class ReceiptContent(NamedTuple):
    """What a receipt says: which delivery, of which queue, to whom."""

    queue: str
    id: str
    rc: int
    fr: int
    vt_ms: int
    #: Where Reject takes it; empty for the queue's own.
    dead_letter: str = ""
    #: Topic and consumer of a subscription whose queue does not tell them by its name.
    owner: tuple[str, str] | None = None


class BadReceipt(Exception):
    """A receipt that is not one of ours, or not one of this caller's."""


class ReceiptSigner:
    """Writes receipts and reads them again."""

    def __init__(self, key: bytes | None = None, namespace: str = "") -> None:
        # The namespace is part of the key: brokers of several may have been given the same one.
        secret = sha256(key or secrets.token_bytes(32)).digest()
        self._key = hmac.digest(secret, namespace.encode(), "sha256")

    def sign(self, content: ReceiptContent, identity: str) -> str:
        """Return the receipt of a delivery to *identity*."""
        payload = msgspec.msgpack.encode(content)
        return urlsafe_b64encode(self._sign(payload, identity) + payload).decode()

    def verify(self, receipt: str, identity: str) -> ReceiptContent:
        """Return what *receipt* says, if we wrote it for *identity*; else ``BadReceipt``."""
        if len(receipt) > _LONGEST:
            raise BadReceipt
        try:
            raw = b64decode(receipt, b"-_", validate=True)
        except ValueError:
            raise BadReceipt from None
        signature, payload = raw[:_SIGNATURE], raw[_SIGNATURE:]
        if not hmac.compare_digest(signature, self._sign(payload, identity)):
            raise BadReceipt
        return ReceiptContent(*msgspec.msgpack.decode(payload))

    def _sign(self, payload: bytes, identity: str) -> bytes:
        # The identity ends where a zero byte begins what follows; names have none.
        text = identity.encode() + b"\0" + payload
        return hmac.digest(self._key, text, "sha256")[:_SIGNATURE]
