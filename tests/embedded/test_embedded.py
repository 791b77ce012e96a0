from __future__ import annotations

import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from aiorsmq_ng.embedded import (
    EmbeddedServer,
    ServerBinary,
    default_folder,
    find_binary,
    locks,
    status,
    stop,
)
from aiorsmq_ng.errors import InvalidValue, Unavailable

ROOT = Path(__file__).parents[2]

TALK = """
import socket

def talk(path, *words):
    request = b"*%d\\r\\n" % len(words)
    for word in words:
        request += b"$%d\\r\\n%s\\r\\n" % (len(word), word)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(request)
        with connection.makefile("rb") as reply:
            line = reply.readline().strip()
            if line == b"*2":
                reply.readline(), reply.readline()
                line = reply.readline().strip()
            if line[:1] == b"$" and line != b"$-1":
                line = reply.readline().strip()
            return line
"""


def talk(path: Path, *words: bytes) -> bytes:
    scope: dict[str, Callable[..., bytes]] = {}
    exec(TALK, scope)
    return scope["talk"](path, *words)


def start_python(source: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process that has ``talk`` and ``EmbeddedServer``; it ends by itself."""
    head = "from pathlib import Path; import os, sys\nfrom aiorsmq_ng.embedded import *\n"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", head + TALK + textwrap.dedent(source)]
        + [str(argument) for argument in arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited 20 s for: {what}")
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    # A zombie is gone as well: it waits for init, which may be slow.
    listed = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip()[:1] in ("", "Z")


def server_pid(folder: Path) -> int:
    pid = status(folder).pid
    assert pid is not None
    return pid


def kill_server(folder: Path) -> None:
    os.kill(server_pid(folder), signal.SIGKILL)
    wait_until(lambda: not status(folder).running, "the kernel to free the lock of the server")


def write_program(path: Path, version: str, body: str = "exit 1") -> Path:
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{body}\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AIORSMQ_SERVER_BIN", raising=False)
    monkeypatch.delenv("AIORSMQ_DATA_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "data"
    yield path
    left = status(path) if path.exists() else None
    if left is not None and left.running and left.pid is not None:
        os.kill(left.pid, signal.SIGKILL)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_release_of_the_only_user_stops_the_server(folder: Path) -> None:
    """My server runs while I use it and leaves no process behind."""
    server = EmbeddedServer.acquire(folder)
    pid = server_pid(folder)
    answered = talk(server.socket, b"PING")
    server.release()
    server.release()

    assert answered == b"+PONG"
    wait_until(lambda: is_gone(pid), "the server process to end")
    assert not server.socket.exists()
    assert not status(folder).running


def test_acquire_starts_a_durable_private_server(folder: Path) -> None:
    """No other user can reach my server, it keeps what it is given, and Ctrl-C is not for it."""
    with EmbeddedServer.acquire(folder) as server:
        pid = server_pid(folder)

        assert folder.stat().st_mode & 0o777 == 0o700
        assert server.url == f"unix://{folder}/server.sock"
        assert os.getsid(pid) != os.getsid(0)
        for name, value in {
            b"appendonly": b"yes",
            b"appendfsync": b"always",
            b"aof-use-rdb-preamble": b"no",
            b"save": b"",
            b"port": b"0",
            b"maxmemory-policy": b"noeviction",
        }.items():
            assert talk(server.socket, b"CONFIG", b"GET", name) == value


def test_acquire_after_release_finds_the_data(folder: Path) -> None:
    """What I stored yesterday is there today."""
    with EmbeddedServer.acquire(folder) as server:
        talk(server.socket, b"SET", b"kept", b"yes")
    with EmbeddedServer.acquire(folder) as server:
        assert talk(server.socket, b"GET", b"kept") == b"yes"


def test_release_of_one_of_two_holds_keeps_the_server(folder: Path) -> None:
    """Two parts of one program share a server and only the last one stops it."""
    first = EmbeddedServer.acquire(folder)
    second = EmbeddedServer.acquire(folder)
    pid = server_pid(folder)
    first.release()
    answered = talk(second.socket, b"PING")
    in_use = status(folder).in_use
    second.release()

    assert answered == b"+PONG"
    assert in_use is True
    wait_until(lambda: is_gone(pid), "the server process to end")


def test_acquire_by_many_processes_shares_one_server(folder: Path) -> None:
    """Eight programs that come and go lose none of their writes."""
    source = """
        with EmbeddedServer.acquire(Path(sys.argv[1])) as server:
            for _ in range(25):
                assert talk(server.socket, b"INCR", b"count")[:1] == b":"
    """
    clients = [start_python(source, folder) for _ in range(8)]
    outputs = [client.communicate(timeout=60)[0] for client in clients]

    assert [client.returncode for client in clients] == [0] * 8, outputs
    assert not status(folder).running
    with EmbeddedServer.acquire(folder) as server:
        assert talk(server.socket, b"GET", b"count") == b"200"


def test_ensure_running_after_a_kill_brings_the_data_back(folder: Path) -> None:
    """My server was killed; I go on at the same address with every write I was promised."""
    with EmbeddedServer.acquire(folder) as server:
        for _ in range(500):
            talk(server.socket, b"INCR", b"count")
        kill_server(folder)
        server.ensure_running()
        server.ensure_running()

        assert talk(server.socket, b"GET", b"count") == b"500"
    assert not status(folder).running


def test_acquire_after_a_kill_restarts_the_server(folder: Path) -> None:
    """The next user repairs what a killed server left, also for processes that still use it."""
    with EmbeddedServer.acquire(folder) as first:
        talk(first.socket, b"SET", b"kept", b"yes")
        kill_server(folder)
        with EmbeddedServer.acquire(folder) as second:
            assert second.socket == first.socket

        assert talk(first.socket, b"GET", b"kept") == b"yes"


def test_release_after_a_kill_of_the_server_succeeds(folder: Path) -> None:
    """I can leave although my server is already dead."""
    server = EmbeddedServer.acquire(folder)
    kill_server(folder)
    server.release()

    assert not status(folder).running


def test_kill_of_clients_leaves_the_server_to_the_others(folder: Path) -> None:
    """Crashed programs neither stop my server nor keep it alive after me."""
    source = """
        server = EmbeddedServer.acquire(Path(sys.argv[1]))
        print(talk(server.socket, b"INCR", b"count"), flush=True)
        sys.stdin.read()
    """
    clients = [start_python(source, folder) for _ in range(3)]
    for client in clients:
        assert client.stdout is not None
        assert client.stdout.readline().startswith("b':")
    pid = server_pid(folder)
    for client in clients[1:]:
        client.kill()
        client.communicate(timeout=20)
    with EmbeddedServer.acquire(folder) as server:
        assert server_pid(folder) == pid
        clients[0].kill()
        clients[0].communicate(timeout=20)

        assert talk(server.socket, b"GET", b"count") == b"3"
    wait_until(lambda: is_gone(pid), "the server process to end")


def test_exit_without_release_stops_the_server(folder: Path) -> None:
    """A program that just ends leaves no server."""
    client = start_python("server = EmbeddedServer.acquire(Path(sys.argv[1]))", folder)
    output, _ = client.communicate(timeout=30)

    assert (client.returncode, output) == (0, "")
    assert (folder / "server.json").exists()
    assert not status(folder).running


def test_fork_leaves_the_hold_with_the_parent(folder: Path) -> None:
    """A child that outlives my hold, or releases its copy, does not confuse the count."""
    source = """
        server = EmbeddedServer.acquire(Path(sys.argv[1]))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            server.release()
            talk(server.socket, b"SET", b"child", b"here")
            os.read(read, 1)
            os._exit(0)
        while talk(server.socket, b"GET", b"child") != b"here":
            pass
        server.release()
        print(status(server.folder).running)
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)
    """
    client = start_python(source, folder)
    output, _ = client.communicate(timeout=30)

    assert output == "False\n"


def test_fork_while_a_lock_is_held_does_not_keep_it(tmp_path: Path) -> None:
    """A fork in the middle of a start does not block the folder for the life of the child."""
    source = """
        import fcntl
        from aiorsmq_ng.embedded.locks import LockFile
        held = LockFile(Path(sys.argv[1]))
        assert held.attempt(fcntl.LOCK_EX)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        held.close()
        again = LockFile(Path(sys.argv[1]))
        while not again.attempt(fcntl.LOCK_EX):
            pass
        print(os.waitpid(child, os.WNOHANG))
        os.close(write)
        os.waitpid(child, 0)
    """
    client = start_python(source, tmp_path / "any.lock")
    output, _ = client.communicate(timeout=30)

    assert output == "(0, 0)\n"


def test_acquire_with_always_tightens_a_running_server(folder: Path) -> None:
    """My wish for the safest storage counts although another process started the server."""
    with EmbeddedServer.acquire(folder), EmbeddedServer.acquire(folder, fsync="always") as server:
        assert talk(server.socket, b"CONFIG", b"GET", b"appendfsync") == b"always"


def test_acquire_with_an_unknown_fsync_is_refused(folder: Path) -> None:
    """A misspelt option is an error and not a silent default."""
    with pytest.raises(InvalidValue, match="give 'everysec' or 'always'"):
        EmbeddedServer.acquire(folder, fsync="sometimes")


def test_acquire_of_a_very_long_folder_uses_a_short_socket(tmp_path: Path) -> None:
    """My data folder may lie as deep as I like."""
    folder = tmp_path.joinpath(*["a folder with a long name"] * 6)
    with EmbeddedServer.acquire(folder) as server:
        talk(server.socket, b"SET", b"kept", b"yes")

        assert len(os.fsencode(server.socket)) <= 103
        assert status(folder).socket == server.socket
    with EmbeddedServer.acquire(folder) as again:
        assert again.socket == server.socket
        assert talk(again.socket, b"GET", b"kept") == b"yes"
    assert not server.socket.exists()


def test_url_of_a_folder_with_odd_characters_is_quoted(tmp_path: Path) -> None:
    """A space or a question mark in the path does not break the address."""
    with EmbeddedServer.acquire(tmp_path / "what? a #1") as server:
        parts = urlsplit(server.url)

        assert (parts.scheme, parts.query, parts.fragment) == ("unix", "", "")
        assert unquote(parts.path) == str(server.socket)


def test_acquire_through_a_symlink_finds_the_same_server(folder: Path, tmp_path: Path) -> None:
    """Two names of one folder mean one server."""
    with EmbeddedServer.acquire(folder) as server:
        (tmp_path / "other").symlink_to(folder)
        with EmbeddedServer.acquire(tmp_path / "other") as other:
            assert other.socket == server.socket


def test_ephemeral_removes_its_folder_at_release() -> None:
    """A server for a test leaves nothing."""
    with EmbeddedServer.ephemeral() as server:
        pid = server_pid(server.folder)

        assert talk(server.socket, b"PING") == b"+PONG"
    assert not server.folder.exists()
    wait_until(lambda: is_gone(pid), "the server process to end")


def test_ephemeral_clears_up_after_killed_owners(tmp_path: Path) -> None:
    """An aborted test run does not leave its server for ever, and live ones are left alone."""
    source = """
        import tempfile
        tempfile.tempdir = sys.argv[1]
        print(EmbeddedServer.ephemeral().folder, flush=True)
        sys.stdin.read()
    """
    with EmbeddedServer.ephemeral() as alive:
        owner = start_python(source, tmp_path)
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        pid = server_pid(left)
        owner.kill()
        owner.communicate(timeout=20)
        with EmbeddedServer.ephemeral():
            assert not left.exists()
            wait_until(lambda: is_gone(pid), "the abandoned server to end")
            assert talk(alive.socket, b"PING") == b"+PONG"


def test_ensure_running_after_release_is_refused(folder: Path) -> None:
    """After a release, the server must be acquired again."""
    server = EmbeddedServer.acquire(folder)
    server.release()

    assert repr(server).endswith("released>")
    with pytest.raises(Unavailable, match="acquire it again"):
        server.ensure_running()


@pytest.mark.usefixtures("no_programs")
def test_acquire_without_any_program_says_what_to_install(folder: Path) -> None:
    """On a bare machine I am told the two ways out."""
    with pytest.raises(Unavailable, match=r"install aiorsmq-ng\[embedded\].*AIORSMQ_SERVER_BIN"):
        EmbeddedServer.acquire(folder)
    assert status(folder).in_use is False


def test_find_binary_with_a_wrong_setting_does_not_look_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """My explicit choice is never replaced in silence."""
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", "/no/such/server")

    with pytest.raises(Unavailable, match="no executable file '/no/such/server'"):
        find_binary()


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("Redis server v=6.0.9 sha=00000000:0 malloc=libc bits=64", "older than 6.2"),
        ("nginx version: 1.22", "does not identify itself as a Redis or Valkey server"),
    ],
)
@pytest.mark.usefixtures("no_programs")
def test_find_binary_with_an_unfit_program_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, reason: str
) -> None:
    """I learn which program was found and what is wrong with it."""
    program = write_program(tmp_path / "redis-server", version)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match=reason) as caught:
        find_binary()
    assert str(program) in str(caught.value)


def test_find_binary_of_version_6_refuses_newer_data(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """A server that would not see my data is not started on it."""
    program = write_program(tmp_path / "old", "Redis server v=6.2.14 sha=0:0")
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", str(program))
    with_no_data = find_binary(folder)
    (folder / "appendonlydir").mkdir(parents=True)

    assert with_no_data == ServerBinary(str(program), "redis", (6, 2, 14))
    with pytest.raises(Unavailable, match="would ignore the data in"):
        find_binary(folder)


def test_acquire_of_a_newer_layout_is_refused(folder: Path) -> None:
    """An old release keeps its hands off the data of a new one."""
    folder.mkdir()
    (folder / "server.json").write_text('{"layout": 2}')

    with pytest.raises(
        Unavailable, match="has layout 2, but this release supports layout 1; upgrade"
    ):
        EmbeddedServer.acquire(folder)
    (folder / "server.json").unlink()


def test_acquire_of_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    """A wrong path does not turn my documents into a data folder."""
    (tmp_path / "letter.txt").write_text("dear all")
    tmp_path.chmod(0o755)

    with pytest.raises(Unavailable, match="choose a new or empty folder"):
        EmbeddedServer.acquire(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_acquire_below_a_file_names_the_folder(tmp_path: Path) -> None:
    """A folder that cannot be made is a sentence and not a traceback of the system."""
    (tmp_path / "file").touch()

    with pytest.raises(Unavailable, match=r"cannot be used: .*choose a folder on a local"):
        EmbeddedServer.acquire(tmp_path / "file" / "data")


def test_acquire_of_a_dying_program_reports_its_log(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """I see what the server said before it died."""
    body = "echo 'out of tea' >&2; exit 3"
    program = write_program(tmp_path / "dying", "Valkey server v=9.0.0 sha=0:0", body)
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", str(program))

    with pytest.raises(Unavailable, match="died at start and logged: out of tea; fix"):
        EmbeddedServer.acquire(folder)
    assert status(folder).in_use is False
    assert not (folder / "server.json").exists()


def test_acquire_of_damaged_data_reports_the_log(folder: Path) -> None:
    """A server that cannot read my data says so, and the data is left as it is."""
    with EmbeddedServer.acquire(folder) as server:
        talk(server.socket, b"SET", b"kept", b"yes")
    damaged = next((folder / "appendonlydir").glob("*.incr.aof"))
    damaged.write_bytes(b"this is no command\r\n" + damaged.read_bytes())

    with pytest.raises(Unavailable, match=r"died at start and logged: .*Bad file format"):
        EmbeddedServer.acquire(folder)
    assert not status(folder).running


@pytest.mark.parametrize("value", ["4", True, float("nan"), timedelta(seconds=-1)])
def test_acquire_refuses_what_is_no_duration(folder: Path, value: Any) -> None:
    """A wrong timeout starts nothing."""
    with pytest.raises(InvalidValue, match="startup_timeout"):
        EmbeddedServer.acquire(folder, startup_timeout=value)
    assert not status(folder).running


def test_acquire_of_a_silent_program_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    """A server that never answers does not block me."""
    body = f"sleep 60 & echo $! > '{folder}/server.pid'"
    program = write_program(tmp_path / "silent", "Valkey server v=9.0.0 sha=0:0", body)
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", str(program))

    with pytest.raises(Unavailable, match=r"did not answer within 0.2 s; look into"):
        EmbeddedServer.acquire(folder, startup_timeout=timedelta(seconds=0.2))
    left = status(folder)
    assert (left.running, left.in_use) == (True, False)
    assert left.pid is not None
    os.kill(left.pid, signal.SIGKILL)


def test_acquire_while_another_process_hangs_at_the_gate_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """A stuck neighbour costs me a sentence and not my patience."""
    folder.mkdir()
    with (folder / "gate.lock").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        monkeypatch.setattr(locks.gate.__wrapped__, "__defaults__", (0.1,))  # type: ignore[attr-defined]

        with pytest.raises(Unavailable, match="look for a hanging process"):
            EmbeddedServer.acquire(folder)


def test_acquire_waits_for_a_server_that_is_loading(folder: Path) -> None:
    """A server that is still reading my data counts as alive, however long it takes."""
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(str(folder / "server.sock"))
        busy.listen()
        source = """
            server = EmbeddedServer.acquire(Path(sys.argv[1]), startup_timeout=0.5)
            print("served", flush=True)
            server.release()
        """
        (folder / "users.lock").touch()
        with (folder / "server.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            client = start_python(source, folder)
            for answer in [b"-LOADING it takes a while\r\n"] * 150 + [b"+PONG\r\n"]:
                connection, _ = busy.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(answer)
            assert client.stdout is not None
            line = client.stdout.readline()
    output, _ = client.communicate(timeout=30)

    assert (line, output, client.returncode) == ("served\n", "", 0)


def test_status_of_a_missing_folder_creates_nothing(folder: Path) -> None:
    """Asking is free."""
    found = status(folder)

    assert not folder.exists()
    assert (found.running, found.in_use, found.binary, found.pid) == (False, None, None, None)


def test_status_of_a_used_folder_names_engine_and_process(folder: Path) -> None:
    """I can see what runs, where, and whether it is in use."""
    with EmbeddedServer.acquire(folder) as server:
        found = status(folder)

    assert (found.running, found.in_use) == (True, True)
    assert found.binary == server.binary
    assert (found.folder, found.socket) == (server.folder, server.socket)
    assert status(folder).pid is None


def test_default_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """My settings decide where data lives, and asking makes no folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    at_home = default_folder()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    in_state = default_folder()
    monkeypatch.setenv("AIORSMQ_DATA_DIR", "~/here")

    assert at_home == tmp_path / ".local/state/aiorsmq-ng/default"
    assert in_state == tmp_path / "state/aiorsmq-ng/default"
    assert default_folder() == tmp_path / "here"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("home", [None, "/home/read-only"])
