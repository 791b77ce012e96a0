"""What the error of a call means: it did not run, its outcome is unknown, or it is the answer."""

from __future__ import annotations

from typing import Any

from grpc import StatusCode

from .._transport.driver import NotExecuted, ReplyLost
from ..errors import AccessDenied, InvalidValue, NotSupported, RSMQError, SendUnknown, Unavailable
from ..rpc.error_details import CODE, DETAILS, read_details, rebuild

#: gRPC's words for a call that never left this machine. They are no contract: an error in other
#: words counts as one whose request may have arrived.
_NEVER_SENT = (
    "failed to connect", "dns resolution failed", "name resolution", "no children to pick",
    "empty address list", "addresses list is empty",
)  # fmt: skip


class RedisAway(NotExecuted):
    """There is a broker, but it cannot reach its server."""

    who = "redis behind the broker"


class Forgotten(Unavailable):
    """The broker was not asked first, or does not remember what it was asked."""


class Answered(Exception):
    """The broker's answer to a call is an error; asked again it would say the same."""

    def __init__(self, error: RSMQError) -> None:
        super().__init__(str(error))
        self.error = error


def call_error(method: str, error: Any) -> Exception:
    """Return the ``NotExecuted``, ``ReplyLost``, ``Answered`` or final error that *error* means."""
    said, text = dict(error.trailing_metadata() or ()), error.details() or ""
    if code := said.get(CODE):
        return _said(method, code, text, read_details(said.get(DETAILS, "")))
    return _happened(method, error.code(), text)


def part_error(method: str, part: Any, *, again: bool) -> RSMQError:
    """Return what the ``Error`` of a part of a call means for its operation.

    ``ReplyLost`` is raised if the outcome is not known, with *again* also for an outage.
    """
    match _said(method, part.code or "internal", part.message, read_details(part.details)):
        case Answered(error=error) | (RSMQError() as error):
            pass
        case NotExecuted() as outage:
            error = Unavailable(str(outage), transient=True)
        case lost:
            raise lost
    if again and isinstance(error, Unavailable):
        raise ReplyLost(str(error))
    return error


def _said(method: str, code: str, text: str, details: dict[str, Any]) -> Exception:
    """Return what the broker's own answer means."""
    match code:
        case "stopping" | "clientClosed" | "tooManyCalls" | "tooSlow":
            # It was refused before it began, and may be taken soon.
            return NotExecuted(text)
        case "unauthenticated":
            return AccessDenied(
                f"the broker refused the client: {text}; check token= or RSMQ_TOKEN"
            )
        case "forbidden":
            return AccessDenied(f"the broker refused the call: {text}")
        case "accessDenied" | "notSupported":
            return rebuild(code, f"the broker says: {text}", details)
        case "requestForgotten":
            return Forgotten(f"the broker does not remember: {text}", executed=None)
        case "sendUnknown":
            return ReplyLost(text)
        case "unavailable":
            if details.get("executed", True) is not False:
                return ReplyLost(f"the broker says: {text}")
            away = RedisAway if details.get("transient") else Unavailable
            return away(f"the broker says: {text}")
        case "internal":
            lost = SendUnknown if method in ("Send", "Publish") else Unavailable
            return Answered(lost(text, executed=None, transient=False))
    return Answered(rebuild(code, text, details))


def _happened(method: str, status: StatusCode, text: str) -> Exception:
    """Return what an error of gRPC itself means, or of something between us and the broker."""
    match status:
        case StatusCode.UNAUTHENTICATED | StatusCode.PERMISSION_DENIED:
            return AccessDenied(f"access was refused on the way to the broker: {text}")
        case StatusCode.UNIMPLEMENTED:
            return NotSupported(
                f"there is no call {method} at this address: the broker is older than this client, "
                "or it is no broker"
            )
        case StatusCode.RESOURCE_EXHAUSTED if "larger than max" in text.lower():
            return InvalidValue(f"the request is larger than the broker takes: {text}")
        case StatusCode.UNAVAILABLE if any(words in text.lower() for words in _NEVER_SENT):
            return NotExecuted(text)
    return ReplyLost(text or status.name.lower())
