"""``rsmqctl topic``: publishes to topics, subscribes to them, reads subscriptions."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from typing import Any

import click

import aiorsmq_ng

from .completion import complete
from .confirmation import asks, confirm, yes_option
from .global_options import current_settings, examples, global_options, program, seconds
from .lazy_group import LazyGroup
from .output import Record, attributes_record, show_names, show_record, show_rows, show_sent
from .peek import PEEK_COLUMNS, given_back, peek_record
from .session import run
from .shared_options import (
    dedup_key_option,
    fail_empty_option,
    header_option,
    messages,
    nothing,
    single_body,
    skip_option,
)
from .tail import Printer, take

MODES = ("shared", "broadcast")
_NO_LIMIT = "none"
_SUBSCRIPTION_COLUMNS = ("consumer", "mode", "state", "queue", "peers", "msgs", "ready", "leased")


def complete_topic(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Complete the name of a topic from the server; offer nothing if it does not answer."""
    return complete(context, incomplete, lambda rsmq: rsmq.list_topics())


def _length(value: str | int) -> int | str:
    """Parse a number of messages, or ``none``."""
    if value == _NO_LIMIT:
        return _NO_LIMIT
    try:
        found = int(value)
    except ValueError:
        found = -1
    if found < 0:
        raise click.BadParameter(f"{value!r} is neither a number of messages nor {_NO_LIMIT!r}")
    return found


def _age(value: str | float) -> float | str:
    """Parse a number of seconds, or ``none``."""
    return _NO_LIMIT if value == _NO_LIMIT else seconds(value)


topic_option = click.option(
    "-n", "--name", required=True, help="The topic.", shell_complete=complete_topic
)
consumer_option = click.option("-c", "--consumer", required=True, help="Name of the consumer.")
peer_option = click.option(
    "-p", "--peer", help="Name of this peer of the consumer; required with --mode broadcast."
)
mode_option = click.option(
    "--mode",
    type=click.Choice(MODES),
    default="shared",
    show_default=True,
    help="shared: all peers share the messages; broadcast: every peer gets its own copy.",
)


