"""Fixtures: a server of these tests' own, because the keys of rmq have no namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from aiorsmq_ng.rmq import Rmq
from aiorsmq_ng.testing import PrivateServer
from tools.lab.topologies import Cluster

from ..support.deadlines import PATIENT


@pytest.fixture(scope="package")
async def rmq_server() -> AsyncIterator[PrivateServer]:
    """A server that these tests may flush."""
    async with PrivateServer() as server:
        yield server


@pytest.fixture(scope="package")
async def cluster() -> AsyncIterator[Cluster]:
    """A cluster that these tests may flush."""
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def url(rmq_server: PrivateServer) -> str:
    """URL of the server, emptied."""
    client = Redis.from_url(rmq_server.url)
    await client.flushall()
    await client.aclose()
    return rmq_server.url


@pytest.fixture
async def redis(url: str) -> AsyncIterator[Redis]:
    """A plain client, to see what is stored."""
    client = Redis.from_url(url)
    yield client
    await client.aclose()


@pytest.fixture
async def rmq(url: str) -> AsyncIterator[Rmq]:
    """An open client of ours."""
    async with Rmq(url, tag="svc", options=PATIENT) as client:
        yield client
