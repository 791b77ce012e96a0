"""The tutorial works: its commands are run one after the other and print what the page says.

A python block whose first line is ``# name.py`` is saved under that name. Lines of console blocks
that begin with ``$`` are commands, the lines below them their stdout; ``^C`` interrupts a command
once it has printed the lines above. Ids and times differ from run to run, so they are masked.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from aiorsmq_ng import RSMQ

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "start" / "first-queue.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *expected = part.splitlines()
        yield command, expected


def masked(lines: list[str]) -> list[str]:
    return [re.sub(r"\b[0-9a-zA-Z]{32}\b|\b\d{13}\b", "*", line) for line in lines]


def printed(command: str, expected: list[str], where: dict[str, object]) -> list[str]:
    if expected[-1:] != ["^C"]:
        done = subprocess.run(shlex.split(command), **where, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    with subprocess.Popen(shlex.split(command), **where) as process:
        lines = [process.stdout.readline().rstrip("\n") for _ in expected[:-1]]
        # The message that fails is tried twice before it is given up.
        while "delivery 2" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return [*lines, *rest.splitlines(), "^C"]


def test_every_command_of_the_tutorial_prints_what_the_page_says(tmp_path):
    here = str(Path(sys.executable).parent)
    env = {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "AIORSMQ_DATA_DIR": str(tmp_path / "data"),
        "PYTHONWARNINGS": "error",
    }
    where = {"cwd": tmp_path, "env": env, "text": True, "stdout": -1, "stderr": -1}
    ran = []
    for kind, block in BLOCK.findall(PAGE.read_text()):
        if kind == "python":
            name = re.match(r"# (\w+\.py)\n", block)
            (tmp_path / name[1]).write_text(block)
            continue
        for command, expected in commands(block):
            if command.startswith("export "):
                name, _, value = command.removeprefix("export ").partition("=")
                env[name] = value
                continue
            assert masked(printed(command, expected, where)) == masked(expected), command
            ran.append(command)
    assert len(ran) > 5


async def test_recipes_for_what_rsmq_cannot_store_work():
    page = ROOT / "docs" / "explanation" / "what-rsmq-cannot-store.md"
    recipes: dict[str, object] = {}
    for kind, block in BLOCK.findall(page.read_text()):
        assert kind == "python"
        exec(compile(block, page.name, "exec"), recipes)
    async with RSMQ("memory://recipes") as rsmq:
        queues = [await rsmq.create_queue(n, vt=30) for n in ("jobs", "urgent", "normal", "bulk")]
        jobs, _, normal, bulk = queues
        await recipes["headers"](jobs)

        await normal.send("fresh")
        assert [text async for text in recipes["drop_old"](normal, 60)] == ["fresh"]
        await normal.send("old")
        assert [text async for text in recipes["drop_old"](normal, -1)] == []

        await bulk.send("later")
        await normal.send("first")
        assert (await recipes["next_by_priority"](rsmq)).text == "first"

        assert await recipes["ask"](rsmq, "urgent", "ping") == "PING"
