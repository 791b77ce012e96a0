"""The interface of aiorsmq 0.1.2 over this library: replace the import line, keep the program."""

from . import exceptions
from .client import AIORSMQ, Message, QueueAttributes

__all__ = ["AIORSMQ", "Message", "QueueAttributes", "exceptions"]
