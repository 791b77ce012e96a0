"""``rsmqctl doctor`` as its users meet it: in a pipe, on a terminal, asked and unasked."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from aiorsmq_ng.cli import main
from aiorsmq_ng.embedded import EmbeddedServer

MODULE = [sys.executable, "-m", "aiorsmq_ng.cli"]
ABSENT = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server whose settings endanger nothing."""
    with EmbeddedServer.ephemeral() as server:
        with Redis.from_url(server.url) as client:
            for name, value in {
                "appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"
            }.items():  # fmt: skip
                client.config_set(name, value)
        yield server.url


@pytest.fixture
def redis(url: str) -> Iterator[Redis]:
    """A plain client, to see and to damage what is stored."""
    with Redis.from_url(url) as client:
        yield client


@pytest.fixture
def ctl(
    capsys: pytest.CaptureFixture[str], url: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> Ctl:
    """Run a command in this process, in a namespace of its own that has a queue ``jobs``."""
    for name in ("RSMQ_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)

    def ctl(*args: str) -> tuple[int, str, str]:
        status = main(["-r", url, "--ns", ns, *args])
        return (status, *capsys.readouterr())

    assert ctl("queue", "create", "-n", "jobs") == (0, "", "")
    return ctl


@pytest.fixture
def damaged(ctl: Ctl, redis: Redis, ns: str) -> Ctl:
    """The same, with an orphan in the queue."""
    redis.hset(f"{ns}:jobs:Q", ABSENT, "lost")
    return ctl


def terminal(*args: str, answer: str = "") -> tuple[int, str]:
    """Run the real command on a terminal, type *answer* when asked, return what was shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*MODULE, *args], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True
    ) as process:
        os.close(theirs)
        shown, limit = b"", time.monotonic() + 60
        while time.monotonic() < limit:
            if select.select([ours], [], [], 0.2)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:
                    break
            if answer and b"[y/N]" in shown:
                os.write(ours, answer.encode())
                answer = ""
        status = process.wait(30)
    os.close(ours)
    return status, shown.decode().replace("\r\n", "\n")


def test_sound_queue_in_a_pipe_is_json_and_status_0(ctl: Ctl) -> None:
    """A script can ask whether all is well."""
    status, out, err = ctl("doctor")
    report = json.loads(out)

    assert (status, err) == (0, "")
    assert report["healthy"] is True
    assert report["queues"] == ["jobs"]
    assert report["server"]["aof"] is True
    assert {finding["severity"] for finding in report["findings"]} <= {"info"}


def test_damage_is_status_1_and_changes_nothing(damaged: Ctl, redis: Redis, ns: str) -> None:
    """Looking is only looking."""
    status, out, err = damaged("doctor")
    (orphan,) = [f for f in json.loads(out)["findings"] if f["queue"] == "jobs"]

    assert (status, err) == (1, "")
    assert orphan == {
        "queue": "jobs", "kind": "orphan", "count": 1, "severity": "error", "fixable": True,
        "fixed": False, "ids": [ABSENT], "detail": orphan["detail"],
    }  # fmt: skip
    assert redis.zcard(f"{ns}:jobs") == 0


def test_findings_one_per_line(damaged: Ctl) -> None:
    """For programs that read line by line, or columns."""
    status, out, _ = damaged("doctor", "-o", "ndjson")
    (finding,) = (f for f in map(json.loads, out.splitlines()) if f["queue"] == "jobs")
    _, table, _ = damaged("doctor", "-o", "csv")

    assert (status, finding["queue"], finding["count"]) == (1, "jobs", 1)
    assert table.splitlines()[0].split(",") == list(finding)


def test_fix_in_a_pipe_needs_yes(damaged: Ctl, redis: Redis, ns: str) -> None:
    """No script repairs by accident."""
    status, out, err = damaged("doctor", "--fix")

    assert (status, out) == (2, "")
    assert "--fix needs --yes without a terminal to ask on" in err
    assert redis.zcard(f"{ns}:jobs") == 0


def test_fix_with_yes_repairs_and_is_status_0(damaged: Ctl) -> None:
    """What was repaired is not left to do."""
    status, out, _ = damaged("doctor", "jobs", "--fix", "--yes")
    (orphan,) = [f for f in json.loads(out)["findings"] if f["queue"] == "jobs"]

    assert status == 0
    assert orphan["fixed"] is True
    popped = damaged("message", "pop", "-n", "jobs")
    assert json.loads(popped[1])["message"] == "lost"


def test_fix_that_leaves_something_is_status_1(damaged: Ctl, redis: Redis, ns: str) -> None:
    """A wrong type is not for a program to mend."""
    redis.sadd(f"{ns}:QUEUES", "other")
    redis.set(f"{ns}:other:Q", "no hash")

    status, out, _ = damaged("doctor", "--fix", "--yes", "-o", "table")
    assert status == 1
    assert out.endswith("\n1 left to do\n")
    assert damaged("doctor", "jobs")[0] == 0


def test_max_hidden_makes_long_delays_visible(ctl: Ctl) -> None:
    """I know that no message is delayed for a week."""
    ctl("message", "send", "-n", "jobs", "-m", "x", "-d", "604800")

    assert ctl("doctor")[0] == 0
    assert ctl("doctor", "--max-hidden", "86400")[0] == 1
    assert ctl("doctor", "--max-hidden", "86400", "--fix", "--yes")[0] == 0
    assert '"x"' in ctl("message", "pop", "-n", "jobs")[1]


def test_unknown_queue_is_status_1(ctl: Ctl) -> None:
    """A typing error is no clean bill of health."""
    status, out, _ = ctl("doctor", "jbos")

    assert status == 1
    assert '"absent"' in out


def test_name_that_is_not_allowed_is_status_2(ctl: Ctl) -> None:
    """As everywhere."""
    assert ctl("doctor", "a b")[0] == 2


def test_table_shows_findings_and_the_next_step(damaged: Ctl, ns: str, redis: Redis) -> None:
    """People get lines to read, and no control characters."""
    redis.hset(f"{ns}:jobs:Q", "\x1b[2J", "x")
    status, out, _ = damaged("doctor", "-o", "table")

    assert status == 1
    assert "\nerror    jobs  orphan (1)\n" in out
    assert f"\n         {ABSENT}\n" in out
    assert f"repair what can be repaired with: rsmqctl --ns {ns} doctor --fix" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines()[2:])) <= 100


@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 1), ("n\n", 1, 0), ("\n", 1, 0)])
def test_fix_on_a_terminal_asks(
    damaged: Ctl, url: str, ns: str, redis: Redis, answer: str, status: int, left: int
) -> None:
    """Nothing is repaired before I say so."""
    found, shown = terminal("-r", url, "--ns", ns, "doctor", "--fix", answer=answer)

    assert found == status, shown
    assert "Repair damage in all queues? [y/N]" in shown
    assert ("orphan (1)  fixed" in shown) == bool(left)
    assert ("nothing was repaired" in shown) == (not left)
    assert redis.zcard(f"{ns}:jobs") == left


def test_table_is_the_default_on_a_terminal(ctl: Ctl, url: str, ns: str) -> None:
    """JSON is for programs."""
    status, shown = terminal("-r", url, "--ns", ns, "doctor")

    assert status == 0
    assert "1 queue examined\n" in shown
    assert shown.rstrip().endswith("nothing is left to do")


def test_progress_is_shown_on_a_terminal_and_cleared(
    ctl: Ctl, url: str, ns: str, redis: Redis, tmp_path: Path
) -> None:
    """I see that it works, and stdout stays clean."""
    out = tmp_path / "out"
    command = f"{sys.executable} -m aiorsmq_ng.cli -r {url} --ns {ns} doctor > {out}"
    ours, theirs = pty.openpty()
    with subprocess.Popen(["sh", "-c", command], stdin=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:
                break
        process.wait(30)
    os.close(ours)

    assert b"\rsearch for queues: 1000" in shown
    assert shown.endswith(b"\r")
    assert json.loads(out.read_text())["healthy"] is True


def test_help_shows_an_example(ctl: Ctl) -> None:
    """Each command tells by example how it is used."""
    status, out, _ = ctl("doctor", "--help")

    assert status == 0
    assert "$ rsmqctl doctor" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_damaged_queue_points_to_the_doctor(ctl: Ctl, redis: Redis, ns: str) -> None:
    """An error leads on."""
    redis.hset(f"{ns}:jobs:Q", "vt", "soon")
    status, _, err = ctl("message", "receive", "-n", "jobs")

    assert status == 1
    assert err.rstrip().endswith("look closer with: rsmqctl doctor jobs")


def test_server_that_evicts_queues_can_be_looked_at_and_is_an_error(ctl: Ctl, redis: Redis) -> None:
    """A client would refuse it; the operator who repairs it must get in."""
    redis.config_set("maxmemory-policy", "allkeys-lru")
    try:
        status, out, _ = ctl("doctor")
    finally:
        redis.config_set("maxmemory-policy", "noeviction")

    assert status == 1
    assert "eviction" in [f["kind"] for f in json.loads(out)["findings"]]
