"""``--header``, and headers in what the commands on messages print."""

import json
from pathlib import Path

from redis import Redis

from .ctl import Ctl


def test_header_is_shown_by_every_command_that_prints_messages(jobs: Ctl) -> None:
    send = ("message", "send", "-n", "jobs", "--header", "tenant=acme", "--header", "note=a=b")
    jobs(*send, "-m", "one")
    jobs(*send, "-m", "two")
    jobs("message", "send", "-n", "jobs", "-m", "plain")
    headers = {"tenant": "acme", "note": "a=b"}

    peeked = json.loads(jobs("message", "peek", "-n", "jobs").out)
    assert [m.get("headers") for m in peeked] == [headers, headers, None]
    tailed = jobs("message", "tail", "-n", "jobs", "-c", "1", "-l", "3").out
    assert json.loads(tailed)["headers"] == headers
    assert json.loads(jobs("message", "receive", "-n", "jobs").out)["headers"] == headers
    assert json.loads(jobs("message", "pending", "-n", "jobs").out)[0]["headers"] == headers
    assert json.loads(jobs("message", "pop", "-n", "jobs").out)["headers"] == headers
    assert "headers" not in json.loads(jobs("message", "pop", "-n", "jobs").out)


def test_table_has_a_column_of_headers_only_if_there_are_some(jobs: Ctl) -> None:
    jobs("message", "send", "-n", "jobs", "-m", "plain")
    assert "HEADERS" not in jobs("message", "peek", "-n", "jobs", "-o", "table").out

    jobs("message", "send", "-n", "jobs", "-m", "x", "--header", "k=v")
    table = jobs("message", "peek", "-n", "jobs", "-o", "table").out
    assert "HEADERS" in table
    assert '{"k": "v"}' in table


def test_lines_of_a_file_get_the_header(jobs: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a\nb\n")
    jobs("message", "send", "-n", "jobs", "--file", str(file), "--header", "k=v")

    peeked = json.loads(jobs("message", "peek", "-n", "jobs").out)
    assert [m["headers"] for m in peeked] == [{"k": "v"}, {"k": "v"}]


def test_publish_takes_headers(jobs: Ctl) -> None:
    jobs("topic", "publish", "-n", "news", "-m", "x", "--header", "k=v")

    jobs("topic", "subscribe", "-n", "news", "-c", "one")
    consume = (
        "topic",
        "observe",
        "-n",
        "news",
        "-c",
        "one",
        "--ack",
        "--count",
        "1",
        "-o",
        "ndjson",
    )
    assert json.loads(jobs(*consume).out)["headers"] == {"k": "v"}


def test_headers_survive_export_and_import(jobs: Ctl, tmp_path: Path) -> None:
    file = str(tmp_path / "out.ndjson")
    jobs("message", "send", "-n", "jobs", "-m", "a", "--header", "k=ü")
    jobs("message", "send", "-n", "jobs", "-m", "b")
    jobs("message", "export", "-n", "jobs", "-f", file)
    jobs("queue", "create", "-n", "copy")
    assert jobs("message", "import", "-n", "copy", "-f", file).out == '{"imported": 2}\n'

    peeked = json.loads(jobs("message", "peek", "-n", "copy").out)
    assert [m.get("headers") for m in peeked] == [{"k": "ü"}, None]


def test_line_with_headers_that_are_not_allowed_is_named(jobs: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_text('{"body": "a"}\n{"body": "b", "headers": {"a b": "x"}}\n')
    done = jobs("message", "import", "-n", "jobs", "-f", str(file))

    assert done.status == 1
    assert "line 2 is invalid: header name 'a b' is not allowed" in done.err


def test_header_that_is_not_a_pair_is_refused(jobs: Ctl, redis: Redis, ns: str) -> None:
    for given, says in (
        (("novalue",), "'novalue' is not NAME=VALUE"),
        (("a=1", "a=2"), "'a' is given twice"),
        (("a b=1",), "header name 'a b' is not allowed"),
    ):
        words = [word for one in given for word in ("--header", one)]
        done = jobs("message", "send", "-n", "jobs", "-m", "x", *words)
        assert done.status != 0
        assert says in done.err
    assert not redis.zcard(f"{ns}:jobs")
