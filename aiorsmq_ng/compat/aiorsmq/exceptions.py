"""The errors of ``AIORSMQ``: class names and hierarchy of aiorsmq 0.1.2.

The ``__cause__`` of each is the error of this library.
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
    """Base class of the errors below."""


class InvalidValueException(AIORSMQException):
    """Raised for an invalid name, id or number, and for a message that is too long."""


class MessageNotFoundException(AIORSMQException):
    """Raised when a message to delete or to hide is not in the queue."""


class NoAttributesSpecified(AIORSMQException):
    """Raised by ``set_queue_attributes`` without an attribute to set."""


class QueueExistsException(AIORSMQException):
    """Raised by ``create_queue`` if the queue exists."""


class QueueNotFoundException(AIORSMQException):
    """Raised if the queue does not exist."""
