"""Spark Connect: the source is found and works behind a server."""

import json

import pytest

from .support import run_driver

# What PySpark's extra "connect" brings; the nox session installs it.
pytest.importorskip("grpc")
pytest.importorskip("pandas")


@pytest.mark.long
def test_connect_runs_source_and_sink(bench, tmp_path):
    result = run_driver("connect", bench, tmp_path)

    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["session"] == "pyspark.sql.connect.session"
    assert told["seen"] == 200
    assert told["bodies"] == list(range(200))
    assert told["archived"] == [{"copied": 20}, ["none"]]
    assert told["in files"] == 20
    assert bench.size == 0
    assert bench.redis.hget(f"{bench.ns}:copied:Q", "totalsent") == b"220"
    assert bench.redis.zcard(f"{bench.ns}:copied") == 0
