"""What a data folder holds is data: it names no program, and it must be the user's own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aiorsmq_ng.embedded import EmbeddedServer, ServerBinary, find_binary, status, stop
from aiorsmq_ng.errors import Unavailable


def program(path: Path, version: str, trace: Path | None = None) -> Path:
    """Write a program that says it is a server, and leaves *trace* when it is run."""
    touch = f"touch '{trace}'\n" if trace else ""
    path.write_text(f"#!/bin/sh\n{touch}echo '{version}'\nexit 1\n")
    path.chmod(0o755)
    return path


def record(folder: Path, path: object, engine: str = "valkey", version: tuple = (9, 1, 2)) -> None:
    folder.mkdir(exist_ok=True)
    said = {"layout": 1, "path": str(path), "engine": engine, "version": version}
    (folder / "server.json").write_text(json.dumps(said))
    (folder / "users.lock").touch()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the only programs be those in ``bin``."""
    monkeypatch.delenv("AIORSMQ_SERVER_BIN", raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("aiorsmq_ng.embedded.binary._wheel_binaries", list)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("engine", ["valkey", "redis"])
def test_program_that_a_folder_names_is_never_run(
    tmp_path: Path, relative: bool, engine: str
) -> None:
    folder, trace = tmp_path / "data", tmp_path / "PWNED"
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=9.1.2 sha=0:0")
    folder.mkdir()
    evil = program(folder / "evil.sh", "Valkey server v=9.1.2 sha=0:0", trace)
    record(folder, "./data/evil.sh" if relative else evil, engine)

    # The server on PATH is none either, so nothing can start.
    with pytest.raises(Unavailable):
        EmbeddedServer.acquire(folder)
    assert not trace.exists()


def test_program_that_only_the_folder_knows_is_named_in_the_refusal(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=8.1.0 sha=0:0")
    own = program(tmp_path / "mine", "Valkey server v=9.1.2 sha=0:0")
    record(tmp_path / "data", own)

    with pytest.raises(Unavailable, match=f"{own}.*AIORSMQ_SERVER_BIN"):
        find_binary(tmp_path / "data")


@pytest.mark.parametrize(
    ("engine", "version", "chosen"),
    [
        ("redis", (7, 2, 0), "redis-server"),
        ("redis", (7, 1, 9), "redis-server"),
        ("valkey", (8, 1, 0), "valkey-server"),
        # Not installed any more, so the usual order decides.
        ("redis", (8, 0, 0), "valkey-server"),
    ],
)
def test_record_chooses_among_the_programs_of_the_machine(
    tmp_path: Path, engine: str, version: tuple, chosen: str
) -> None:
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=8.1.0 sha=0:0")
    program(tmp_path / "bin" / "redis-server", "Redis server v=7.2.0 sha=0:0")
    record(tmp_path / "data", "/gone/server", engine, version)

    assert Path(find_binary(tmp_path / "data").path).name == chosen


def test_record_of_one_of_them_chooses_it_though_another_comes_first(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=8.1.0 sha=0:0")
    mine = program(tmp_path / "bin" / "redis-server", "Redis server v=7.2.0 sha=0:0")
    record(tmp_path / "data", mine, "redis", (6, 2, 0))

    assert find_binary(tmp_path / "data") == ServerBinary(str(mine), "redis", (7, 2, 0))


def test_setting_decides_whatever_the_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "redis-server", "Redis server v=7.2.0 sha=0:0")
    mine = program(tmp_path / "mine", "Valkey server v=9.1.2 sha=0:0")
    record(tmp_path / "data", tmp_path / "bin" / "redis-server", "redis", (7, 2, 0))
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", str(mine))

    assert find_binary(tmp_path / "data").path == str(mine)


@pytest.mark.parametrize("user", [0, 4711])
def test_folder_of_another_owner_is_refused_by_every_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    """Also to root, whom the system would refuse nothing."""
    trace = tmp_path / "RUN"
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=9.1.2 sha=0:0", trace)
    folder = tmp_path / "data"
    record(folder, "/usr/bin/true")
    if os.getuid() == user == 0:
        os.chown(folder, 65534, 65534)
    else:
        monkeypatch.setattr("os.geteuid", lambda: user)

    for verb in (EmbeddedServer.acquire, stop, status):
        with pytest.raises(Unavailable, match=r"belongs to user .* choose a folder of your own"):
            verb(folder)
    assert not trace.exists()


OWN = ("gate.lock", "users.lock", "server.lock", "watch.lock", "server.json", "server.json.new",
       "server.pid", "server.log", "server.log.old", "server.sock",
       "appendonlydir", "keep")  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe"])
@pytest.mark.parametrize("name", OWN)
def test_nothing_is_read_or_written_through_a_link_in_a_folder(
    tmp_path: Path, name: str, kind: str
) -> None:
    program(tmp_path / "bin" / "valkey-server", "Valkey server v=9.1.2 sha=0:0")
    folder, victim = tmp_path / "data", tmp_path / "victim"
    folder.mkdir()
    (folder / "users.lock").touch()
    (folder / name).unlink(missing_ok=True)
    if kind == "link":
        victim.write_text("victim")
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to(victim)

    with pytest.raises(Unavailable, match=f"called '{name}'"):
        EmbeddedServer.acquire(folder)
    if (folder / "users.lock").exists():
        for call in (status, stop):
            with pytest.raises(Unavailable, match=f"called '{name}'"):
                call(folder)
    assert victim.read_text() == "victim" if kind == "link" else not victim.exists()


@pytest.mark.parametrize("said", ["[" * 200_000, '{"layout": "' + "x" * 100_000 + '"}', "1"])
def test_a_record_that_is_none_of_ours_is_refused(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "data"
    record(folder, "x")
    (folder / "server.json").write_text(said)

    with pytest.raises(Unavailable, match="unreadable") as refused:
        status(folder)
    assert len(str(refused.value)) < 1000
