"""What several tests of the broker need."""

from __future__ import annotations

import grpc.aio

from aiorsmq_ng.broker import Broker


def connected(broker: Broker) -> grpc.aio.Channel:
    """Return a connection to a broker that no other test shares."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(broker.addresses[0], options)
