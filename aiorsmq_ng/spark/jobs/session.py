"""The Spark session of a job that has none."""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(master: str | None = None, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Return the running session, or start one: on this machine, or on *master*.

    Under ``spark-submit`` its master applies. Workers run this Python, unless configured otherwise.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second, and needs the extra

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("aiorsmq-ng")
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master("local[*]")
    for name, value in (settings or {}).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
