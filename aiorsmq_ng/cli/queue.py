"""``rsmqctl queue``: commands on whole queues."""

from __future__ import annotations

import click

import aiorsmq_ng

from .._common.queue_defaults import DEFAULT_MAXSIZE
from .completion import complete_queue
from .confirmation import asks, confirm, yes_option
from .global_options import current_settings, examples, global_options, program, seconds
from .lazy_group import LazyGroup
from .output import Record, attributes_record, complain, show_names, show_record, show_rows
from .session import run
from .shared_options import messages, most_option, name_option, rate_option, removing, to_option

STATS_COLUMNS = (
    "queue", "ready", "leased", "delayed", "dead", "oldest_age", "totalsent", "totalrecv",
    "consumers",
)  # fmt: skip


@click.group(
    cls=LazyGroup,
    table={
        name: f"queue:{function}"
        for name, function in {
            "list": "list_queues", "create": "create", "describe": "describe",
            "delete": "delete", "set": "set_attributes", "purge": "purge", "stats": "stats",
            "move": "move",
        }.items()
    },
    epilog=examples("$ rsmqctl queue create -n jobs", "$ rsmqctl queue list"),
)  # fmt: skip
@global_options()
def queue() -> None:
    """List, create, describe, change, empty and delete queues."""


@click.command("list", epilog=examples("$ rsmqctl queue list", '["emails", "jobs"]'))
@global_options()
def list_queues() -> None:
    """Print the names of all queues as a JSON list, sorted."""
    show_names(run(lambda rsmq: rsmq.list_queues()), "queue")


@click.command(
    epilog=examples("$ rsmqctl queue create -n jobs", "$ rsmqctl queue create -n slow -t 60 -d 5")
)
@name_option
@click.option(
    "-t",
    "--vt",
    type=seconds,
    default=30,
    show_default=True,
    help="Visibility timeout: how long a received message is hidden from others; whole seconds.",
)
@click.option(
    "-d",
    "--delay",
    type=seconds,
    default=0,
    show_default=True,
    help="Delay until a new message can be received; whole seconds.",
)
@click.option(
    "-m",
    "--maxsize",
    type=int,
    metavar="BYTES",
    default=DEFAULT_MAXSIZE,
    show_default=True,
    help="Largest message in bytes, 1024 to 65536, or -1 for no limit.",
)
@global_options()
def create(name: str, vt: float, delay: float, maxsize: int) -> None:
    """Create a queue. Prints nothing.

    The defaults are RSMQ's own. (An older tool of this name stored a maxsize of 65535.)
    """
    run(lambda rsmq: rsmq.create_queue(name, vt=vt, delay=delay, maxsize=maxsize))


@click.command(
    epilog=examples(
        "$ rsmqctl queue describe -n jobs",
        '{"vt": 30, "delay": 0, "maxsize": 65536, "totalrecv": 2, "totalsent": 3,',
        ' "created": 1645018248, "modified": 1645018248, "msgs": 2, "hiddenmsgs": 1,',
        ' "ready": 1, "delayed": 0, "leased": 1, "oldest_age": 4.2}     (on one line)',
    )
)
@name_option
@global_options()
def describe(name: str) -> None:
    """Print a queue's attributes and counters as a JSON object.

    The first nine are RSMQ's own. Every message is ready, delayed (not due yet) or leased
    (received and hidden). oldest_age is how long the first one has been ready, in seconds, or
    null.
    """
    _show_attributes(run(lambda rsmq: rsmq.queue(name).attributes()))


@click.command(epilog=examples("$ rsmqctl queue delete -n jobs"))
@name_option
@global_options()
@removing()
def delete(name: str) -> None:
    """Delete a queue with all its messages, at once. Prints nothing."""
    run(lambda rsmq: rsmq.delete_queue(name))


@click.command("set", epilog=examples("$ rsmqctl queue set -n jobs -t 120"))
@name_option
@click.option("-t", "--vt", type=seconds, help="Visibility timeout, whole seconds.")
@click.option("-d", "--delay", type=seconds, help="Delay of new messages, whole seconds.")
@click.option(
    "-m", "--maxsize", type=int, metavar="BYTES", help="Largest message: 1024 to 65536, or -1."
)
@global_options()
def set_attributes(name: str, vt: float | None, delay: float | None, maxsize: int | None) -> None:
    """Change a queue's attributes and print it as describe does.

    Attributes that are not given stay unchanged. Messages in the queue keep their times.
    """
    _show_attributes(
        run(lambda rsmq: rsmq.queue(name).set_attributes(vt=vt, delay=delay, maxsize=maxsize))
    )


