"""pytest plugin: fixtures for a client in a namespace of its own, and for a clock.

pytest imports this module in every run of an environment that has the package installed. It
therefore imports nothing else: the client, redis-py and extras are imported, and servers started,
when a test first uses a fixture.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..client import RSMQ
    from .clock import TimeMachine

_DEFAULT_URL = "memory://"
_LOOPS = "aiorsmq_ng.testing.pytest_asyncio_fixtures"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--rsmq-url``: the server that the tests use."""
    what = 'server for the rsmq_* fixtures: a URL, or "embedded" to start one for this run'
    parser.getgroup("aiorsmq-ng").addoption("--rsmq-url", metavar="URL", default=None, help=what)
    parser.addini("rsmq_url", f"{what} (default: {_DEFAULT_URL})", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the client fixtures for pytest-asyncio, if it is in use."""
    # All plugins are loaded now. One that is installed but disabled is not imported.
    asyncio_plugin = sys.modules.get("pytest_asyncio.plugin")
    plugins = config.pluginmanager
    if asyncio_plugin and plugins.is_registered(asyncio_plugin) and not plugins.has_plugin(_LOOPS):
        plugins.import_plugin(_LOOPS)


@pytest.fixture(scope="session")
def rsmq_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """Return the URL of the server to test on.

    From --rsmq-url, RSMQ_TEST_URL or the setting rsmq_url, in this order; memory:// if none is
    given. The word "embedded" starts a server for this run.
    """
    url = (
        pytestconfig.getoption("--rsmq-url")
        or os.environ.get("RSMQ_TEST_URL")
        or pytestconfig.getini("rsmq_url")
        or _DEFAULT_URL
    )
    if url == "embedded":
        from ..embedded import EmbeddedServer

        with EmbeddedServer.ephemeral() as server:
            yield server.url
    else:
        yield url


@pytest.fixture
def rsmq_ns(rsmq_url: str) -> str:
    """Return a namespace that only this test uses."""
    from .temporary_clients import unique_namespace

    return unique_namespace(rsmq_url)


@pytest.fixture
def rsmq_client(request: pytest.FixtureRequest) -> RSMQ:
    """Return an open client in the namespace rsmq_ns; after the test both are cleaned up.

    It belongs to the event loop of the test, whichever plugin runs it.
    """
    client: RSMQ = request.getfixturevalue(_variant(request))
    return client


@pytest.fixture
def rsmq_clock(rsmq_client: RSMQ) -> TimeMachine:
    """Make time pass for the queues of rsmq_client: await rsmq_clock.pass_time(60)."""
    from .clock import TimeMachine

    return TimeMachine(rsmq_client)


@pytest.fixture
async def _rsmq_client_of_anyio(rsmq_url: str, rsmq_ns: str) -> AsyncIterator[RSMQ]:
    from .temporary_clients import temporary_client

    async with temporary_client(rsmq_url, ns=rsmq_ns) as rsmq:
        yield rsmq


def _variant(request: pytest.FixtureRequest) -> str:
    """Return the name of the fixture that opens the client on the loop of this test."""
    config = request.config
    mark = request.node.get_closest_marker("asyncio")
    by_anyio = "anyio_backend" in request.fixturenames
    if config.pluginmanager.has_plugin(_LOOPS) and (mark or not by_anyio):
        given = mark.kwargs.get("loop_scope") if mark else None
        return f"_rsmq_client_of_{given or config.getini('asyncio_default_test_loop_scope')}_loop"
    if not by_anyio:
        pytest.fail(
            "rsmq_client needs a plugin that runs async tests: pip install pytest-asyncio, "
            "or mark the test with pytest.mark.anyio",
            pytrace=False,
        )
    backend = request.getfixturevalue("anyio_backend")
    name = backend if isinstance(backend, str) else backend[0]
    if name != "asyncio":
        pytest.skip(f"aiorsmq-ng runs on asyncio, not on {name}")
    return "_rsmq_client_of_anyio"
