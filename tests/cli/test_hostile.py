"""``rsmqctl`` with names and bodies that were chosen to do harm: every format can be read back."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from aiorsmq_ng.cli.filters import compile_filter
from aiorsmq_ng.cli.transfer.files import sink

from .ctl import MODULE, Ctl, Outcome, python

#: Bodies that end a line, a cell or a document early, or begin a formula.
BODIES = (
    "two\nlines",
    "hello\n=cmd|'/C calc'!A0",
    "old\rMac",
    "dos\r\nend",
    "\nfirst",
    'a "quoted", cell',
    "'",
    '"',
    "",
    "tab\tand\vvertical\f",
    "\x1b[31mred\x1b]0;title\x07",
    "line\u2028and paragraph\u2029separators\x85",
    "{}",
    "[1, 2]",
    "null",
    "日本 \N{PILE OF POO} \ufeff",
    *(f"{sign}1+1" for sign in ("=", "+", "-", "@", "\t", "\r", "\n", *"＝＋－＠")),  # noqa: RUF001
)
#: Names that a shell would run, or that forge an entry.
NAMES = (
    "$(touch${IFS}ran)",
    "`touch ran`",
    "x;touch ran",
    "x\nplain,forged",
    "x\n\n\nplain",
    "\x1b[31mred",
    "a b",
    "'",
    "it's",
    "x&y",
    "~root",
    "a,b",
)
STEERING = set(map(chr, range(32))) - {"\n"} | {"\x7f", "\x1b", "\x9b"}


def guarded(text: str) -> str:
    """Return what a spreadsheet shall see."""
    risky = text.startswith((*"=+-@\t\r\n＝＋－＠",))  # noqa: RUF001
    return f"'{text}" if risky else text


def fill(redis: Redis, ns: str) -> None:
    """Store the bodies in the queue ``jobs``, in order."""
    now_ms = int(redis.time()[0]) * 1000
    for number, body in enumerate(BODIES):
        id = f"g73zkl{number:04}" + "x" * 22
        redis.zadd(f"{ns}:jobs", {id: now_ms - 1000 + number})
        redis.hset(f"{ns}:jobs:Q", id, body)


def read(output: str, text: str) -> list[dict[str, Any]]:
    """Read records back by the reader that one would use for the format."""
    if output == "csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if output == "ndjson":
        return [json.loads(line) for line in text.split("\n")[:-1]]
    found: list[dict[str, Any]] = json.loads(text)
    return found


@pytest.mark.parametrize("output", ["json", "ndjson", "csv"])
@pytest.mark.parametrize(
    "command", [("message", "peek", "-c", "100"), ("message", "tail", "-l", "100")], ids=str
)
def test_hostile_bodies_come_back_by_the_reader_of_the_format(
    jobs: Ctl, redis: Redis, ns: str, output: str, command: tuple[str, ...]
) -> None:
    """As many records as messages, each with its own body; a formula has a quote before it."""
    fill(redis, ns)
    more = ("-c", str(len(BODIES))) if "tail" in command else ()
    shown = jobs(*command, *more, "-n", "jobs", "-o", output)

    if output == "json" and "tail" in command:
        output = "ndjson"  # a list would have no end
    wanted = [guarded(body) if output == "csv" else body for body in BODIES]
    assert [row["message"] for row in read(output, shown.out)] == wanted


def test_an_export_of_hostile_bodies_is_one_line_each(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """And an import makes the same messages of it."""
    fill(redis, ns)
    file = tmp_path / "jobs.ndjson"
    jobs("message", "export", "-n", "jobs", "-f", str(file))
    lines = file.read_bytes().split(b"\n")[:-1]

    assert [json.loads(line)["body"] for line in lines] == list(BODIES)
    jobs("queue", "create", "-n", "copy")
    assert jobs("message", "import", "-n", "copy", "-f", str(file)).status == 0
    copied = read("json", jobs("message", "peek", "-c", "100", "-n", "copy").out)
    assert [row["message"] for row in copied] == list(BODIES)


@pytest.mark.parametrize("output", ["json", "ndjson", "csv", "table"])
def test_hostile_names_come_back_by_the_reader_of_the_format(
    jobs: Ctl, redis: Redis, ns: str, output: str
) -> None:
    """Every user that can write to the server chooses names; none of them makes a second entry."""
    redis.sadd(f"{ns}:QUEUES", *NAMES)
    shown = jobs("queue", "list", "-o", output).out

    wanted = sorted([*NAMES, "jobs"])
    if output == "csv":
        assert [row["queue"] for row in read("csv", shown)] == wanted
    elif output == "table":
        assert not STEERING & set(shown)
        assert len(shown.splitlines()) == 1 + len(wanted)
    else:
        assert read(output, shown) == wanted  # type: ignore[comparison-overlap]


def completed(kind: str, words: str, number: int) -> Outcome:
    """Ask for completions as the script of a shell does."""
    os.environ.update(
        _RSMQCTL_COMPLETE=f"{kind}_complete", COMP_WORDS=words, COMP_CWORD=str(number)
    )
    return python("import sys; sys.argv[0] = 'rsmqctl'; from aiorsmq_ng.cli import main; main()")


@pytest.fixture
def shell_words(monkeypatch: pytest.MonkeyPatch, server_url: str) -> None:
    """The environment of a completion, and its end."""
    monkeypatch.setenv("RSMQ_URL", server_url)
    for name in ("_RSMQCTL_COMPLETE", "COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")


@pytest.mark.usefixtures("shell_words")
@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_offers_no_name_that_a_shell_would_run(
    jobs: Ctl, redis: Redis, ns: str, kind: str
) -> None:
    """A shell puts it into its line as it is: only names in RSMQ's letters are offered."""
    redis.sadd(f"{ns}:QUEUES", *NAMES)
    for number, name in enumerate(NAMES):
        assert jobs("topic", "publish", "-n", name, "-m", str(number)).status == 0
    jobs("topic", "publish", "-n", "news", "-m", "x")
    forms = {"bash": "plain,{}\n", "zsh": "plain\n{}\n_\n", "fish": "plain,{}\n"}

    # fish passes the word itself, not its number
    last = "" if kind == "fish" else 6
    queues = completed(kind, f"rsmqctl --ns {ns} message peek -n ", last)  # type: ignore[arg-type]
    assert queues.err == ""
    assert forms[kind].format("jobs") in queues.out
    topics = completed(kind, f"rsmqctl --ns {ns} topic observe -n ", last)  # type: ignore[arg-type]
    assert topics.out == forms[kind].format("news")
    for name in NAMES:
        assert name not in queues.out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
