"""A server of the test's own, to be damaged."""

import pytest
from redis.asyncio import Redis

from aiorsmq_ng.embedded import EmbeddedServer


@pytest.fixture
def private_server(tmp_path):
    with EmbeddedServer.acquire(tmp_path / "data") as server:
        yield server


@pytest.fixture
async def admin(private_server):
    async with Redis.from_url(private_server.url) as client:
        yield client
