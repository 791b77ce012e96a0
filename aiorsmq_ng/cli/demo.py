"""``rsmqctl demo``: a short tour of a message queue; every step that it prints is executed."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import aiorsmq_ng

from .global_options import Settings, current_settings, examples, global_options
from .output import printable, without_secrets
from .session import finish

EMBEDDED = "embedded://"
NAMESPACE = "demo"
BODIES = ("water the plants", "feed the cat", "call mum")
VT_S, DELAY_S = 1, 1.5
#: Timeout of the long polls, longer than any step: the demo shows that they return earlier.
PATIENCE_S = 10
#: Log line of the library about a server that it has started.
_STARTED = r"started (\w+) (\S+) at .* for (.*)"

PROGRAM = """\
import asyncio
from aiorsmq_ng import RSMQ

async def main():
    async with RSMQ({url}) as rsmq:
        jobs = await rsmq.create_queue("jobs", exist_ok=True)
        await jobs.send({{"task": "water the plants"}})
        async for message in jobs:      # waits for messages, for ever
            async with message:         # done: acked; exception: given back
                print(message.json())
            break                       # enough for a first try

asyncio.run(main())
"""


@click.command(
    epilog=examples("$ rsmqctl demo", "$ NO_COLOR=1 rsmqctl -r redis://localhost:6379 demo")
)
@global_options()
def demo() -> None:
    """See what a message queue does, in about four seconds.

    Without a URL it starts a server of its own (embedded://, needs no Redis). It works in the
    namespace "demo", on a queue that it creates and deletes.
    """
    settings = current_settings()
    finish(lambda: play(settings))


async def play(settings: Settings) -> None:
    """Run the demo, and delete what it created."""
    import anyio

    stage = Stage(plain=bool(os.environ.get("NO_COLOR")))
    stage.title("Message queues on Redis, live: what you read happens while you read it.")
    started = time.perf_counter()
    with _server_notes() as notes:
        async with settings.client(url=EMBEDDED, namespace=NAMESPACE) as rsmq:
            _introduce(stage, settings, notes, time.perf_counter() - started)
            queue = await _create(stage, rsmq)
            try:
                await _tour(stage, rsmq, queue)
            finally:
                with anyio.CancelScope(shield=True):
                    await rsmq.delete_queue(queue.name)
    _farewell(stage, settings, queue.name, time.perf_counter() - started)


async def _tour(stage: Stage, rsmq: aiorsmq_ng.RSMQ, queue: aiorsmq_ng.Queue) -> None:
    await _send(stage, rsmq, queue)
    await _receive(stage, queue)
    await _crash(stage, queue)
    await _delay(stage, queue)
    _describe(stage, await queue.attributes())


class Stage:
    """Prints the demo: coloured on a terminal, plain text elsewhere and with ``NO_COLOR``."""

    def __init__(self, *, plain: bool) -> None:
        from rich.console import Console
        from rich.text import Text

        self._text = Text
        self.console = Console(highlight=False, color_system=None if plain else "auto")
        self._steps = 0

    def title(self, text: str) -> None:
        """Print a headline."""
        self._line(text, "bold")

    def step(self, text: str, *code: str) -> None:
        """Print the title of the next step and the code that runs it."""
        self._steps += 1
        self.console.print()
        self._line(f"{self._steps}. {text}", "bold cyan")
        for line in code:
            self.does(line)

    def does(self, code: str) -> None:
        """Print code that runs now."""
        prompt = "..." if code.startswith(" ") else ">>>"
        self._line(f"   {prompt} {code}", "green")

    def say(self, text: str) -> None:
        """Print a result."""
        self._line(f"   {text}")

    def aside(self, text: str) -> None:
        """Print an explanation."""
        self._line(f"   {text}", "dim")

    def row(self, name: str, value: str, meaning: str) -> None:
        """Print one row of a small table."""
        cells = f"   {name:<10} ", (f"{value:>4}", "bold"), (f"   {meaning}", "dim")
        self.console.print(self._text.assemble(*cells), soft_wrap=True)

    def code(self, text: str) -> None:
        """Print code to copy, without indentation."""
        for line in text.splitlines():
            self._line(line, "green")

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner on a terminal while the block waits."""
        with self.console.status(self._text(text, "dim")):
            yield

    def _line(self, text: str, style: str = "") -> None:
        # Not wrapped, so that code and paths can be copied.
        self.console.print(self._text(printable(text), style), soft_wrap=True)


def _introduce(stage: Stage, settings: Settings, notes: list[str], took_s: float) -> None:
    if settings.redis_url is not None:
        stage.say(f"Server   {without_secrets(settings.redis_url)}, reached in {_time(took_s)}")
        return
    started = filter(None, (re.fullmatch(_STARTED, note) for note in notes))
    if found := next(started, None):
        engine, version, folder = found.groups()
        stage.say(f"Server   {engine.capitalize()} {version}, your own, up in {_time(took_s)}")
        stage.say(f"Data     {_from_home(folder)}")
    else:
        # Another program had started it.
        stage.say(f"Server   your own ({EMBEDDED}), reached in {_time(took_s)}")


async def _create(stage: Stage, rsmq: aiorsmq_ng.RSMQ) -> aiorsmq_ng.Queue:
    name = "hello"
    try:
        queue, took_s = await _timed_create(rsmq, name)
    except aiorsmq_ng.QueueExists:
        # Another demo is running, or was killed: do not touch its queue.
        name = f"hello-{secrets.token_hex(2)}"
        queue, took_s = await _timed_create(rsmq, name)
    stage.step("Create a queue", f'queue = await rsmq.create_queue("{name}", vt=30)')
    stage.say(f"done in {_time(took_s)}; it is listed in the set {rsmq.ns}:QUEUES")
    return queue


async def _timed_create(rsmq: aiorsmq_ng.RSMQ, name: str) -> tuple[aiorsmq_ng.Queue, float]:
    started = time.perf_counter()
    queue = await rsmq.create_queue(name, vt=30)
    return queue, time.perf_counter() - started


async def _send(stage: Stage, rsmq: aiorsmq_ng.RSMQ, queue: aiorsmq_ng.Queue) -> None:
    stage.step("Send three messages, by one call", f"await queue.send_many({json.dumps(BODIES)})")
    started = time.perf_counter()
    ids = await queue.send_many(BODIES)
    took_s = time.perf_counter() - started
    for id, body in zip(ids, BODIES, strict=True):
        stage.say(f"{id}  {body}")
    stage.say(f"stored in {_time(took_s)}, in the format that every RSMQ client shares:")
    zset = f"{rsmq.ns}:{queue.name}"
    stage.aside(f"zset {zset:<14}  id -> when it becomes visible")
    stage.aside(f"hash {zset + ':Q':<14}  id -> message, and the queue's settings and counters")


async def _receive(stage: Stage, queue: aiorsmq_ng.Queue) -> None:
    stage.step(
        "Receive them, and acknowledge each when its work is done",
        "async for message in queue:",
        "    async with message:      # acks at the end; gives back on an error",
        "        print(message.text)",
    )
    left = len(BODIES)
    started = time.perf_counter()
    async for message in queue:
        async with message:
            body = message.text
        stage.say(f"{body:<18} acked {_time(time.perf_counter() - started)} after the start")
        left -= 1
        if not left:
            break


async def _crash(stage: Stage, queue: aiorsmq_ng.Queue) -> None:
    stage.step("Crash, and lose nothing")
    stage.does('await queue.send("charge the customer")')
    await queue.send("charge the customer")
    stage.does(f"message = await queue.receive(vt={VT_S})")
    received = time.perf_counter()
    first = _certain(await queue.receive(vt=VT_S))
    stage.say(f"rc {first.rc}: hidden from others for {VT_S} s; the worker dies, there is no ack")
    stage.does(f"message = await queue.receive(wait={PATIENCE_S})    # another worker")
    with stage.waiting("waiting for the message to come back"):
        again = _certain(await queue.receive(wait=PATIENCE_S))
    stage.say(f"rc {again.rc}: back after {_time(time.perf_counter() - received)}")
    stage.does("await message.ack()")
    await again.ack()
    stage.say("done, and gone for good")


async def _delay(stage: Stage, queue: aiorsmq_ng.Queue) -> None:
    stage.step(
        "Send something for later",
        f'await queue.send("remind me", delay={DELAY_S})',
        f"message = await queue.receive(wait={PATIENCE_S})    # waits until it is due",
    )
    sent = time.perf_counter()
    await queue.send("remind me", delay=DELAY_S)
    with stage.waiting("waiting for the message to become visible"):
        message = _certain(await queue.receive(wait=PATIENCE_S))
    stage.say(f"arrived {_time(time.perf_counter() - sent)} after the send: {message.text}")
    stage.aside("left unacked, so that there is something to count")


def _describe(stage: Stage, attributes: aiorsmq_ng.QueueAttributes) -> None:
    stage.step("Look at the queue", "await queue.attributes()")
    rows = (
        ("totalsent", attributes.totalsent, "sent so far"),
        ("totalrecv", attributes.totalrecv, "deliveries; one message needed two"),
        ("msgs", attributes.msgs, "in the queue now"),
        ("leased", attributes.leased, "received and not acknowledged"),
        ("ready", attributes.ready, "waiting for a worker"),
        ("delayed", attributes.delayed, "not due yet"),
        ("vt", attributes.vt, "seconds that a received message is hidden"),
    )
    for name, value, meaning in rows:
        stage.row(name, str(value), meaning)


def _farewell(stage: Stage, settings: Settings, queue: str, took_s: float) -> None:
    url = settings.redis_url or EMBEDDED
    public = without_secrets(url) == url
    stage.console.print()
    stage.title(f"Done in {_time(took_s)}; the queue {queue!r} is deleted. A program to copy:")
    stage.console.print()
    stage.code(PROGRAM.format(url=json.dumps(url) if public else ""))
    stage.console.print()
    stage.title("And from the shell:")
    stage.console.print()
    if public:
        stage.code(f"export RSMQ_URL={shlex.quote(url)}    # the server of this demo")
    stage.code('rsmqctl queue create -n jobs\nrsmqctl message send -n jobs -m "Hello, World"')
    stage.code("rsmqctl message receive -n jobs\nrsmqctl queue list\nrsmqctl --help")


class _Notes(logging.Handler):
    """Log handler that collects the messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _server_notes() -> Iterator[list[str]]:
    """Collect the library's log messages about the embedded server."""
    logger, notes = logging.getLogger("aiorsmq_ng.embedded"), _Notes()
    level = logger.level
    logger.addHandler(notes)
    logger.setLevel(min(logging.INFO, logger.getEffectiveLevel()))
    try:
        yield notes.lines
    finally:
        logger.removeHandler(notes)
        logger.setLevel(level)


def _certain(delivery: aiorsmq_ng.Delivery | None) -> aiorsmq_ng.Delivery:
    if delivery is None:
        raise RuntimeError(f"no message came within {PATIENCE_S} s")
    return delivery


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"


def _from_home(folder: str) -> str:
    home = Path.home()
    path = Path(folder)
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else folder