def test_bash_runs_nothing_when_tab_completes_a_planted_name(
    jobs: Ctl, redis: Redis, ns: str, server_url: str, tmp_path: Path
) -> None:
    """The whole way: the script of the shell, its completion, the line that is run then."""
    jobs("queue", "delete", "-n", "jobs")
    redis.sadd(f"{ns}:QUEUES", "$(touch${IFS}ran)")
    program = tmp_path / "rsmqctl"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(MODULE)} "$@"\n')
    program.chmod(0o755)
    script = f"""
        eval "$(rsmqctl completion bash)"
        COMP_WORDS=(rsmqctl --ns {ns} message peek -n '') COMP_CWORD=6
        _rsmqctl_completion rsmqctl '' -n
        eval "true ${{COMPREPLY[*]}}"
        echo "offered: ${{#COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "RSMQ_URL": server_url}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )

    assert not (tmp_path / "ran").exists()
    assert done.stdout == "offered: 0\n", done.stderr


def test_export_follows_no_link_and_only_its_user_can_read_it(jobs: Ctl, tmp_path: Path) -> None:
    """What was planted beside the file, under whatever name, stays as it is."""
    jobs("message", "send", "-n", "jobs", "-m", "secret")
    precious, file = tmp_path / "precious", tmp_path / "jobs.ndjson"
    precious.write_text("precious")
    (tmp_path / "jobs.ndjson.part").symlink_to(precious)
    before = os.umask(0o022)
    try:
        assert jobs("message", "export", "-n", "jobs", "-f", str(file)).out == '{"exported": 1}\n'
    finally:
        os.umask(before)

    assert precious.read_text() == "precious"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" in file.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "jobs.ndjson", "jobs.ndjson.part", "precious",
    ]  # fmt: skip


def test_the_name_of_a_file_that_is_written_differs_each_time(tmp_path: Path) -> None:
    """So that no other user can prepare a trap there."""
    seen = set()
    for _ in range(3):
        with sink(str(tmp_path / "x")) as out:
            (draft,) = (p for p in tmp_path.iterdir() if p.name != "x")
            assert stat.S_IMODE(draft.stat().st_mode) == 0o600
            seen.add(draft.name)
            out.write(b"x")

    assert len(seen) == 3


@pytest.mark.parametrize("body", ["[" * 60_000, '{"a":' * 60_000], ids=["lists", "objects"])
def test_deep_nesting_stops_neither_filter_nor_import(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path, body: str
) -> None:
    """What Python cannot read is no JSON; the others are looked at all the same."""
    jobs("queue", "create", "-n", "jobs-dead", "-m", "-1")
    for text in (body, '{"type": "x"}'):
        now_ms = int(redis.time()[0]) * 1000
        id = f"g73zkl{len(text):06}" + "x" * 20
        redis.zadd(f"{ns}:jobs-dead", {id: now_ms})
        redis.hset(f"{ns}:jobs-dead:Q", id, text)
    counted = jobs("dlq", "redrive", "-n", "jobs", "--filter", "body.type == 'x'", "--dry-run")
    assert counted == Outcome(0, '{"would_redrive": 1}\n', "")

    file = tmp_path / "lines"
    file.write_text('{"body": "one"}\n{"x": ' + body + "\n")
    refused = jobs("message", "import", "-n", "jobs", "-f", str(file))
    assert refused.status == 1
    assert "line 2 is invalid" in refused.err


def test_a_filter_compares_what_is_nested_as_deep_as_python_reads() -> None:
    """Or says no: it never ends the command."""

    class Deep:
        body = b"[" * 900 + b"]" * 900

    assert compile_filter("body == body[0]")(Deep()) in (True, False)  # type: ignore[arg-type]
    assert compile_filter("body[0] in [body, 'x']")(Deep()) in (True, False)  # type: ignore[arg-type]
