"""Fixtures for the command line."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis

from aiorsmq_ng.cli import main

from ..support.environment import no_settings  # noqa: F401 - used by every test
from .ctl import Ctl, Outcome


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Ctl:
    """Run a command line in this process."""

    def call(*args: str) -> Outcome:
        status = main(args)
        return Outcome(status, *capsys.readouterr())

    return call


@pytest.fixture
def ctl(call: Ctl, server_url: str, ns: str) -> Ctl:
    """Run a command on the tests' server, in a namespace of the test's own."""
    return lambda *args: call("-r", server_url, "--ns", ns, *args)


@pytest.fixture
def jobs(ctl: Ctl) -> Ctl:
    """The same, with a queue ``jobs``."""
    assert ctl("queue", "create", "-n", "jobs").status == 0
    return ctl


@pytest.fixture
def redis(server_url: str) -> Iterator[Redis]:
    """A plain client, to see what is stored."""
    with Redis.from_url(server_url, decode_responses=False) as client:
        yield client
