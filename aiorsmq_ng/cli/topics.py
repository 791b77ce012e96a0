"""``rsmqctl topic``: publish to topics, subscribe to them, read subscriptions."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click

import aiorsmq_ng

from .groups import LazyGroup
from .looking import PEEK_COLUMNS, Printer, peek_record
from .options import complete, confirm, fail_empty_option, nothing, yes_option
from .output import Record, attributes_record, emit, show_record, show_rows
from .session import current_settings, examples, global_options, program, run, seconds

MODES = ("shared", "each")
#: Lines that are published by one call.
_PAGE = 500


def complete_topic(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Complete the name of a topic by asking the server; without an answer there is none."""
    return complete(context, incomplete, lambda rsmq: rsmq.list_topics())


topic_option = click.option(
    "-n", "--name", required=True, help="The topic.", shell_complete=complete_topic
)
consumer_option = click.option("-c", "--consumer", required=True, help="Who subscribes.")
peer_option = click.option(
    "-p", "--peer", help="Which of several with this name; needed with --mode each."
)
mode_option = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="shared",
    show_default=True,
    help="Whether all that use the name share the messages, or each peer gets its own copy.",
)


@click.group(
    cls=LazyGroup,
    table={
        name: f"topics:{function}"
        for name, function in {
            "list": "list_topics", "publish": "publish", "subscribe": "subscribe",
            "unsubscribe": "unsubscribe", "observe": "observe", "describe": "describe",
            "limit": "limit", "delete": "delete",
        }.items()
    },
    epilog=examples(
        "$ rsmqctl topic subscribe -n news -c billing",
        '$ rsmqctl topic publish -n news -m "Hello, World"',
        "$ rsmqctl topic observe -n news -c billing --ack",
    ),
)  # fmt: skip
@global_options()
def topic() -> None:
    """Publish, subscribe, and read what was published."""


@click.command("list", epilog=examples("$ rsmqctl topic list", '["news", "orders"]'))
@global_options()
def list_topics() -> None:
    """Print the names of all topics as a JSON list, sorted."""
    names = run(lambda rsmq: rsmq.list_topics())
    match current_settings().output:
        case "table" | "csv":
            show_rows(({"topic": name} for name in names), ["topic"])
        case "ndjson":
            for name in names:
                emit(name)
        case _:
            emit(names)


@click.command(
    epilog=examples(
        '$ rsmqctl topic publish -n news -m "Hello, World"', "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
        "$ rsmqctl topic publish -n news --file events.ndjson >ids",
    )
)  # fmt: skip
@topic_option
@click.option("-m", "--message", "body", metavar="TEXT", help="What to publish.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="Publish every line of FILE (- for stdin) as a message of its own, as it is.",
)
@click.option(
    "-d",
    "--delay",
    type=seconds,
    help="How long it waits before it can be received; not given: each queue's own delay.",
)
@click.option("--dedup-key", metavar="KEY", help="Publish no second message with this key.")
@global_options()
def publish(
    name: str, body: str | None, file: str | None, delay: float | None, dedup_key: str | None
) -> None:
    """Put a message into every subscription; print its id.

    Without a subscription it waits for the first one. With --file one for every line that is not
    empty, in order, with an id per line on stdout.
    """
    if (body is None) == (file is None):
        raise click.UsageError("give either '-m' / '--message' or '-f' / '--file'")
    if file is not None:
        if dedup_key is not None:
            raise click.UsageError("'--dedup-key' is for a single message")
        run(lambda rsmq: _publish_lines(rsmq.topic(name), file, delay), patient=True)
        return
    # Arguments that are not text reach Python as surrogates; this gives their bytes back.
    raw = str(body).encode(errors="surrogateescape")
    click.echo(run(lambda rsmq: rsmq.topic(name).publish(raw, delay=delay, dedup_key=dedup_key)))


