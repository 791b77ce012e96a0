"""A broker of the test's own, and the way to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc.aio
import pytest

from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions, Tokens
from aiorsmq_ng.compat.gomq import Gomq, GomqMode
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub

from ..support.environment import no_settings  # noqa: F401 - used by every test

Serve = Callable[..., AbstractAsyncContextManager[Broker]]


@pytest.fixture
def serve(rsmq: RSMQ) -> Serve:
    """Start a broker with options of the test's own, on any free port."""

    @asynccontextmanager
    async def serve(
        *, tokens: str | None = None, gomq: GomqMode = "copy", **options
    ) -> AsyncIterator[Broker]:
        known = Tokens.read(tokens) if tokens else None
        settings = BrokerOptions(**{"listen": ("127.0.0.1:0",), "grace": 0.3, **options})
        async with Broker(rsmq, settings, known, [Gomq(gomq)]) as broker:
            yield broker

    return serve


@pytest.fixture
async def broker(serve: Serve) -> AsyncIterator[Broker]:
    """A broker with the defaults."""
    async with serve() as broker:
        yield broker


@pytest.fixture
async def channel(broker: Broker) -> AsyncIterator[grpc.aio.Channel]:
    """A connection to it."""
    async with grpc.aio.insecure_channel(broker.addresses[0]) as channel:
        yield channel


@pytest.fixture
def queues(channel: grpc.aio.Channel) -> QueuesStub:
    """The calls of ``aiorsmq.v1.Queues``."""
    return QueuesStub(channel)