@click.group(
    cls=LazyGroup,
    table={
        name: f"topic:{function}"
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
    """Publish, subscribe, and read subscriptions."""


@click.command("list", epilog=examples("$ rsmqctl topic list", '["news", "orders"]'))
@global_options()
def list_topics() -> None:
    """Print the names of all topics as a JSON list, sorted."""
    show_names(run(lambda rsmq: rsmq.list_topics()), "topic")


@click.command(
    epilog=examples(
        '$ rsmqctl topic publish -n news -m "Hello, World"', "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
        "$ rsmqctl topic publish -n news --file events.ndjson >ids",
    )
)  # fmt: skip
@topic_option
@click.option("-m", "--message", "body", metavar="TEXT", help="The body.")
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="Publish every line of FILE (- for stdin) as one message, unchanged.",
)
@click.option(
    "-d",
    "--delay",
    type=seconds,
    help="Delay until it can be received; not given: each queue's own delay.",
)
@skip_option
@dedup_key_option
@header_option
@global_options()
def publish(
    name: str,
    body: str | None,
    file: str | None,
    delay: float | None,
    skip: int,
    dedup_key: str | None,
    headers: dict[str, str] | None,
) -> None:
    """Put a message into every subscription; print its id.

    Without a subscription it waits for the first one. With --file one message for every line that
    is not empty, in order, with an id per line on stdout; after a failure a note says how many
    lines are done, to resume with --skip. With --dedup-key a second message within five minutes is
    not stored: the id is that of the first, and a note on stderr says so.
    """
    raw = single_body(body, file, skip=skip, dedup_key=dedup_key)
    if raw is None:
        from .transfer.commands import publish_file

        publish_file(name, str(file), delay, skip, headers)
        return
    how: dict[str, Any] = {"delay": delay, "dedup_key": dedup_key, "headers": headers}
    show_sent(run(lambda rsmq: rsmq.topic(name).publish(raw, **how)))


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
    "--peer-timeout",
    type=seconds,
    default=30,
    show_default=True,
    help="Seconds without a sign of life after which a peer expires.",
)
@global_options()
def subscribe(
    name: str,
    consumer: str,
    peer: str | None,
    mode: aiorsmq_ng.SubscriptionMode,
    vt: float,
    peer_timeout: float,
) -> None:
    """Subscribe to a topic; print the queue of the subscription.

    It is an ordinary queue: message receive, worker run and every RSMQ client can read it. The
    first subscription also gets the topic's backlog. Subscribing again changes nothing.
    """

    async def work(rsmq: aiorsmq_ng.RSMQ) -> aiorsmq_ng.Subscription:
        return await rsmq.topic(name).subscribe(
            consumer, mode=mode, peer=peer, vt=vt, peer_timeout=peer_timeout
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
@click.option("-p", "--peer", help="Only this peer of the consumer.")
@click.option(
    "--discard", is_flag=True, help="Delete messages that were not received yet; asks first."
)
@yes_option
@global_options()
def unsubscribe(name: str, consumer: str, peer: str | None, discard: bool, yes: bool) -> None:
    """End a subscription; print how many messages are kept.

    Messages that were not received yet stay in its queue, and can be read after subscribing again.
    Dead letters stay in any case, also with --discard: delete their queue by queue delete.
    """

    async def look(rsmq: aiorsmq_ng.RSMQ) -> int:
        found = _subscriptions(await _described(rsmq, name), name, consumer, peer)
        return sum(s.attributes.msgs for s in found if s.attributes)

    async def work(rsmq: aiorsmq_ng.RSMQ) -> int:
        _subscriptions(await _described(rsmq, name), name, consumer, peer)
        return await rsmq.topic(name).unsubscribe(consumer, peer=peer, discard=discard)

    if discard and asks(yes=yes):
        held = messages(run(look))
        confirm(f"Delete {held} that {consumer!r} has not received from topic {name!r}?")

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
    help="Maximum number.  [default: 50, with --follow no limit]",
)
@click.option(
    "-w",
    "--wait",
    type=seconds,
    default=0,
    show_default=True,
    help="Wait up to this time for the first.",
)
@click.option("-t", "--vt", type=seconds, help="How long they stay hidden from others.")
@click.option("--ack", is_flag=True, help="Delete each message once it is printed.")
@click.option("--follow", is_flag=True, help="Run until Ctrl-C; implies --ack.")
@fail_empty_option
@global_options()
def observe(  # noqa: PLR0913 - one per option
    name: str,
    consumer: str,
    peer: str | None,
    mode: aiorsmq_ng.SubscriptionMode,
    count: int | None,
    wait: float,
    vt: float | None,
    ack: bool,
    follow: bool,
    fail_empty: bool,
) -> None:
    """Receive the messages of a subscription and print them.

    Without --ack the messages come back after the visibility timeout. With --follow they are
    printed one by one as they arrive. With either, Ctrl-C releases what was not printed. Observing
    keeps a peer alive.
    """
    printer = Printer(count)

    async def work(rsmq: aiorsmq_ng.RSMQ) -> bool:
        subscription = rsmq.topic(name).subscription(consumer, mode=mode, peer=peer)
        try:
            if follow:
                await subscription.attributes()  # a user wants an error for a missing subscription
                with printer.counted("deleted"):
                    await _follow(subscription, vt, printer)
                return True
            found = await subscription.observe(count or 50, vt=vt, wait=wait)
        except aiorsmq_ng.QueueNotFound:
            raise await _not_subscribed(rsmq.topic(name), consumer, mode, peer) from None
        if ack:
            with printer.counted("deleted"):
                await take(found, printer)
        else:
            async with given_back(found):
                show_rows(map(peek_record, found), PEEK_COLUMNS)
        return bool(found)

    if not run(work):
        nothing(f"nothing is ready for {consumer!r} of topic {name!r}", fail=fail_empty)


