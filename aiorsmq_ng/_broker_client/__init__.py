"""A broker behind the Driver seam: every script call becomes a call of ``aiorsmq.v1``.

Reached by the schemes ``grpc://`` and ``grpcs://`` only. Needs the extra ``grpc``.
"""

from __future__ import annotations

from .driver import BrokerDriver, open_driver

__all__ = ["BrokerDriver", "open_driver"]
