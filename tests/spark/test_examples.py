"""The examples for Spark run and say what they promise."""

import runpy
import subprocess
import sys

import pytest

from ..test_examples import ROOT, example_queues, promised
from .conftest import environment

EXAMPLES = [ROOT / "examples" / "spark" / name for name in ("batch.py", "stream.py")]
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=[e.stem for e in EXAMPLES])


@each_example
def test_example_prints_what_it_promises(example, spark, server_url, monkeypatch, capsys):
    """On the session that is there, which goes on afterwards."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    before = example_queues(server_url)

    runpy.run_path(str(example), run_name="__main__")

    assert capsys.readouterr().out.splitlines()[-1] == promised(example)
    assert example_queues(server_url) <= before


@pytest.mark.long
@each_example
def test_example_runs_by_itself(example, server_url):
    result = subprocess.run(
        [sys.executable, example],
        cwd=ROOT,
        env={**environment(), "RSMQ_URL": server_url},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert result.returncode == 0, result.stderr[-3000:]
    assert result.stdout.splitlines()[-1] == promised(example)
