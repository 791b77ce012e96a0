"""``rsmqctl message export``, ``import`` and ``send --file``: messages by the line."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis

import aiorsmq_ng
from aiorsmq_ng.cli import session
from aiorsmq_ng.cli.transfer.commands import _cut, _Pump
from aiorsmq_ng.cli.transfer.files import Source, sink
from aiorsmq_ng.cli.transfer.ndjson import Entry

from .ctl import MODULE, Ctl, Outcome, shell


def bodies(redis: Redis, ns: str, queue: str = "jobs") -> list[bytes]:
    """Return all bodies of a queue in order."""
    ids = redis.zrange(f"{ns}:{queue}", 0, -1)
    return [redis.hget(f"{ns}:{queue}:Q", id) for id in ids]


def write(path: Path, *lines: object) -> str:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


# export


def test_export_writes_every_state_and_takes_none(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """Ready, leased and delayed messages, each with all that is known of it."""
    ids = [
        jobs("message", "send", "-n", "jobs", "-m", body, "-d", delay).out.strip()
        for body, delay in (("held", "0"), ("ready ✓", "0"), ("delayed", "60"))
    ]
    received = json.loads(jobs("message", "receive", "-n", "jobs").out)
    file = tmp_path / "out.ndjson"
    done = jobs("message", "export", "-n", "jobs", "-f", str(file))

    assert done == Outcome(0, '{"exported": 3}\n', "")
    ready, held, delayed = map(json.loads, file.read_text().splitlines())
    assert list(ready) == ["id", "body", "sent", "rc", "fr", "visible_at"]
    assert (ready["id"], ready["body"], ready["rc"], ready["fr"]) == (ids[1], "ready ✓", 0, 0)
    assert (held["id"], held["rc"], held["fr"]) == (ids[0], 1, received["ts"])
    assert held["visible_at"] == received["ts"] + 30_000
    assert delayed["visible_at"] - delayed["sent"] in (60_000, 59_999)
    assert delayed["visible_at"] == redis.zscore(f"{ns}:jobs", ids[2])
    described = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (described["ready"], described["leased"], described["delayed"]) == (1, 1, 1)
    assert list(tmp_path.glob("*.part")) == []


def test_export_of_bytes_uses_base64(jobs: Ctl, redis: Redis, ns: str, server_url: str) -> None:
    """Nothing is lost of what is not text."""
    shell("--ns", ns, "message", "send", "-n", "jobs", "-m", b"a\xff", RSMQ_URL=server_url)
    (line,) = jobs_export(ns, server_url)

    assert base64.b64decode(line["body_base64"]) == b"a\xff"
    assert "body" not in line


def jobs_export(ns: str, url: str) -> list[dict[str, object]]:
    done = shell("-r", url, "--ns", ns, "message", "export", "-n", "jobs")
    assert (done.status, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_export_of_an_empty_queue_writes_nothing(jobs: Ctl, ns: str, server_url: str) -> None:
    """No message, no line."""
    assert jobs_export(ns, server_url) == []


def test_export_that_fails_leaves_the_file_as_it_was(ctl: Ctl, tmp_path: Path) -> None:
    """Yesterday's export is better than half of today's."""
    file = tmp_path / "out.ndjson"
    file.write_text("yesterday\n")
    failed = ctl("message", "export", "-n", "jobs", "-f", str(file))

    assert failed.status == 1
    assert file.read_text() == "yesterday\n"
    assert [entry.name for entry in tmp_path.iterdir() if entry.is_file()] == ["out.ndjson"]


@pytest.mark.parametrize("verb", ["export", "import"])
def test_a_file_that_cannot_be_used_exits_with_2(jobs: Ctl, verb: str) -> None:
    """The reason is the system's own."""
    refused = jobs("message", verb, "-n", "jobs", "-f", "/nonexistent/file")

    assert (refused.status, refused.out) == (2, "")
    assert "No such file or directory" in refused.sentence


# import


