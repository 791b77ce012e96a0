"""What the error of a call means: it did not run, its outcome is unknown, or it is the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from grpc import StatusCode

from .._transport.driver import NotExecuted, ReplyLost
from ..errors import (
    AccessDenied,
    InvalidValue,
    NotSupported,
    RSMQError,
    SendUnknown,
    Unavailable,
)
from ..rpc.errors import CODE, DETAILS, read_details, rebuild

#: The broker refused the call before it began, and may take it soon.
_TRY_LATER = frozenset({"stopping", "clientClosed", "tooManyCalls", "tooSlow"})
#: gRPC's words for a call that never left this machine. They are no contract: an error in other
#: words counts as one whose request may have arrived.
_NEVER_SENT = (
    "failed to connect", "dns resolution failed", "name resolution", "no children to pick",
    "empty address list", "addresses list is empty",
)  # fmt: skip


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
    #: The library's code for it; empty if the error is not the broker's own.
    code: str = ""
    details: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @classmethod
    def of(cls, method: str, error: Any) -> Failure:
        """Read a ``grpc.aio.AioRpcError``."""
        said = metadata(error.trailing_metadata())
        details = read_details(said.get(DETAILS, ""))
        return cls(method, error.code(), error.details() or "", said.get(CODE, ""), details)

    @classmethod
    def of_part(cls, method: str, part: Any) -> Failure:
        """Read the ``Error`` of a part of a call."""
        details = read_details(part.details)
        return cls(method, StatusCode.UNKNOWN, part.message, part.code or "internal", details)

    def error(self) -> Exception:
        """Return what to raise: ``NotExecuted``, ``ReplyLost``, ``Answered``, a final error."""
        return self._said() if self.code else self._happened()

    def outcome(self) -> RSMQError:
        """Return the error that is the outcome of one operation of several.

        ``ReplyLost`` if that is not known, so that the call they share is made again.
        """
        match self.error():
            case Answered(error=error):
                return error
            case RSMQError() as error:
                return error
            case NotExecuted() as error:
                return Unavailable(str(error), transient=True)
            case error:
                raise error

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
                return NoBroker(self.text)
        return ReplyLost(self.text or self.status.name.lower())


def metadata(pairs: Iterable[tuple[str, Any]] | None) -> dict[str, str]:
    """Return trailing metadata by name."""
    return {name: value for name, value in pairs or () if isinstance(value, str)}
