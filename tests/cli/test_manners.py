"""``rsmqctl``: formats, passwords, help, completion, the embedded server, the benchmark."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import runpy
import signal
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest
from redis import Redis
from rich.console import Console

import aiorsmq_ng
from aiorsmq_ng import RSMQ, Options, QueueAttributes, QueueStats, Unavailable
from aiorsmq_ng.cli.app import cli
from aiorsmq_ng.cli.global_options import Settings, with_password
from aiorsmq_ng.cli.pipeline import with_settings
from aiorsmq_ng.cli.top.screen import View, age, picture, sparkline
from aiorsmq_ng.embedded import status, stop
from aiorsmq_ng.sampling import Sampler

from .ctl import MODULE, Ctl, Outcome, process, python, shell

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
GENERATORS = ROOT / "tools" / "docs"
EVIL = '=cmd|" /C calc"!A0'


def commands() -> list[tuple[str, ...]]:
    """Return the paths of all commands and groups."""
    context, found = click.Context(cli), [()]
    paths: list[tuple[str, ...]] = []
    while found:
        path = found.pop()
        paths.append(path)
        command: click.Command = cli
        for word in path:
            assert isinstance(command, click.Group)
            command = command.get_command(context, word)  # type: ignore[assignment]
        if isinstance(command, click.Group):
            found += [(*path, word) for word in command.list_commands(context)]
    return sorted(paths)


# help


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_of_every_command_shows_an_example(call: Ctl, path: tuple[str, ...]) -> None:
    """Each command tells by example how it is used, on a screen of 80 columns."""
    short, long = call(*path, "-h"), call(*path, "--help")

    assert short == long
    assert short.status == 0
    lines = short.out.splitlines()
    example = lines[lines.index("  Example:") :]
    assert any(f"rsmqctl {' '.join(path)}".strip() in line for line in example)
    assert max(map(len, lines)) <= 80


def test_every_verb_is_there() -> None:
    """The list that the documentation promises."""
    verbs = {
        "queue": "list create describe delete set purge stats move",
        "message": "send receive pop delete visibility move peek pending tail export import",
        "dlq": "list show redrive purge",
        "server": "start stop status",
        "worker": "run",
    }
    wanted = {f"{noun} {verb}" for noun, some in verbs.items() for verb in some.split()}

    assert {" ".join(path) for path in commands()} >= wanted | {
        "top", "bench", "ping", "demo", "completion",
    }  # fmt: skip


def test_no_line_of_the_help_is_cut_short(call: Ctl) -> None:
    """The lists of commands say what each does, to the end."""
    for path in commands():
        _, _, listed = call(*path, "-h").out.partition("\nCommands:\n")
        assert "..." not in listed.partition("\n\n")[0]


def test_the_page_of_the_documentation_is_that_of_the_help() -> None:
    """What one reads there is what one has; tools/docs/make_rsmqctl.py writes it again."""
    script = runpy.run_path(str(GENERATORS / "make_rsmqctl.py"))

    assert script["page"]() == (REFERENCE / "rsmqctl.md").read_text()


def test_the_picture_of_top_is_that_of_the_program() -> None:
    """Words and numbers; how they are drawn is the drawing library's affair."""
    script = runpy.run_path(str(GENERATORS / "make_pictures.py"))

    def words(svg: str) -> list[str]:
        shown = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
        return [word for text in shown if (word := text.replace("&#160;", " ").strip())]

    shown = words((REFERENCE / "pictures" / "top.svg").read_text())
    assert words(script["draw"]()) == shown
    assert "thumbnails" in "".join(shown)


# formats


def test_queue_list_in_every_format(jobs: Ctl) -> None:
    """JSON by default; the others when I ask."""
    jobs("queue", "create", "-n", "b")

    assert jobs("queue", "list", "-o", "json").out == '["b", "jobs"]\n'
    assert jobs("queue", "list", "-o", "ndjson").out == '"b"\n"jobs"\n'
    assert jobs("queue", "list", "-o", "table").out == "QUEUE\nb\njobs\n"
    assert jobs("-o", "csv", "queue", "list").out == "queue\nb\njobs\n"


