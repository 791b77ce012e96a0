"""What a call's error means: it did not run, its outcome is unknown, or this is the answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from grpc import StatusCode

from .._transport.driver import NotExecuted, ReplyLost
from ..errors import (
    AccessDenied,
    DurabilityUnmet,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    NoAttributeSupplied,
    NotSupported,
    QueueCorrupt,
    QueueExists,
    QueueNotFound,
    RSMQError,
    SendUnknown,
    ServerError,
    ServerOutOfMemory,
    Unavailable,
)

#: Errors of the library, by their codes.
_KINDS: Mapping[str, type[RSMQError]] = {
    kind.code: kind
    for kind in (
        QueueExists, QueueNotFound, MessageTooLong, NoAttributeSupplied, LeaseLost,
        ServerOutOfMemory, QueueCorrupt, DurabilityUnmet,
    )
} | dict.fromkeys(InvalidValue.CODES, InvalidValue)  # fmt: skip

#: The broker turned the call away at its door, and may take it soon.
_TRY_LATER = frozenset({"stopping", "clientClosed", "tooManyCalls", "tooSlow"})
#: gRPC's words for a call that never left this machine. They are no contract: an error in other
#: words counts as one whose request may have arrived.
_NEVER_SENT = (
    "failed to connect", "dns resolution failed", "name resolution", "no children to pick",
    "empty address list", "addresses list is empty",
)  # fmt: skip
#: Words about certificates in what gRPC says of a connection that it could not make.
_UNTRUSTED = ("certificate_verify_failed", "unable to get local issuer", "self-signed certificate")
_OTHER_NAME = ("peer name", "hostname verification")
_NO_TLS = ("wrong_version_number", "http/1.x", "no server alpn")


class NoBroker(NotExecuted):
    """There is no broker now, or none that takes the call."""

    who = "the broker"


class Answered(Exception):
    """The broker's answer to a call is an error; asked again it would say the same."""

    def __init__(self, error: RSMQError) -> None:
        super().__init__(str(error))
        self.error = error


class Failure(NamedTuple):
    """How a call ended: gRPC's status and text, and what the broker said besides."""

    method: str
    status: StatusCode
    text: str
    #: The library's code for it; empty if it was not the broker who answered.
    code: str = ""
    details: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @classmethod
    def of(cls, method: str, error: Any) -> Failure:
        """Read a ``grpc.aio.AioRpcError``."""
        said = metadata(error.trailing_metadata())
        return cls(
            method,
            error.code(),
            error.details() or "",
            said.get("rsmq-code", ""),
            _details(said.get("rsmq-details", "")),
        )

    @classmethod
    def of_part(cls, method: str, code: str, text: str, details: str) -> Failure:
        """Read the error of a part of a call."""
        return cls(method, StatusCode.UNKNOWN, text, code, _details(details))

    def error(self) -> Exception:
        """Return what to raise: ``NotExecuted``, ``ReplyLost``, ``Answered``, a final error."""
        return self._said() if self.code else self._happened()

    def _said(self) -> Exception:
        """Return what the broker's own answer means."""
        match self.code:
            case code if code in _TRY_LATER:
                return NoBroker(self.text)
            case "unauthenticated":
                return AccessDenied(
                    f"the broker refused the client: {self.text}; check token= or RSMQ_TOKEN"
                )
            case "forbidden":
                return AccessDenied(f"the broker refused {self.method}: {self.text}")
            case "accessDenied":
                return AccessDenied(f"the broker says: {self.text}")
            case "notSupported":
                return NotSupported(f"the broker says: {self.text}")
            case "requestForgotten":
                return Unavailable(f"the broker does not remember: {self.text}", executed=None)
            case "sendUnknown":
                return ReplyLost(self.text)
            case "unavailable":
                return self._redis_is_away()
            case "internal":
                lost = SendUnknown if self.method in ("Send", "Publish") else Unavailable
                return Answered(lost(self.text, executed=None, transient=False))
        return Answered(rebuild(self.code, self.text, self.details))

    def _redis_is_away(self) -> Exception:
        text = f"the broker says: {self.text}"
        if self.details.get("executed", True) is not False:
            return ReplyLost(text)
        return NotExecuted(text) if self.details.get("transient") else Unavailable(text)

    def _happened(self) -> Exception:
        """Return what an error of gRPC itself means, or of something between us and the broker."""
        words = self.text.lower()
        match self.status:
            case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
                return AccessDenied(f"access was refused on the way to the broker: {self.text}")
            case StatusCode.UNIMPLEMENTED:
                return NotSupported(
                    f"there is no call {self.method} at this address: the broker is older than "
                    "this client, or it is no broker"
                )
            case StatusCode.RESOURCE_EXHAUSTED if "larger than max" in words:
                return InvalidValue(f"the request is larger than the broker takes: {self.text}")
            case StatusCode.UNAVAILABLE if any(part in words for part in _NEVER_SENT):
                return _unreachable(self.text)
        return ReplyLost(self.text or self.status.name.lower())


def _unreachable(text: str) -> Exception:
    words = text.lower()
    if any(part in words for part in _OTHER_NAME):
        return Unavailable(
            "the broker's certificate is for another host; use the name that stands in it"
        )
    if any(part in words for part in _UNTRUSTED):
        return Unavailable(
            "the broker's certificate is not trusted; name its CA in the url by ssl_ca_certs"
        )
    if any(part in words for part in _NO_TLS):
        return Unavailable("the broker does not speak TLS at this port; use grpc://")
    return NoBroker(text)


def rebuild(code: str, text: str, details: dict[str, Any]) -> RSMQError:
    """Return the library's error that the broker met, with its text and its fields."""
    kind = _KINDS.get(code, ServerError)
    error: RSMQError = kind.__new__(kind, text)
    fields = {n: tuple(v) if isinstance(v, list) else v for n, v in details.items()}
    error.__dict__.update(fields)
    if error.code != code:
        error.code = code
    return error


def metadata(pairs: Iterable[tuple[str, Any]] | None) -> dict[str, str]:
    """Return trailing metadata by name."""
    return {name: value for name, value in pairs or () if isinstance(value, str)}


def _details(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
