"""``rsmqctl pipeline``: jobs that run on Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

import aiorsmq_ng

from .global_options import Settings, current_settings, examples, global_options
from .output import complain, emit
from .spark_start import spark_error, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession  # pyright: ignore[reportMissingImports]

Callback = TypeVar("Callback", bound=Callable[..., Any])

_SPARK = ("pyspark", "pyarrow", "numpy")
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
        spark = start_spark(jobs, master, conf_given, verbose=settings.verbose)
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
        raise spark_error(error) from error


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


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for name, equals, _ in pairs:
        if not (name and equals):
            raise click.UsageError(f"{name!r} is not of the form NAME=VALUE")
    return {name: value for name, _, value in pairs}
