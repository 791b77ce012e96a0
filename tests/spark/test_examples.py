"""The examples for Spark run and say what they promise."""

import runpy
import subprocess
import sys
import uuid

import pyspark
import pytest

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._runtime.sync_client import shared_client
from aiorsmq_ng.options import Options

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


def test_first_lines_of_the_documentation_print_what_stands_below_them(spark, server_url, capsys):
    text = (ROOT / "docs" / "guides" / "spark.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    output = text.split("```text\n")[1].split("```")[0]
    # Of the same length, so that the table looks the same.
    name = uuid.uuid4().hex[:4]
    keys = Namespace("rsmq").queue(name)

    exec(code.replace("jobs", name), {})

    shared_client(server_url, Options(deadline=30)).run(queues.delete(keys))
    assert capsys.readouterr().out.strip() == output.replace("jobs", name).strip()


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


@pytest.mark.long
@pytest.mark.skipif(
    not pyspark.__version__.startswith("4.2."),
    reason=f"Delta Lake 4.4.0 runs on PySpark 4.2, this is {pyspark.__version__}",
)
def test_example_of_delta_lake_runs_by_itself(server_url):
    """Spark gets the jars from Maven Central."""
    test_example_runs_by_itself(ROOT / "examples" / "spark" / "delta.py", server_url)
