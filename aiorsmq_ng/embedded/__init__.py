"""Embedded server: starts a Redis or Valkey server on demand and shares it between processes."""

from .binary import ServerBinary, find_binary
from .data_folder import default_folder
from .server import EmbeddedServer, EmbeddedStatus, status, stop

__all__ = [
    "EmbeddedServer",
    "EmbeddedStatus",
    "ServerBinary",
    "default_folder",
    "find_binary",
    "status",
    "stop",
]
