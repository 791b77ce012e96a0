"""``rsmqctl`` on a terminal: questions, passwords, progress bars, the live view."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from redis import Redis

from aiorsmq_ng.embedded import EmbeddedServer

from .ctl import MODULE, Ctl

#: Generous: the machine may be busy.
PATIENCE_S = 30
Terminal = Callable[..., pexpect.spawn]


@pytest.fixture
def terminal(server_url: str, ns: str) -> Iterator[Terminal]:
    """Start a command on a pseudo-terminal of 100 columns and 30 lines."""
    started: list[pexpect.spawn] = []

    def start(
        *args: str, url: str = server_url, redirect: str = "", after: str = "", **env: str
    ) -> pexpect.spawn:
        command = [*MODULE, "-r", url, "--ns", ns, *args]
        if redirect or after:
            # The shell must outlive Ctrl-C to tell what came after.
            line = f'trap : INT; "$@" {redirect}; {after}' if after else f'exec "$@" {redirect}'
            command = ["sh", "-c", line, "sh", *command]
        # The terminal tells its size; who runs the tests may have set these for another one.
        outer = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        child = pexpect.spawn(
            command[0],
            command[1:],
            env={**outer, "TERM": "xterm-256color", **env},
            dimensions=(30, 100),
            timeout=PATIENCE_S,
            encoding="utf-8",
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.close(force=True)


def ended(child: pexpect.spawn) -> tuple[int | None, str]:
    """Return the exit status and what was shown since the last look."""
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus, str(child.before)


class Screen:
    """What a terminal has been shown so far, without colours and movements."""

    def __init__(self, child: pexpect.spawn) -> None:
        self._child = child
        self.raw = ""
        self._seen = 0

    def until(self, pattern: str) -> None:
        """Read on until *pattern* is shown, behind what was waited for before."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := re.compile(pattern).search(plain(self.raw), self._seen)):
            assert time.monotonic() < deadline, f"{pattern!r} not in {plain(self.raw)[-3000:]!r}"
            try:
                self.raw += self._child.read_nonblocking(65536, timeout=1)
            except pexpect.TIMEOUT:
                pass
            except pexpect.EOF:
                pytest.fail(f"it ended without {pattern!r}: {plain(self.raw)[-3000:]!r}")
        self._seen = found.end()

    def ended(self) -> int | None:
        """Read to the end and return the exit status."""
        status, rest = ended(self._child)
        self.raw += rest
        return status


