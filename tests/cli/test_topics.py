"""``rsmqctl topic``."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from .ctl import MODULE, Ctl


def published(ctl: Ctl, *bodies: str) -> list[str]:
    return [ctl("topic", "publish", "-n", "news", "-m", body).out.strip() for body in bodies]


def test_publish_waits_for_the_first_subscription_and_is_observed(ctl: Ctl) -> None:
    ids = published(ctl, "Hello, World")
    made = ctl("topic", "subscribe", "-n", "news", "-c", "billing")
    assert json.loads(made.out) == {
        "topic": "news",
        "consumer": "billing",
        "mode": "shared",
        "peer": None,
        "queue": "news__billing",
    }
    seen = ctl("topic", "observe", "-n", "news", "-c", "billing", "--ack")
    (record,) = json.loads(seen.out)
    assert (record["id"], record["message"], record["rc"]) == (ids[0], "Hello, World", 1)
    again = ctl("topic", "observe", "-n", "news", "-c", "billing", "--fail-empty")
    assert (again.status, again.out) == (3, "[]\n")
    assert again.sentence == "rsmqctl: nothing is ready for 'billing' of topic 'news'"
    assert json.loads(ctl("topic", "list").out) == ["news"]
    assert ctl("topic", "list", "-o", "csv").out == "topic\nnews\n"


def test_observed_messages_stay_without_ack(ctl: Ctl) -> None:
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    published(ctl, "1")
    line = ("topic", "observe", "-n", "news", "-c", "a", "--vt", "0", "--count", "1")
    for rc in (1, 2):
        done = ctl(*line, "-o", "ndjson")
        assert (json.loads(done.out)["message"], json.loads(done.out)["rc"]) == ("1", rc)


def test_follow_prints_and_acknowledges(ctl: Ctl) -> None:
    ctl("topic", "subscribe", "-n", "news", "-c", "a", "-p", "one", "--mode", "broadcast")
    published(ctl, "1", "2", "3")
    line = ("topic", "observe", "-n", "news", "-c", "a", "-p", "one", "--mode", "broadcast")
    done = ctl(*line, "--follow", "--count", "3")

    assert [json.loads(text)["message"] for text in done.out.splitlines()] == ["1", "2", "3"]
    (left,) = json.loads(ctl("topic", "describe", "-n", "news").out)["subscriptions"]
    assert (left["mode"], left["peers"][0]["name"], left["msgs"]) == ("broadcast", "one", 0)


def test_follow_ends_with_ctrl_c_and_gives_back_what_was_not_printed(
    ctl: Ctl, server_url: str, ns: str
) -> None:
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    published(ctl, "1")
    command = [*MODULE, "-r", server_url, "--ns", ns, "topic", "observe", "-n", "news", "-c", "a"]
    with subprocess.Popen([*command, "--follow"], stdout=subprocess.PIPE) as follow:
        assert follow.stdout is not None
        assert json.loads(follow.stdout.readline())["message"] == "1"
        follow.send_signal(signal.SIGINT)
        assert follow.wait(30) == 130


def test_publish_takes_lines_of_a_file_and_a_dedup_key(ctl: Ctl, tmp_path) -> None:
    file = tmp_path / "events"
    file.write_text("one\n\ntwo\n")
    done = ctl("topic", "publish", "-n", "news", "-f", str(file))
    assert len(done.out.split()) == 2
    key = ("topic", "publish", "-n", "news", "-m", "x", "--dedup-key", "k")
    assert ctl(*key).out == ctl(*key).out
    described = json.loads(ctl("topic", "describe", "-n", "news").out)
    assert (described["waiting"], described["queue"]) == (3, "news__")


def test_unsubscribe_keeps_or_discards(ctl: Ctl) -> None:
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    published(ctl, "1")
    assert json.loads(ctl("topic", "unsubscribe", "-n", "news", "-c", "a").out) == {"kept": 1}
    ctl("topic", "subscribe", "-n", "news", "-c", "a")
    line = ("topic", "unsubscribe", "-n", "news", "-c", "a", "--discard")
    assert ctl(*line).status == 2
    assert json.loads(ctl(*line, "--yes").out) == {"kept": 0}
    assert json.loads(ctl("queue", "list").out) == []


def test_limit_and_delete(ctl: Ctl) -> None:
    assert ctl("topic", "limit", "-n", "news", "--max-length", "1", "--max-age", "60").out == ""
    published(ctl, "1", "2")
    described = json.loads(ctl("topic", "describe", "-n", "news").out)
    assert (described["waiting"], described["trimmed"], described["max_age"]) == (1, 1, 60.0)
    assert ctl("topic", "delete", "-n", "news").status == 2
    assert json.loads(ctl("topic", "delete", "-n", "news", "--yes").out) == {"deleted": True}
    assert json.loads(ctl("queue", "list").out) == []


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [
        (("observe", "-n", "news", "-c", "other"), 1, "'other' has not subscribed"),
        (
            ("subscribe", "-n", "news", "-c", "a", "--mode", "broadcast"),
            2,
            "needs a name for this process: give --peer",
        ),
        (("publish", "-n", "news"), 2, "give either"),
        (("publish", "-n", "news", "-f", "x", "--dedup-key", "k"), 2, "single message"),
    ],
)
def test_mistakes_are_reported(ctl: Ctl, line: tuple[str, ...], status: int, sentence: str) -> None:
    done = ctl("topic", *line)

    assert done.status == status
    assert sentence in done.err
