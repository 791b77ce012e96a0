"""One contract, three backends: the same tests on a server, on a cluster and through a broker.

The ``conftest.py`` of a folder whose tests run everywhere imports all names of this module. A
test that uses a client then runs once for each backend, as ``test_...[cluster]``. A module with
``BACKENDS`` runs on those only; ``tests/contract/left_out.py`` lists single tests that do not run
everywhere. Fixtures lead to the backend:

- ``server``: the server that all tests share.
- ``cluster``: three private primaries, started once. A namespace is in braces, as users of a
  cluster write it, so that its keys share a slot; ``raw`` talks to the node that has that slot.
- ``broker``: ``rsmq`` is a client of a private broker, which works on the shared server; ``raw``
  and clients of ``server_url`` go to the server directly.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions, Limits
from aiorsmq_ng.telemetry import Telemetry
from tools.lab import Cluster

from ..contract import left_out
from .deadlines import PATIENT

#: Fixtures by which a test depends on each backend.
BACKENDS = {
    "server": {"server_url", "rsmq", "raw", "ns"},
    "cluster": {"server_url", "rsmq", "raw"},
    "broker": {"rsmq"},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test run on every backend that it depends on and is not left out of."""
    used, name = set(metafunc.fixturenames), metafunc.function.__name__
    if "backend" not in used:
        return
    chosen = metafunc.config.getoption("backend") or list(BACKENDS)
    possible = getattr(metafunc.module, "BACKENDS", BACKENDS)
    skipped = left_out.backends_of(name, long=metafunc.config.getoption("long"))
    names = [b for b in chosen if b in possible and b not in skipped and used & BACKENDS[b]]
    metafunc.parametrize("backend", names, indirect=True)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The name of the backend that the test runs on."""
    return str(request.param)


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[Cluster]:
    """Three primaries without replicas."""
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
def server_url(backend: str, server_url: str, request: pytest.FixtureRequest) -> str:
    """URL of the Redis server or cluster behind the backend."""
    if backend == "cluster":
        return str(request.getfixturevalue("cluster").url)
    return server_url


@pytest.fixture
def ns(backend: str) -> str:
    """A namespace of the test's own."""
    name = f"t{uuid.uuid4().hex[:12]}"
    return f"{{{name}}}" if backend == "cluster" else name


@pytest.fixture
async def raw(
    backend: str, server_url: str, ns: str, request: pytest.FixtureRequest
) -> AsyncIterator[Redis]:
    """A plain client of the node that has the namespace, to see and to damage what is stored."""
    if backend == "cluster":
        cluster = request.getfixturevalue("cluster")
        server_url = (await cluster.owner(await cluster.slot_of(ns))).url
    async with Redis.from_url(server_url, decode_responses=False) as client:
        yield client


@pytest.fixture
def telemetry() -> list[Telemetry]:
    """Outlets of ``rsmq``; a module of tests has its own."""
    return []


@pytest.fixture
async def rsmq(
    backend: str, server_url: str, ns: str, telemetry: list[Telemetry]
) -> AsyncIterator[RSMQ]:
    """An open client."""
    own = [] if backend == "broker" else telemetry
    async with RSMQ(server_url, ns=ns, options=PATIENT, telemetry=own) as client:
        if backend != "broker":
            yield client
            return
        limits = Limits(batch=10_000, message_bytes=1 << 26)
        options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.2, limits=limits)
        async with (
            Broker(client, options) as broker,
            RSMQ(f"grpc://{broker.addresses[0]}", ns=ns, telemetry=telemetry) as remote,
        ):
            yield remote


@pytest.fixture
def subscribed(
    backend: str, raw: Redis, request: pytest.FixtureRequest
) -> Callable[..., Awaitable[None]]:
    """Wait until every channel that is given has a subscriber, at any node."""
    nodes = request.getfixturevalue("cluster").masters if backend == "cluster" else []

    async def counts(channels: tuple[str, ...]) -> list[int]:
        if not nodes:
            return [count for _, count in await raw.pubsub_numsub(*channels)]
        replies = [await node.command("PUBSUB", "NUMSUB", *channels) for node in nodes]
        return [sum(counts) for counts in zip(*(r[1::2] for r in replies), strict=True)]

    async def subscribed(*channels: str) -> None:
        async with asyncio.timeout(10):
            while not all(await counts(channels)):
                await asyncio.sleep(0.005)

    return subscribed
