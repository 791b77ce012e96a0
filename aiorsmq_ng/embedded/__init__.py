"""Embedded server: starts a Redis or Valkey server on demand and shares it between processes."""

from .binary import ServerBinary, find_binary
from .folder import default_folder
from .server import EmbeddedServer, ServerStatus, status, stop

__all__ = [
    "EmbeddedServer",
    "ServerBinary",
    "ServerStatus",
    "default_folder",
    "find_binary",
    "status",
    "stop",
]
