"""How Spark is started: what it writes to stderr is held back, and its errors are one sentence."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, cast

import click

import aiorsmq_ng

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

#: Spark's error if a Python process did not start within its timeout.
_LATE = "Python worker failed to connect back"
_STDERR = 2
#: What shell and JVM write if Spark does not start.
_WRONG = re.compile("error|exception|not found|not set|no such file", re.IGNORECASE)


def start_spark(
    jobs: Any, master: str | None, conf: dict[str, str], *, verbose: bool
) -> SparkSession:
    """Start a session that writes nothing to stderr unless *verbose*."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    given = {"spark.ui.enabled": "false", "spark.log.level": "WARN", **conf}
    if verbose:
        return cast("SparkSession", jobs.session(master, given))
    # Errors are also raised, and reported in one sentence; PySpark logs them in full before.
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    given |= {"spark.log.level": "OFF", "spark.ui.showConsoleProgress": "false"} | conf
    with tempfile.TemporaryFile() as written, _stderr_of_children(written):
        try:
            return cast("SparkSession", jobs.session(master, given))
        except Exception as error:
            written.seek(0)
            lines = written.read().decode(errors="replace").splitlines()
            said = [line.strip() for line in lines if _WRONG.search(line)]
            if not said:
                raise
            raise click.ClickException(f"Spark did not start: {said[0]}") from error


@contextmanager
def _stderr_of_children(file: IO[bytes]) -> Iterator[None]:
    """Let processes that are started meanwhile write their stderr to *file*, as long as they run.

    The JVM of Spark writes warnings before it reads its settings, and so do Python workers.
    """
    sys.stderr.flush()
    ours = os.dup(_STDERR)
    os.dup2(file.fileno(), _STDERR)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, _STDERR)
        os.close(ours)


def spark_error(error: Exception) -> Exception:
    """Return the error of this library that Spark has wrapped."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [
        line.split(": ", 1) for line in lines if line.startswith("aiorsmq_ng.") and ": " in line
    ]
    if ours:
        kind, said = ours[-1]
        if kind.endswith((".Unavailable", ".SendUnknown")):
            return aiorsmq_ng.Unavailable(said, executed=None, transient=True)
        return click.ClickException(said)
    # Java errors start with a line about the Py4J bridge, then class and message.
    rest = [line.rpartition("Exception: ")[2] for line in lines if line.startswith(": ")]
    said = rest[0] if rest else lines[0] if lines else type(error).__name__
    late = "; the machine was too busy, run it again" if _LATE in said else ""
    return click.ClickException(f"{said}{late}")
