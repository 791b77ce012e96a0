"""The Python blocks and the ``rsmqctl`` commands of the pages run.

A block runs as if its reader had a shop: an open client, a queue ``orders`` with a hundred messages
and a dead letter, and the functions that the page calls. ``await`` is allowed at its top level. An
endless loop is cancelled once the queue that it reads is empty.
"""

import ast
import asyncio
import contextlib
import dataclasses
import inspect
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any

import click
import pytest
from fastapi import FastAPI, Response
from redis.asyncio import Redis

import aiorsmq_ng
from aiorsmq_ng import RSMQ
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.broker.tokens import Tokens
from aiorsmq_ng.cli.app import cli
from aiorsmq_ng.cli.global_options import Settings
from aiorsmq_ng.compat.redismq import ReliableQueue
from aiorsmq_ng.testing import PrivateServer

from .test_tutorial import commands, masked

ROOT = Path(__file__).parents[1]
FOLDERS = ("start", "guides", "reference", "explanation")
PAGES = [ROOT / "README.md", *sorted(p for f in FOLDERS for p in (ROOT / "docs" / f).glob("*.md"))]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
#: Pages whose Python blocks another module runs.
ELSEWHERE = {
    "docs/start/first-queue.md": "test_tutorial.py",
    "docs/explanation/what-rsmq-cannot-store.md": "test_tutorial.py",
    "docs/guides/testing.md": "testing/test_plugin.py",
    "docs/guides/spark.md": "spark/test_examples.py",
    "docs/guides/conformance.md": "conformance/test_guide.py",
    "docs/reference/spark.md": "spark/test_examples.py",
}
#: Queues that a page reads in a loop without end.
READ = {"docs/guides/migration-from-aiorsmq.md": "jobs", "docs/guides/topics.md": "news__billing"}


def blocks(page: Path, kind: str) -> list[str]:
    found = BLOCK.findall(page.read_text())
    return [textwrap.dedent(text) for _, language, text in found if language == kind]


PYTHON = [
    pytest.param(name, block, id=f"{name}-{number}")
    for page in PAGES
    if (name := str(page.relative_to(ROOT))) not in ELSEWHERE
    for number, block in enumerate(blocks(page, "python"), 1)
]


@dataclasses.dataclass
class Order:
    number: int
    paid: bool = True


class Shop:
    """What readers have at hand."""

    def __init__(self, server: PrivateServer, rsmq: RSMQ, broker: Broker) -> None:
        self.server, self.rsmq, self.broker = server, rsmq, broker
        self.redis = Redis.from_url(server.url)
        self.queue = rsmq.queue("orders", retry=aiorsmq_ng.Retry(3))

    def compiled(self, page: str, block: str) -> CodeType:
        if block.startswith(">>> "):  # a dialogue: what is typed
            block = "\n".join(re.findall(r"^(?:>>>|\.\.\.) (.*)$", block, re.MULTILINE))
        block = re.sub(r"redis://localhost(:6379)?(/0)?", self.server.url, block)
        block = block.replace("grpc://localhost:10001", f"grpc://{self.broker.addresses[0]}")
        return compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def stock(self) -> None:
        for name in (
            "urgent",
            "orders",
            "jobs",
            "emails",
            "invoices",
            "orders-slow-lane",
            "old-orders-dead",
        ):
            await self.rsmq.create_queue(name, vt=30)
        await self.rsmq.queue("jobs").send({"order": 7})
        await self.rsmq.queue("urgent").send("first")
        await self.queue.send(Order(0))
        await (await self.queue.receive()).reject("out of stock")
        await self.queue.send_many([Order(number) for number in range(1, 101)])

    async def names(self, block: str) -> dict[str, Any]:
        async def called(*_: object) -> None: ...

        @contextlib.contextmanager
        def span(*_: object, **__: object) -> Any:
            yield

        return {
            **{name: getattr(aiorsmq_ng, name) for name in aiorsmq_ng.__all__},
            "Any": Any,
            "Order": Order,
            "ReliableQueue": ReliableQueue,
            "Response": Response,
            "app": FastAPI(),
            "asdict": dataclasses.asdict,
            "asyncio": asyncio,
            "client": self.redis,
            "handle": called,
            "message": await self.queue.receive() if "await message." in block else None,
            "order": Order(1),
            "orders": ReliableQueue(self.rsmq, "orders"),
            "print": lambda *_: None,
            "queue": self.queue,
            "redis": self.redis,
            "rsmq": self.rsmq,
            "store": called,
            "token": None,
            "tracer": SimpleNamespace(span=span),
            "url": self.server.url,
            "worker": aiorsmq_ng.Worker(self.rsmq),
        }

    async def empty(self, name: str) -> None:
        """Wait until *name* holds no message any more."""
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiorsmq_ng.QueueNotFound):
                    shown = await self.rsmq.queue(name).attributes()
                    if shown.totalsent and not shown.msgs:
                        return
                await asyncio.sleep(0.02)


