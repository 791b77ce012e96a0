"""``rsmqctl queue set|purge|stats|move`` and ``message peek|pending|move|tail``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest
from redis import Redis

from .ctl import ABSENT, MODULE, NOWHERE, Ctl, Outcome

#: A line of every command that talks to a server, on a queue called jobs.
COMMANDS = {
    "queue list": (),
    "queue create": ("-n", "jobs"),
    "queue describe": ("-n", "jobs"),
    "queue delete": ("-n", "jobs"),
    "queue set": ("-n", "jobs", "-t", "5"),
    "queue purge": ("-n", "jobs", "--yes"),
    "queue stats": ("-n", "jobs"),
    "queue move": ("-n", "jobs", "--to", "other"),
    "message send": ("-n", "jobs", "-m", "x"),
    "message receive": ("-n", "jobs"),
    "message pop": ("-n", "jobs"),
    "message delete": ("-n", "jobs", "-i", ABSENT),
    "message visibility": ("-n", "jobs", "-i", ABSENT, "-t", "1"),
    "message move": ("-n", "jobs", "-i", ABSENT, "--to", "other"),
    "message peek": ("-n", "jobs"),
    "message pending": ("-n", "jobs"),
    "message tail": ("-n", "jobs"),
    "message export": ("-n", "jobs"),
    "message import": ("-n", "jobs", "-f", "/dev/null"),
    "dlq list": (),
    "dlq show": ("-n", "jobs"),
    "dlq redrive": ("-n", "jobs", "--yes"),
    "dlq purge": ("-n", "jobs", "--yes"),
    "topic list": (),
    "topic publish": ("-n", "news", "-m", "x"),
    "topic subscribe": ("-n", "news", "-c", "a"),
    "topic unsubscribe": ("-n", "news", "-c", "a"),
    "topic observe": ("-n", "news", "-c", "a"),
    "topic describe": ("-n", "news"),
    "topic limit": ("-n", "news", "--max-length", "5"),
    "topic delete": ("-n", "news", "--yes"),
    "doctor": (),
    "top": ("--once", "-i", "0.01"),
    "bench": ("--messages", "1"),
    "ping": (),
}
NEED_A_QUEUE = sorted(
    {c for c in COMMANDS if not c.startswith("topic ")}
    - {"queue list", "queue create", "dlq list", "doctor", "top", "bench", "ping"}
)


def line(command: str) -> tuple[str, ...]:
    return (*command.split(), *COMMANDS[command])


def sent(ctl: Ctl, *bodies: str, queue: str = "jobs", delay: str = "0") -> list[str]:
    lines = (ctl("message", "send", "-n", queue, "-m", body, "-d", delay) for body in bodies)
    return [done.out.strip() for done in lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_without_a_server_exits_with_4_and_one_sentence(
    call: Ctl, command: str
) -> None:
    """Redis down: a sentence with a next step, and no traceback."""
    failed = call("-r", NOWHERE, *line(command))

    assert (failed.status, failed.out) == (4, "")
    assert failed.sentence.startswith("rsmqctl: redis cannot be reached: ")
    assert failed.sentence.endswith("; check that the server runs and that -r or RSMQ_URL names it")


@pytest.mark.parametrize("command", NEED_A_QUEUE)
def test_every_command_on_a_missing_queue_exits_with_1(ctl: Ctl, command: str) -> None:
    """A wrong name does not look like an empty queue."""
    failed = ctl(*line(command))

    assert (failed.status, failed.out) == (1, "")
    assert "queue 'jobs'" in failed.sentence


@pytest.mark.parametrize("command", sorted({*NEED_A_QUEUE, "queue create"}))
def test_every_command_with_a_name_that_is_not_allowed_exits_with_2(ctl: Ctl, command: str) -> None:
    """A name that no queue can have is a mistake of mine."""
    args = ["a b" if word == "jobs" else word for word in line(command)]
    refused = ctl(*args)

    assert (refused.status, refused.out) == (2, "")
    assert "queue name 'a b' is not allowed" in refused.sentence


# queue


def test_set_changes_what_is_given_and_describes(jobs: Ctl, redis: Redis, ns: str) -> None:
    """One attribute changes, the others stay."""
    done = jobs("queue", "set", "-n", "jobs", "-t", "120")

    assert (done.status, done.err) == (0, "")
    assert json.loads(done.out)["vt"] == 120
    assert redis.hmget(f"{ns}:jobs:Q", "vt", "delay", "maxsize") == [b"120", b"0", b"65536"]


@pytest.mark.parametrize("args", [(), ("-t", "1.5"), ("-m", "7"), ("-d", "-1"), ("-t", "soon")])
def test_set_of_nothing_or_of_a_bad_value_exits_with_2(jobs: Ctl, args: tuple[str, ...]) -> None:
    """Nothing is changed by a line that cannot be meant."""
    refused = jobs("queue", "set", "-n", "jobs", *args)

    assert (refused.status, refused.out) == (2, "")
    assert refused.sentence


def test_purge_removes_ready_and_delayed_and_leaves_the_leased(jobs: Ctl) -> None:
    """Leased messages stay, unless I say so."""
    sent(jobs, "held", "ready")
    sent(jobs, "delayed", delay="60")
    jobs("message", "receive", "-n", "jobs")

    assert jobs("queue", "purge", "-n", "jobs", "--yes") == Outcome(0, '{"purged": 2}\n', "")
    assert jobs("queue", "purge", "-n", "jobs", "-y", "--leased").out == '{"purged": 1}\n'
    assert jobs("queue", "purge", "-n", "jobs", "--yes").out == '{"purged": 0}\n'


@pytest.mark.parametrize(
    "command",
    [("queue", "purge"), ("dlq", "purge"), ("dlq", "redrive")],
    ids=" ".join,
)
def test_confirmation_is_refused_without_a_terminal(jobs: Ctl, command: tuple[str, ...]) -> None:
    """A script says --yes, or nothing happens."""
    sent(jobs, "x")
    refused = jobs(*command, "-n", "jobs")

    assert (refused.status, refused.out) == (2, "")
    assert "give --yes" in refused.sentence
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["msgs"] == 1


def test_stats_of_one_queue_and_of_all(jobs: Ctl) -> None:
    """The same numbers, as an object or as a list."""
    sent(jobs, "a", "b")
    jobs("message", "receive", "-n", "jobs")
    jobs("queue", "create", "-n", "empty")
    one = json.loads(jobs("queue", "stats", "-n", "jobs").out)
    both = json.loads(jobs("queue", "stats").out)

    assert {k: one[k] for k in ("ready", "leased", "delayed", "dead", "consumers")} == {
        "ready": 1, "leased": 1, "delayed": 0, "dead": 0, "consumers": 0,
    }  # fmt: skip
    assert [row["queue"] for row in both] == ["empty", "jobs"]
    assert both[0]["oldest_age"] is None


def test_stats_without_queues_is_an_empty_list(ctl: Ctl) -> None:
    """Nothing is no error."""
    assert ctl("queue", "stats") == Outcome(0, "[]\n", "")


def test_stats_of_all_passes_over_what_is_not_a_queue(jobs: Ctl, redis: Redis, ns: str) -> None:
    """One bad entry does not hide the others."""
    redis.sadd(f"{ns}:QUEUES", "a b", "gone")

    shown = jobs("queue", "stats")

    assert [row["queue"] for row in json.loads(shown.out)] == ["jobs"]
    assert "left out, damaged: a b; examine them with: rsmqctl --ns " in shown.sentence


def test_move_takes_ready_messages_to_another_queue(jobs: Ctl) -> None:
    """They are there, in order, and not here."""
    jobs("queue", "create", "-n", "other")
    sent(jobs, "a", "b", "c")

    moved = jobs("queue", "move", "-n", "jobs", "--to", "other", "-c", "2", "--rate", "600/m")
    assert moved == Outcome(0, '{"moved": 2}\n', "")
    there = json.loads(jobs("message", "peek", "-n", "other").out)
    assert [row["message"] for row in there] == ["a", "b"]
    assert jobs("queue", "move", "-n", "other", "--to", "jobs").out == '{"moved": 2}\n'
    assert jobs("queue", "move", "-n", "other", "--to", "jobs").out == '{"moved": 0}\n'


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--to", "jobs"), "into itself"),
        (("--to", "other", "--rate", "fast"), "'fast' is not a rate"),
        (("--to", "other", "--rate", "0/s"), "more than 0"),
        (("--to", "other", "--rate", "1/y"), "not a rate"),
        (("--to", "other", "-c", "0"), "0 is not in the range"),
        (("--to", "other", "-c", "-1"), "-1 is not in the range"),
        ((), "missing option '--to'"),
    ],
)
def test_move_with_a_bad_value_exits_with_2(jobs: Ctl, args: tuple[str, ...], words: str) -> None:
    """Nothing is moved by a line that cannot be meant."""
    jobs("queue", "create", "-n", "other")
    refused = jobs("queue", "move", "-n", "jobs", *args)

    assert (refused.status, refused.out) == (2, "")
    assert words in refused.sentence


@pytest.mark.parametrize("verb", [("queue", "move"), ("message", "move", "-i", ABSENT)])
def test_move_to_a_missing_queue_fails_though_nothing_is_to_be_moved(
    jobs: Ctl, verb: tuple[str, ...]
) -> None:
    """A typing error in the target is reported before there is something to lose."""
    failed = jobs(*verb, "-n", "jobs", "--to", "jobz")

    assert (failed.status, failed.out) == (1, "")
    assert "queue 'jobz' does not exist" in failed.sentence


# message


def test_receive_with_a_wait_takes_what_comes_meanwhile(jobs: Ctl) -> None:
    """I need not ask again and again."""
    sent(jobs, "due", delay="0.5")
    waited = jobs("message", "receive", "-n", "jobs", "--wait", "60")

    assert json.loads(waited.out)["message"] == "due"


def test_receive_with_a_wait_in_vain_is_as_one_without(jobs: Ctl) -> None:
    """Nothing came: a note, and 3 for scripts that ask for it."""
    waited = jobs("message", "receive", "-n", "jobs", "-w", "0.1", "--fail-empty")

    assert (waited.status, waited.out) == (3, "")
    assert waited.sentence == "rsmqctl: no message is ready in queue 'jobs'"


@pytest.mark.parametrize("wait", ["-1", "nan", "soon"])
def test_receive_with_a_bad_wait_exits_with_2(jobs: Ctl, wait: str) -> None:
    """A time that cannot be meant is not waited."""
    assert jobs("message", "receive", "-n", "jobs", "--wait", wait).status == 2


def test_receive_interrupted_while_it_waits_takes_nothing(
    jobs: Ctl, redis: Redis, server_url: str, ns: str
) -> None:
    """Ctrl-C in the middle of a wait: 130, a word, and what comes later is for others."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "-v", "message", "receive", "-n", "jobs"]
    with subprocess.Popen(
        [*command, "--wait", "600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as waiting:
        channels = (f"{ns}:rt:jobs", f"{ns}:jobs:ng:wake")
        while waiting.poll() is None and not any(n for _, n in redis.pubsub_numsub(*channels)):
            time.sleep(0.02)  # it waits once it listens for wake-ups
        waiting.send_signal(signal.SIGINT)
        out, err = waiting.communicate(timeout=60)
    sent(jobs, "later")

    assert (waiting.returncode, out) == (130, b"")
    assert b"rsmqctl: interrupted" in err
    left = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (left["ready"], left["totalrecv"]) == (1, 0)


def test_receive_that_cannot_print_gives_the_message_back(
    jobs: Ctl, server_url: str, ns: str
) -> None:
    """A reader that has gone does not hide a message for the whole of its lease."""
    sent(jobs, "a")
    reader, writer = os.pipe()
    os.close(reader)
    command = [*MODULE, "-r", server_url, "--ns", ns, "message", "receive", "-n", "jobs"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    assert (done.returncode, done.stderr) == (1, b"")
    left = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (left["ready"], left["leased"]) == (1, 0)


def test_peek_shows_the_next_messages_and_takes_none(jobs: Ctl) -> None:
    """Looking changes nothing."""
    ids = sent(jobs, "a", "b", "c")
    first = json.loads(jobs("message", "peek", "-n", "jobs", "-c", "2").out)
    last = json.loads(jobs("message", "peek", "-n", "jobs", "-s", "-1").out)

    assert [(row["id"], row["message"], row["rc"], row["ts"]) for row in first] == [
        (ids[0], "a", 0, 0),
        (ids[1], "b", 0, 0),
    ]
    assert abs(first[0]["sent"] - last[0]["sent"]) < 60_000
    assert [row["id"] for row in last] == ids[2:]
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["ready"] == 3


def test_pending_shows_who_is_worked_on(jobs: Ctl) -> None:
    """A received message, since when, and how often."""
    (id,) = sent(jobs, "a")
    jobs("message", "receive", "-n", "jobs")
    (row,) = json.loads(jobs("message", "pending", "-n", "jobs").out)

    assert (row["id"], row["message"], row["rc"]) == (id, "a", 1)
    assert row["delivered"] == row["ts"]
    assert 0 <= row["idle"] < 60


@pytest.mark.parametrize(("command", "state"), [("peek", "ready"), ("pending", "leased")])
def test_looking_at_nothing_prints_an_empty_list_and_a_note(
    jobs: Ctl, command: str, state: str
) -> None:
    """An empty queue is no failure, unless I say so."""
    note = f"rsmqctl: no message is {state} in queue 'jobs' there\n"

    assert jobs("message", command, "-n", "jobs") == Outcome(0, "[]\n", note)
    assert jobs("message", command, "-n", "jobs", "--fail-empty") == Outcome(3, "[]\n", note)


@pytest.mark.parametrize("args", [("-c", "0"), ("-c", "x"), ("-s", "x"), ("-c", "1000000")])
def test_peek_with_a_bad_value_exits_with_2(jobs: Ctl, args: tuple[str, ...]) -> None:
    """A count must be a number that one call can carry."""
    assert jobs("message", "peek", "-n", "jobs", *args).status == 2


def test_message_move_takes_the_named_ones(jobs: Ctl) -> None:
    """By id, however far behind."""
    jobs("queue", "create", "-n", "other")
    ids = sent(jobs, *"abcd")
    done = jobs("message", "move", "-n", "jobs", "-i", ids[3], "-i", ids[1], "--to", "other")

    assert done == Outcome(0, '{"moved": 2}\n', "")
    assert [row["message"] for row in json.loads(jobs("message", "peek", "-n", "other").out)] == [
        "b", "d",
    ]  # fmt: skip


def test_message_move_of_a_leased_one_exits_with_1(jobs: Ctl) -> None:
    """Leased messages are not taken from their holders."""
    jobs("queue", "create", "-n", "other")
    held, free = sent(jobs, "held", "free")
    jobs("message", "receive", "-n", "jobs")
    failed = jobs("message", "move", "-n", "jobs", "-i", held, "-i", free, "--to", "other")

    assert (failed.status, failed.out) == (1, '{"moved": 1}\n')
    assert "1 of 2 messages are not ready in queue 'jobs'" in failed.sentence


def test_tail_shows_what_is_there_and_what_comes(jobs: Ctl, server_url: str, ns: str) -> None:
    """The last ones first, then each as it arrives; none is taken."""
    sent(jobs, *"abc")
    command = [*MODULE, "-r", server_url, "--ns", ns, "message", "tail", "-n", "jobs", "-l", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        seen = [json.loads(tail.stdout.readline())["message"] for _ in range(2)]
        sent(jobs, "d")
        seen.append(json.loads(tail.stdout.readline())["message"])
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=30)

    assert seen == ["b", "c", "d"]
    assert (tail.returncode, err.strip()) == (130, b"rsmqctl: interrupted")
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["ready"] == 4


def test_tail_from_nothing_shows_only_what_comes(jobs: Ctl, server_url: str, ns: str) -> None:
    """With -l 0 the past is left out, and a delayed message is shown when it is due."""
    sent(jobs, "old")
    sent(jobs, "due", delay="2")
    done = jobs("message", "tail", "-n", "jobs", "-l", "0", "-c", "1")

    assert json.loads(done.out)["message"] == "due"


def test_tail_consume_prints_and_deletes(jobs: Ctl) -> None:
    """What was printed is gone, what was not is there."""
    sent(jobs, *"abc")
    done = jobs("message", "tail", "-n", "jobs", "--consume", "-c", "2")

    assert [json.loads(row)["message"] for row in done.out.splitlines()] == ["a", "b"]
    left = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (left["ready"], left["leased"]) == (1, 0)


def test_tail_consume_interrupted_gives_back(jobs: Ctl, server_url: str, ns: str) -> None:
    """Ctrl-C loses nothing: what is not printed is ready again."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "message", "tail", "-n", "jobs", "--consume"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        sent(jobs, "a")
        tail.stdout.readline()
        tail.send_signal(signal.SIGINT)
        sent(jobs, *"bcd")
        out, err = tail.communicate(timeout=30)

    left = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (tail.returncode, err.strip()) == (
        130, b"rsmqctl: 1 message printed and deleted\n\nrsmqctl: interrupted",
    )  # fmt: skip
    assert left["leased"] == 0
    assert left["ready"] + len(out.splitlines()) == 3


@pytest.mark.parametrize("output", ["csv", "table"])
def test_tail_in_columns_prints_the_header_once(jobs: Ctl, output: str) -> None:
    """One header, then a line per message."""
    sent(jobs, *"ab")
    done = jobs("message", "tail", "-n", "jobs", "-c", "2", "-o", output)

    assert len(done.out.splitlines()) == 3
    assert done.out.lower().startswith("id")