async def _not_subscribed(
    topic: aiorsmq_ng.Topic, consumer: str, mode: aiorsmq_ng.SubscriptionMode, peer: str | None
) -> click.ClickException:
    """Return an error that names the existing subscriptions, or how to subscribe."""
    own = [s for s in (await topic.describe()).subscriptions if s.consumer == consumer]
    peers = ", ".join(sorted(p.name for s in own for p in s.peers))
    if own and mode == "shared":
        return click.ClickException(
            f"every peer of {consumer!r} has a copy of its own of topic {topic.name!r}; "
            f"give --mode broadcast and -p with one of: {peers}"
        )
    if own and own[0].mode == "shared":
        return click.ClickException(
            f"all peers of {consumer!r} share what is published to topic {topic.name!r}; "
            "leave --mode out"
        )
    words = ["topic", "subscribe", "-n", topic.name, "-c", consumer]
    words += ["--mode", mode, "-p", str(peer)] if mode == "broadcast" else []
    line = f"{program(current_settings().namespace)} {shlex.join(words)}"
    known = f", its peers are: {peers}" if peers else ""
    subject = f"peer {peer!r} of {consumer!r}" if own else repr(consumer)
    return click.ClickException(
        f"{subject} has not subscribed to topic {topic.name!r}{known}; do so with: {line}"
    )


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

    waiting counts the messages that wait for the first subscription, trimmed those that its limits
    have removed, lost the subscriptions that ended because their queue was deleted. State on: it
    gets what is published. State left: it was unsubscribed and still has messages, which are kept
    for its return.
    """
    found = run(lambda rsmq: _described(rsmq, name))
    subscriptions = [
        {
            "consumer": s.consumer,
            "mode": s.mode,
            "state": s.state,
            "queue": s.queue,
            "peers": [{"name": p.name, "idle": round(p.idle, 3)} for p in s.peers],
            **(attributes_record(s.attributes) if s.attributes else {}),
        }
        for s in found.subscriptions
    ]
    record: Record = {
        "topic": found.name,
        "queue": found.queue,
        "waiting": found.waiting,
        "max_length": found.max_length,
        "max_age": found.max_age,
        "trimmed": found.trimmed,
        "lost": found.lost,
    }
    if current_settings().output != "table":
        show_record({**record, "subscriptions": subscriptions})
        return
    show_record(record)
    click.echo()
    rows = [{**s, "peers": ", ".join(p["name"] for p in s["peers"])} for s in subscriptions]
    show_rows(rows, _SUBSCRIPTION_COLUMNS)


@click.command(
    epilog=examples(
        "$ rsmqctl topic limit -n news --max-length 1000 --max-age 3600",
        "$ rsmqctl topic limit -n news --max-age none",
    )
)
@topic_option
@click.option("--max-length", type=_length, metavar="N", help="Maximum number, or none.")
@click.option("--max-age", type=_age, metavar="SECONDS", help="Maximum age, or none.")
@global_options()
def limit(name: str, max_length: int | str | None, max_age: float | str | None) -> None:
    """Limit the messages that wait for the first subscription. Prints nothing.

    Limits that are not given stay; none removes a limit. The oldest messages are removed first.
    The topic need not exist yet.
    """
    if max_length is None and max_age is None:
        raise click.UsageError("give '--max-length', '--max-age' or both")

    async def work(rsmq: aiorsmq_ng.RSMQ) -> None:
        given: dict[str, Any] = {"max_length": max_length, "max_age": max_age}
        limits = {k: None if v == _NO_LIMIT else v for k, v in given.items() if v is not None}
        await rsmq.topic(name).set_backlog(**limits)

    run(work)


@click.command(epilog=examples("$ rsmqctl topic delete -n news --yes", '{"deleted": true}'))
@topic_option
@yes_option
@global_options()
def delete(name: str, yes: bool) -> None:
    """Delete a topic with all subscriptions; asks first.

    Dead letters stay: the dead-letter queue of a subscription, such as news__billing-dead, is a
    queue of its own. Delete it by queue delete.
    """
    if asks(yes=yes):
        found = run(lambda rsmq: _described(rsmq, name))
        held = sum(s.attributes.msgs for s in found.subscriptions if s.attributes)
        count = len(found.subscriptions)
        confirm(
            f"Delete topic {name!r}, {count} subscription{'s' * (count != 1)} and "
            f"{messages(held + found.waiting)}?"
        )
    if not run(lambda rsmq: rsmq.topic(name).delete()):
        raise _absent(name)
    show_record({"deleted": True})


async def _described(rsmq: aiorsmq_ng.RSMQ, name: str) -> aiorsmq_ng.TopicInfo:
    """Describe a topic; an error if it does not exist."""
    found = await rsmq.topic(name).describe()
    known = (found.subscriptions, found.waiting, found.max_length, found.max_age, found.trimmed)
    if not any(known) and name not in await rsmq.list_topics():
        raise _absent(name)
    return found


def _subscriptions(
    found: aiorsmq_ng.TopicInfo, name: str, consumer: str, peer: str | None
) -> list[aiorsmq_ng.SubscriptionInfo]:
    """Return the subscriptions of a consumer, or of one peer in mode broadcast."""
    own = [s for s in found.subscriptions if s.consumer == consumer]
    # Peers in mode shared are no longer listed after their timeout.
    of_peer = [s for s in own if s.mode == "shared" or peer in (None, *(p.name for p in s.peers))]
    if of_peer:
        return of_peer
    who = f"peer {peer!r} of {consumer!r}" if own else repr(consumer)
    look = f"{program(current_settings().namespace)} topic describe -n {shlex.quote(name)}"
    raise click.ClickException(
        f"{who} has not subscribed to topic {name!r}; list the subscriptions with: {look}"
    )


def _absent(name: str) -> click.ClickException:
    look = f"{program(current_settings().namespace)} topic list"
    return click.ClickException(f"topic {name!r} does not exist; list topics with: {look}")
