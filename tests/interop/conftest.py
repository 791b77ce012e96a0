"""Fixtures of the interoperation tests: foreign clients, and any client in any role."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ

from . import drivers
from .drivers import Driver, NotInstalled
from .peers import Foreign, Ours, Peer
from .wire import Wire

NODE = pytest.param("node", marks=pytest.mark.node)
FOREIGN = [NODE, "pyrsmq"]
ALL = ["ours", *FOREIGN]


def _running(start: AbstractContextManager[Driver], what: str) -> Iterator[Driver]:
    with ExitStack() as stack:
        try:
            driver = stack.enter_context(start)
        except NotInstalled as reason:
            pytest.skip(f"{what} cannot be installed: {reason}")
        yield driver


@pytest.fixture(scope="session")
def node_driver(server_url: str) -> Iterator[Driver]:
    """Run the process that owns the npm package rsmq."""
    yield from _running(drivers.node_driver(server_url), drivers.NODE_RSMQ)


@pytest.fixture(scope="session")
def pyrsmq_driver(server_url: str) -> Iterator[Driver]:
    """Run the process that owns PyRSMQ."""
    yield from _running(drivers.pyrsmq_driver(server_url), drivers.PYRSMQ)


def _peer(request: pytest.FixtureRequest, rsmq: RSMQ) -> Peer:
    if request.param == "ours":
        return Ours(rsmq)
    driver = request.getfixturevalue(f"{request.param}_driver")
    return Foreign(request.param, driver, rsmq.ns)


@pytest.fixture(params=ALL)
def maker(request: pytest.FixtureRequest, rsmq: RSMQ) -> Peer:
    """The client that creates the queue."""
    return _peer(request, rsmq)


@pytest.fixture(params=ALL)
def sender(request: pytest.FixtureRequest, rsmq: RSMQ) -> Peer:
    """The client that sends."""
    return _peer(request, rsmq)


@pytest.fixture(params=ALL)
def receiver(request: pytest.FixtureRequest, rsmq: RSMQ) -> Peer:
    """The client that receives."""
    return _peer(request, rsmq)


@pytest.fixture(params=ALL)
def deleter(request: pytest.FixtureRequest, rsmq: RSMQ) -> Peer:
    """The client that deletes or changes what the others made."""
    return _peer(request, rsmq)


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest, rsmq: RSMQ) -> Foreign:
    """Return a client that is not ours."""
    peer = _peer(request, rsmq)
    assert isinstance(peer, Foreign)
    return peer


@pytest.fixture
def ours(rsmq: RSMQ) -> Ours:
    """Our client under the names that all clients share."""
    return Ours(rsmq)


@pytest.fixture
def node(node_driver: Driver, ns: str) -> Foreign:
    """Return the npm package."""
    return Foreign("node", node_driver, ns)


@pytest.fixture
def pyrsmq(pyrsmq_driver: Driver, ns: str) -> Foreign:
    """Return PyRSMQ."""
    return Foreign("pyrsmq", pyrsmq_driver, ns)


@pytest.fixture
def all_peers(ours: Ours, node: Foreign, pyrsmq: Foreign) -> list[Peer]:
    """All clients at once."""
    return [ours, node, pyrsmq]


@pytest.fixture
def wire(raw: Redis, ns: str) -> Wire:
    """Show what is stored under the test's namespace."""
    return Wire(raw, ns)