def test_import_of_an_export_gives_the_same_messages(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """Thousands of messages, text and bytes, in order."""
    wanted = [f"message {n}".encode() for n in range(2500)] + [b"\xff\x00\n", b"\x9b'\"", b""]
    ids = {f"{n:010}{'x' * 22}": body for n, body in enumerate(wanted)}
    redis.hset(f"{ns}:jobs:Q", mapping=ids)
    redis.zadd(f"{ns}:jobs", dict.fromkeys(ids, 1_794_787_267_284))
    jobs("queue", "create", "-n", "copy")
    file = str(tmp_path / "x.ndjson")

    assert jobs("message", "export", "-n", "jobs", "-f", file).out == '{"exported": 2503}\n'
    done = jobs("message", "import", "-n", "copy", "-f", file)
    assert done == Outcome(0, '{"imported": 2503}\n', "")
    assert bodies(redis, ns, "copy") == wanted


def test_import_delays_what_is_not_due_yet(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """A message for tomorrow stays one for tomorrow, unless I say --now."""
    due = int(time.time() * 1000) + 3_600_000
    file = write(
        tmp_path / "in",
        {"body": "later", "visible_at": due},
        {"body": "now", "visible_at": 5},
        {"body": "plain"},
        {"body": "far", "visible_at": 9e18},
    )
    assert jobs("message", "import", "-n", "jobs", "-f", file).out == '{"imported": 4}\n'

    found = json.loads(jobs("queue", "describe", "-n", "jobs").out)
    assert (found["ready"], found["delayed"]) == (2, 2)
    later = redis.zrange(f"{ns}:jobs", 2, 2, withscores=True)[0][1]
    assert abs(later - due) < 60_000
    jobs("message", "import", "-n", "jobs", "-f", file, "--now")
    assert json.loads(jobs("queue", "describe", "-n", "jobs").out)["ready"] == 6


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("{", "truncated"),
        ('{"body": 7}', "Expected `str"),
        ("{}", "either body or body_base64"),
        ('{"body": "a", "body_base64": "YQ=="}', "either body or body_base64"),
        ('{"body_base64": "?"}', "base64"),
        ('["x"]', "Expected `object`"),
    ],
)
def test_import_of_a_line_that_cannot_be_read_says_which(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path, bad: str, words: str
) -> None:
    """What came before is stored, and I can go on behind it."""
    file = tmp_path / "in"
    file.write_text(f'{{"body": "1"}}\n\n{{"body": "3"}}\n{bad}\n{{"body": "5"}}\n')
    failed = jobs("message", "import", "-n", "jobs", "-f", str(file))

    assert (failed.status, failed.out) == (1, "")
    where, why = failed.err.splitlines()
    assert where == (
        "rsmqctl: the first 3 lines are done; to resume with line 4: --skip 3, without it: --skip 4"
    )
    assert why.startswith("rsmqctl: line 4 is invalid: ")
    assert words.lower() in why.lower()
    assert bodies(redis, ns) == [b"1", b"3"]
    again = jobs("message", "import", "-n", "jobs", "-f", str(file), "--skip", "4")
    assert again.out == '{"imported": 1}\n'
    assert bodies(redis, ns) == [b"1", b"3", b"5"]


