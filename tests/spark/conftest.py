"""One Spark for all quick tests; queues of each test's own."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.message_values import Leased
from aiorsmq_ng._protocol.operations.spark import bulk_send
from aiorsmq_ng._runtime.sync_client import shared_client
from aiorsmq_ng.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: Tests of the scripts that Spark's processes call; they need a server and no Spark.
WITHOUT_SPARK = {
    "test_bulk_send.py",
    "test_snapshots.py",
    "test_claims.py",
    "test_claim_dead_letters.py",
    "test_claim_headers.py",
    "test_lean_claims.py",
    "test_claim_model.py",
}
# PySpark is half a gigabyte: the other tests have a nox session of their own.
collect_ignore = (
    []
    if find_spec("pyspark")
    else [p.name for p in HERE.glob("test_*.py") if p.name not in WITHOUT_SPARK]
)
#: A JVM that starts quickly and stays small.
SETTINGS = {
    # Two cores, and a second try for a task that fails.
    "spark.master": "local[2, 2]",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    # Plans run once, on few rows: compiling them takes longer than interpreting them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.log.level": "ERROR",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give tests that start Java more time than others."""
    ours = [i for i in items if HERE in i.path.parents and i.path.name not in WITHOUT_SPARK]
    for item in ours:
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))


def environment() -> dict[str, str]:
    """Return the environment in which Spark's processes find this package and this Python.

    There are many of them, so they keep what they compiled.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    python = sys.executable
    left = ("PYTHONDONTWRITEBYTECODE", "SPARK_HOME")
    kept = {n: v for n, v in os.environ.items() if n not in left}
    return {
        **kept,
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def quick_home(folder: Path) -> str:
    """Return a home for Spark in which its Python processes start in a third of the time.

    In its own one they find pyspark in an archive, and compile it again every time; Spark waits ten
    seconds for them and no more. In this one they find what is installed.
    """
    import pyspark

    home = folder / "spark-home"
    if not home.exists():
        home.mkdir()
        for name in ("bin", "jars"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return str(home)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, server_url: str) -> Iterator[SparkSession]:
    """The session that the quick tests share; what names no server uses that of the tests."""
    from pyspark.sql import SparkSession

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ.update(environment() | {"RSMQ_URL": server_url})
    os.environ["SPARK_HOME"] = quick_home(tmp_path_factory.mktemp("home"))
    builder = SparkSession.builder
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = builder.config("spark.sql.warehouse.dir", str(warehouse)).getOrCreate()
    yield session
    session.stop()


class Bench:
    """A queue, seen from Spark and from beside it."""

    def __init__(self, url: str, ns: str, name: str = "jobs", maxsize: int = 65536) -> None:
        self.url, self.ns, self.name = url, ns, name
        self.keys = Namespace(ns).queue(name)
        self.run = shared_client(url, Options(deadline=10)).run
        self.redis = Redis.from_url(url)
        self.run(queues.create(self.keys, vt=30, delay=0, maxsize=maxsize))

    @property
    def options(self) -> dict[str, str]:
        return {"url": self.url, "namespace": self.ns, "queue": self.name}

    def read(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.read.format("rsmq").options(**{**self.options, **options}).load()

    def write(self, frame: DataFrame, **options: str) -> None:
        given = {**self.options, **options}
        frame.write.format("rsmq").options(**given).mode("append").save()

    def stream(self, spark: SparkSession, **options: str) -> DataFrame:
        return spark.readStream.format("rsmq").options(**{**self.options, **options}).load()

    def fill(self, *bodies: bytes, delay_ms: int = -1) -> None:
        """Put messages in from outside Spark."""
        for at in range(0, len(bodies), 1000):
            lot = bodies[at : at + 1000]
            fresh = suffixes(os.urandom(22 * len(lot)))
            rows = bulk_send.Rows(fresh, [delay_ms] * len(lot), list(lot))
            job = uuid.uuid4().hex
            place = bulk_send.Place(job, "0")
            self.run(bulk_send.send(self.keys, rows, place, ttl_s=60, oversize="fail"))
            self.redis.delete(self.keys.marks(job))

    def fill_numbers(self, count: int, start: int = 0) -> None:
        self.fill(*[b"%d" % n for n in range(start, start + count)])

    def receive(self, count: int = 1000) -> list[Leased]:
        """Receive up to *count* messages; those whose lease ran out come one by one."""
        receive_spec, found = messages.ReceiveSpec(self.keys), []
        while some := self.run(
            messages.receive(receive_spec, count - len(found), vt_ms=60_000)
        ).messages:
            found += some
            if len(found) == count:
                break
        return found

    def bodies(self) -> list[bytes]:
        ids = self.redis.zrange(self.keys.zset, 0, -1)
        return self.redis.hmget(self.keys.hash, ids) if ids else []

    def lease_ends(self) -> float:
        """Return when the first message becomes visible (ms)."""
        ((_, score),) = self.redis.zrange(self.keys.zset, 0, 0, withscores=True)
        return score

    @property
    def size(self) -> int:
        return self.redis.zcard(self.keys.zset)

    def side_keys(self) -> list[str]:
        """Name what stands beside the queue; what the server remembers of calls expires."""
        found = self.redis.keys(f"{self.keys.zset}:ng:*")
        kinds = (key.decode().split(":ng:")[1].split(":")[0] for key in found)
        return sorted(kind for kind in kinds if kind != "call")


@pytest.fixture
def bench(server_url: str, ns: str) -> Bench:
    """A queue called jobs."""
    return Bench(server_url, ns)


@pytest.fixture
def other(server_url: str, ns: str) -> Bench:
    """A queue called out, small bodies only."""
    return Bench(server_url, ns, "out", maxsize=1024)
