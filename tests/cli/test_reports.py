"""``rsmqctl`` reports what it did, also when it was interrupted, and invents nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from redis import Redis

from aiorsmq_ng.cli.app import cli

from .ctl import ABSENT, MODULE, Ctl, Outcome, process
from .test_manners import commands

#: What each command that takes a name needs besides ``-n none``.
MORE: dict[str, tuple[str, ...]] = {
    "queue describe": (),
    "queue delete": (),
    "queue set": ("-t", "1"),
    "queue purge": ("-y",),
    "queue stats": (),
    "queue move": ("--to", "other"),
    "message send": ("-m", "x"),
    "message receive": (),
    "message pop": (),
    "message delete": ("-i", ABSENT),
    "message visibility": ("-i", ABSENT, "-t", "1"),
    "message move": ("-i", ABSENT, "--to", "other"),
    "message peek": (),
    "message pending": (),
    "message tail": (),
    "message export": (),
    "message import": ("-f", "/dev/null"),
    "dlq show": (),
    "dlq redrive": ("-y",),
    "dlq purge": ("-y",),
    "topic describe": (),
    "topic unsubscribe": ("-c", "a"),
    "topic observe": ("-c", "a"),
    "topic delete": ("-y",),
}
#: These create what they name.
MAKERS = {"queue create", "topic publish", "topic subscribe", "topic limit"}


def takes_a_name(path: tuple[str, ...]) -> bool:
    command: click.Command = cli
    for word in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(cli), word)  # type: ignore[assignment]
    return any("--name" in option.opts for option in command.params)


def test_the_table_holds_every_command_with_a_name() -> None:
    """So that a new one is tried, too. Those of rmq are in tests/rmq; metrics have patterns."""
    named = {" ".join(path) for path in commands() if takes_a_name(path)} - {"serve metrics"}

    assert {name for name in named if not name.startswith(("pipeline", "rmq "))} == {*MORE, *MAKERS}


@pytest.mark.parametrize("command", MORE)
def test_every_command_on_what_is_not_there_exits_with_1_and_makes_nothing(
    ctl: Ctl, redis: Redis, ns: str, command: str
) -> None:
    """Whether queue or topic: one sentence, and no key more."""
    failed = ctl(*command.split(), "-n", "none", *MORE[command])

    assert (failed.status, failed.out) == (1, "")
    assert "'none'" in failed.sentence
    assert list(redis.scan_iter(f"{ns}:*")) == []


@pytest.mark.parametrize("command", ["queue delete", "queue purge", "dlq purge"])
def test_removing_what_is_not_there_does_not_advise_to_create_it(
    ctl: Ctl, ns: str, command: str
) -> None:
    """It tells where to see what is there."""
    failed = ctl(*command.split(), "-n", "none", *MORE[command])

    assert failed.sentence == (
        f"rsmqctl: queue 'none' does not exist in namespace '{ns}'; "
        f"list the existing ones with: rsmqctl --ns {ns} queue list"
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (("unsubscribe", "-c", "other"), "'other' has not subscribed to topic 'news'; list"),
        (("unsubscribe", "-c", "each", "-p", "no"), "peer 'no' of 'each' has not subscribed"),
        (("observe", "-c", "other"), "topic subscribe -n news -c other"),
        (("observe", "-c", "each"), "give --mode broadcast and -p with one of: left, right"),
        (("observe", "-c", "all", "--mode", "broadcast", "-p", "x"), "leave --mode out"),
        (
            ("observe", "-c", "each", "--mode", "broadcast", "-p", "x"),
            "its peers are: left, right; do so with: ",
        ),
        (
            ("observe", "-c", "each", "--mode", "broadcast", "-p", "x"),
            "-c each --mode broadcast -p x",
        ),
        (("observe", "-c", "a b"), "-n news -c 'a b'"),
    ],
)
def test_topics_say_what_is_there_instead(ctl: Ctl, line: tuple[str, ...], sentence: str) -> None:
    """A hint that can be followed."""
    ctl("topic", "subscribe", "-n", "news", "-c", "all")
    for peer in ("left", "right"):
        ctl("topic", "subscribe", "-n", "news", "-c", "each", "--mode", "broadcast", "-p", peer)
    failed = ctl("topic", line[0], "-n", "news", *line[1:])

    assert (failed.status, failed.out) == (1, "")
    assert sentence in failed.sentence


def test_the_hint_of_observe_can_be_followed(ctl: Ctl, ns: str) -> None:
    """Word for word."""
    said = ctl(
        "topic", "observe", "-n", "news", "-c", "a", "--mode", "broadcast", "-p", "x"
    ).sentence
    words = said.split(f"rsmqctl --ns {ns} ")[1].split()

    assert ctl(*words).status == 0
    assert (
        ctl("topic", "observe", "-n", "news", "-c", "a", "--mode", "broadcast", "-p", "x").status
        == 0
    )


def limits(ctl: Ctl) -> tuple[int | None, float | None]:
    found = json.loads(ctl("topic", "describe", "-n", "news").out)
    return found["max_length"], found["max_age"]


def test_limit_keeps_what_is_not_given_and_lifts_what_is_none(ctl: Ctl) -> None:
    """As queue set does."""
    line = ("topic", "limit", "-n", "news")
    for more, wanted in (
        (("--max-length", "5"), (5, None)),
        (("--max-age", "60"), (5, 60.0)),
        (("--max-length", "0"), (0, 60.0)),
        (("--max-length", "none"), (None, 60.0)),
        (("--max-age", "none", "--max-length", "7"), (7, None)),
    ):
        assert ctl(*line, *more) == Outcome(0, "", "")
        assert limits(ctl) == wanted
    assert ctl(*line).status == 2
    assert limits(ctl) == (7, None)
    for bad in (("--max-length", "-1"), ("--max-length", "x"), ("--max-age", "x")):
        assert ctl(*line, *bad).status == 2


def test_a_topic_that_holds_nothing_any_more_is_still_there(ctl: Ctl) -> None:
    """It was published to; that it is empty is no reason to deny it."""
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    ctl("topic", "unsubscribe", "-n", "news", "-c", "a")
    assert ctl("topic", "describe", "-n", "news").status == int(
        "news" not in json.loads(ctl("topic", "list").out)
    )


def test_describe_as_a_table_has_a_line_for_each_subscription(ctl: Ctl) -> None:
    """Not a cell of JSON."""
    ctl("topic", "subscribe", "-n", "news", "-c", "a", "-p", "one")
    ctl("topic", "subscribe", "-n", "news", "-c", "b")
    ctl("topic", "publish", "-n", "news", "-m", "x")
    shown = ctl("topic", "describe", "-n", "news", "-o", "table").out

    top, _, table = shown.partition("\n\n")
    assert "topic       news" in top.splitlines()
    head, first, second = (line.split() for line in table.splitlines())
    assert head == ["CONSUMER", "MODE", "STATE", "QUEUE", "PEERS", "MSGS", "READY", "LEASED"]
    assert first == ["a", "shared", "on", "news__a", "one", "1", "1", "0"]
    assert second == ["b", "shared", "on", "news__b", "1", "1", "0"]


def test_dedup_key_shows_a_duplicate(jobs: Ctl) -> None:
    """The id of the first on stdout, and on stderr that nothing was stored."""
    for noun, name in (("message", "jobs"), ("topic", "news")):
        verb = "send" if noun == "message" else "publish"
        line = (noun, verb, "-n", name, "--dedup-key", "order-7", "-m")
        first, second = jobs(*line, "a"), jobs(*line, "b")

        assert (first.status, first.err) == (0, "")
        assert (second.status, second.out) == (0, first.out)
        assert second.sentence == (
            f"rsmqctl: nothing was stored: duplicate of {first.out.strip()}, "
            "which was sent with this key"
        )
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["msgs"] == 1


def test_dedup_key_is_for_a_single_message(jobs: Ctl) -> None:
    """One key for many lines would store one of them."""
    refused = jobs("message", "send", "-n", "jobs", "-f", "x", "--dedup-key", "k")

    assert refused.status == 2
    assert "single message" in refused.sentence


def test_delete_takes_several_ids_and_names_those_that_are_not_there(jobs: Ctl) -> None:
    """The others are deleted all the same."""
    ids = [jobs("message", "send", "-n", "jobs", "-m", body).out.strip() for body in "abc"]
    assert jobs("message", "delete", "-n", "jobs", "-i", ids[0], "-i", ids[1]) == Outcome(0, "", "")
    failed = jobs("message", "delete", "-n", "jobs", "-i", ABSENT, "-i", ids[2], "-i", ids[0])

    assert (failed.status, failed.out) == (1, "")
    assert f"messages {ABSENT}, {ids[0]} are not in queue 'jobs'" in failed.sentence
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["msgs"] == 0


REJECT = """
import anyio, sys
from aiorsmq_ng import RSMQ
async def main():
    async with RSMQ(sys.argv[1], ns=sys.argv[2]) as rsmq:
        queue = rsmq.queue("jobs")
        for reason in ("TimeoutError: smtp", "KeyError: 7", "TimeoutError: db", None):
            await queue.send(reason or "none")
            async for message in queue.consume():
                await message.reject(reason) if reason else await message.reject()
                break