@click.command(
    epilog=examples(
        "$ rsmqctl queue purge -n jobs", "$ rsmqctl queue purge -n jobs --yes", '{"purged": 120}'
    )
)
@name_option
@click.option("--leased", is_flag=True, help="Also remove messages that consumers hold.")
@yes_option
@global_options()
@removing()
def purge(name: str, leased: bool, yes: bool) -> None:
    """Remove ready and delayed messages; asks first.

    The queue itself and its attributes stay. Messages cannot be restored; see message export.
    """
    if asks(yes=yes):
        found = run(lambda rsmq: rsmq.queue(name).attributes())
        if not (count := found.msgs if leased else found.ready + found.delayed):
            show_record({"purged": 0})
            return
        held = f" ({found.leased} leased {'of them' if leased else 'ones stay'})"
        confirm(f"Remove {messages(count)} from queue {name!r}{held if found.leased else ''}?")

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        from .bulk_moves import purge

        return await purge(rsmq.queue(name), leased=leased)

    show_record({"purged": run(work)})


@click.command(
    epilog=examples(
        "$ rsmqctl queue stats -o table",
        "QUEUE   READY  LEASED  DELAYED  DEAD  OLDEST_AGE  TOTALSENT  TOTALRECV  ...",
        "emails      0       2        0     0                     51         51  ...",
        "jobs      120      48        6     3        12.4       9120       9044  ...",
    )
)
@click.option("-n", "--name", help="The queue; not given: all.", shell_complete=complete_queue)
@global_options()
def stats(name: str | None) -> None:
    """Print the statistics of one queue or of all.

    dead counts the messages in <queue>-dead, consumers the clients of this library that were
    active in the last 30 seconds. For a live view see top.
    """
    damaged: list[str] = []

    async def collect(rsmq: aiorsmq_ng.RSMQ) -> list[Record]:
        from ..sampling import all_stats

        found = await all_stats(rsmq, [name] if name is not None else None, damaged.append)
        return [stats_record(queue, stats) for queue, stats in found.items()]

    rows = run(collect)
    if name is None:
        show_rows(rows, STATS_COLUMNS)
        if damaged:
            look = f"{program(current_settings().namespace)} doctor"
            complain(f"left out, damaged: {', '.join(damaged)}; examine them with: {look}")
    else:
        show_record(rows[0])


@click.command(
    epilog=examples(
        "$ rsmqctl queue move -n jobs --to jobs-v2", '{"moved": 120}',
        "$ rsmqctl queue move -n jobs --to jobs-v2 -c 1000 --rate 100/s",
    )
)  # fmt: skip
@name_option
@to_option
@most_option
@rate_option
@global_options()
def move(name: str, target: str, count: int | None, rate: float | None) -> None:
    """Move the ready messages of a queue to another one.

    They start there with rc 0. Delayed and leased messages stay, and so do those that arrive
    while it runs. Interrupted at any point, every message is in exactly one of the queues, and a
    note on stderr says how many were moved.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        from .bulk_moves import move

        for queue in (name, target):  # report a missing queue even if nothing is moved
            await rsmq.queue(queue).attributes()
        return await move(rsmq.queue(target), rsmq.queue(name), count=count, rate=rate)

    show_record({"moved": run(work, patient=True)})


def stats_record(name: str, stats: aiorsmq_ng.QueueStats) -> Record:
    """Return the stats of a queue as a record."""
    found = stats.attributes
    return {
        "queue": name,
        "ready": found.ready,
        "leased": found.leased,
        "delayed": found.delayed,
        "dead": stats.dead,
        "oldest_age": found.oldest_age,
        "totalsent": found.totalsent,
        "totalrecv": found.totalrecv,
        "consumers": sum(consumer.consumers for consumer in stats.consumers),
    }


def _show_attributes(attributes: aiorsmq_ng.QueueAttributes) -> None:
    show_record(attributes_record(attributes))
    if not attributes.exact:
        complain("too many hidden messages to count: 'leased' is an upper bound, 'delayed' a lower")
