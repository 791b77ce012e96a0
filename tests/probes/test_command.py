"""Probes of the commands that go on, and ``rsmqctl worker health``."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from aiorsmq_ng.cli import main

from ..cli.test_worker import read_until, start
from ..support.waiting import until


@pytest.fixture
def health(capsys):
    """Run ``rsmqctl worker health`` in this process; return its status and what it printed."""

    async def health(*words):
        status = await asyncio.to_thread(main, ["worker", "health", *words])
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return health


async def test_health_of_a_worker_is_asked_for_by_its_address(
    tmp_path, server_url, ns, queue, health, monkeypatch
):
    address = f"unix:{tmp_path}/probes"
    monkeypatch.setenv("RSMQ_HEALTH_LISTEN", address)
    await queue.send("quick")
    process = await start(tmp_path, server_url, ns)
    await read_until(process, f"INFO aiorsmq_ng.probes: probes are on {address}")

    async def ready():
        return await health() == (0, "readyz is fine: running\n")

    await until(ready)
    assert await health(address, "--probe", "livez") == (0, "livez is fine: running\n")
    process.send_signal(signal.SIGTERM)
    await process.communicate()

    assert process.returncode == 0
    status, text = await health()
    assert status == 1
    assert text == f"rsmqctl: readyz at {address} cannot be asked: no such file or directory\n"


async def test_handler_that_blocks_the_worker_is_seen_from_outside(
    tmp_path, server_url, ns, queue, health, monkeypatch
):
    address = f"unix:{tmp_path}/probes"
    monkeypatch.setenv("RSMQ_HEALTH_LISTEN", address)
    process = await start(
        tmp_path, server_url, ns, then="__import__('time').sleep(3600)",
        options=("--health-blocked", "0.1"), sleep=0,
    )  # fmt: skip
    await read_until(process, "probes are on")
    await queue.send("quick")

    async def dead():
        status, text = await health("--probe", "livez")
        return status == 1 and "livez fails: the event loop has not answered for" in text

    await until(dead)
    process.kill()
    await process.communicate()


@pytest.mark.parametrize("service", ["grpc", "dashboard"])
async def test_services_have_probes(tmp_path, server_url, ns, health, service):
    address = f"unix:{tmp_path}/probes"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", server_url, "--ns", ns),
        *("serve", service, "--listen", "127.0.0.1:0", "--health-listen", address),
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ},
    )
    log = await read_until(process, "serving namespace")
    assert f"probes are on {address}" in log

    async def ready():
        return await health(address) == (0, "readyz is fine: running\n")

    await until(ready)
    process.send_signal(signal.SIGTERM)
    await process.communicate()
    assert process.returncode == 0


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"HTTP/1.1 200\r\n\r\n3"])
async def test_answer_of_something_else_is_said_in_one_sentence(health, reply):
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        status, text = await health(str(port))

    sentence = f"rsmqctl: readyz at {port} cannot be asked: the answer is not that of a probe\n"
    assert (status, text) == (1, sentence)


async def test_program_that_does_not_answer_is_given_up(health):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        status, text = await health(f"127.0.0.1:{port}", "--timeout", "0.05")

    assert (status, text) == (
        1,
        f"rsmqctl: readyz at 127.0.0.1:{port} has not answered within 0.05 s\n",
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give the address of the probes, or set RSMQ_HEALTH_LISTEN"),
        (["nowhere"], "address 'nowhere' is not a port, HOST:PORT or unix:/path"),
        (["localhost:99999"], "address 'localhost:99999' is not a port"),
    ],
)
async def test_address_that_cannot_be_meant_is_wrong_usage(health, monkeypatch, words, sentence):
    monkeypatch.delenv("RSMQ_HEALTH_LISTEN", raising=False)
    status, text = await health(*words)

    assert (status, sentence in text) == (2, True)


SERVICES = {
    "probes": ("grpc", "--listen", "127.0.0.1:0", "--health-listen"),
    "broker": ("grpc", "--listen"),
    "dashboard": ("dashboard", "--listen"),
    "metrics": ("metrics", "--listen"),
}


@pytest.mark.parametrize("service", SERVICES)
def test_address_in_use_is_said_by_all_in_the_same_words(capsys, server_url, service):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = ["-r", server_url, "serve", *SERVICES[service], address]
        status = main(words)

    last = capsys.readouterr().err.splitlines()[-1]
    assert (status, last.endswith(f"cannot listen on {address}: address already in use")) == (
        1,
        True,
    ), last


@pytest.mark.parametrize("what", ["health", "metrics"])
def test_two_addresses_for_the_same_are_refused(tmp_path, capsys, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two_addresses.py").write_text(
        "import aiorsmq_ng\nworker = aiorsmq_ng.Worker('memory://')\n"
    )
    words = [f"--{what}-port", "0", f"--{what}-listen", "127.0.0.1:0"]
    status = main(["worker", "run", "two_addresses:worker", *words])

    assert status == 2
    assert f"give --{what}-port or --{what}-listen, not both" in capsys.readouterr().err