def test_a_record_in_every_format(jobs: Ctl) -> None:
    """The same values, as an object, as lines, as columns."""
    jobs("message", "send", "-n", "jobs", "-m", "hi")
    row = json.loads(jobs("message", "receive", "-n", "jobs", "-t", "0", "-o", "ndjson").out)
    id, ts = row["id"], row["ts"]

    table = jobs("message", "receive", "-n", "jobs", "-t", "0", "-o", "table").out
    time = datetime.fromtimestamp(ts / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    assert table == f"id       {id}\nmessage  hi\nrc       2\nts       {time}.{ts % 1000:03}Z\n"
    rows = jobs("message", "receive", "-n", "jobs", "-o", "csv").out
    assert rows == f"id,message,rc,ts\n{id},hi,3,{ts}\n"


def test_times_in_tables_are_readable_and_only_there(jobs: Ctl, redis: Redis, ns: str) -> None:
    """A person reads tables, a program the rest; what has not happened has no time."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    redis.hset(f"{ns}:jobs:Q", mapping={"created": 1645018248, "modified": 10**30})
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"

    rows = jobs("message", "peek", "-n", "jobs", "-o", "table").out.splitlines()
    assert re.fullmatch(rf"\w{{32}}  x +0 +{stamp}\.\d{{3}}Z", rows[1])
    described = jobs("queue", "describe", "-n", "jobs", "-o", "table").out
    assert re.search(r"^created +2022-02-16T13:30:48Z$", described, re.MULTILINE)
    assert re.search(r"^modified +1000000", described, re.MULTILINE)
    for output in ("json", "ndjson", "csv"):
        assert "1645018248" in jobs("queue", "describe", "-n", "jobs", "-o", output).out


def test_rows_in_every_format(jobs: Ctl) -> None:
    """Lists of records come as one list, as lines, as columns."""
    for body in ("a", "日本"):
        jobs("message", "send", "-n", "jobs", "-m", body)
    peek = ("message", "peek", "-n", "jobs", "-o")
    rows = json.loads(jobs(*peek, "json").out)

    assert [json.loads(line) for line in jobs(*peek, "ndjson").out.splitlines()] == rows
    parsed = list(csv.DictReader(io.StringIO(jobs(*peek, "csv").out)))
    assert [row["message"] for row in parsed] == ["a", "日本"]
    header, first, second = jobs(*peek, "table").out.splitlines()
    assert header.split() == ["ID", "MESSAGE", "RC", "TS", "SENT"]
    # Two letters that are two columns wide each.
    assert first.index(" 0 ") == second.index(" 0 ") + 2


def test_csv_disarms_what_a_spreadsheet_would_run(jobs: Ctl) -> None:
    """A message cannot become a formula; numbers stay numbers."""
    for body in (EVIL, "+1", "-1", "@x", "\t=1", "fine"):
        jobs("message", "send", "-n", "jobs", "-m", body)
    rows = list(csv.DictReader(io.StringIO(jobs("message", "peek", "-n", "jobs", "-o", "csv").out)))

    assert [row["message"] for row in rows] == [
        f"'{EVIL}", "'+1", "'-1", "'@x", "'\t=1", "fine",
    ]  # fmt: skip
    jobs("queue", "set", "-n", "jobs", "-m", "-1")
    assert (
        jobs("queue", "describe", "-n", "jobs", "-o", "csv")
        .out.splitlines()[1]
        .startswith("30,0,-1,")
    )


def test_table_cuts_long_values_and_escapes_control_characters(jobs: Ctl) -> None:
    """A table is for looking; the whole value is in JSON."""
    jobs("message", "send", "-n", "jobs", "-m", "\x1b[2J" + "x" * 100)
    shown = jobs("message", "peek", "-n", "jobs", "-o", "table").out.splitlines()[1]

    assert r"\u001b[2Jxxx" in shown
    assert "x" * 60 not in shown


def test_an_unknown_format_exits_with_2(jobs: Ctl) -> None:
    """With the ones there are."""
    refused = jobs("queue", "list", "-o", "xml")

    assert refused.status == 2
    assert "'json', 'ndjson', 'table', 'csv'" in refused.sentence


# passwords


@pytest.fixture
def login(redis: Redis, server_url: str, ns: str) -> str:
    """A URL with a user, whose password is not in it."""
    user = ["on", ">p/s#w:@ %", "allkeys", "allchannels", "+@all"]
    redis.execute_command("ACL", "SETUSER", ns, *user)
    scheme, _, rest = server_url.partition("://")
    yield f"{scheme}://{ns}@{rest}"
    redis.execute_command("ACL", "DELUSER", ns)


def test_password_from_the_environment(
    call: Ctl, login: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no other user of the machine can see it."""
    assert call("-r", login, "--ns", ns, "queue", "list").status == 4
    monkeypatch.setenv("RSMQ_PASSWORD", "p/s#w:@ %")
    assert call("-r", login, "--ns", ns, "queue", "list") == Outcome(0, "[]\n", "")


def test_password_from_a_file(
    call: Ctl, login: str, ns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first line; and what I name beats what is in the environment."""
    file = tmp_path / "password"
    file.write_text("p/s#w:@ %\nnot this\n")
    monkeypatch.setenv("RSMQ_PASSWORD", "wrong")
    line = ("-r", login, "--ns", ns, "--password-file")

    assert call(*line, str(file), "queue", "list") == Outcome(0, "[]\n", "")
    refused = call(*line, str(tmp_path / "absent"), "queue", "list")
    assert refused.status == 2
    assert "cannot be read: No such file" in refused.sentence
    file.write_text("\n")
    assert call(*line, str(file), "queue", "list").status == 2


def test_password_prompt_without_a_terminal_exits_with_2(call: Ctl, login: str) -> None:
    """There is no terminal for a question."""
    refused = call("-r", login, "--password-prompt", "queue", "list")

    assert refused.status == 2
    assert "needs a terminal" in refused.sentence


def test_password_in_the_url_beats_the_environment(
    call: Ctl, login: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment only fills a gap."""
    monkeypatch.setenv("RSMQ_PASSWORD", "wrong")
    full = with_password(login, "p/s#w:@ %")

    assert call("-r", full, "--ns", ns, "queue", "list").status == 0


@pytest.mark.parametrize(
    ("url", "full"),
    [
        ("redis://host", "redis://:p%2Fw@host"),
        ("redis://host:1/2?x=1", "redis://:p%2Fw@host:1/2?x=1"),
        ("rediss://me@host", "rediss://me:p%2Fw@host"),
        ("rediss://me:old@host/1", "rediss://me:p%2Fw@host/1"),
        ("unix:///run/redis.sock?db=1", "unix://:p%2Fw@/run/redis.sock?db=1"),
        ("redis+sentinel://a:1,b:2/main", "redis+sentinel://:p%2Fw@a:1,b:2/main"),
        ("embedded:///data", "embedded:///data"),
        ("memory://x", "memory://x"),
    ],
)
def test_password_is_put_where_the_url_has_room_for_it(url: str, full: str) -> None:
    """Whatever the scheme."""
    assert with_password(url, "p/w") == full


@pytest.mark.parametrize(
    ("url", "full"),
    [(None, "redis://:s%2F@localhost:6379"), ("redis://me@h", "redis://me:s%2F@h")],
)
def test_password_reaches_pipelines_too(url: str | None, full: str, tmp_path: Path) -> None:
    """What opens the server to one command opens it to all."""
    (tmp_path / "secret").write_text("s/\n")
    settings = Settings(redis_url=url, password_file=str(tmp_path / "secret"), plain_password=True)

    assert with_settings({}, settings) == {"url": full, "plainPassword": "true"}


def test_options_of_a_pipeline_go_before_the_global_ones() -> None:
    """What stands closer to the queue counts."""
    settings = Settings(redis_url="redis://h", namespace="shop")

    assert with_settings({"urlEnv": "OTHER", "namespace": "x"}, settings) == {
        "urlEnv": "OTHER", "namespace": "x",
    }  # fmt: skip


# completion


@pytest.mark.parametrize("kind", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(call: Ctl, kind: str) -> None:
    """To be evaluated by the shell."""
    script = call("completion", kind)

    assert (script.status, script.err) == (0, "")
    assert f"_RSMQCTL_COMPLETE={kind}_complete" in script.out


def test_completion_of_an_unknown_shell_exits_with_2(call: Ctl) -> None:
    """With those there are."""
    refused = call("completion", "cmd")

    assert (refused.status, refused.out) == (2, "")
    assert "is not one of 'bash', 'zsh', 'fish'" in refused.sentence


def test_completion_without_a_shell_names_those_there_are(call: Ctl) -> None:
    """In one sentence, like every error."""
    refused = call("completion")

    assert refused.status == 2
    assert "one of bash, zsh, fish; see: rsmqctl completion --help" in refused.sentence


def test_tab_completes_commands_and_queues(
    jobs: Ctl, server_url: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names of queues come from the server."""
    complete = "import sys; sys.argv[0] = 'rsmqctl'; from aiorsmq_ng.cli import main; main()"
    monkeypatch.setenv("_RSMQCTL_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "rsmqctl dl")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert python(complete).out == "plain,dlq\n"

    monkeypatch.setenv("RSMQ_URL", server_url)
    monkeypatch.setenv("COMP_WORDS", f"rsmqctl --ns {ns} queue describe -n jo")
    monkeypatch.setenv("COMP_CWORD", "6")
    assert python(complete) == Outcome(0, "plain,jobs\n", "")

    monkeypatch.setenv("RSMQ_URL", "unix:///nonexistent")
    assert python(complete) == Outcome(0, "\n", "")


# server


def test_server_runs_from_start_to_stop(call: Ctl, tmp_path: Path) -> None:
    """It outlives the command that started it, and keeps its data over a restart."""
    folder = tmp_path / "data"
    try:
        before = json.loads(call("server", "status").out)
        started = json.loads(call("server", "start").out)
        assert shell("-r", "embedded://", "queue", "create", "-n", "jobs").status == 0
        running = json.loads(call("server", "status").out)
        listed = shell("-r", started["url"], "queue", "list")
        stopped = json.loads(call("server", "stop").out)
    finally:
        stop(folder)

    assert (before["running"], before["engine"]) == (False, None)
    assert started["running"]
    assert (running["pid"], running["kept"], running["in_use"]) == (started["pid"], True, False)
    assert running["folder"] == str(folder)
    assert listed.out == '["jobs"]\n'
    assert (stopped["running"], stopped["kept"], stopped["pid"]) == (False, False, None)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert shell("-r", "embedded://", "queue", "list").out == '["jobs"]\n'
    assert not status(folder).running


async def test_server_stop_in_use_leaves_it_to_the_users(call: Ctl, tmp_path: Path) -> None:
    """My stop does not take the server from a program that works."""
    folder = tmp_path / "other"
    async with RSMQ(f"embedded://{folder}") as rsmq:
        done = shell("server", "stop", "--folder", str(folder))

        assert (done.status, json.loads(done.out)["running"]) == (0, True)
        assert "it stops with the last program that uses it" in done.sentence
        assert await rsmq.list_queues() == []
    assert not status(folder).running


def test_server_that_cannot_start_exits_with_4(
    call: Ctl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the library's sentence."""
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", "/nonexistent/valkey-server")
    failed = call("server", "start")

    assert (failed.status, failed.out) == (4, "")
    assert "install aiorsmq-ng[embedded]" in failed.sentence


def test_server_status_of_a_folder_that_is_not_there_creates_nothing(
    call: Ctl, tmp_path: Path
) -> None:
    """Looking changes nothing."""
    shown = call("server", "status", "--folder", str(tmp_path / "new"), "-o", "table")

    assert shown.out.splitlines()[0].split() == ["running", "false"]
    assert not (tmp_path / "new").exists()


def test_server_status_exits_with_3_if_nothing_runs(call: Ctl, tmp_path: Path) -> None:
    """As scripts know it from other managers of services."""
    assert call("server", "status").status == 3
    try:
        assert call("server", "start").status == 0
        assert call("server", "status").status == 0
        assert call("server", "stop").status == 0
        assert call("server", "status").status == 3
    finally:
        stop(tmp_path / "data")


@pytest.mark.parametrize("verb", ["start", "stop", "status"])
def test_server_refuses_a_url_of_another_kind(call: Ctl, verb: str, tmp_path: Path) -> None:
    """It would look elsewhere than I said; a variable may be meant for the other commands."""
    for line in (("-r", "redis://:secret@h", "server", verb), ("server", verb, "-r", "redis://h")):
        refused = call(*line)
        assert (refused.status, refused.out) == (2, "")
        assert "redis://h is not an embedded server; leave -r out" in refused.sentence
    assert not (tmp_path / "data").exists()


def test_server_looks_past_a_variable_that_is_for_other_commands(
    call: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RSMQ_URL is set for a whole session."""
    monkeypatch.setenv("RSMQ_URL", "redis://db.example")

    assert call("server", "status").status == 3


def test_the_package_can_be_run(server_url: str) -> None:
    """Where the script is not on the path."""
    done = process(sys.executable, "-m", "aiorsmq_ng", "-r", server_url, "ping")

    assert (done.status, done.err) == (0, "")
    assert process(sys.executable, "-m", "aiorsmq_ng", "--help").out.startswith("Usage: rsmqctl ")


def test_server_status_follows_the_url_of_an_embedded_server(call: Ctl, tmp_path: Path) -> None:
    """The same -r names the same server everywhere."""
    shown = call("-r", f"embedded://{tmp_path / 'new'}", "server", "status")

    assert json.loads(shown.out)["folder"] == str(tmp_path / "new")


# patience


@pytest.mark.parametrize(
    ("line", "patient"),
    [
        ("queue list", False),
        ("message receive -n q", False),
        ("message import -n q -f /dev/null", True),
        ("message export -n q", True),
        ("message send -n q -f /dev/null", True),
        ("queue move -n q --to r", True),
        ("dlq redrive -n q --yes", True),
        ("topic publish -n t -f /dev/null", True),
    ],
)
def test_long_work_outlasts_a_stall_of_the_server(
    call: Ctl, monkeypatch: pytest.MonkeyPatch, line: str, patient: bool
) -> None:
    """A failover does not end an import of an hour; a look at the queues answers soon."""
    given: list[float] = []

    def made(*_: object, options: Options, **__: object) -> None:
        given.append(options.deadline)
        raise Unavailable("it is away")

    monkeypatch.setattr(aiorsmq_ng, "RSMQ", made)
    call(*line.split())

    assert [seconds > 30 for seconds in given] == [patient]


# bench


def test_bench_measures_six_ways_and_leaves_nothing(ctl: Ctl, redis: Redis, ns: str) -> None:
    """Numbers of my own server."""
    done = ctl("bench", "--messages", "200", "--senders", "7", "--size", "11")
    rows = json.loads(done.out)

    assert (done.status, done.err) == (0, "")
    assert [(row["test"], row["messages"]) for row in rows] == [
        ("send", 20), ("send+receive+ack", 20), ("send x 7", 200), ("send_many 100", 200),
        ("receive+ack x 7", 200), ("receive+ack ahead 100", 220),
    ]  # fmt: skip
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows[:5])
    assert all(row["per_second"] > 0 for row in rows)
    assert redis.keys(f"{ns}*") == []


def test_bench_interrupted_cleans_up(redis: Redis, server_url: str, ns: str) -> None:
    """Also after Ctrl-C its queue is gone."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "bench", "--messages", "10000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
        for _ in range(600):
            if redis.smembers(f"{ns}:QUEUES"):
                break
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=60)

    assert (bench.returncode, out, err.strip()) == (130, b"", b"rsmqctl: interrupted")
    assert redis.keys(f"{ns}*") == []


def test_bench_interrupted_before_it_knows_its_queue_cleans_up(
    ctl: Ctl, redis: Redis, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has created the queue, and the reply has not come yet."""
    create = aiorsmq_ng.RSMQ.create_queue

    async def create_and_press_ctrl_c(rsmq: aiorsmq_ng.RSMQ, name: str) -> aiorsmq_ng.Queue:
        queue = await create(rsmq, name)
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.1)
        return queue

    monkeypatch.setattr(aiorsmq_ng.RSMQ, "create_queue", create_and_press_ctrl_c)
    done = ctl("bench")

    assert (done.status, done.out, done.err.strip()) == (130, "", "rsmqctl: interrupted")
    assert redis.keys(f"{ns}*") == []


@pytest.mark.parametrize("args", [("--messages", "0"), ("--senders", "x"), ("--size", "99999")])
def test_bench_with_a_bad_value_exits_with_2(ctl: Ctl, args: tuple[str, ...]) -> None:
    """Nothing is measured."""
    assert ctl("bench", *args).status == 2


# top


def test_top_once_prints_numbers_and_rates(jobs: Ctl) -> None:
    """For scripts: one look, and the rates of one interval."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    done = jobs("top", "--once", "-i", "0.05")
    (row,) = json.loads(done.out)

    assert (done.status, done.err) == (0, "")
    assert list(row) == [
        "queue", "ready", "leased", "delayed", "oldest_age", "in_s", "out_s", "retries_s", "dead",
        "consumers",
    ]  # fmt: skip
    assert (row["ready"], row["in_s"], row["out_s"], row["retries_s"]) == (1, 0, 0, 0)


def test_top_once_in_every_format(jobs: Ctl) -> None:
    """As everywhere."""
    once = ("top", "--once", "-i", "0.01", "-o")

    assert json.loads(jobs(*once, "ndjson").out)["queue"] == "jobs"
    assert jobs(*once, "csv").out.splitlines()[0].startswith("queue,ready,leased")
    assert jobs(*once, "table").out.splitlines()[1].split()[0] == "jobs"


def test_top_without_queues_is_empty(ctl: Ctl) -> None:
    """Nothing is no error."""
    assert ctl("top", "--once", "-i", "0.01") == Outcome(0, "[]\n", "")


def test_top_in_a_pipe_goes_on_line_by_line(jobs: Ctl, server_url: str, ns: str) -> None:
    """A log of all queues; Ctrl-C ends it."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "top", "-i", "0.05", "-o", "ndjson"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as top:
        assert top.stdout is not None
        rows = [json.loads(top.stdout.readline()) for _ in range(3)]
        top.send_signal(signal.SIGINT)
        top.communicate(timeout=30)

    assert [row["queue"] for row in rows] == ["jobs"] * 3
    assert rows[0]["at"] < rows[2]["at"]
    assert top.returncode == 130


@pytest.mark.parametrize("args", [("-i", "0"), ("-i", "x"), ("--sort", "age"), ("-i", "inf")])
def test_top_with_a_bad_value_exits_with_2(ctl: Ctl, args: tuple[str, ...]) -> None:
    """An interval is more than nothing, a column one of those there are."""
    assert ctl("top", "--once", *args).status == 2


def snapshot(**numbers: float | None) -> QueueStats:
    """Return the stats of a queue with these numbers, and none else."""
    names = (
        "vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified", "msgs",
        "hiddenmsgs", "ready", "delayed", "leased",
    )  # fmt: skip
    values = {name: numbers.get(name, 0) for name in names}
    return QueueStats(
        QueueAttributes(**values, exact=True, oldest_age=numbers.get("oldest_age")),
        dead=int(numbers.get("dead") or 0),
        consumers=(),
    )


def test_rates_tell_what_came_what_left_and_what_came_back() -> None:
    """10 sent, 6 gone, 4 more there; of 9 deliveries 6 ended well, 1 is held, 2 came back."""
    sampler = Sampler()
    sampler.take({"jobs": snapshot(totalsent=100, totalrecv=50, msgs=5)}, 10.0)
    assert sampler.rows()[0]["in_s"] is None
    sampler.take({"jobs": snapshot(totalsent=110, totalrecv=59, msgs=9, leased=1)}, 12.0)

    (row,) = sampler.rows()
    assert (row["in_s"], row["out_s"], row["retries_s"]) == (5.0, 3.0, 1.0)
    assert list(sampler.traces["jobs"].depths) == [5, 9]


def test_a_purge_is_no_negative_rate_and_a_deleted_queue_is_forgotten() -> None:
    """What counts backwards counts as nothing."""
    sampler = Sampler()
    sampler.take({"jobs": snapshot(totalsent=9, msgs=9), "old": snapshot()}, 1.0)
    sampler.take({"jobs": snapshot(totalsent=0, msgs=0)}, 2.0)

    (row,) = sampler.rows()
    assert (row["in_s"], row["retries_s"]) == (0, 0)


def test_keys_sort_and_the_same_key_turns_round() -> None:
    """Most first; again, least first; names from a to z."""
    rows = [
        {"queue": name, "ready": ready, "oldest_age": old}
        for name, ready, old in (("b", 5, None), ("a", 9, 1.0), ("c", 5, 7.0))
    ]
    view = View("here")

    def order() -> str:
        return "".join(row["queue"] for row in view.ordered(rows))

    assert order() == "abc"
    assert view.press("r")
    assert order() == "abc"
    assert view.press("r")
    assert order() == "bca"
    assert view.press("o")
    assert order() == "cab"
    assert view.press("n")
    assert order() == "abc"
    assert view.press("n")
    assert order() == "cba"
    assert view.press("?")
    assert not view.press("q")


@pytest.mark.parametrize(
    ("width", "missing"),
    [
        (104, set()),
        (80, set()),
        (60, {"DELAYED", "IN/s", "RETRY/s"}),
        (24, {"LEASED", "DELAYED", "OLDEST", "IN/s", "OUT/s", "RETRY/s"}),
    ],
)
def test_a_narrow_screen_shows_names_and_leaves_out_numbers(width: int, missing: set[str]) -> None:
    """I can tell which queue a line is about; what I sort by stays."""
    sampler = Sampler()
    sampler.take({"thumbnails": snapshot(), "webhooks": snapshot()}, 1.0)
    console = Console(width=width, file=io.StringIO())
    console.print(picture(View("", "dead", backwards=True), sampler.traces, "02:14:07", (width, 9)))
    shown = console.file.getvalue()  # type: ignore[attr-defined]

    titles = {"READY", "LEASED", "DELAYED", "OLDEST", "IN/s", "OUT/s", "RETRY/s", "DEAD"}
    assert {title for title in titles if title not in shown} == missing
    assert "\nthumbnails " in shown
    assert "\nwebhooks " in shown


def test_sparkline_is_scaled_to_its_highest() -> None:
    """Nothing is flat, something is seen."""
    assert sparkline([]) == ""
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([0, 1, 500, 1000]) == "▁▂▅█"
    assert sparkline([1, 2], "_#") == "##"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(None, ""), (0, "0:00"), (72.9, "1:12"), (4000, "1:06:40"), (270_000, "3d 3h")],
)
def test_age_is_read_at_a_glance(seconds: float | None, shown: str) -> None:
    """Minutes, hours, days."""
    assert age(seconds) == shown


def test_verbose_in_a_pipe_goes_to_stderr(jobs: Ctl, server_url: str, ns: str) -> None:
    """The log does not mix with the result."""
    done = shell("-v", "-r", server_url, "--ns", ns, "queue", "list", **os.environ)

    assert done.out == '["jobs"]\n'
