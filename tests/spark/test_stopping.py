"""The end of the process that Spark runs for a query: signals, and what is given back."""

import subprocess
import sys
import textwrap

import pytest

from aiorsmq_ng._protocol.operations.spark import claims

from .conftest import environment

#: As Spark's runner does it: stop() in a finally clause around the calls of the source.
RUNNER = """
import os, signal, sys, time
from pyspark.sql.types import StringType, StructField, StructType
from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng.spark.options import StreamReadOptions, parse
from aiorsmq_ng.spark.stream_reader import ClaimReader
from pyspark.sql.streaming.datasource import ReadMaxRows

options = parse(StreamReadOptions, {given})

class Reader(ClaimReader):
    def stop(self):
        if {late}:
            # Once, as late as a signal can come: before the first line of stop().
            Reader.stop = ClaimReader.stop
            os.kill(os.getpid(), signal.SIGTERM)
        super().stop()

reader = Reader(options, StructType([StructField("body", StringType())]))
try:
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(30))
    while options.client().run(claims.backlog(options.keys)).visible > 40:
        time.sleep(0.01)
    if not {late}:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
finally:
    reader.stop()
"""


@pytest.mark.parametrize("late", [False, True], ids=["signal first", "signal at the end"])
def test_process_that_ends_by_a_signal_gives_back_what_it_claimed_ahead(bench, late):
    bench.fill_numbers(100)
    code = textwrap.dedent(RUNNER).format(given=bench.options, late=late)

    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment(), timeout=300, check=False
    )

    assert ended.returncode == 143
    # The claim that Spark knows stays; its lease is what the next run continues.
    assert bench.run(claims.backlog(bench.keys)).visible == 70


def test_reader_that_is_stopped_leaves_the_signals_of_its_process_as_they_were(bench):
    """Tests and notebooks use a reader in their own process; children inherit what is ignored."""
    code = textwrap.dedent(RUNNER).format(given=bench.options, late=True)
    code = code.replace("os.kill(os.getpid(), signal.SIGTERM)", "pass")
    code += "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
    bench.fill_numbers(100)

    subprocess.run([sys.executable, "-c", code], env=environment(), timeout=300, check=True)
