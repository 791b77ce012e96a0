"""Servers of a test's own: they die when told, and never outlive the test."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, Options, Unavailable
from aiorsmq_ng.testing import FaultProxy, PrivateServer, servers

PATIENT = Options(deadline=30)


def alive(pid):
    """Return True if a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state != b"Z"


async def test_private_server_starts_and_leaves_nothing_behind():
    async with PrivateServer("--maxmemory", "20mb") as server:
        folder, pid = server.folder, server._pid
        assert await server.command("PING") == b"PONG"
        assert (await server.command("CONFIG", "GET", "maxmemory"))[1] == b"20971520"
        async with RSMQ(server.url) as rsmq:
            await (await rsmq.create_queue("jobs")).send("x")

    assert not alive(pid)
    assert not folder.exists()


async def test_server_with_a_setting_it_does_not_know_says_so():
    with pytest.raises(Unavailable, match="died at start") as caught:
        await PrivateServer("--no-such-setting", "1").start()

    assert "no-such-setting" in str(caught.value)


async def test_server_that_died_and_was_waited_for_at_once_says_so(monkeypatch):
    # The guardian's shell may collect a child that dies early; then not even a zombie is left.
    hasty = servers._GUARDIAN.replace("read -r word", "wait $!; read -r word")
    assert hasty != servers._GUARDIAN
    monkeypatch.setattr(servers, "_GUARDIAN", hasty)

    with pytest.raises(Unavailable, match="died at start"):
        await PrivateServer("--no-such-setting", "1").start()


async def test_killed_server_comes_back_with_what_its_persistence_keeps():
    for persistence, kept in (("none", None), ("always", b"x")):
        async with PrivateServer(persistence=persistence) as server:
            await server.command("SET", "key", "x")
            url = server.url
            server.kill()
            assert not server.running
            with pytest.raises(Unavailable):
                await server.command("PING")

            await server.restart()
            assert server.url == url
            assert await server.command("GET", "key") == kept


async def test_paused_server_stands_still_until_it_is_resumed():
    async with PrivateServer() as server:
        server.pause()
        asking = asyncio.create_task(server.command("PING"))
        await asyncio.sleep(0.1)
        assert not asking.done()

        server.resume()
        # The connection may have been given up meanwhile; the server lives.
        await asyncio.gather(asking, return_exceptions=True)
        assert await server.command("PING") == b"PONG"


async def test_paused_server_can_be_killed():
    async with PrivateServer() as server:
        server.pause()
        pid = server._pid
        server.kill()

        assert not alive(pid)
        with pytest.raises(Unavailable, match="does not run"):
            server.pause()


def test_server_dies_with_a_process_that_is_killed():
    code = """
        import asyncio, sys
        from aiorsmq_ng.testing import PrivateServer

        async def main():
            server = await PrivateServer().start()
            print(server._pid, server.folder, flush=True)
            await asyncio.sleep(100)

        asyncio.run(main())
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    ) as process:
        pid, folder = process.stdout.readline().split()
        assert alive(int(pid))
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while (alive(int(pid)) or Path(folder).exists()) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert not alive(int(pid))
    assert not Path(folder).exists()


async def test_replica_behind_a_proxy_falls_behind_when_the_link_is_cut_off():
    async with PrivateServer() as master, FaultProxy(master.url) as proxy:
        replica = await master.replica(by=proxy.url)
        proxy.black_hole()
        await master.command("SET", "key", "x")
        assert await replica.command("GET", "key") is None

        await proxy.resume()
        async with asyncio.timeout(30):
            while await replica.command("GET", "key") != b"x":
                await asyncio.sleep(0.02)
        await replica.aclose()
