"""The walks of docs/explanation/walk.md are made, and pass their stations."""

import asyncio
import multiprocessing
import re
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import FrameType

import pytest

from aiorsmq_ng import RSMQ, Worker
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.testing import PrivateServer

PACKAGE = Path(__file__).parents[1] / "aiorsmq_ng"
PAGE = (PACKAGE.parent / "docs/explanation/walk.md").read_text()
#: Stations (file, function) by the first words of the title; a Lua script has no function.
WALKS = {
    " ".join(part.split()[:2]).strip(":"): re.findall(
        r"^\| \d+ \| `([^`]+)` \| (?:`([^`]+)`)? *\|", part, re.MULTILINE
    )
    for part in PAGE.split("\n## ")[1:]
    if "| | file |" in part
}


def test_there_are_five_walks_of_at_most_eight_stations():
    assert list(WALKS) == ["A send", "A receive", "A handler", "A Spark", "A broker"]
    assert all(4 < len(stations) <= 8 for stations in WALKS.values())


@pytest.mark.parametrize("file", [file for stations in WALKS.values() for file, _ in stations])
def test_file_of_a_station_exists(file):
    assert (PACKAGE / file).is_file()


class Steps:
    """Records the calls of functions of the package, in all threads."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def __enter__(self) -> "Steps":
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            self.made.append((str(file.relative_to(PACKAGE)), frame.f_code.co_qualname))

    def missed(self, walk: str) -> list[str]:
        """Return the stations of *walk* that were not passed after the one before."""
        steps, missed = iter(self.made), []
        for file, function in WALKS[walk]:
            if function and (file, function) not in steps:
                missed.append(f"{file} {function}")
        return missed


@pytest.fixture
async def rsmq():
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        await rsmq.create_queue("orders")
        yield rsmq


async def test_send(rsmq):
    await rsmq.queue("orders").send("loads the script")
    with Steps() as steps:
        await rsmq.queue("orders").send("hello")

    assert steps.missed("A send") == []


async def test_receive(rsmq):
    await rsmq.queue("orders").send("hello")
    with Steps() as steps:
        async with rsmq.queue("orders").consume(prefetch=2) as messages:
            async for message in messages:
                async with message:
                    break

    assert steps.missed("A receive") == []


async def test_handler(rsmq):
    await rsmq.queue("orders").send("hello")
    with Steps() as steps:
        worker = Worker(rsmq)

        @worker.handler("orders")
        async def fail(body: str) -> None:
            worker.stop()
            raise ValueError(body)

        await worker.run(signals=False)

    assert steps.missed("A handler") == []


async def test_broker_call(rsmq):
    async with (
        Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0",), grace=0)) as broker,
        RSMQ(f"grpc://{broker.addresses[0]}") as client,
    ):
        with Steps() as steps:
            await client.queue("orders").send("hello")

    assert steps.missed("A broker") == []


def test_station_that_is_passed_too_early_is_missed():
    steps = Steps()
    steps.made = [("b.py", "b"), ("a.py", "a")]
    WALKS["example"] = [("a.py", "a"), ("b.py", "b")]
    try:
        assert steps.missed("example") == ["b.py b"]
    finally:
        del WALKS["example"]


def read_stream(url: str) -> list[tuple[str, str]]:
    """Make the calls that Spark makes for a batch; return the steps."""
    from pyspark.sql.streaming.datasource import ReadMaxRows

    from aiorsmq_ng.spark.source import RSMQDataSource

    with Steps() as steps:
        source = RSMQDataSource({"queue": "orders", "url": url})
        reader = source.streamReader(source.schema())
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        for partition in reader.partitions(start, end):
            assert sum(batch.num_rows for batch in reader.read(partition)) == 1
        reader.commit(end)
        reader.stop()
    return steps.made


async def test_spark_row():
    pytest.importorskip("pyspark")
    pytest.importorskip("pyarrow")
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        await (await rsmq.create_queue("orders")).send("hello")
        steps = Steps()
        # A process of its own, as Spark has: threads that were started before are not watched.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as spawned:
            loop = asyncio.get_running_loop()
            steps.made = await loop.run_in_executor(spawned, read_stream, server.url)

    assert steps.missed("A Spark") == []
