"""Drivers in processes of their own, for what one session cannot show."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from aiorsmq_ng.spark.offsets import Offset, StreamOffset, qualified_name
from aiorsmq_ng.spark.options import StreamReadOptions, parse
from aiorsmq_ng.spark.stream_queues import StreamQueues

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


class StreamDriver:
    """The driver's part of a query, called as Spark's process for the query does."""

    def __init__(self, given):
        self.options = parse(StreamReadOptions, given)
        self.client = self.options.own_client()
        self.queues = StreamQueues(self.options, self.client.transport)

    def latest(self, start, limit):
        return self.client.call(self.queues.latest(start, limit))

    def plan(self, start, end):
        return self.client.call(self.queues.plan(start, end))

    def commit(self, end):
        self.client.call(self.queues.commit(end))

    def stop_at_now(self):
        self.client.call(self.queues.stop_at_now())

    def close(self):
        self.client.call(self.queues.aclose())
        self.client.close()


class QueryDriver:
    """The driver's part of a query of one queue, with the offsets and slices of that queue."""

    def __init__(self, given):
        self.driver = StreamDriver(given)
        self.keys = self.driver.options.keys
        self.origin = Offset.first(self.keys)

    @property
    def claims(self):
        return self.driver.queues._queues[qualified_name(self.keys)]

    def latest(self, start, limit):
        latest = self.driver.latest(StreamOffset.of_queues([start]), limit)
        return latest.offsets.get(qualified_name(self.keys), start)

    def plan(self, start, end):
        tasks = self.driver.plan(StreamOffset.of_queues([start]), StreamOffset.of_queues([end]))
        return [slice for task in tasks for slice in task]

    def commit(self, end):
        self.driver.commit(StreamOffset.of_queues([end]))

    def close(self):
        self.driver.close()
