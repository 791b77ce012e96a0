"""Every example runs, says what it promises, and leaves nothing behind."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def promised(example: Path) -> str:
    """Return the last line that the docstring of *example* promises."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    promise = re.search(r"Its last\s+line is: (.+)\Z", docstring)
    assert promise, f"{example.name} does not promise a last line"
    return promise[1]


def example_queues(server_url: str) -> set[bytes]:
    with Redis.from_url(server_url) as redis:
        return {name for name in redis.smembers("rsmq:QUEUES") if name.startswith(b"example-")}


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=[e.stem for e in EXAMPLES])
def test_example_runs_and_prints_what_it_promises(example, server_url):
    before = example_queues(server_url)
    result = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=ROOT,
        env={**os.environ, "RSMQ_URL": server_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == promised(example)
    assert example_queues(server_url) <= before