anyio.run(main)
"""


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("'Timeout' in reason", 2),
        ("reason == 'KeyError: 7'", 1),
        ("reason == null", 1),
        ("'Timeout' in reason and text == 'TimeoutError: db'", 1),
        ("reason != null and rc >= 1", 3),
    ],
)
def test_redrive_filters_by_reason(
    jobs: Ctl, server_url: str, ns: str, condition: str, count: int
) -> None:
    """Which is not part of the message."""
    assert process(sys.executable, "-c", REJECT, server_url, ns) == Outcome(0, "", "")
    line = ("dlq", "redrive", "-n", "jobs", "--filter", condition)

    assert jobs(*line, "--dry-run").out == f'{{"would_redrive": {count}}}\n'
    assert jobs(*line).out == f'{{"redriven": {count}}}\n'
    assert len(json.loads(jobs("dlq", "show", "-n", "jobs").out)) == 4 - count


# interrupted


def interrupted(server_url: str, ns: str, *args: str, ready: int = 1) -> tuple[int, str]:
    """Run a command, press Ctrl-C once *ready* says that it has begun; status and stderr."""
    command = [*MODULE, "-r", server_url, "--ns", ns, *args]
    with (
        Redis.from_url(server_url) as redis,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running,
    ):
        target = args[args.index("--to") + 1] if "--to" in args else "jobs"
        while redis.zcard(f"{ns}:{target}") < ready:
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)
    return running.returncode, err.decode()


@pytest.mark.parametrize(
    "args",
    [
        ("queue", "move", "-n", "jobs-dead", "--to", "jobs"),
        ("dlq", "redrive", "-n", "jobs", "--yes"),
        ("dlq", "redrive", "-n", "jobs", "--filter", "rc == 0"),
    ],
    ids=" ".join,
)
def test_interrupted_move_tells_how_many_were_moved(
    jobs: Ctl, redis: Redis, server_url: str, ns: str, args: tuple[str, ...], tmp_path: Path
) -> None:
    """As many as there are at their new place."""
    jobs("queue", "create", "-n", "jobs-dead")
    (tmp_path / "in").write_text("x\n" * 50)
    jobs("message", "send", "-n", "jobs-dead", "-f", str(tmp_path / "in"))
    status, told = interrupted(server_url, ns, *args, "--rate", "5/s")

    moved = redis.zcard(f"{ns}:jobs")
    assert status == 130
    assert 0 < moved < 50
    assert moved + redis.zcard(f"{ns}:jobs-dead") == 50
    noun = "message" if moved == 1 else "messages"
    assert told.split("\n")[0] == (
        f"rsmqctl: {moved} {noun} moved to queue 'jobs'; the others are unchanged"
    )


def filled(ctl: Ctl, folder: Path, queue: str, count: int) -> None:
    (folder / "in").write_text("x\n" * count)
    assert ctl("message", "send", "-n", queue, "-f", str(folder / "in")).status == 0


SLOW = """
import asyncio, sys
from aiorsmq_ng.cli import main
from aiorsmq_ng._transport.transport import Transport
run, calls = Transport.run, 0
async def slow(self, operation):
    global calls
    done = await run(self, operation)
    if operation.kind.name in ("purge", "scan"):
        calls += 1
        if calls == 2:
            print("two", flush=True)
        await asyncio.sleep(0.5)
    return done
