"""Fixtures for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from aiorsmq_ng.cli import main

from .ctl import Ctl, Outcome


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of the person who runs the tests, and nothing in their folders."""
    for name in (
        "RSMQ_URL", "REDIS_URL", "RSMQ_PASSWORD", "RSMQ_TOKEN", "NO_COLOR", "FORCE_COLOR",
        "AIORSMQ_SERVER_BIN", "RSMQ_PLAIN_PASSWORD", "RSMQ_INSECURE_TLS",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIORSMQ_DATA_DIR", str(tmp_path / "data"))


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
