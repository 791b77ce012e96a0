"""What ``AIORSMQ`` raises: the class names and the tree of aiorsmq 0.1.2.

The error of this library that lies behind one is its ``__cause__``.
"""

from __future__ import annotations

__all__ = [
    "AIORSMQException",
    "InvalidValueException",
    "MessageNotFoundException",
    "NoAttributesSpecified",
    "QueueExistsException",
    "QueueNotFoundException",
]


class AIORSMQException(Exception):
    """Base of the others."""


class InvalidValueException(AIORSMQException):
    """Raised for a name, id or number that RSMQ does not allow, and for too long a message."""


class MessageNotFoundException(AIORSMQException):
    """Raised when a message to delete or to hide is not in the queue."""


class NoAttributesSpecified(AIORSMQException):
    """Raised by ``set_queue_attributes`` when it was given nothing to set."""


class QueueExistsException(AIORSMQException):
    """Raised by ``create_queue`` for a name that is taken."""


class QueueNotFoundException(AIORSMQException):
    """Raised for a queue that is not there."""
