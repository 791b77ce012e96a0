"""Redis message queues for asyncio, wire-compatible with RSMQ."""

from .client import RSMQ
from .codec import Codec, Compressed
from .consumer import Consumer
from .delivery import Delivery
from .errors import (
    DurabilityUnmet,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    NoAttributeSupplied,
    QueueCorrupt,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RSMQError,
    SendToken,
    SendUnknown,
    Unavailable,
)
from .models import (
    ConsumerInfo,
    DoctorReport,
    Finding,
    Message,
    PendingMessage,
    QueueAttributes,
    QueueStats,
    Sent,
    ServerFacts,
)
from .options import Options
from .queue import Queue
from .reliable import ReliableQueue
from .retry import Retry
from .worker import Worker, WorkerHealth

__version__ = "0.1.0"

__all__ = [
    "RSMQ",
    "Codec",
    "Compressed",
    "Consumer",
    "ConsumerInfo",
    "Delivery",
    "DoctorReport",
    "DurabilityUnmet",
    "Finding",
    "InvalidValue",
    "LeaseLost",
    "Message",
    "MessageTooLong",
    "NoAttributeSupplied",
    "Options",
    "PendingMessage",
    "Queue",
    "QueueAttributes",
    "QueueCorrupt",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "QueueStats",
    "RSMQError",
    "ReliableQueue",
    "Retry",
    "SendToken",
    "SendUnknown",
    "Sent",
    "ServerFacts",
    "Unavailable",
    "Worker",
    "WorkerHealth",
]
