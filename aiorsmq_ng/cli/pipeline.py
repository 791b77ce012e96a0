"""``rsmqctl pipeline``: jobs that run on Spark."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click

import aiorsmq_ng

from .global_options import Settings, current_settings, examples, global_options
from .output import complain, emit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

Callback = TypeVar("Callback", bound=Callable[..., Any])

#: Spark's error if a Python process did not start within its timeout.
_LATE = "Python worker failed to connect back"
_SPARK = ("pyspark", "pyarrow", "numpy")
_STDERR = 2
#: What shell and JVM write if Spark does not start.
_WRONG = re.compile("error|exception|not found|not set|no such file", re.IGNORECASE)
_MISSING = 'pipelines need the extra "spark": pip install "aiorsmq-ng[cli,spark]"'


@click.group(
    epilog=examples(
        "$ rsmqctl pipeline archive -n jobs --to lake/messages",
        "$ rsmqctl pipeline triage -n jobs-dead",
    )
)
@global_options()
def pipeline() -> None:
    """Move messages between queues and files, on Spark.

    Runs on this machine unless --master names a cluster. Needs Java 17 or later. Prints a
    summary as JSON; progress goes to stderr.
    """


def _common(function: Callback) -> Callback:
    for option in (
        click.option("--master", metavar="URL", help="Spark's master.  [default: local[*]]"),
        click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of Spark; repeatable.",
        ),
        click.option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="An option of the queue as source or sink; repeatable.",
        ),
        global_options(),
    ):
        function = option(function)
    return function


@pipeline.command(
    epilog=examples(
        "$ rsmqctl pipeline archive -n jobs -n mails --to lake/messages",
        '{"target": "lake/messages", "rows": 12, "queues": {"jobs": 10, ...}, ...}',
    )
)
@click.option("-n", "--name", "names", multiple=True, required=True, help="A queue; repeatable.")
@click.option("--to", "target", required=True, metavar="PATH", help="Folder of the files.")
@click.option(
    "--checkpoint",
    metavar="PATH",
    help="Checkpoint folder.  [default: _checkpoints in the folder of the files]",
)
@click.option("--every", metavar="TIME", help="Keep running, e.g. every '1 minute'.")
@_common
def archive(
    names: tuple[str, ...], target: str, checkpoint: str, every: str, **common: Any
) -> None:
    """Drain queues into Parquet, each message once, by queue and day.

    Run it again with the same checkpoint, also after a crash, and it resumes. Queues that do not
    exist are left out, and listed as missing.
    """
    with _running("readStream", names, any_of=True, **common) as (jobs, spark, options):
        emit(
            jobs.archive(
                spark,
                names,
                target,
                options=options,
                checkpoint=checkpoint,
                every=every,
                progress=lambda batch, rows: complain(f"batch {batch}, {rows} messages"),
            )
        )


@pipeline.command(
    epilog=examples(
        "$ rsmqctl pipeline replay --from lake/messages --where \"date = '2026-11-16'\""
    )
)
@click.option("--from", "source", required=True, metavar="PATH", help="An archive, or a table.")
@click.option("-n", "--name", help="Send to this queue.  [default: where each came from]")
@click.option("--where", metavar="SQL", help="Only rows that match.")
@click.option("--rate", type=float, default=0.0, help="Messages per second become visible.")
@click.option("--spread", type=int, default=0, help="Spread them over this many seconds.")
@click.option("--keep-ids", is_flag=True, help="Keep the ids; skip what the queue still has.")
@_common
def replay(
    source: str, name: str, where: str, rate: float, spread: int, keep_ids: bool, **common: Any
) -> None:
    """Send archived messages again, all or none."""
    with _running("write", [name] if name else [], **common) as (jobs, spark, options):
        emit(
            jobs.replay(
                spark,
                source,
                queue=name,
                where=where,
                pace=jobs.Pace(rate=rate, spread=spread),
                keep_ids=keep_ids,
                options=options,
            )
        )


@pipeline.command(epilog=examples("$ rsmqctl pipeline load --from orders.csv --format csv -n jobs"))
@click.option("--from", "source", required=True, metavar="PATH", help="Files, or a table.")
@click.option("-n", "--name", required=True, help="The queue.")
@click.option(
    "--format", "kind", default="parquet", show_default=True, help="Spark's name of the format."
)
@click.option("--body", metavar="SQL", help="Expression for the body.  [default: the row as JSON]")
@click.option("--rate", type=float, default=0.0, help="Messages per second become visible.")
@click.option("--read", multiple=True, metavar="NAME=VALUE", help="An option for reading.")
@_common
def load(
    source: str, name: str, kind: str, body: str, rate: float, read: tuple[str, ...], **common: Any
) -> None:
    """Send rows of files, tables or databases, all or none."""
    with _running("write", [name], **common) as (jobs, spark, options):
        emit(
            jobs.load(
                jobs.open_table(spark, source, kind, _pairs(read)),
                name,
                body=body,
                pace=jobs.Pace(rate=rate),
                options=options,
            )
        )


@pipeline.command(
    epilog=examples("$ rsmqctl pipeline report --from lake/messages --page traffic.html")
)
@click.option("--from", "source", required=True, metavar="PATH", help="An archive.")
@click.option("--page", metavar="FILE", help="Write an HTML page with plots.")
@_common
def report(source: str, page: str, **common: Any) -> None:
    """Report on traffic: arrivals, waiting times, retries, poison."""
    with _running(None, [], **common) as (jobs, spark, _):
        emit(jobs.report(spark, source, page))


@pipeline.command(
    epilog=examples(
        "$ rsmqctl pipeline triage -n jobs-dead",
        "$ rsmqctl pipeline triage -n jobs-dead --where \"type = 'mail'\" \\",
        "      --redrive-to jobs",
    )
)
@click.option("-n", "--name", required=True, help="The dead-letter queue.")
@click.option("--where", metavar="SQL", help="Only messages that match.")
@click.option("--redrive-to", metavar="QUEUE", help="Move these messages to that queue.")
@click.option("--type", "kind", default="$.type", show_default=True, help="JSON path of the type.")
@_common
def triage(name: str, where: str, redrive_to: str, kind: str, **common: Any) -> None:
    """Group dead letters by reason, type and age, and redrive them."""
    queues = [name, redrive_to] if redrive_to else [name]
    with _running("read", queues, **common) as (jobs, spark, options):
        emit(
            jobs.triage(spark, name, where=where, redrive_to=redrive_to, kind=kind, options=options)
        )


@contextmanager
def _running(
    use: str | None,
    queues: Sequence[str],
    *,
    master: str | None,
    conf: tuple[str, ...],
    options: tuple[str, ...],
    any_of: bool = False,
) -> Iterator[tuple[Any, SparkSession, dict[str, str]]]:
    """Yield the jobs, a session and the options; report errors in one sentence.

    A job that uses queues names the *use*. Server and *queues* are checked before Spark starts;
    with *any_of* it is enough that one of them exists.
    """
    settings = current_settings()
    try:
        from aiorsmq_ng.spark import jobs
    except ImportError as error:
        # The package's own error about its extra has no module name.
        if (error.name or _SPARK[0]).split(".")[0] not in _SPARK:
            raise
        raise click.ClickException(_MISSING) from None
    given, conf_given = with_settings(_pairs(options), settings), _pairs(conf)
    with _explained():
        if use is not None:
            jobs.check(use, queues, given, any_of=any_of)
        spark = _start(jobs, master, conf_given, settings)
        try:
            yield jobs, spark, given
        finally:
            spark.stop()


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except aiorsmq_ng.InvalidValue as error:
        raise click.UsageError(str(error), click.get_current_context()) from error
    except (aiorsmq_ng.RSMQError, click.ClickException):
        raise
    except Exception as error:
        raise _unwrapped(error) from error


def _start(jobs: Any, master: str | None, conf: dict[str, str], settings: Settings) -> SparkSession:
    logging.getLogger("py4j").setLevel(logging.WARNING)
    given = {"spark.ui.enabled": "false", "spark.log.level": "WARN", **conf}
    if settings.verbose:
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


def with_settings(given: dict[str, str], settings: Settings) -> dict[str, str]:
    """Return the options of a queue, completed from the global options."""
    more = {}
    if settings.namespace is not None:
        more["namespace"] = settings.namespace
    if settings.has_address and not {"url", "urlEnv"} & set(given):
        # Spark redacts the values of options whose names contain "url".
        more["url"] = settings.full_url()
    if settings.plain_password:
        more["plainPassword"] = "true"
    if settings.insecure_tls:
        os.environ["RSMQ_INSECURE_TLS"] = "1"  # Spark's processes on this machine inherit it
    return more | given


def _unwrapped(error: Exception) -> Exception:
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


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.UsageError(f"{name!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}