async def _publish_lines(topic: aiorsmq_ng.Topic, file: str, delay: float | None) -> None:
    from .streams import Source

    with Source(file) as source:
        async for lines in source.blocks():
            bodies = [line for line in lines if line.strip()]
            for at in range(0, len(bodies), _PAGE):
                for id in await topic.publish_many(bodies[at : at + _PAGE], delay=delay):
                    click.echo(id)


@click.command(
    epilog=examples(
        "$ rsmqctl topic subscribe -n news -c billing",
        '{"topic": "news", "consumer": "billing", "mode": "shared", "peer": null,',
        ' "queue": "news__billing"}     (on one line)',
    )
)
@topic_option
@consumer_option
@peer_option
@mode_option
@click.option(
    "-t",
    "--vt",
    type=seconds,
    default=30,
    show_default=True,
    help="Visibility timeout of a new queue, whole seconds.",
)
@click.option(
    "--silence",
    type=seconds,
    default=30,
    show_default=True,
    help="After how many seconds without a sign of life a peer is taken off.",
)
@global_options()
def subscribe(
    name: str, consumer: str, peer: str | None, mode: str, vt: float, silence: float
) -> None:
    """Subscribe to a topic; print which queue it fills.

    It is an ordinary queue: message receive, worker run and every RSMQ client can read it. The
    first subscription also gets what has waited for one. Subscribing again changes nothing.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> aiorsmq_ng.Subscription:
        return await rsmq.topic(name).subscribe(
            consumer, mode=mode, peer=peer, vt=vt, silence=silence
        )

    made = run(work)
    show_record(
        {
            "topic": name,
            "consumer": consumer,
            "mode": mode,
            "peer": made.peer,
            "queue": made.name,
        }
    )


@click.command(epilog=examples("$ rsmqctl topic unsubscribe -n news -c billing", '{"kept": 3}'))
@topic_option
@consumer_option
@click.option("-p", "--peer", help="Only this one of several with the same name.")
@click.option("--discard", is_flag=True, help="Delete what was not received yet, after a question.")
@yes_option
@global_options()
def unsubscribe(name: str, consumer: str, peer: str | None, discard: bool, yes: bool) -> None:
    """End a subscription; print how many messages are kept.

    What was not received yet stays in its queue, and is there again after subscribing again.
    """
    if discard:
        confirm(f"Delete what {consumer!r} has not received from topic {name!r}?", yes=yes)

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        return await rsmq.topic(name).unsubscribe(consumer, peer=peer, discard=discard)

    show_record({"kept": run(work)})


@click.command(
    epilog=examples(
        "$ rsmqctl topic observe -n news -c billing --ack",
        '[{"id": "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd", "message": "Hello, World",',
        '  "rc": 1, "ts": 1645021703008, "sent": 1645020200667}]     (on one line)',
        "$ rsmqctl topic observe -n news -c billing --follow -o ndjson",
    )
)
@topic_option
@consumer_option
@peer_option
@mode_option
@click.option(
    "--count",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many at most.  [default: 50, with --follow any number]",
)
@click.option(
    "-w", "--wait", type=seconds, default=0, show_default=True, help="Wait so long for the first."
)
@click.option("-t", "--vt", type=seconds, help="How long they stay hidden from others.")
@click.option("--ack", is_flag=True, help="Delete each message once it is printed.")
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C; implies --ack.")
@fail_empty_option
@global_options()
def observe(  # noqa: PLR0913 - one per option
    name: str,
    consumer: str,
    peer: str | None,
    mode: str,
    count: int | None,
    wait: float,
    vt: float | None,
    ack: bool,
    follow: bool,
    fail_empty: bool,
) -> None:
    """Receive what was published and print it.

    Without --ack the messages come back after the visibility timeout. With --follow they are
    printed one by one as they come, and Ctrl-C gives back what was not printed. Observing keeps a
    peer alive.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> list[Record]:
        subscription = rsmq.topic(name).subscription(consumer, mode=mode, peer=peer)
        if follow:
            await subscription.attributes()  # a person wants to be told that nobody subscribed
            await _follow(subscription, vt, Printer(count))
            return []
        found = await subscription.observe(count or 50, vt=vt, wait=wait)
        rows = [peek_record(message) for message in found]
        show_rows(rows, PEEK_COLUMNS)
        if ack:
            for message in found:
                await message.ack()
        return rows

    try:
        found = run(work)
    except aiorsmq_ng.QueueNotFound:
        line = f"{program(current_settings().namespace)} topic subscribe -n {name} -c {consumer}"
        raise click.ClickException(
            f"{consumer!r} has not subscribed to topic {name!r}; do so with: {line}"
        ) from None
    if not found and not follow:
        nothing(f"nothing is ready for {consumer!r} of topic {name!r}", fail=fail_empty)


