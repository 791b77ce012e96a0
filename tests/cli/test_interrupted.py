"""Ctrl-C while the reader of stdout is slow: what is reported, printed and done is the same."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from .ctl import MODULE, Ctl, Outcome

BODY = "z" * 1500
#: More bytes of any output than a pipe holds.
MANY = 300
Interrupted = Callable[..., Outcome]


def read_all(fd: int, into: list[bytes]) -> None:
    while block := os.read(fd, 1 << 16):
        into.append(block)


@pytest.fixture(params=["", "1"], ids=["buffered", "PYTHONUNBUFFERED"])
def interrupted(request: pytest.FixtureRequest, server_url: str, ns: str) -> Interrupted:
    """Run a command, press Ctrl-C once it waits for the reader, and only then read."""

    def interrupted(*args: str, twice: bool = False) -> Outcome:
        out, into = os.pipe()
        with subprocess.Popen(
            [*MODULE, "-r", server_url, "--ns", ns, *args],
            stdout=into,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": request.param},
        ) as running:
            full = select.poll()
            full.register(into, select.POLLOUT)
            while full.poll(0):
                assert running.poll() is None
                time.sleep(0.01)
            os.close(into)
            running.send_signal(signal.SIGINT)
            while twice and running.poll() is None:
                time.sleep(0.5)  # two that come together are one
                running.send_signal(signal.SIGINT)
                try:
                    running.wait(20)
                except subprocess.TimeoutExpired:
                    continue
            written: list[bytes] = []
            reading = threading.Thread(target=read_all, args=(out, written))
            reading.start()
            _, err = running.communicate(timeout=60)
            reading.join()
        os.close(out)
        return Outcome(running.returncode, b"".join(written).decode(), err.decode())

    return interrupted


def counts(ctl: Ctl, queue: str) -> dict[str, int]:
    found: dict[str, int] = json.loads(ctl("queue", "describe", "-n", queue).out)
    return found


def file_of(folder: Path, count: int) -> str:
    file = folder / "lines"
    file.write_text("".join(f"{number:05}{BODY}\n" for number in range(count)))
    return str(file)


# taken, printed, deleted


@pytest.mark.parametrize("output", ["json", "ndjson", "csv", "table"])
def test_observe_ack_deletes_what_was_printed_and_gives_back_the_rest(
    ctl: Ctl, interrupted: Interrupted, tmp_path: Path, output: str
) -> None:
    """Neither lost nor hidden, and a number that is true."""
    count = MANY if output != "table" else 1000  # of which a cell holds but the beginning
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    ctl("topic", "publish", "-n", "news", "-f", file_of(tmp_path, count))
    line = ("topic", "observe", "-n", "news", "-c", "a", "--ack", "--count", str(count))
    done = interrupted(*line, "-o", output)

    printed = len(re.findall(r"\b\d{5}z{50}", done.out))
    left = counts(ctl, "news__a")
    assert done.status == 130
    assert 0 < printed < count
    assert (left["msgs"], left["ready"], left["leased"]) == (count - printed, count - printed, 0)
    assert done.err.splitlines()[0] == f"rsmqctl: {printed} messages printed and deleted"
    assert done.out.endswith("\n")
    if output == "json":
        assert len(json.loads(done.out)) == printed


def test_observe_ack_ended_while_it_prints_gives_back_the_message_that_is_cut(
    ctl: Ctl, interrupted: Interrupted, tmp_path: Path
) -> None:
    """A second Ctrl-C does not wait for the reader."""
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    ctl("topic", "publish", "-n", "news", "-f", file_of(tmp_path, MANY))
    line = ("topic", "observe", "-n", "news", "-c", "a", "--ack", "--count", str(MANY))
    done = interrupted(*line, "-o", "ndjson", twice=True)

    printed = len(re.findall(r"\b\d{5}z{1500}", done.out))
    left = counts(ctl, "news__a")
    assert done.status == 130
    assert 0 < printed < MANY
    assert left["leased"] == 0
    deleted = MANY - left["msgs"]
    assert deleted <= printed
    assert f"rsmqctl: {deleted} messages printed and deleted" in done.err.splitlines()


def test_observe_prints_the_same_with_and_without_ack(ctl: Ctl) -> None:
    """Also of nothing, in every format."""
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    for body in ("1", "two", "=3"):
        ctl("topic", "publish", "-n", "news", "-m", body)
    line = ("topic", "observe", "-n", "news", "-c", "a", "-t", "0")
    for output in ("json", "ndjson", "csv", "table"):
        ctl(*line, "-o", output)  # so that the time of the first receive is there
    before = {output: ctl(*line, "-o", output).out for output in ("json", "ndjson", "csv", "table")}
    rows = [json.loads(row) for row in before["ndjson"].splitlines()]

    assert [row["message"] for row in rows] == ["1", "two", "=3"]
    assert len({len(line) for line in before["table"].splitlines()}) == 1
    acked = ctl(*line, "--ack", "-o", "table").out
    assert re.sub(r"  \d+  ", "  N  ", acked) == re.sub(r"  \d+  ", "  N  ", before["table"])
    for output in ("json", "ndjson", "csv", "table"):
        empty = ctl(*line, "--ack", "-o", output).out
        assert empty == ctl(*line, "-o", output).out


# done, and told


@pytest.mark.parametrize("verb", ["message send", "topic publish"])
def test_ids_of_all_lines_that_are_done_are_printed(
    jobs: Ctl, interrupted: Interrupted, tmp_path: Path, verb: str
) -> None:
    """As many as the note says, and none is cut."""
    (tmp_path / "in").write_text("x\n" * 20_000)
    jobs("topic", "subscribe", "-n", "jobs", "-c", "a")
    done = interrupted(*verb.split(), "-n", "jobs", "-f", str(tmp_path / "in"))

    stored = counts(jobs, "jobs" if verb == "message send" else "jobs__a")["msgs"]
    assert done.status == 130
    assert 0 < stored < 20_000
    assert [len(id) for id in done.out.split("\n")] == [32] * stored + [0]
    assert done.err.splitlines()[0] == (
        f"rsmqctl: the first {stored} lines are done; to resume: --skip {stored}"
    )


def test_ids_that_were_not_printed_are_counted(
    jobs: Ctl, interrupted: Interrupted, tmp_path: Path
) -> None:
    """A second Ctrl-C does not wait for the reader; then the note has both numbers."""
    (tmp_path / "in").write_text("x\n" * 20_000)
    done = interrupted("message", "send", "-n", "jobs", "-f", str(tmp_path / "in"), twice=True)

    stored = counts(jobs, "jobs")["msgs"]
    assert done.status == 130
    said = re.match(
        r"rsmqctl: the first (\d+) lines are done; to resume: --skip (\d+)\n"
        r"rsmqctl: only the first (\d+) ids are certainly printed\n",
        done.err,
    )
    assert said is not None
    assert int(said[1]) == int(said[2]) == stored
    whole = sum(len(id) == 32 for id in done.out.split("\n")[:-1])
    assert int(said[3]) <= whole < stored


def test_export_to_stdout_says_how_far_it_came(
    jobs: Ctl, interrupted: Interrupted, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """All lines of the output are whole, and as many as the note says."""
    (tmp_path / "in").write_text("x\n" * 20_000)
    jobs("message", "send", "-n", "jobs", "-f", str(tmp_path / "in"))
    done = interrupted("message", "export", "-n", "jobs")

    lines = [json.loads(line)["body"] for line in done.out.splitlines()]
    assert done.status == 130
    assert 0 < len(lines) < 20_000
    assert done.err.splitlines()[0] == f"rsmqctl: {len(lines)} of 20000 messages exported"


def test_export_ended_while_it_prints_says_what_is_whole(
    jobs: Ctl, interrupted: Interrupted, tmp_path: Path
) -> None:
    """A second Ctrl-C does not wait for the reader."""
    (tmp_path / "in").write_text("x\n" * 20_000)
    jobs("message", "send", "-n", "jobs", "-f", str(tmp_path / "in"))
    done = interrupted("message", "export", "-n", "jobs", twice=True)

    said = re.match(
        r"rsmqctl: (\d+) of 20000 messages exported; a line after them may be incomplete\n",
        done.err,
    )
    assert done.status == 130
    assert said is not None
    assert int(said[1]) <= done.out.count("\n")


def test_export_into_a_pipe_that_closes_says_nothing(jobs: Ctl, server_url: str, ns: str) -> None:
    """``export | head`` is no mishap."""
    for _ in range(3):
        jobs("message", "send", "-n", "jobs", "-m", "x")
    command = [*MODULE, "-r", server_url, "--ns", ns, "message", "export", "-n", "jobs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == b""


def test_a_message_that_a_signal_meets_in_the_pipe_is_printed_whole(
    jobs: Ctl, interrupted: Interrupted
) -> None:
    """An unbuffered stdout of Python drops what a signal leaves unwritten; ours does not."""
    big = "b" * 65_000
    for _ in range(3):
        jobs("message", "send", "-n", "jobs", "-m", big)
    done = interrupted("message", "receive", "-n", "jobs", "-c", "3")

    assert [row["message"] for row in json.loads(done.out)] == [big] * 3
