"""A client that reaches the server through a broker; what tests know as ``rsmq`` is that one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions, Limits


@pytest.fixture
async def inner(server_url: str, ns: str) -> AsyncIterator[RSMQ]:
    """The broker's own client of the server."""
    async with RSMQ(server_url, ns=ns) as client:
        yield client


@pytest.fixture
async def broker(inner: RSMQ) -> AsyncIterator[Broker]:
    """A broker with the defaults, on any free port."""
    limits = Limits(batch=10_000, message_bytes=1 << 26)
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.2, limits=limits)
    async with Broker(inner, options) as broker:
        yield broker


@pytest.fixture
def broker_url(broker: Broker) -> str:
    """The way to it."""
    return f"grpc://{broker.addresses[0]}"


@pytest.fixture
async def rsmq(broker_url: str, ns: str) -> AsyncIterator[RSMQ]:
    """An open client of the broker."""
    async with RSMQ(broker_url, ns=ns) as client:
        yield client
