"""The broker: queues and topics over gRPC, for programs that have no Redis client.

``rsmqctl serve grpc`` runs one. Needs the extra ``grpc``.
"""

from __future__ import annotations

try:
    import grpc as _grpc  # noqa: F401
except ImportError as missing:
    raise ImportError('the broker needs grpcio: pip install "aiorsmq-ng[grpc]"') from missing

from .options import BrokerOptions, Limits, Tls
from .server import Broker
from .tokens import Tokens

__all__ = ["Broker", "BrokerOptions", "Limits", "Tls", "Tokens"]
