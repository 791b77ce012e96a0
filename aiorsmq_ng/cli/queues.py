"""``rsmqctl queue``: commands on queues as such."""

from __future__ import annotations

import click

from .output import attributes_record, complain, emit
from .session import examples, global_options, run, seconds

name_option = click.option("-n", "--name", required=True, help="The queue.")


@click.group(epilog=examples("$ rsmqctl queue create -n jobs", "$ rsmqctl queue list"))
@global_options()
def queue() -> None:
    """List, create, describe and delete queues."""


@queue.command("list", epilog=examples("$ rsmqctl queue list", '["emails", "jobs"]'))
@global_options()
def list_queues() -> None:
    """Print the names of all queues as a JSON list, sorted."""
    emit(run(lambda rsmq: rsmq.list_queues()))


@queue.command(
    epilog=examples("$ rsmqctl queue create -n jobs", "$ rsmqctl queue create -n emails -t 60 -d 5")
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
    help="How long a new message waits before it can be received; whole seconds.",
)
@click.option(
    "-m",
    "--maxsize",
    type=int,
    metavar="BYTES",
    default=65536,
    show_default=True,
    help="Largest message in bytes, 1024 to 65536, or -1 for no limit.",
)
@global_options()
def create(name: str, vt: float, delay: float, maxsize: int) -> None:
    """Create a queue. Prints nothing."""
    run(lambda rsmq: rsmq.create_queue(name, vt=vt, delay=delay, maxsize=maxsize))


@queue.command(
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
    (received and hidden); oldest_age is for how many seconds the first one has been ready, or
    null.
    """
    attributes = run(lambda rsmq: rsmq.get_queue_attributes(name))
    emit(attributes_record(attributes))
    if not attributes.exact:
        complain("so many messages are hidden that 'leased' is an upper bound, 'delayed' a lower")


@queue.command(epilog=examples("$ rsmqctl queue delete -n jobs"))
@name_option
@global_options()
def delete(name: str) -> None:
    """Delete a queue with all its messages, at once. Prints nothing."""
    run(lambda rsmq: rsmq.delete_queue(name))
