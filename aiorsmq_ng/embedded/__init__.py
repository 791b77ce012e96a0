"""A real server for users who have none: started for them, shared, kept safe."""

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