@pytest.fixture
async def shop(monkeypatch) -> AsyncIterator[Shop]:
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url) as rsmq,
        Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0",), grace=0)) as broker,
    ):
        monkeypatch.setenv("RSMQ_URL", server.url)
        shop = Shop(server, rsmq, broker)
        await shop.stock()
        yield shop
        await shop.redis.aclose()


def test_every_page_with_python_blocks_is_run_somewhere():
    here = {name for name, _ in (one.values for one in PYTHON)}
    pages = {str(page.relative_to(ROOT)) for page in PAGES if blocks(page, "python")}

    assert pages == here | set(ELSEWHERE)
    for page, module in ELSEWHERE.items():
        assert Path(page).name in (ROOT / "tests" / module).read_text(), page


class Enough(Exception):
    """Ends a program that would run for ever."""


@pytest.mark.parametrize(("page", "block"), PYTHON)
async def test_block_runs(shop, page, block):
    names, code = await shop.names(block), shop.compiled(page, block)
    if "asyncio.run(" in block:  # a whole program, on a loop of its own

        def enough(*_: object) -> None:
            raise Enough

        with contextlib.suppress(Enough):
            await asyncio.to_thread(exec, code, {**names, "print": enough})
        return
    running = asyncio.ensure_future(evaluated(code, names))
    if "async for message in" not in block and "worker.run()" not in block:
        await running
        return
    emptied = asyncio.ensure_future(shop.empty(READ.get(page, "orders")))
    ended, _ = await asyncio.wait([running, emptied], return_when="FIRST_COMPLETED")
    running.cancel()
    emptied.cancel()
    outcomes = await asyncio.gather(running, emptied, return_exceptions=True)
    assert ended == {emptied}, outcomes
    assert not emptied.exception()


async def evaluated(code: CodeType, names: dict[str, Any]) -> None:
    outcome = eval(code, names)
    if inspect.isawaitable(outcome):
        await outcome


#: Up to a comment, a pipe or a redirection; not those that leave something out or substitute.
COMMAND = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(rsmqctl [^\n#|<>&;]+)", re.MULTILINE)
MENTION = re.compile(r"`(rsmqctl [^`|<]+)[`|<]")


def parsed(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read a command line as ``rsmqctl`` does; nothing is run."""
    monkeypatch.setattr(click.Command, "invoke", lambda *_: None)
    cli.main(shlex.split(command)[1:], "rsmqctl", standalone_mode=False, obj=Settings())


@pytest.mark.parametrize(
    "page", [p for p in PAGES if "rsmqctl" in p.read_text()], ids=lambda p: p.name
)
def test_every_command_of_rsmqctl_on_a_page_is_one(page, monkeypatch):
    shown = "".join(block for kind in ("sh", "console") for block in blocks(page, kind))
    for command in COMMAND.findall(shown.replace("\\\n", " ")):
        parsed(command, monkeypatch)
    for command in MENTION.findall(page.read_text()):
        if "..." not in command:  # named, not shown with all that it needs
            parsed(f"{command} --help", monkeypatch)


@pytest.mark.parametrize(
    "command", ["rsmqctl queue create -n a --colour red", "rsmqctl queue paint"]
)
def test_command_that_does_not_exist_is_found(command, monkeypatch):
    with pytest.raises(click.UsageError):
        parsed(command, monkeypatch)


def test_commands_of_the_readme_print_what_it_says(tmp_path):
    here = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "AIORSMQ_DATA_DIR": str(tmp_path),
    }
    (block,) = blocks(ROOT / "README.md", "console")
    for command, expected in commands(block):
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            env[name] = value
            continue
        done = subprocess.run(
            shlex.split(command), env=env, capture_output=True, text=True, timeout=60, check=True
        )
        assert masked(done.stdout.splitlines()) == masked(expected), command


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on the PATH")
def test_token_file_of_the_page_of_the_broker_is_accepted(tmp_path):
    (block,) = [b for b in blocks(ROOT / "docs/guides/grpc.md", "sh") if "tokens.toml" in b]
    done = subprocess.run(
        ["bash", "-ec", f'{block}\nprintf %s "$TOKEN"'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    file = tmp_path / "tokens.toml"
    caller = Tokens.read(file.read_text()).caller([("authorization", f"Bearer {done.stdout}")])

    assert (caller.identity, file.stat().st_mode & 0o777) == ("shop", 0o600)
    assert caller.sees_queue("orders-1")
    assert not caller.sees_queue("jobs")
