"""The commands of every day, run by the ACL users of the pages security.md and topics.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from aiorsmq_ng.embedded import EmbeddedServer

from ..support.roles import ACL_RULES
from .ctl import Ctl, Outcome

_TOPICS = (Path(__file__).parents[2] / "docs" / "reference" / "topics.md").read_text()
USERS = ACL_RULES | {
    match[1]: match[2].split() for match in re.finditer(r"ACL SETUSER (\w+) ([^`]+?)\n```", _TOPICS)
}
#: Role, and a command that it does its work by; what is in capitals is filled in.
WORK = [
    ("producer", "message send -n jobs -m x"),
    ("producer", "message send -n jobs -m x -d 5"),
    ("producer", "message send -n jobs -m x --dedup-key k"),
    ("producer", "message send -n jobs -f FILE"),
    ("producer", "message import -n jobs -f NDJSON"),
    ("consumer", "message send -n jobs -f FILE"),
    ("consumer", "message receive -n jobs"),
    ("consumer", "message receive -n jobs -c 2 -w 1"),
    ("consumer", "message pop -n jobs"),
    ("consumer", "message delete -n jobs -i ID"),
    ("consumer", "message visibility -n jobs -i ID -t 60"),
    ("consumer", "message tail -n jobs --consume -c 1"),
    ("consumer", "queue purge -n jobs --yes"),
    ("publisher", "topic publish -n news -m x"),
    ("publisher", "topic publish -n news -m x --dedup-key k"),
    ("publisher", "topic publish -n news -f FILE"),
    ("subscriber", "topic subscribe -n news -c b"),
    ("subscriber", "topic observe -n news -c a --ack"),
    ("subscriber", "topic observe -n news -c a --follow --count 1"),
    ("subscriber", "topic describe -n news"),
    ("subscriber", "topic unsubscribe -n news -c a"),
    ("monitor", "queue describe -n jobs"),
    ("monitor", "queue stats"),
    ("monitor", "message peek -n jobs"),
    ("monitor", "message tail -n jobs -c 1"),
    ("monitor", "message export -n jobs"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server with the users of the pages."""
    with (
        EmbeddedServer.acquire(tmp_path_factory.mktemp("rights")) as server,
        Redis.from_url(server.url) as admin,
    ):
        for name, rules in USERS.items():
            admin.execute_command("ACL", "SETUSER", name, *rules)
        yield server


@pytest.fixture
def owner(call: Ctl, server: EmbeddedServer) -> Ctl:
    """Run a command with all rights, on a server with one queue and one topic."""
    with Redis.from_url(server.url) as admin:
        admin.flushall()

    def owner(*args: str) -> Outcome:
        done = call("-r", server.url, *args)
        assert done.status == 0
        return done

    for queue in ("jobs", "jobs-dead"):
        owner("queue", "create", "-n", queue)
    owner("topic", "subscribe", "-n", "news", "-c", "a")
    owner("topic", "publish", "-n", "news", "-m", "first")
    return owner


def as_user(call: Ctl, server: EmbeddedServer, role: str, *args: str) -> Outcome:
    return call("-r", server.url.replace("unix://", f"unix://{role}:password@"), *args)


@pytest.mark.parametrize(("role", "line"), WORK, ids=[f"{role}: {line}" for role, line in WORK])
def test_every_role_does_its_work_by_the_command_line(
    call: Ctl, owner: Ctl, server: EmbeddedServer, tmp_path: Path, role: str, line: str
) -> None:
    """With the rights of the page and no more; nothing is said of rights, either."""
    (tmp_path / "lines").write_text("one\ntwo\n")
    (tmp_path / "ndjson").write_text('{"body": "one"}\n')
    id = owner("message", "send", "-n", "jobs", "-m", "first").out.strip()
    words = {"FILE": str(tmp_path / "lines"), "NDJSON": str(tmp_path / "ndjson"), "ID": id}
    done = as_user(call, server, role, *(words.get(word, word) for word in line.split()))

    assert (done.status, done.err) == (0, "")


def test_send_file_of_a_producer_stores_the_lines_and_leaves_sizes_to_the_server(
    call: Ctl, owner: Ctl, server: EmbeddedServer, tmp_path: Path
) -> None:
    """Without the right to look, a line that is too long is refused with its page."""
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    sent = as_user(call, server, "producer", "message", "send", "-n", "jobs", "-f", str(file))
    assert len(sent.out.split()) == 2
    file.write_text(f"three\n{'x' * 70_000}\n")
    refused = as_user(call, server, "producer", "message", "send", "-n", "jobs", "-f", str(file))

    assert (refused.status, refused.out) == (1, "")
    assert "body of 70000 bytes exceeds the maxsize" in refused.err
    assert json.loads(owner("queue", "describe", "-n", "jobs").out)["msgs"] == 2


def test_a_missing_queue_is_reported_to_roles_that_may_not_look(
    call: Ctl, owner: Ctl, server: EmbeddedServer
) -> None:
    """Before anything is read or waited for."""
    owner("queue", "delete", "-n", "jobs")
    for role, *line in (
        ("producer", "send", "-n", "jobs", "-f", "/dev/null"),
        ("consumer", "tail", "-n", "jobs", "--consume"),
    ):
        failed = as_user(call, server, role, "message", *line)
        assert (failed.status, failed.out) == (1, "")
        assert "queue 'jobs' does not exist" in failed.sentence
