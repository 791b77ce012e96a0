"""The settings of the person who runs the tests, kept away from them."""

from __future__ import annotations

from pathlib import Path

import pytest

SETTINGS = (
    *("RSMQ_URL", "REDIS_URL", "RSMQ_PASSWORD", "RSMQ_TOKEN", "RSMQ_PLAIN_PASSWORD"),
    *("RSMQ_INSECURE_TLS", "AIORSMQ_SERVER_BIN", "NO_COLOR", "FORCE_COLOR"),
)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Unset every variable that a command reads, and keep data in the test's own folder."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIORSMQ_DATA_DIR", str(tmp_path / "data"))
