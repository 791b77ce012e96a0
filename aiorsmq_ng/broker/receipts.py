"""Receipts, with which clients settle deliveries. They are signed, so they cannot be forged."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import NamedTuple

import msgspec

#: Bytes of the signature: forging one takes 2^127 guesses on average.
_SIGNATURE = 16
#: Longest receipt that a broker makes.
_LONGEST = 1024


class ReceiptContent(NamedTuple):
    """Content of a receipt: the delivery, its queue, and the identity of the caller."""

    queue: str
    id: str
    rc: int
    fr: int
    vt_ms: int
    #: Queue that Reject moves the message to; empty for the default dead-letter queue.
    dead_letter: str = ""
    #: Topic and consumer of a subscription, if the name of its queue does not contain them.
    owner: tuple[str, str] | None = None


class BadReceipt(Exception):
    """The receipt was not made by this broker, or not for this caller."""


class ReceiptSigner:
    """Makes and verifies receipts."""

    def __init__(self, key: bytes | None = None, namespace: str = "") -> None:
        # The namespace is part of the key: brokers of several namespaces may share one key.
        secret = sha256(key or secrets.token_bytes(32)).digest()
        self._key = hmac.digest(secret, namespace.encode(), "sha256")

    def sign(self, content: ReceiptContent, identity: str) -> str:
        """Return the receipt of a delivery to *identity*."""
        payload = msgspec.msgpack.encode(content)
        return urlsafe_b64encode(self._sign(payload, identity) + payload).decode()

    def verify(self, receipt: str, identity: str) -> ReceiptContent:
        """Return the content of a *receipt* made for *identity*; ``BadReceipt`` for any other."""
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
        # A zero byte ends the identity; names contain none.
        text = identity.encode() + b"\0" + payload
        return hmac.digest(self._key, text, "sha256")[:_SIGNATURE]