def test_default_folder_without_a_home_is_temporary_and_warns(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    home: str | None,
) -> None:
    """A service user without a home can work, and is warned that its data is not kept."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("os.access", lambda *_: False)
    if home is None:
        monkeypatch.delenv("HOME")
    else:
        monkeypatch.setenv("HOME", home)
    with caplog.at_level(logging.WARNING):
        folder = default_folder()

    assert folder == tmp_path / f"aiorsmq-{os.getuid()}" / "default"
    assert "set AIORSMQ_DATA_DIR to keep it" in caplog.text


def test_default_folder_refuses_a_temporary_folder_open_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No other user can create a folder under my name to read my queues."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    trap = tmp_path / f"aiorsmq-{os.getuid()}"
    trap.mkdir()
    trap.chmod(0o777)

    with pytest.raises(Unavailable, match="not a private folder of this user"):
        default_folder()


# A server that goes on without users


def test_keep_lets_the_server_go_on_until_it_is_stopped(folder: Path) -> None:
    with EmbeddedServer.acquire(folder) as server:
        server.keep()
    between = status(folder)
    with EmbeddedServer.acquire(folder) as again:
        assert talk(again.socket, b"PING") == b"+PONG"
    kept = status(folder)

    assert stop(folder)
    assert (between.running, between.in_use, between.kept) == (True, False, True)
    assert (kept.running, kept.pid) == (True, between.pid)
    assert not status(folder).running


def test_stop_of_a_server_in_use_leaves_it_to_its_last_user(folder: Path) -> None:
    with EmbeddedServer.acquire(folder) as server:
        server.keep()

        assert not stop(folder)
        assert status(folder).running
    assert not status(folder).running


def test_stop_without_a_server_is_done_at_once(folder: Path) -> None:
    assert stop(folder)
    assert not folder.exists()
    EmbeddedServer.acquire(folder).release()
    assert stop(folder)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not tell")
def test_status_names_the_processes_that_use_the_server(folder: Path) -> None:
    with EmbeddedServer.acquire(folder):
        assert status(folder).users == (os.getpid(),)
    assert status(folder).users == ()
