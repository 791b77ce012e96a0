"""Drivers in processes of their own, for what one session cannot show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aiorsmq_ng.spark.options import StreamReadOptions, parse
from aiorsmq_ng.spark.stream_claims import Offset, StreamClaims

from .conftest import SETTINGS, Bench, environment, quick_home

DRIVERS = Path(__file__).parent / "drivers.py"


def eventually(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Wait for *condition*, generously."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


def run_driver(
    name: str, bench: Bench, folder: Path, **settings: object
) -> subprocess.CompletedProcess[str]:
    """Run the driver *name* of ``drivers.py`` and wait for its end."""
    return subprocess.run(
        [sys.executable, DRIVERS, name],
        env={
            **environment(),
            "SPARK_HOME": quick_home(folder),
            "DRIVER": json.dumps(
                {
                    "folder": str(folder),
                    "options": bench.options,
                    "spark": SETTINGS,
                    **settings,
                }
            ),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


class QueryDriver:
    """The claims of a query, called as Spark's process for the query does."""

    def __init__(self, given):
        options = parse(StreamReadOptions, given)
        self.client = options.own_client()
        self.claims = StreamClaims(options, self.client.transport)
        self.origin = Offset.first(options.keys)

    def latest(self, start, limit):
        return self.client.call(self.claims.latest(start, limit))

    def plan(self, start, end):
        return self.client.call(self.claims.plan(start, end))

    def commit(self, end):
        self.client.call(self.claims.commit(end))

    def close(self):
        self.client.call(self.claims.aclose())
        self.client.close()
