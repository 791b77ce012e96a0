"""The HTTP status of each error."""

from __future__ import annotations

import aiorsmq_ng

from ..broker.tokens import Refused


class NotThere(Exception):
    """What was asked for does not exist, or the caller may not see it."""


def error_status(error: Exception) -> int:
    """Return the HTTP status for an error."""
    match error:
        case NotThere() | aiorsmq_ng.QueueNotFound():
            return 404
        case Refused() | aiorsmq_ng.AccessDenied():
            return 403
        case aiorsmq_ng.NotSupported():
            return 501
        case aiorsmq_ng.UsageError():
            return 400
        case TimeoutError() | aiorsmq_ng.Unavailable():
            return 503
        case aiorsmq_ng.QueueExists() | aiorsmq_ng.QueueCorrupt() | aiorsmq_ng.LeaseLost():
            return 409
    return 500
