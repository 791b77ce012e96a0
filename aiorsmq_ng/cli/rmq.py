"""``rsmqctl rmq``: queues of adjust/rmq, which Go programs share."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

import aiorsmq_ng

from .confirmation import asks, confirm, yes_option
from .global_options import current_settings, examples, global_options, seconds
from .lazy_group import LazyGroup
from .output import Record, complain, show_record, show_rows
from .session import DAEMON_LOG, finish, start_log
from .shared_options import fail_empty_option, messages, nothing

if TYPE_CHECKING:
    from ..rmq import Rmq, RmqDelivery, RmqStats

R = TypeVar("R")

#: Exit status of statistics that lack something.
DAMAGED = 1
_QUEUE_COLUMNS = (
    *("queue", "ready", "rejected", "unacked", "consumers", "connections", "dead_connections"),
)
_CONNECTION_COLUMNS = ("connection", "alive", "queue", "unacked", "consumers")

name_option = click.option("-n", "--name", required=True, help="The queue of rmq.")
most_option = click.option(
    "-c", "--count", type=click.IntRange(min=1), metavar="N", help="Maximum number; all by default."
)


@click.group(
    cls=LazyGroup,
    table={
        "stats": "rmq:stats",
        "publish": "rmq:publish",
        "consume": "rmq:consume",
        "clean": "rmq:clean",
        "return": "rmq:return_",
        "purge": "rmq:purge",
        "destroy": "rmq:destroy",
        "bridge": "rmq_bridge:bridge",
    },
    epilog=examples("$ rsmqctl rmq stats -o table", "$ rsmqctl rmq clean"),
)
@global_options()
def rmq() -> None:
    """Work with queues of adjust/rmq, a library for Go.

    They are in the database of --redis-url; --ns has no meaning for them. In a cluster
    (redis+cluster://) their keys are those of rmq's cluster connections.
    """


def run_rmq(work: Callable[[Rmq], Awaitable[R]], *, patient: bool = False) -> R:
    """Open a client of rmq, run *work* with it, and close it."""
    from ..rmq import Rmq

    async def session() -> R:
        settings = current_settings()
        options = settings.options(patient=patient)
        async with Rmq(settings.full_url(), tag="rsmqctl", options=options) as client:
            return await work(client)

    return finish(session, patient=patient)


def _missing(name: str) -> click.ClickException:
    return click.ClickException(
        f"rmq has no queue {name!r}; list its queues with: rsmqctl rmq stats"
    )


async def lengths_of(client: Rmq, name: str) -> tuple[int, int]:
    """Return how many messages of a queue are ready and rejected; an error if there is none."""
    found = await client.queue(name).lengths()
    if not any(found) and name not in await client.list_queues():
        raise _missing(name)
    return found


@click.command(
    epilog=examples(
        "$ rsmqctl rmq stats -o table",
        "QUEUE   READY  REJECTED  UNACKED  CONSUMERS  CONNECTIONS  DEAD_CONNECTIONS",
        "things     12         1        3          2            2                 0",
    )
)
@click.option("--connections", is_flag=True, help="Print a row for each connection instead.")
@fail_empty_option
@global_options()
def stats(connections: bool, fail_empty: bool) -> None:
    """Print what every queue holds, and its connections.

    unacked is what connections have taken and not settled; what dead connections hold waits for
    a cleaner. What keys of another type hide is named on stderr, and the status is 1.
    """
    found = run_rmq(lambda client: client.stats())
    if connections:
        show_rows(rows := _connections(found), _CONNECTION_COLUMNS)
    else:
        show_rows(rows := _queues(found), _QUEUE_COLUMNS)
    for damage in found.damaged:
        by = f" (connection {damage.connection!r})" if damage.queue and damage.connection else ""
        complain(f"{damage.reason}{by}")
    if found.damaged:
        click.get_current_context().exit(DAMAGED)
    if not rows:
        what = "connection" if connections else "queue"
        nothing(f"there is no {what} of rmq", fail=fail_empty)


def _queues(found: RmqStats) -> list[Record]:
    return [
        {
            "queue": name,
            "ready": queue.ready,
            "rejected": queue.rejected,
            "unacked": queue.unacked,
            "consumers": queue.consumers,
            "connections": len(queue.connections),
            "dead_connections": sum(not c.active for c in queue.connections.values()),
        }
        for name, queue in found.queues.items()
    ]


def _connections(found: RmqStats) -> list[Record]:
    rows: list[Record] = [
        {
            "connection": name,
            "alive": connection.active,
            "queue": queue,
            "unacked": connection.unacked,
            "consumers": len(connection.consumers),
        }
        for queue, held in found.queues.items()
        for name, connection in held.connections.items()
    ]
    idle = {"queue": None, "unacked": 0, "consumers": 0}
    others = found.other_connections.items()
    rows += [{"connection": name, "alive": alive, **idle} for name, alive in others]
    return sorted(rows, key=lambda row: (row["connection"], row["queue"] or ""))


def _header(value: str) -> tuple[str, str]:
    name, colon, text = value.partition(":")
    if not colon or not name.strip():
        raise click.BadParameter(f"{value!r} is not a header such as 'Traceparent: 00-ab-cd-01'")
    return name.strip(), text.strip()


@click.command(epilog=examples("$ rsmqctl rmq publish -n things -m one -m two", '{"published": 2}'))
@name_option
@click.option("-m", "--message", "bodies", required=True, multiple=True, help="A body; repeatable.")
@click.option(
    *("-H", "--header", "headers"),
    type=_header,
    metavar="NAME:VALUE",
    multiple=True,
    help="A header; repeatable.",
)
@global_options()
def publish(name: str, bodies: tuple[str, ...], headers: tuple[tuple[str, str], ...]) -> None:
    """Publish messages, all or none, in order."""
    values: dict[str, list[str]] = {}
    for key, value in headers:
        values.setdefault(key, []).append(value)
    run_rmq(lambda client: client.queue(name).publish(*bodies, headers=values))
    show_record({"published": len(bodies)})


@click.command(
    epilog=examples(
        "$ rsmqctl rmq consume -n things --then reject",
        '[{"message": "one", "headers": {}}]',
    )
)
@name_option
@click.option(
    "-c", "--count", type=click.IntRange(min=1), default=1, show_default=True, metavar="N"
)
@click.option("--wait", type=seconds, default=0, metavar="S", help="Seconds to wait for the first.")
@click.option(
    "--then",
    type=click.Choice(["ack", "reject", "release"]),
    default="ack",
    show_default=True,
    help="What to do with each after it is printed.",
)
@fail_empty_option
@global_options()
def consume(name: str, count: int, wait: float, then: str, fail_empty: bool) -> None:
    """Take messages, print them, and settle them."""

    async def work(client: Rmq) -> list[RmqDelivery]:
        import anyio

        queue, taken = client.queue(name), list["RmqDelivery"]()
        ready, _ = await lengths_of(client, name)
        async with queue.consume(prefetch=count) as deliveries:
            while len(taken) < min(count, max(ready, 1)):
                limit = 5.0 if len(taken) < ready else wait
                with anyio.move_on_after(limit):
                    taken.append(await anext(deliveries))
                    continue
                break
            show_rows([_record(delivery) for delivery in taken], ["message", "headers"])
            # Settled after they are printed: a message that was not shown is not lost.
            for delivery in taken if then != "release" else reversed(taken):
                await getattr(delivery, then)()
        return taken

    if not run_rmq(work):
        nothing(f"queue {name!r} is empty", fail=fail_empty)


def _record(delivery: RmqDelivery) -> Record:
    text = delivery.body.decode(errors="backslashreplace")
    return {"message": text, "headers": delivery.headers}


@click.command(epilog=examples("$ rsmqctl rmq clean", '{"returned": 3}'))
@click.option("--every", type=seconds, metavar="S", help="Go on, and clean every S seconds.")
@global_options()
def clean(every: float | None) -> None:
    """Give back what dead connections held.

    Those of any program, in any language; their names are removed. With --every, the log on stderr
    has a line for each time that something was given back.
    """
    if every is not None:
        start_log(DAEMON_LOG, logging.INFO)

    async def work(client: Rmq) -> int:
        if every is None:
            return await client.clean()
        import anyio

        async with client.cleaner(every=every):
            await anyio.sleep_forever()
        return 0

    show_record({"returned": run_rmq(work, patient=every is not None)})


@click.command(
    "return", epilog=examples("$ rsmqctl rmq return -n things -c 10", '{"returned": 10}')
)
@name_option
@most_option
@click.option(
    "--unacked",
    metavar="CONNECTION",
    help="Return what this connection has taken instead; if it lives, messages are handled twice.",
)
@global_options()
def return_(name: str, count: int | None, unacked: str | None) -> None:
    """Move rejected messages back to the queue.

    The oldest first, behind all that waits.
    """

    async def work(client: Rmq) -> int:
        queue = client.queue(name)
        await lengths_of(client, name)
        if unacked is None:
            return await queue.return_rejected(count)
        found = (await client.stats([name])).queues.get(name)
        if found is None or unacked not in found.connections:
            raise click.ClickException(
                f"no connection {unacked!r} consumes queue {name!r}; "
                "list connections with: rsmqctl rmq stats --connections"
            )
        return await queue.return_unacked(unacked, count)

    show_record({"returned": run_rmq(work)})


@click.command(epilog=examples("$ rsmqctl rmq purge -n things --rejected --yes", '{"purged": 3}'))
@name_option
@click.option("--rejected", is_flag=True, help="Delete rejected messages instead of ready ones.")
@yes_option
@global_options()
def purge(name: str, rejected: bool, yes: bool) -> None:
    """Delete ready or rejected messages for good; asks first."""
    if asks(yes=yes):
        found = run_rmq(lambda client: lengths_of(client, name))
        what = "rejected" if rejected else "ready"
        confirm(f"Delete {messages(found[rejected])} ({what}) of {name!r} for good?")

    async def work(client: Rmq) -> int:
        queue = client.queue(name)
        await lengths_of(client, name)
        return await (queue.purge_rejected() if rejected else queue.purge_ready())

    show_record({"purged": run_rmq(work)})


@click.command(
    epilog=examples("$ rsmqctl rmq destroy -n things --yes", '{"ready": 12, "rejected": 1}')
)
@name_option
@yes_option
@global_options()
def destroy(name: str, yes: bool) -> None:
    """Delete a queue with its messages; asks first.

    What connections have taken stays with them.
    """
    if asks(yes=yes):
        found = run_rmq(lambda client: lengths_of(client, name))
        confirm(f"Delete queue {name!r} with {messages(sum(found))} for good?")
    try:
        ready, rejected = run_rmq(lambda client: client.queue(name).destroy())
    except aiorsmq_ng.QueueNotFound:
        raise _missing(name) from None
    show_record({"ready": ready, "rejected": rejected})
