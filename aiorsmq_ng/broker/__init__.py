"""The broker: queues and topics over gRPC, for programs that have no Redis client.

``rsmqctl serve grpc`` runs one. Needs the extra ``grpc``, but ``Tokens``, which other servers read
the same token file with, needs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .tokens import Tokens

if TYPE_CHECKING:
    from .keda import Keda
    from .options import BrokerOptions, Limits, Tls
    from .server import Broker

__all__ = ["Broker", "BrokerOptions", "Keda", "Limits", "Tls", "Tokens"]

_MODULES = {
    "Broker": "server",
    "BrokerOptions": "options",
    "Keda": "keda",
    "Limits": "options",
    "Tls": "options",
}


def __getattr__(name: str) -> Any:
    """Import what needs gRPC when it is first used."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import grpc  # noqa: F401, PLC0415 - the extra may be missing
    except ImportError as missing:
        raise ImportError('the broker needs grpcio: pip install "aiorsmq-ng[grpc]"') from missing
    return getattr(import_module(f".{module}", __name__), name)