async def _follow(
    subscription: aiorsmq_ng.Subscription, vt: float | None, printer: Printer
) -> None:
    async with subscription.consume(vt=vt) as messages:
        async for message in _until(printer, messages):
            async with message:
                printer(message)


async def _until(
    printer: Printer, messages: aiorsmq_ng.Consumer
) -> AsyncIterator[aiorsmq_ng.Delivery]:
    while not printer.done:
        yield await anext(messages)


@click.command(
    epilog=examples(
        "$ rsmqctl topic describe -n news",
        '{"topic": "news", "queue": "news__", "waiting": 0, "max_length": null,',
        ' "max_age": null, "trimmed": 0, "lost": 0, "subscriptions": [{"consumer":',
        ' "billing", "mode": "shared", "state": "on", "queue": "news__billing",',
        ' "peers": [], "msgs": 3, "ready": 2, "leased": 1, ...}]}     (on one line)',
    )
)
@topic_option
@global_options()
def describe(name: str) -> None:
    """Print a topic and its subscriptions as a JSON object.

    waiting is what waits for the first subscription, trimmed what its limits have removed, lost
    how many subscriptions ended because their queue was deleted. A peer that was silent for too
    long is off, what was unsubscribed and still holds messages is left; they wait for its return.
    """
    found = run(lambda rsmq: rsmq.topic(name).describe())
    subscriptions = [
        {
            "consumer": s.consumer,
            "mode": s.mode,
            "state": s.state,
            "queue": s.queue,
            "peers": [{"name": p.name, "silent": round(p.silent, 3)} for p in s.peers],
            **(attributes_record(s.attributes) if s.attributes else {}),
        }
        for s in found.subscriptions
    ]
    show_record(
        {
            "topic": found.name,
            "queue": found.queue,
            "waiting": found.waiting,
            "max_length": found.max_length,
            "max_age": found.max_age,
            "trimmed": found.trimmed,
            "lost": found.lost,
            "subscriptions": subscriptions,
        }
    )


@click.command(epilog=examples("$ rsmqctl topic limit -n news --max-length 1000 --max-age 3600"))
@topic_option
@click.option("--max-length", type=click.IntRange(min=0), metavar="N", help="Messages at most.")
@click.option("--max-age", type=seconds, help="Age at most.")
@global_options()
def limit(name: str, max_length: int | None, max_age: float | None) -> None:
    """Limit what waits for the first subscription. Prints nothing.

    What is not given is not limited. The oldest messages go first.
    """
    run(lambda rsmq: rsmq.topic(name).set_backlog(max_length=max_length, max_age=max_age))


@click.command(epilog=examples("$ rsmqctl topic delete -n news --yes", '{"deleted": true}'))
@topic_option
@yes_option
@global_options()
def delete(name: str, yes: bool) -> None:
    """Delete a topic with all subscriptions, after a question."""
    confirm(f"Delete topic {name!r} and all its subscriptions?", yes=yes)
    show_record({"deleted": run(lambda rsmq: rsmq.topic(name).delete())})
