"""What becomes of an embedded server when its folder, its users or the room on its disk go away."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, Unavailable
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng.embedded import EmbeddedServer, status, stop
from aiorsmq_ng.embedded import server as server_module
from aiorsmq_ng.options import Options

from .test_embedded import is_gone, server_pid, start_python, talk, wait_until

HOLD = """
    import asyncio
    from aiorsmq_ng.embedded import server
    server._ALONE_S = 0.4
    held = EmbeddedServer.acquire(Path(sys.argv[1]))
    print(talk(held.socket, b"SET", b"kept", b"yes"), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIORSMQ_SERVER_BIN", raising=False)
    monkeypatch.setattr(server_module, "_ALONE_S", 0.4)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data"
    pids: list[int] = []
    yield path
    for place in tmp_path.glob("*/server.pid"):
        with suppress(OSError, ValueError):
            pids.append(int(place.read_text()))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def holder(folder: Path) -> subprocess.Popen[str]:
    """Start a process that holds the server of *folder*; return when it does."""
    process = start_python(HOLD, folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "b'+OK'\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=20)


def caretakers(folder: Path) -> list[int]:
    """Return the processes that look after the server of *folder*."""
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,args="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(maxsplit=1) for line in listed.splitlines())
    return [int(pid) for pid, words in rows if "caretaker.py" in words and str(folder) in words]


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def rename(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replace(folder: Path) -> None:
    rename(folder)
    folder.mkdir()


WAYS = [remove, rename, replace]


@pytest.mark.parametrize("way", WAYS)
async def test_send_into_a_folder_that_is_not_there_any_more_is_refused(
    folder: Path, way: Callable[[Path], None]
) -> None:
    async with RSMQ(f"embedded://{folder}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("before")
        way(folder)

        with pytest.raises(Unavailable, match="removed, renamed or replaced") as refused:
            await queue.send("after")
        assert (refused.value.executed, refused.value.transient) == (False, False)


@pytest.mark.parametrize("way", WAYS)
async def test_two_clients_of_one_name_never_both_work(
    folder: Path, way: Callable[[Path], None]
) -> None:
    """No split brain: the earlier process is refused, and stops no other server."""
    async with RSMQ(f"embedded://{folder}") as second:
        await second.create_queue("one")
        async with RSMQ(f"embedded://{folder}") as first:
            await first.queue("one").send("x")
            way(folder)
            async with RSMQ(f"embedded://{folder}") as third:
                await third.create_queue("two")
                for former in (first, second):
                    with pytest.raises(Unavailable, match="removed, renamed or replaced"):
                        await former.list_queues()
                await first.aclose()
                assert await third.list_queues() == ["two"]


async def test_waiting_receive_ends_when_the_folder_is_removed(folder: Path) -> None:
    async with RSMQ(f"embedded://{folder}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=60))
        await asyncio.sleep(0.1)
        remove(folder)

        with pytest.raises(Unavailable, match="removed, renamed or replaced"):
            await asyncio.wait_for(waiting, 30)


async def test_folder_that_is_put_back_is_used_again(folder: Path) -> None:
    async with RSMQ(f"embedded://{folder}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        rename(folder)
        with pytest.raises(Unavailable):
            await queue.send("lost?")
        folder.with_name("elsewhere").rename(folder)
        await queue.send("x")
    async with RSMQ(f"embedded://{folder}") as rsmq:
        assert [m.text for m in await rsmq.queue("jobs").peek()] == ["x"]


async def test_renamed_folder_is_served_by_the_same_server_under_its_new_name(folder: Path) -> None:
    new = folder.with_name("elsewhere")
    async with RSMQ(f"embedded://{folder}") as rsmq:
        await (await rsmq.create_queue("jobs")).send("x")
        pid = server_pid(folder)
        rename(folder)
        async with RSMQ(f"embedded://{new}") as other:
            assert [m.text for m in await other.queue("jobs").peek()] == ["x"]
            assert server_pid(new) == pid
    wait_until(lambda: is_gone(pid), "the server process to end")


def test_dead_server_is_not_started_again_in_another_folder(folder: Path) -> None:
    server = EmbeddedServer.acquire(folder)
    os.kill(server_pid(folder), signal.SIGKILL)
    replace(folder)

    with pytest.raises(Unavailable, match="removed, renamed or replaced"):
        server.ensure_running()
    server.release()
    assert list(folder.iterdir()) == []


def test_spark_side_refuses_a_folder_that_was_replaced(folder: Path) -> None:
    client = SyncClient(f"embedded://{folder}", Options(deadline=10))
    ask = queues.exists(Namespace("rsmq").queue("jobs"))
    assert client.run(ask) is False
    replace(folder)

    with pytest.raises(Unavailable, match="removed, renamed or replaced"):
        client.run(ask)
    client.close()


@pytest.mark.parametrize("way", WAYS)
def test_server_ends_after_its_users_though_its_folder_is_gone(
    folder: Path, way: Callable[[Path], None]
) -> None:
    server = EmbeddedServer.acquire(folder)
    pid = server_pid(folder)
    [caretaker] = caretakers(folder)
    way(folder)
    server.release()

    wait_until(lambda: is_gone(pid), "the server process to end")
    wait_until(lambda: is_gone(caretaker), "its caretaker to end")


def test_server_whose_last_user_was_killed_ends_by_itself_and_keeps_the_data(folder: Path) -> None:
    users = [holder(folder), holder(folder)]
    pid = server_pid(folder)
    kill(users[0])
    time.sleep(1)
    assert not is_gone(pid)
    kill(users[1])

    wait_until(lambda: is_gone(pid), "the server process to end")
    wait_until(lambda: not caretakers(folder), "its caretaker to end")
    with EmbeddedServer.acquire(folder) as server:
        assert talk(server.socket, b"GET", b"kept") == b"yes"


def test_server_that_is_kept_goes_on_and_needs_no_caretaker(folder: Path) -> None:
    with EmbeddedServer.acquire(folder) as server:
        server.keep()
        pid = server_pid(folder)
    wait_until(lambda: not caretakers(folder), "the caretaker to end")
    assert not is_gone(pid)
    # A user who comes brings one along, which is needed if the server is not kept any more.
    user = holder(folder)
    assert len(caretakers(folder)) == 1
    assert not stop(folder)
    kill(user)

    wait_until(lambda: is_gone(pid), "the server process to end")


def test_caretaker_ends_with_the_server_and_there_is_but_one(folder: Path) -> None:
    with EmbeddedServer.acquire(folder) as server, EmbeddedServer.acquire(folder):
        assert len(caretakers(folder)) == 1
        os.kill(server_pid(folder), signal.SIGKILL)
        wait_until(lambda: not status(folder).running, "the server to die")
        server.ensure_running()
        assert len(caretakers(folder)) == 1
    wait_until(lambda: not caretakers(folder), "the caretaker to end")


def test_killed_caretaker_is_replaced_by_the_next_user(folder: Path) -> None:
    with EmbeddedServer.acquire(folder):
        [caretaker] = caretakers(folder)
        os.kill(caretaker, signal.SIGKILL)
        wait_until(lambda: is_gone(caretaker), "the caretaker to die")
        user = holder(folder)
        pid = server_pid(folder)
        assert len(caretakers(folder)) == 1
        kill(user)
        assert not is_gone(pid)


def test_process_without_an_interpreter_of_its_own_starts_the_server_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/usr/bin/some-app-server")
    monkeypatch.setattr("shutil.which", lambda name, *_: None if name == "python3" else name)
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", server_module.find_binary().path)
    monkeypatch.setenv("PATH", "")
    with EmbeddedServer.acquire(folder) as server:
        assert talk(server.socket, b"PING") == b"+PONG"
    assert not status(folder).running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, if the user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("only root can mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


@pytest.mark.parametrize("noted", [True, False])
async def test_full_disk_is_opened_and_read_and_worked_off_when_there_is_room(
    small_disk: Path, noted: bool
) -> None:
    folder = small_disk / "data"
    async with RSMQ(f"embedded://{folder}") as rsmq:
        queue = await rsmq.create_queue("jobs")
        sent = await queue.send_many([f"{number} " + "x" * 1000 for number in range(100)])
    if not noted:
        (folder / "server.json").unlink()
    ballast = small_disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(OSError, match="No space"):
        (small_disk / "more").write_bytes(b"x" * 4096)
    async with RSMQ(f"embedded://{folder}") as rsmq:
        queue = rsmq.queue("jobs")
        assert [m.id for m in await queue.peek(0, 1000)] == sent
        ballast.unlink()
        assert [m.id for m in await queue.pop_many(1000)] == sent
    assert not status(folder).running