def plain(text: str) -> str:
    """Return text without colours and movements."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


# questions


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("queue purge", "Remove 1 message from queue 'jobs'?"),
        ("dlq purge", "Remove 1 dead letter of queue 'jobs' for good?"),
        ("dlq redrive", "Move 1 dead letter of queue 'jobs' back to it?"),
    ],
)
def test_what_cannot_be_undone_asks_first(
    jobs: Ctl, terminal: Terminal, redis: Redis, ns: str, command: str, question: str
) -> None:
    """No means no: nothing is done, and that is not success."""
    for queue in ("jobs", "jobs-dead"):
        jobs("queue", "create", "-n", queue)
        jobs("message", "send", "-n", queue, "-m", "x")
    asked = terminal(*command.split(), "-n", "jobs")
    asked.expect_exact(f"{question} [y/N]: ")
    asked.sendline("n")

    assert ended(asked) == (1, "n\r\nrsmqctl: nothing was changed\r\n")
    assert (redis.zcard(f"{ns}:jobs"), redis.zcard(f"{ns}:jobs-dead")) == (1, 1)
    agreed = terminal(*command.split(), "-n", "jobs")
    agreed.expect_exact("[y/N]: ")
    agreed.sendline("y")
    status, shown = ended(agreed)
    assert status == 0
    assert re.search(r'{"(purged|redriven)": 1}', shown)
    assert redis.zcard(f"{ns}:jobs") + redis.zcard(f"{ns}:jobs-dead") in (1, 2)


@pytest.mark.parametrize(
    ("more", "question"),
    [
        ((), "Remove 3 messages from queue 'jobs' (1 leased ones stay)?"),
        (("--leased",), "Remove 4 messages from queue 'jobs' (1 leased of them)?"),
    ],
    ids=["ready and delayed", "all"],
)
def test_purge_looks_first_and_says_how_many(
    jobs: Ctl, terminal: Terminal, more: tuple[str, ...], question: str
) -> None:
    """The number is that which goes."""
    for delay in ("0", "0", "0", "60"):
        jobs("message", "send", "-n", "jobs", "-m", "x", "-d", delay)
    jobs("message", "receive", "-n", "jobs")
    asked = terminal("queue", "purge", "-n", "jobs", *more)
    asked.expect_exact(f"{question} [y/N]: ")
    asked.sendline("y")
    number = question.split()[1]

    assert ended(asked) == (0, f'y\r\n{{"purged": {number}}}\r\n')


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("queue purge -n none", "queue 'none' does not exist"),
        ("dlq purge -n none", "queue 'none' does not exist"),
        ("dlq redrive -n none", "queue 'none' does not exist"),
        ("topic delete -n none", "topic 'none' does not exist"),
        ("topic unsubscribe -n none -c a --discard", "topic 'none' does not exist"),
        ("topic unsubscribe -n news -c none --discard", "'none' has not subscribed"),
    ],
)
def test_nothing_is_asked_about_what_is_not_there(
    jobs: Ctl, terminal: Terminal, command: str, sentence: str
) -> None:
    """A typo is reported before I agree to anything."""
    jobs("topic", "subscribe", "-n", "news", "-c", "a")
    status, shown = ended(terminal(*command.split()))

    assert status == 1
    assert sentence in shown
    assert "[y/N]" not in shown


@pytest.mark.parametrize(
    ("command", "question"),
    [
        ("topic delete -n news", "Delete topic 'news', 2 subscriptions and 4 messages?"),
        (
            "topic unsubscribe -n news -c a --discard",
            "Delete 2 messages that 'a' has not received from topic 'news'?",
        ),
    ],
)
def test_questions_about_topics_say_what_goes(
    ctl: Ctl, terminal: Terminal, command: str, question: str
) -> None:
    """Before it goes."""
    for consumer in "ab":
        ctl("topic", "subscribe", "-n", "news", "-c", consumer)
    for body in "12":
        ctl("topic", "publish", "-n", "news", "-m", body)
    asked = terminal(*command.split())
    asked.expect_exact(f"{question} [y/N]: ")
    asked.sendline("n")

    assert ended(asked)[0] == 1


@pytest.mark.parametrize(
    ("command", "printed"),
    [("queue purge", "purged"), ("dlq purge", "purged"), ("dlq redrive", "redriven")],
)
def test_nothing_is_asked_if_there_is_nothing_to_do(
    jobs: Ctl, terminal: Terminal, command: str, printed: str
) -> None:
    """Zero is the answer, not a question."""
    done = terminal(*command.split(), "-n", "jobs")

    assert ended(done) == (0, f'{{"{printed}": 0}}\r\n')


def test_password_is_asked_for_once_where_a_question_follows(
    server_url: str, jobs: Ctl, terminal: Terminal, redis: Redis, ns: str
) -> None:
    """A command that looks, asks and acts opens two clients."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    redis.execute_command("ACL", "SETUSER", ns, "on", ">s3cret", "~*", "&*", "+@all")
    try:
        scheme, _, rest = server_url.partition("://")
        line = ("--password-prompt", "queue", "purge", "-n", "jobs")
        asked = terminal(*line, url=f"{scheme}://{ns}@{rest}")
        asked.expect_exact("Password: ")
        asked.sendline("s3cret")
        asked.expect_exact("[y/N]: ")
        asked.sendline("y")
        status, shown = ended(asked)
    finally:
        redis.execute_command("ACL", "DELUSER", ns)

    assert (status, "Password" in shown) == (0, False)


def test_yes_asks_nothing(jobs: Ctl, terminal: Terminal) -> None:
    """For experienced users."""
    assert ended(terminal("queue", "purge", "-n", "jobs", "-y")) == (0, '{"purged": 0}\r\n')


def test_delete_stays_silent(jobs: Ctl, terminal: Terminal) -> None:
    """RSMQ's own commands ask nothing."""
    assert ended(terminal("queue", "delete", "-n", "jobs")) == (0, "")


def test_ctrl_c_at_a_question_exits_with_130(
    jobs: Ctl, terminal: Terminal, redis: Redis, ns: str
) -> None:
    """And nothing is done."""
    jobs("message", "send", "-n", "jobs", "-m", "x")
    asked = terminal("queue", "purge", "-n", "jobs")
    asked.expect_exact("[y/N]: ")
    # Python's own prompt may miss one that comes before it begins to wait.
    for _ in range(PATIENCE_S):
        asked.sendintr()
        if asked.expect([pexpect.EOF, pexpect.TIMEOUT], timeout=1) == 0:
            break
    asked.close()

    assert asked.exitstatus == 130
    assert redis.zcard(f"{ns}:jobs") == 1