def test_import_of_too_large_a_body_says_how_far_it_came(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """And which line it is, although a page is stored whole or not at all."""
    lines = [{"body": str(n)} for n in range(1500)]
    lines[1200] = {"body": "x" * 70_000}
    failed = jobs("message", "import", "-n", "jobs", "-f", write(tmp_path / "in", *lines))

    assert failed.status == 1
    where, why = failed.err.splitlines()
    assert "the first 1200 lines are done; to resume with line 1201: --skip 1200" in where
    assert "line 1201 has a body of 70000 bytes, and the queue's maxsize is 65536" in why
    assert bodies(redis, ns) == [str(n).encode() for n in range(1200)]
    again = ("message", "import", "-n", "jobs", "-f", str(tmp_path / "in"), "--skip", "1201")
    assert jobs(*again).out == '{"imported": 299}\n'


def test_import_of_a_bad_first_line_says_how_to_leave_it_out(jobs: Ctl, tmp_path: Path) -> None:
    """Also if nothing is done yet, or only what was left out."""
    file = tmp_path / "in"
    file.write_text('nonsense\nmore of it\n{"body": "3"}\n')
    line = ("message", "import", "-n", "jobs", "-f", str(file))
    for skip in (0, 1):
        failed = jobs(*line, "--skip", str(skip))
        number = skip + 1
        assert failed.err.splitlines()[0] == (
            f"rsmqctl: to resume with line {number}: --skip {skip}, without it: --skip {number}"
        )
    assert jobs(*line, "--skip", "2").out == '{"imported": 1}\n'


def test_import_of_a_delay_beyond_rsmqs_longest_says_so(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """What comes earlier than the file says is not passed over in silence."""
    far = (time.time() + 20_000_000) * 1000
    lines = [{"body": "now"}, {"body": "far", "visible_at": far}, {"body": "x", "visible_at": far}]
    done = jobs("message", "import", "-n", "jobs", "-f", write(tmp_path / "in", *lines))

    assert (done.status, done.out) == (0, '{"imported": 3}\n')
    assert done.sentence == (
        "rsmqctl: 2 messages, the first in line 2, will be visible earlier than visible_at says, "
        "after 9999999 seconds, which is RSMQ's longest delay"
    )


def test_import_interrupted_says_how_far_it_came(
    jobs: Ctl, redis: Redis, ns: str, server_url: str
) -> None:
    """Ctrl-C while it waits for more lines ends it at once."""
    command = [*MODULE, "-r", server_url, "--ns", ns, "message", "import", "-n", "jobs"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as done:
        assert done.stdin is not None
        done.stdin.write(b'{"body": "a"}\n{"body": "b"}\n{"bo')
        done.stdin.flush()
        for _ in range(600):  # what came is sent, though the input is still open
            if len(bodies(redis, ns)) == 2:
                break
            time.sleep(0.05)
        done.send_signal(signal.SIGINT)
        status = done.wait(timeout=30)  # the input is open all the time
        _, err = done.communicate()

    assert status == 130
    assert bodies(redis, ns) == [b"a", b"b"]
    assert b"the first 2 lines are done; to resume: --skip 2" in err


# send --file


def test_send_file_sends_every_line_as_it_is(
    jobs: Ctl, redis: Redis, ns: str, server_url: str
) -> None:
    """One message per line that is not empty, an id for each, in order."""
    lines = b'{"a": 1}\n\n  text \r\n"\xff"\nlast'
    sent = shell(
        "-r", server_url, "--ns", ns, "message", "send", "-n", "jobs", "-f", "-", stdin=lines
    )

    assert (sent.status, sent.err) == (0, "")
    assert bodies(redis, ns) == [b'{"a": 1}', b"  text ", b'"\xff"', b"last"]
    ids = redis.zrange(f"{ns}:jobs", 0, -1)
    assert sent.out.split() == [id.decode() for id in ids]


def test_send_file_of_many_lines_keeps_their_order(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """Pages follow each other."""
    file = tmp_path / "in"
    file.write_text("".join(f"{n}\n" for n in range(3001)))
    sent = jobs("message", "send", "-n", "jobs", "--file", str(file), "-d", "0")

    assert len(sent.out.splitlines()) == 3001
    assert bodies(redis, ns) == [str(n).encode() for n in range(3001)]


def test_send_file_goes_on_at_the_given_line(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """What a failure tells me to do, can be done."""
    lines = [*map(str, range(1500)), "x" * 70000, "last"]
    file = str(tmp_path / "in")
    Path(file).write_text("\n".join(lines))
    failed = jobs("message", "send", "-n", "jobs", "-f", file)
    assert "to resume with line 1501: --skip 1500, without it: --skip 1501" in failed.err
    jobs("queue", "set", "-n", "jobs", "-m", "-1")
    went_on = jobs("message", "send", "-n", "jobs", "-f", file, "--skip", "1500")

    assert (went_on.status, len(went_on.out.split())) == (0, 2)
    assert bodies(redis, ns) == [line.encode() for line in lines]


def test_send_of_one_message_skips_nothing(jobs: Ctl) -> None:
    """An option that means nothing is refused."""
    assert jobs("message", "send", "-n", "jobs", "-m", "x", "--skip", "1").status == 2


def test_send_file_of_large_bodies_pages_by_bytes(
    jobs: Ctl, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """A page of many large bodies is not one call."""
    file = tmp_path / "in"
    file.write_text("".join(f"{n:060000}\n" for n in range(40)))

    assert len(jobs("message", "send", "-n", "jobs", "-f", str(file)).out.splitlines()) == 40
    assert [int(body[-9:]) for body in bodies(redis, ns)] == list(range(40))


def test_send_file_takes_the_queues_delay_by_default(ctl: Ctl, tmp_path: Path) -> None:
    """As with a single message."""
    ctl("queue", "create", "-n", "slow", "-d", "60")
    file = write(tmp_path / "in", "x")
    ctl("message", "send", "-n", "slow", "-f", file)
    ctl("message", "send", "-n", "slow", "-f", file, "-d", "0")

    found = json.loads(ctl("queue", "describe", "-n", "slow").out)
    assert (found["ready"], found["delayed"]) == (1, 1)


@pytest.mark.parametrize("args", [(), ("-m", "x", "-f", "-")])
def test_send_needs_either_a_message_or_a_file(jobs: Ctl, args: tuple[str, ...]) -> None:
    """Both or neither cannot be meant."""
    refused = jobs("message", "send", "-n", "jobs", *args)

    assert (refused.status, refused.out) == (2, "")
    assert "give either '-m' / '--message' or '-f' / '--file'" in refused.sentence


def test_export_and_import_by_a_pipe(jobs: Ctl, redis: Redis, ns: str, server_url: str) -> None:
    """Two commands, a queue copied, no bar in sight."""
    jobs("queue", "create", "-n", "copy")
    for body in "abc":
        jobs("message", "send", "-n", "jobs", "-m", body)
    rsmqctl = " ".join([*MODULE, "-r", server_url, "--ns", ns])
    done = subprocess.run(
        f"{rsmqctl} message export -n jobs | {rsmqctl} message import -n copy",
        shell=True,
        capture_output=True,
        check=False,
        env=os.environ,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b'{"imported": 3}\n', b"")
    assert bodies(redis, ns, "copy") == [b"a", b"b", b"c"]


def test_pages_are_cut_by_number_and_by_bytes() -> None:
    """What one call carries is bounded, and nothing is lost at the cuts."""
    small = [(n, Entry(b"x", None)) for n in range(2001)]
    large = [(n, Entry(b"x" * 600_000, None)) for n in range(3)]
    headed = [(n, Entry(b"x", None, {"n": "x" * 8000})) for n in range(260)]

    assert [len(page) for page in _cut(small)] == [1000, 1000, 1]
    assert [len(page) for page in _cut(large)] == [1, 1, 1]
    assert [len(page) for page in _cut(headed)] == [131, 129]
    assert [entry for page in _cut(small) for entry in page] == small
    assert list(_cut([])) == []


def test_a_file_that_is_not_finished_is_as_it_was(tmp_path: Path) -> None:
    """Neither half of the new nor none of the old."""
    file = tmp_path / "x"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), sink(str(file)) as out:
        out.write(b"new")
        raise KeyboardInterrupt

    assert file.read_text() == "old"
    assert list(tmp_path.glob("*")) == [file]
    with sink(str(file)) as out:
        out.write(b"new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"


class SlowQueue:
    """Stores what it is sent once it is let."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.begun = asyncio.Event()
        self.stored: list[bytes] = []

    async def send(self, bodies: list[bytes], delay: float | None, _: object) -> list[str]:
        self.begun.set()
        await self.let.wait()
        self.stored += bodies
        return ["id"] * len(bodies)


async def test_interrupted_while_a_page_is_sent_it_tells_truly_how_far_it_came() -> None:
    """What was on the wire is waited for and counted; what was not is not sent."""
    queue = SlowQueue()
    pump = _Pump(queue.send, lambda line, _: Entry(line, None), 0, None)
    feeding = asyncio.create_task(pump.feed([b"%d" % n for n in range(2500)]))
    await queue.begun.wait()
    feeding.cancel()
    await asyncio.sleep(0)
    assert not feeding.done()
    queue.let.set()
    with pytest.raises(asyncio.CancelledError):
        await feeding

    assert (pump.done, pump.sent, len(queue.stored)) == (1000, 1000, 1000)


async def test_lines_are_read_whatever_their_ends(tmp_path: Path) -> None:
    """With or without a last end, and across the borders of blocks."""
    file = tmp_path / "x"
    for text, lines in (
        (b"", []),
        (b"a\r\nb", [b"a", b"b"]),
        (b"a\n\nb\n", [b"a", b"", b"b"]),
        (b"x" * 3_000_000 + b"\ny\n", [b"x" * 3_000_000, b"y"]),
    ):
        file.write_bytes(text)
        with Source(str(file)) as source:
            assert source.count() == len(lines)
            assert [line async for block in source.blocks() for line in block] == lines


# waiting


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes its time over every look and every send."""
    look, send = aiorsmq_ng.Queue.scan, aiorsmq_ng.Queue.send_many

    async def scan(self: aiorsmq_ng.Queue) -> AsyncIterator[aiorsmq_ng.ScannedMessage]:
        await asyncio.sleep(0.3)
        async for message in look(self):
            yield message

    async def send_many(self: aiorsmq_ng.Queue, bodies: list[bytes], **how: float) -> list[str]:
        await asyncio.sleep(0.3)
        return list(await send(self, bodies, **how))

    monkeypatch.setattr(aiorsmq_ng.Queue, "scan", scan)
    monkeypatch.setattr(aiorsmq_ng.Queue, "send_many", send_many)
    monkeypatch.setattr(session, "SILENCE_S", 0.05)


@pytest.mark.usefixtures("silent")
def test_export_and_import_say_that_they_wait_for_the_server(jobs: Ctl, tmp_path: Path) -> None:
    """Silence for a minute would look like work."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    file = str(tmp_path / "out")
    waited = "rsmqctl: the server has not answered for 0.05 s; waiting for it up to 60 s;"
    for verb in ("export", "import"):
        done = jobs("message", verb, "-n", "jobs", "-f", file)
        assert done.status == 0
        assert done.sentence.startswith(waited)


def test_export_of_a_server_that_answers_says_nothing(jobs: Ctl, tmp_path: Path) -> None:
    """No note about nothing."""
    jobs("message", "send", "-n", "jobs", "-m", "x")

    assert jobs("message", "export", "-n", "jobs", "-f", str(tmp_path / "out")).err == ""


def test_export_that_gets_no_answer_is_in_no_doubt(
    jobs: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It only looks: there is no unknown outcome."""

    async def scan(_: aiorsmq_ng.Queue) -> AsyncIterator[aiorsmq_ng.ScannedMessage]:
        raise aiorsmq_ng.Unavailable("the reply was lost", executed=None, transient=True)
        yield

    monkeypatch.setattr(aiorsmq_ng.Queue, "scan", scan)
    failed = jobs("message", "export", "-n", "jobs", "-f", str(tmp_path / "out"))

    assert failed.status == 4
    assert failed.sentence.startswith(
        "rsmqctl: the server did not answer in time; nothing was changed, and "
    )
    assert list(tmp_path.iterdir()) == []
