"""A master and two workers on loopback, driven by spark-submit."""

import json
import socket
import subprocess
import time
from pathlib import Path

import pyspark
import pytest

from .conftest import environment
from .support import DRIVERS

HOME = Path(pyspark.__file__).parent


@pytest.fixture
def master(tmp_path):
    """The URL of a standalone cluster with two workers of one core each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    small = ["--host", "127.0.0.1", "--webui-port", "0"]
    work = [str(tmp_path / f"worker{number}") for number in (1, 2)]
    core = ["org.apache.spark.deploy.worker.Worker", *small, "-c", "1", "-m", "1g"]
    commands = [
        ["org.apache.spark.deploy.master.Master", *small, "--port", str(port)],
        *([*core, "-d", folder, url] for folder in work),
    ]
    env = environment() | {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "256m"}
    log = tmp_path / "cluster.log"
    running = []
    with log.open("wb") as output:
        try:
            for command in commands:
                program = [str(HOME / "bin" / "spark-class"), *command]
                running.append(subprocess.Popen(program, env=env, stdout=output, stderr=output))
                time.sleep(1)
            deadline = time.monotonic() + 240
            while log.read_text().count("Successfully registered with master") < 2:
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.2)
            yield url
        finally:
            for process in reversed(running):
                process.terminate()
                process.wait(30)


@pytest.mark.long
def test_cluster_runs_source_sink_and_archive(master, bench, tmp_path):
    given = {"folder": str(tmp_path), "options": bench.options}
    result = subprocess.run(
        [
            *(str(HOME / "bin" / "spark-submit"), "--master", master),
            *("--driver-memory", "512m", "--executor-memory", "512m"),
            *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"),
            # Nothing begins before both executors are there.
            *("--conf", "spark.cores.max=2", "--conf", "spark.executor.cores=1"),
            *("--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
            *("--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=300s"),
            str(DRIVERS),
            "cluster",
        ],
        env=environment() | {"SPARK_HOME": str(HOME), "DRIVER": json.dumps(given)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert (told["seen"], told["archived"]) == (2000, 2000)
    assert told["bodies"] == list(range(2000))
    # A worker has one core and an executor takes one, so two executors are on two workers.
    for phase in ("sink", "source", "archive"):
        finished = told["tasks"][phase].values()
        assert len(finished) == 2, told["tasks"]
        assert min(finished) > 0, told["tasks"]
    assert bench.size == 0