Transport.run = slow
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("queue", "purge", "-n", "jobs", "--yes"), "{gone} messages removed from queue 'jobs'"),
        (
            ("message", "export", "-n", "jobs", "-f", "out"),
            "nothing was exported; out is unchanged",
        ),
    ],
    ids=["purge", "export"],
)
def test_interrupted_purge_and_export_tell_what_is_left(
    jobs: Ctl,
    redis: Redis,
    server_url: str,
    ns: str,
    tmp_path: Path,
    args: tuple[str, ...],
    told: str,
) -> None:
    """By a server that is slow enough to be interrupted."""
    filled(jobs, tmp_path, "jobs", 5000)
    before = sorted(tmp_path.iterdir())
    command = [sys.executable, "-c", SLOW, "-r", server_url, "--ns", ns, *args]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"two\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)

    gone = 5000 - redis.zcard(f"{ns}:jobs")
    assert running.returncode == 130
    assert f"rsmqctl: {told.format(gone=gone)}" in err.decode()
    assert gone < 5000
    assert sorted(tmp_path.iterdir()) == before


# taken and printed


def test_receive_takes_several_and_prints_a_list(jobs: Ctl) -> None:
    """Also of one, and of none: a program knows what to expect."""
    for body in "abc":
        jobs("message", "send", "-n", "jobs", "-m", body)
    line = ("message", "receive", "-n", "jobs", "-c")

    assert [row["message"] for row in json.loads(jobs(*line, "2").out)] == ["a", "b"]
    rows = jobs(*line, "5", "-o", "ndjson").out.splitlines()
    assert [json.loads(row)["rc"] for row in rows] == [1]
    empty = jobs(*line, "5", "--fail-empty")
    assert (empty.status, empty.out) == (3, "[]\n")
    assert jobs("message", "receive", "-n", "jobs", "--fail-empty").out == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
@pytest.mark.parametrize(
    ("args", "queue"),
    [
        (("message", "receive", "-n", "jobs"), "jobs"),
        (("message", "receive", "-n", "jobs", "-c", "3"), "jobs"),
        (("topic", "observe", "-n", "news", "-c", "a", "--ack"), "news__a"),
    ],
    ids=["one", "several", "a subscription"],
)
def test_what_was_taken_and_cannot_be_printed_is_given_back(
    jobs: Ctl, server_url: str, ns: str, args: tuple[str, ...], queue: str
) -> None:
    """On a full disk nothing is lost, or hidden for longer than it takes."""
    jobs("topic", "subscribe", "-n", "news", "-c", "a")
    for body in "123":
        jobs("message", "send", "-n", "jobs", "-m", body)
        jobs("topic", "publish", "-n", "news", "-m", body)
    with Path("/dev/full").open("w") as full:
        command = [*MODULE, "-r", server_url, "--ns", ns, *args]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == 1
    found = json.loads(jobs("queue", "describe", "-n", queue).out)
    assert (found["ready"], found["leased"]) == (3, 0)
