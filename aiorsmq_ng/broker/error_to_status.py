"""Error mapping: one table from the library's codes to gRPC's statuses."""

from __future__ import annotations

from typing import Any

import grpc

from aiorsmq_ng import RSMQError

from ..rpc import v1_pb2 as pb
from ..rpc.error_details import CODE, DETAILS, write_details
from .tokens import Refused

Code = grpc.StatusCode

#: Status for every ``code`` of the library's errors, and for those of the broker's own.
STATUS = {
    "rsmqError": Code.INTERNAL,
    "serverError": Code.INTERNAL,
    "usageError": Code.INVALID_ARGUMENT,
    "queueExists": Code.ALREADY_EXISTS,
    "queueNotFound": Code.NOT_FOUND,
    "messageTooLong": Code.INVALID_ARGUMENT,
    "invalidValue": Code.INVALID_ARGUMENT,
    "invalidFormat": Code.INVALID_ARGUMENT,
    "missingParameter": Code.INVALID_ARGUMENT,
    "messageNotString": Code.INVALID_ARGUMENT,
    "noAttributeSupplied": Code.INVALID_ARGUMENT,
    "leaseLost": Code.FAILED_PRECONDITION,
    "serverOutOfMemory": Code.RESOURCE_EXHAUSTED,
    "queueCorrupt": Code.FAILED_PRECONDITION,
    "unavailable": Code.UNAVAILABLE,
    # Not UNAVAILABLE, which gRPC clients retry automatically.
    "sendUnknown": Code.UNKNOWN,
    "durabilityUnmet": Code.FAILED_PRECONDITION,
    # Redis refused the broker's user.
    "accessDenied": Code.PERMISSION_DENIED,
    "notSupported": Code.UNIMPLEMENTED,
    # The broker is stopping.
    "clientClosed": Code.UNAVAILABLE,
    "wrongContext": Code.INTERNAL,
    # Raised by Spark only.
    "claimLost": Code.FAILED_PRECONDITION,
    "rowsDiffer": Code.FAILED_PRECONDITION,
    "snapshotGone": Code.FAILED_PRECONDITION,
    # The broker's own.
    "unauthenticated": Code.UNAUTHENTICATED,
    "forbidden": Code.PERMISSION_DENIED,
    "tooManyCalls": Code.RESOURCE_EXHAUSTED,
    "tooSlow": Code.DEADLINE_EXCEEDED,
    "requestForgotten": Code.ABORTED,
    "stopping": Code.UNAVAILABLE,
    "internal": Code.INTERNAL,
}

_LONGEST_MESSAGE = 1000


class BrokerError(RSMQError):
    """A refusal by the broker itself; ``code`` is in the table above."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ErrorStatus:
    """The gRPC status of an error, with code and details as metadata."""

    __slots__ = ("code", "details", "message", "status")

    def __init__(self, code: str, message: str, details: dict[str, Any] | None = None) -> None:
        self.code = code
        self.message = message[:_LONGEST_MESSAGE]
        self.status = STATUS.get(code, Code.INTERNAL)
        self.details = write_details(details)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The trailing metadata of a call that ends with it."""
        code = ((CODE, self.code),)
        return (*code, (DETAILS, self.details)) if self.details else code

    def as_message(self) -> pb.Error:
        """Return it as the error of a part of a call."""
        return pb.Error(code=self.code, message=self.message, details=self.details)


def error_status(error: Exception) -> ErrorStatus:
    """Return the status of *error* for the client. It contains no body and no token."""
    match error:
        case Refused():
            return ErrorStatus("forbidden" if error.known else "unauthenticated", str(error))
        case RSMQError():
            details = {k: v for k, v in vars(error).items() if k not in ("token", "code")}
            return ErrorStatus(error.code, str(error), details)
    return ErrorStatus(
        "internal", f"the broker failed in an unexpected way ({type(error).__name__})"
    )
