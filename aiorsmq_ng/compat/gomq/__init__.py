"""GOMQ's gRPC interface, so that its clients work unchanged with a broker.

``Broker(rsmq, services=[Gomq()])``; ``rsmqctl serve grpc`` does that by default. Needs the extra
``grpc``.
"""

from __future__ import annotations

from .peer_registry import GomqMode
from .service import Gomq

__all__ = ["Gomq", "GomqMode"]
