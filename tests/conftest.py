"""Fixtures shared by all tests: a real server, a namespace per test, an open client."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Queue

from .support.deadlines import PATIENT
from .support.servers import running_server

# Tests of terminals fork; gRPC's handlers would end the child before it runs its program.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# How long an example takes says something about the machine, not about us.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

_used = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Let Ctrl-C reach the programs that tests start, also when the tests run in the background.

    A shell starts such jobs with interrupts ignored, and children inherit that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run tests marked as long")
    parser.addoption(
        "--backend",
        action="append",
        choices=["server", "cluster", "broker"],
        help="run the contract on this backend only; may be given several times",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes minutes, unless asked."""
    if not config.getoption("long"):
        left_out = [item for item in items if item.get_closest_marker("long")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(scope="session")
def server_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """URL of the server that the tests of this run share."""
    with running_server() as (url, kind):
        pytestconfig.stash[_used] = kind
        yield url


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # one of several processes that share the tests
        session.config.workeroutput["server"] = session.config.stash.get(_used, None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    if used := getattr(node, "workeroutput", {}).get("server"):
        node.config.stash[_used] = used


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    terminalreporter.write_line(f"server: {config.stash.get(_used, 'none was needed')}")


@pytest.fixture
def ns() -> str:
    """A namespace of the test's own."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def rsmq(server_url: str, ns: str) -> AsyncIterator[RSMQ]:
    """An open client."""
    async with RSMQ(server_url, ns=ns, options=PATIENT) as client:
        yield client


@pytest.fixture
async def queue(rsmq: RSMQ) -> Queue:
    """A queue with RSMQ's defaults."""
    return await rsmq.create_queue("jobs")


@pytest.fixture
async def raw(server_url: str) -> AsyncIterator[Redis]:
    """A plain redis-py client, to see and to damage what is stored."""
    client = Redis.from_url(server_url, decode_responses=False)
    yield client
    await client.aclose()