def test_password_prompt_shows_no_password(
    jobs: Ctl, terminal: Terminal, redis: Redis, server_url: str, ns: str
) -> None:
    """What I type does not appear, and opens the door."""
    redis.execute_command("ACL", "SETUSER", ns, "on", ">s3cret", "allkeys", "allchannels", "+@all")
    scheme, _, rest = server_url.partition("://")
    try:
        asked = terminal("--password-prompt", "queue", "list", url=f"{scheme}://{ns}@{rest}")
        asked.expect_exact("Password: ")
        asked.sendline("s3cret")
        status, shown = ended(asked)
    finally:
        redis.execute_command("ACL", "DELUSER", ns)

    assert (status, shown.strip()) == (0, '["jobs"]')


# bodies


@pytest.mark.parametrize("output", ["json", "ndjson", "table", "csv"])
def test_no_message_steers_the_terminal(jobs: Ctl, terminal: Terminal, output: str) -> None:
    """Escape sequences are shown, never obeyed."""
    jobs("message", "send", "-n", "jobs", "-m", "a\x1b]0;evil\x07\x9b2J\x7fz")
    _, shown = ended(terminal("message", "peek", "-n", "jobs", "-o", output))

    assert not set(shown) & set("\x1b\x07\x9b\x7f")
    assert "evil" in shown


def test_export_to_the_terminal_is_harmless_too(jobs: Ctl, terminal: Terminal) -> None:
    """JSON alone lets some characters through."""
    jobs("message", "send", "-n", "jobs", "-m", "a\x9b2J\x7f\u202ez")
    status, shown = ended(terminal("message", "export", "-n", "jobs"))

    assert status == 0
    assert r"a\u009b2J\u007f\u202ez" in shown


# progress


def test_export_and_import_show_a_bar(
    jobs: Ctl, terminal: Terminal, redis: Redis, ns: str, tmp_path: Path
) -> None:
    """How far it is, on stderr; the result is on stdout alone."""
    file, out = tmp_path / "x.ndjson", tmp_path / "out"
    file.write_text('{"body": "x"}\n' * 5000)
    status, shown = ended(
        terminal("message", "import", "-n", "jobs", "-f", str(file), redirect=f">{out}")
    )

    assert status == 0
    assert out.read_text() == '{"imported": 5000}\n'
    assert "importing" in shown
    assert "5000/5000" in plain(shown)
    status, shown = ended(
        terminal("message", "export", "-n", "jobs", "-f", str(file), redirect=f">{out}")
    )
    assert (status, out.read_text()) == (0, '{"exported": 5000}\n')
    assert "exporting" in shown
    assert "5000/5000" in plain(shown)


def lines_of(ctl: Ctl, folder: Path, queue: str, count: int) -> None:
    """Fill a queue."""
    (folder / "in").write_text("x\n" * count)
    assert ctl("message", "send", "-n", queue, "-f", str(folder / "in")).status == 0


@pytest.mark.parametrize(
    ("count", "line", "label"),
    [
        (1000, "queue purge -n jobs -y", ""),
        (1001, "queue purge -n jobs -y", "removing"),
        (1000, "queue move -n jobs --to other", ""),
        (1001, "queue move -n jobs --to other", "moving"),
        (1001, "dlq redrive -n other --dead-letter jobs --filter rc==0", "moving"),
        (2, "queue move -n jobs --to other --rate 1/s", "moving"),
        (1000, "message export -n jobs -f out", ""),
        (1001, "message export -n jobs -f out", "exporting"),
        (1000, "message import -n other -f out", ""),
        (1001, "message import -n other -f out", "importing"),
    ],
)
def test_short_work_shows_no_bar(
    jobs: Ctl,
    terminal: Terminal,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    line: str,
    label: str,
) -> None:
    """Up to a thousand messages, at any speed of the machine; a rate makes few of them long."""
    monkeypatch.chdir(tmp_path)
    jobs("queue", "create", "-n", "other")
    lines_of(jobs, tmp_path, "jobs", count)
    if "import" in line:
        jobs("message", "export", "-n", "jobs", "-f", "out")
    status, shown = ended(terminal(*line.split()))

    assert (status, re.findall("removing|moving|(?:ex|im)porting", shown)[:1]) == (
        0,
        [label] if label else [],
    )
    assert f": {count}}}" in shown


def test_without_a_terminal_on_stderr_there_is_no_bar(
    jobs: Ctl, terminal: Terminal, tmp_path: Path
) -> None:
    """A log file gets no bar."""
    err = tmp_path / "err"
    file = str(tmp_path / "x")
    status, shown = ended(
        terminal("message", "export", "-n", "jobs", "-f", file, redirect=f"2>{err}")
    )

    assert (status, shown, err.read_text()) == (0, '{"exported": 0}\r\n', "")


