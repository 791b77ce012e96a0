"""The examples for Spark run and say what they promise."""

import subprocess
import sys

import pytest

from ..test_examples import ROOT, example_queues, promised
from .conftest import environment

EXAMPLES = [ROOT / "examples" / "spark" / name for name in ("batch.py", "stream.py")]


@pytest.mark.parametrize("example", EXAMPLES, ids=[e.stem for e in EXAMPLES])
def test_example_runs_and_prints_what_it_promises(example, server_url):
    before = example_queues(server_url)
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
    assert example_queues(server_url) <= before
