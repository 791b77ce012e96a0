"""The commands of the checklist for production are run, on a server with the settings it names."""

import asyncio
import os
import re
import shlex
import signal
import sys

import pytest
import trustme

from aiorsmq_ng import RSMQ
from aiorsmq_ng.cli import main
from aiorsmq_ng.testing import PrivateServer

from .support.environment import no_settings  # noqa: F401 - used by every test
from .support.pages import DOCS
from .support.waiting import PATIENCE_S
from .test_doc_blocks import blocks

PAGE = DOCS / "guides" / "production.md"
TEXT = "\n".join(blocks(PAGE, "sh")).replace("\\\n", "")
#: Every command, with the variables that are set before it.
COMMANDS = [line.split("#")[0].strip() for line in TEXT.splitlines() if "rsmqctl " in line]
#: They go on until they are stopped.
SERVICES = [command for command in COMMANDS if re.search(r"worker run|serve ", command)]
#: ``top`` needs a terminal: cli/test_terminal.py. ``worker health`` needs a worker: below.
ELSEWHERE = [command for command in COMMANDS if re.search(r"rsmqctl top|worker health", command)]
WORKER = """
from aiorsmq_ng import Worker
worker = Worker()

@worker.handler("orders")
async def ship(body: str) -> None: ...
"""


@pytest.fixture
async def shop(tmp_path, monkeypatch):
    """A server with the settings of the page, and the files that its commands name."""
    settings = ("--maxmemory", "64mb", "--maxmemory-policy", "noeviction")
    async with PrivateServer(*settings, persistence="everysec") as server:
        monkeypatch.setenv("RSMQ_URL", server.url)
        monkeypatch.chdir(tmp_path)
        (tmp_path / "shop").mkdir()
        (tmp_path / "shop" / "jobs.py").write_text(WORKER)
        (tmp_path / "receipts.key").write_text("a key of 16 bytes or more")
        tokens = tmp_path / "tokens.toml"
        tokens.write_text('[ann]\ntoken = "token-of-16-or-more"\nroles = ["admin"]\n')
        tokens.chmod(0o600)
        certificate = trustme.CA().issue_cert("localhost")
        certificate.private_key_pem.write_to_path("server.key")
        for part in certificate.cert_chain_pems:
            part.write_to_path("server.pem", append=True)
        yield server


async def test_commands_of_the_checklist_succeed(shop, capsys):
    played = [one for one in COMMANDS if one not in SERVICES and one not in ELSEWHERE]
    for command in played:
        sure = ["--yes"] if "redrive" in command else []  # it asks on a terminal
        status = await asyncio.to_thread(main, [*shlex.split(command)[1:], *sure])
        shown = capsys.readouterr()
        assert status == 0, (command, shown.out, shown.err)

    assert len(played) > 8
    async with RSMQ(shop.url) as rsmq:
        assert await rsmq.list_queues() == ["orders", "orders-dead"]


@pytest.mark.parametrize("command", SERVICES)
async def test_services_of_the_checklist_start_and_stop(shop, tmp_path, capsys, command):
    async with RSMQ(shop.url) as rsmq:
        for name in ("orders", "orders-dead"):
            await rsmq.create_queue(name)
    # Ports of the test's own; the probes are at a file.
    words = re.sub(r"(0\.0\.0\.0):\d+", "127.0.0.1:0", command)
    words = re.sub(r"RSMQ_HEALTH_LISTEN=\S+|--health-port \d+", "", words)
    probes = f"unix:{tmp_path}/probes"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli"),
        *shlex.split(words)[1:],
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "RSMQ_HEALTH_LISTEN": probes},
    )
    (health,) = [one for one in ELSEWHERE if "worker health" in one]
    asked = shlex.split(re.sub(r"\S+:8080", probes, health))[1:]
    asked[-1] = "readyz"
    async with asyncio.timeout(PATIENCE_S):
        while await asyncio.to_thread(main, asked):
            assert process.returncode is None
            await asyncio.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, log = await process.communicate()

    assert process.returncode == 0, log.decode()
    assert capsys.readouterr().out.endswith("readyz is fine: running\n")