def test_send_file_with_ids_on_the_terminal_shows_no_bar(
    jobs: Ctl, terminal: Terminal, tmp_path: Path
) -> None:
    """Ids are progress enough, and stay whole."""
    file = tmp_path / "in"
    file.write_text("a\nb\n")
    status, shown = ended(terminal("message", "send", "-n", "jobs", "-f", str(file)))

    assert status == 0
    assert re.fullmatch(r"([a-zA-Z0-9]{32}\r\n){2}", shown)


# top


def test_top_shows_all_queues_sorts_by_keys_and_quits(jobs: Ctl, terminal: Terminal) -> None:
    """A live view: numbers change, keys sort, q ends with success."""
    jobs("queue", "create", "-n", "busy")
    for _ in range(3):
        jobs("message", "send", "-n", "busy", "-m", "x")
    child = terminal("top", "-i", "0.1")
    top = Screen(child)
    top.until(r"2 queues  .* ns=.*\s+QUEUE\^ +READY +LEASED +DELAYED +OLDEST")
    top.until(r"busy +3 +0 +0 +0:0\d .*\s+jobs +0 ")
    jobs("message", "send", "-n", "jobs", "-m", "x")
    top.until(r"jobs +1 ")
    child.send("r")
    top.until("READYv")
    child.send("r")
    top.until(r"READY\^")
    top.until(r"jobs +1 .*\s+busy +3 ")
    child.send("q")

    assert top.ended() == 0
    # The cursor is back, and the screen as it was.
    assert top.raw.rstrip().endswith("\x1b[?25h\x1b[?1049l")


def test_top_interrupted_restores_the_terminal(
    jobs: Ctl, terminal: Terminal, server_url: str, ns: str
) -> None:
    """Ctrl-C: 130, the screen as it was, keys echoed again."""
    child = terminal("top", "-i", "0.1", after="echo status $?; stty -a")
    top = Screen(child)
    top.until("jobs +0 ")
    assert "\x1b[?1049l" not in top.raw
    child.sendintr()
    top.ended()

    assert "\x1b[?1049l" in top.raw
    assert "rsmqctl: interrupted" in top.raw
    assert "status 130" in top.raw
    assert re.search(r"[^-]icanon", top.raw)
    assert re.search(r"[^-]echo\b", top.raw)


def test_top_without_colours_has_none(jobs: Ctl, terminal: Terminal) -> None:
    """NO_COLOR is honoured."""
    raw = []
    for env in ({}, {"NO_COLOR": "1"}):
        child = terminal("top", "-i", "0.1", **env)
        top = Screen(child)
        top.until("jobs +0 ")
        child.send("q")
        top.ended()
        raw.append(top.raw)

    colour = re.compile(r"\x1b\[[0-9;]*3[0-7][;m]")
    assert colour.search(raw[0])
    assert not colour.search(raw[1])


def test_top_while_redis_is_away_says_so_and_goes_on(terminal: Terminal, tmp_path: Path) -> None:
    """An outage at night is shown, not run away from."""
    with EmbeddedServer.acquire(tmp_path / "data", fsync="everysec") as server:
        child = terminal("top", "-i", "0.1", url=server.url)
        top = Screen(child)
        top.until("0 queues")
        with Redis.from_url(server.url) as client:
            client.shutdown(nosave=True)
        child.send("r")
        top.until("READYv")  # keys are heard while a look waits for the server
        top.until("trying again: redis cannot be reached: ")
        server.ensure_running()
        top.until(r"0 queues [^\n]*\n *\r\n *QUEUE")
        child.send("q")

        assert top.ended() == 0


def test_top_in_few_lines_says_what_is_left_out(jobs: Ctl, terminal: Terminal) -> None:
    """More queues than lines: the first ones, and how many there are."""
    for number in range(30):
        jobs("queue", "create", "-n", f"queue-{number:02}")
    child = terminal("top", "-i", "0.1")
    top = Screen(child)
    top.until("31 queues, the first 26 shown")
    top.until("queue-24 ")
    top.until("sort: +n queue")
    child.send("q")

    assert top.ended() == 0


# a command without a terminal's input


def test_a_question_with_input_from_a_file_is_refused(jobs: Ctl, terminal: Terminal) -> None:
    """A user must be there to answer."""
    status, shown = ended(terminal("queue", "purge", "-n", "jobs", redirect="</dev/null"))

    assert status == 2
    assert "give --yes" in shown
