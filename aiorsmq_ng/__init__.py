"""Redis message queues for asyncio, wire-compatible with RSMQ.

A public name is imported from its module when it is first asked for, so that a program which needs
little of this package, such as ``rsmqctl --help``, does not wait for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._common.durations import Seconds
    from ._protocol.operations.message_values import Receipt
    from ._runtime.dead_letter_listeners import DeadLetters
    from ._runtime.lease_renewal import Lease
    from ._transport.connect import CallerClient
    from .client import RSMQ
    from .codec import Codec, Compressed
    from .consumer import Consumer
    from .delivery import Delivery
    from .doctor import Progress
    from .errors import (
        AccessDenied,
        ClaimLost,
        ClientClosed,
        DurabilityUnmet,
        InvalidValue,
        LeaseLost,
        MessageTooLong,
        NoAttributeSupplied,
        NotSupported,
        QueueCorrupt,
        QueueExists,
        QueueNotFound,
        RowsDiffer,
        RSMQError,
        SendToken,
        SendUnknown,
        ServerError,
        ServerOutOfMemory,
        SnapshotGone,
        Unavailable,
        UsageError,
        WrongContext,
    )
    from .gateway import Gateway
    from .models import (
        ConsumerInfo,
        DeadLetter,
        DoctorReport,
        Finding,
        FindingKind,
        Message,
        MessageState,
        PeerInfo,
        PendingMessage,
        QueueAttributes,
        QueueStats,
        ScannedMessage,
        Sent,
        ServerFacts,
        ServerStatus,
        Severity,
        SubscriptionInfo,
        SubscriptionMode,
        SubscriptionState,
        TopicInfo,
    )
    from .options import Options
    from .queue import Queue
    from .retry import Retry
    from .subscription import Subscription
    from .topic import Topic
    from .worker import (
        DeadLetterHook,
        FailureHook,
        Handler,
        Hook,
        Middleware,
        Next,
        Worker,
        WorkerHealth,
    )

__version__ = "0.1.0"

__all__ = [
    "RSMQ",
    "AccessDenied",
    "CallerClient",
    "ClaimLost",
    "ClientClosed",
    "Codec",
    "Compressed",
    "Consumer",
    "ConsumerInfo",
    "DeadLetter",
    "DeadLetterHook",
    "DeadLetters",
    "Delivery",
    "DoctorReport",
    "DurabilityUnmet",
    "FailureHook",
    "Finding",
    "FindingKind",
    "Gateway",
    "Handler",
    "Hook",
    "InvalidValue",
    "Lease",
    "LeaseLost",
    "Message",
    "MessageState",
    "MessageTooLong",
    "Middleware",
    "Next",
    "NoAttributeSupplied",
    "NotSupported",
    "Options",
    "PeerInfo",
    "PendingMessage",
    "Progress",
    "Queue",
    "QueueAttributes",
    "QueueCorrupt",
    "QueueExists",
    "QueueNotFound",
    "QueueStats",
    "RSMQError",
    "Receipt",
    "Retry",
    "RowsDiffer",
    "ScannedMessage",
    "Seconds",
    "SendToken",
    "SendUnknown",
    "Sent",
    "ServerError",
    "ServerFacts",
    "ServerOutOfMemory",
    "ServerStatus",
    "Severity",
    "SnapshotGone",
    "Subscription",
    "SubscriptionInfo",
    "SubscriptionMode",
    "SubscriptionState",
    "Topic",
    "TopicInfo",
    "Unavailable",
    "UsageError",
    "Worker",
    "WorkerHealth",
    "WrongContext",
]

#: Module -> the public names that it defines.
_HOMES = {
    "_common.durations": ("Seconds",),
    "_protocol.operations.message_values": ("Receipt",),
    "_runtime.dead_letter_listeners": ("DeadLetters",),
    "_runtime.lease_renewal": ("Lease",),
    "_transport.connect": ("CallerClient",),
    "client": ("RSMQ",),
    "codec": ("Codec", "Compressed"),
    "consumer": ("Consumer",),
    "delivery": ("Delivery",),
    "doctor": ("Progress",),
    "gateway": ("Gateway",),
    "errors": (
        "AccessDenied", "ClaimLost", "ClientClosed", "DurabilityUnmet", "InvalidValue", "LeaseLost",
        "MessageTooLong", "NoAttributeSupplied", "NotSupported", "QueueCorrupt", "QueueExists",
        "QueueNotFound", "RSMQError", "RowsDiffer", "SendToken", "SendUnknown", "ServerError",
        "ServerOutOfMemory", "SnapshotGone", "Unavailable", "UsageError", "WrongContext",
    ),
    "models": (
        "ConsumerInfo", "DeadLetter", "DoctorReport", "Finding", "FindingKind", "Message",
        "MessageState", "PeerInfo", "PendingMessage", "QueueAttributes", "QueueStats",
        "ScannedMessage", "Sent", "ServerFacts", "ServerStatus", "Severity", "SubscriptionInfo",
        "SubscriptionMode", "SubscriptionState", "TopicInfo",
    ),
    "options": ("Options",),
    "queue": ("Queue",),
    "retry": ("Retry",),
    "subscription": ("Subscription",),
    "topic": ("Topic",),
    "worker": (
        "DeadLetterHook", "FailureHook", "Handler", "Hook", "Middleware", "Next", "Worker",
        "WorkerHealth",
    ),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

# Hidden from type checkers, to whom it would mean that every name exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
