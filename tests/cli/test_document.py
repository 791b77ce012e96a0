"""The protocol document's walk through a queue, command by command, compared with what it prints.

Lines are run as they stand there, without further options, on a server of their own, because the
document uses the default namespace. Its ids and times are those of its author; ours take their
place. Its ``maxsize`` of 65535 was the default of the tool it was written with; ours is RSMQ's.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator

import pytest
from redis import Redis

from aiorsmq_ng.embedded import EmbeddedServer

from .ctl import Ctl, Outcome, shell

STORED = {"vt": "30", "delay": "0", "maxsize": "65536"}
SILENCE = Outcome(0, "", "")


class Walk:
    """A shell and a redis-cli, side by side."""

    def __init__(self, call: Ctl, redis: Redis) -> None:
        self._call = call
        self.redis = redis

    def line(self, text: str) -> Outcome:
        """Run a line of the document."""
        program, *args = shlex.split(text)
        assert program == "rsmqctl"
        return self._call(*args)

    def queue_hash(self) -> list[tuple[str, str]]:
        """Return the fields of the queue's hash in their order; the two times only checked."""
        found = self.redis.hgetall("rsmq:test-queue:Q")
        server_s = self.redis.time()[0]
        for name in ("created", "modified"):
            assert server_s - 60 <= int(found.pop(name)) <= server_s
        return list(found.items())

    def score(self, id: str) -> int:
        """Return when a message becomes visible."""
        return int(self.redis.zscore("rsmq:test-queue", id))


@pytest.fixture
def walk(call: Ctl, monkeypatch: pytest.MonkeyPatch) -> Iterator[Walk]:
    """A server of this test alone, named by the environment."""
    with (
        EmbeddedServer.ephemeral() as server,
        Redis.from_url(server.url, decode_responses=True) as redis,
    ):
        monkeypatch.setenv("REDIS_URL", server.url)
        yield Walk(call, redis)


@pytest.fixture
def sent(walk: Walk) -> str:
    """A queue with one message, as the document has it halfway; the id."""
    walk.line("rsmqctl queue create -n test-queue")
    return walk.line('rsmqctl message send -n test-queue -m "Hello, World"').out.strip()


def test_queues_are_listed_as_the_document_shows(walk: Walk) -> None:
    """No key, an empty list; then a queue in both."""
    assert walk.redis.smembers("rsmq:QUEUES") == set()
    assert walk.line("rsmqctl queue list") == Outcome(0, "[]\n", "")
    assert walk.line("rsmqctl queue create -n test-queue") == SILENCE
    assert walk.line("rsmqctl queue list") == Outcome(0, '["test-queue"]\n', "")
    assert walk.redis.smembers("rsmq:QUEUES") == {"test-queue"}
    assert sorted(walk.redis.keys("*")) == ["rsmq:QUEUES", "rsmq:test-queue:Q"]


def test_a_new_queue_has_the_five_fields_of_the_document(walk: Walk) -> None:
    """vt, delay, maxsize, and two times."""
    walk.line("rsmqctl queue create -n test-queue")

    assert list(walk.redis.hgetall("rsmq:test-queue:Q")) == [
        "vt", "delay", "maxsize", "created", "modified",
    ]  # fmt: skip
    assert walk.queue_hash() == list(STORED.items())


def test_a_sent_message_is_stored_as_the_document_shows(walk: Walk, sent: str) -> None:
    """An id of 32 characters, visible now, its body in the hash."""
    now_ms = walk.redis.time()[0] * 1000

    assert re.fullmatch(r"[a-z0-9]{10}[a-zA-Z0-9]{22}", sent)
    assert walk.redis.zrange("rsmq:test-queue", 0, -1) == [sent]
    assert now_ms - 60_000 <= walk.score(sent) <= now_ms + 1000
    assert walk.queue_hash() == [*STORED.items(), (sent, "Hello, World"), ("totalsent", "1")]


def test_send_prints_the_id_and_nothing_else(walk: Walk, sent: str) -> None:
    """The id is what the next commands need."""
    printed = walk.line('rsmqctl message send -n test-queue -m "Hello, World"')

    assert printed == Outcome(0, f"{walk.redis.zrange('rsmq:test-queue', -1, -1)[0]}\n", "")


def test_receive_prints_and_stores_what_the_document_shows(walk: Walk, sent: str) -> None:
    """The message, hidden for vt from its first receive on."""
    received = walk.line("rsmqctl message receive -n test-queue")
    ts = json.loads(received.out)["ts"]

    assert received == Outcome(
        0, f'{{"id": "{sent}", "message": "Hello, World", "rc": 1, "ts": {ts}}}\n', ""
    )
    assert walk.score(sent) == ts + 30_000
    assert sorted(walk.queue_hash()) == sorted(
        [
            *STORED.items(), (sent, "Hello, World"), ("totalsent", "1"), ("totalrecv", "1"),
            (f"{sent}:rc", "1"), (f"{sent}:fr", str(ts)),
        ]
    )  # fmt: skip


def test_visibility_prints_the_sentence_and_moves_the_score(walk: Walk, sent: str) -> None:
    """Hidden for ten minutes from now on."""
    walk.line("rsmqctl message receive -n test-queue")
    changed = walk.line(f"rsmqctl message visibility -n test-queue -i {sent} -t 600")
    now_ms = walk.redis.time()[0] * 1000

    sentence = f"Message ID: {sent} visibility timeout set to 600s\n"
    assert changed == Outcome(0, sentence, "")
    assert now_ms + 540_000 <= walk.score(sent) <= now_ms + 601_000


def test_delete_removes_member_and_fields_silently(walk: Walk, sent: str) -> None:
    """Nothing of the message is left; the counters are."""
    walk.line("rsmqctl message receive -n test-queue")

    assert walk.line(f"rsmqctl message delete -n test-queue -i {sent}") == SILENCE
    assert not walk.redis.exists("rsmq:test-queue")
    assert sorted(walk.queue_hash()) == sorted(
        [*STORED.items(), ("totalsent", "1"), ("totalrecv", "1")]
    )


def test_pop_prints_the_message_and_deletes_it(walk: Walk, sent: str) -> None:
    """A message taken for good."""
    popped = walk.line("rsmqctl message pop -n test-queue")

    ts = json.loads(popped.out)["ts"]
    assert popped == Outcome(
        0, f'{{"id": "{sent}", "message": "Hello, World", "rc": 1, "ts": {ts}}}\n', ""
    )
    assert not walk.redis.exists("rsmq:test-queue")


def test_describe_and_delete_of_the_queue(walk: Walk, sent: str) -> None:
    """A JSON object; then silence, and no key."""
    described = walk.line("rsmqctl queue describe -n test-queue")

    assert (described.status, described.err) == (0, "")
    assert list(json.loads(described.out))[:9] == [
        "vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified", "msgs",
        "hiddenmsgs",
    ]  # fmt: skip
    assert walk.line("rsmqctl queue delete -n test-queue") == SILENCE
    assert walk.redis.keys("*") == []


def test_the_lines_as_processes_print_the_same(walk: Walk) -> None:
    """What holds in the tests' process holds on a shell."""
    assert shell("queue", "create", "-n", "test-queue") == SILENCE
    assert shell("queue", "list") == Outcome(0, '["test-queue"]\n', "")
