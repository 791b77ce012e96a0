"""``rsmqctl dlq``: dead letters, the filter, and the way back."""

from __future__ import annotations

import asyncio
import json

import click
import pytest

from aiorsmq_ng import RSMQ, Message
from aiorsmq_ng.cli.filters import compile_filter

from .ctl import Ctl, Outcome


@pytest.fixture
def dead(jobs: Ctl, server_url: str, ns: str) -> Ctl:
    """A queue with four dead letters, of which one is no JSON."""

    async def reject() -> None:
        async with RSMQ(server_url, ns=ns) as rsmq:
            queue = rsmq.queue("jobs")
            for kind, size in (("invoice", 1), ("mail", 2), ("invoice", 3)):
                await queue.send({"type": kind, "n": size, "tags": ["a", kind]})
            await queue.send("no json")
            for message in await queue.receive_many(4):
                await message.reject(f"no {message.rc}")

    asyncio.run(reject())
    return jobs


def messages(ctl: Ctl, queue: str = "jobs") -> int:
    return json.loads(ctl("queue", "describe", "-n", queue).out)["msgs"]


def test_list_names_the_queues_with_dead_letters(dead: Ctl) -> None:
    """I see where something went wrong, and how much."""
    dead("queue", "create", "-n", "fine")
    listed = dead("dlq", "list")
    (row,) = json.loads(listed.out)

    assert (listed.status, listed.err) == (0, "")
    assert 0 <= row.pop("oldest_age") < 60
    assert row == {"queue": "jobs", "dead_letter": "jobs-dead", "dead": 4}


def test_list_without_dead_letters_is_empty(jobs: Ctl) -> None:
    """Good news is no failure, unless I say so."""
    note = "rsmqctl: no queue has dead letters\n"

    assert jobs("dlq", "list") == Outcome(0, "[]\n", note)
    assert jobs("dlq", "list", "--fail-empty").status == 3


def test_show_prints_messages_with_their_reasons(dead: Ctl) -> None:
    """What it was, how often it was tried, why it was given up."""
    rows = json.loads(dead("dlq", "show", "-n", "jobs", "-s", "-1").out)

    assert [(row["message"], row["rc"], row["reason"]) for row in rows] == [("no json", 1, "no 1")]
    assert len(json.loads(dead("dlq", "show", "-n", "jobs").out)) == 4
    assert messages(dead, "jobs-dead") == 4


def test_show_without_dead_letters_is_empty(jobs: Ctl) -> None:
    """A queue that never failed has no dead-letter queue, and that is fine."""
    note = "rsmqctl: queue 'jobs-dead' has no dead letters of queue 'jobs'\n"

    assert jobs("dlq", "show", "-n", "jobs") == Outcome(0, "[]\n", note)
    assert jobs("dlq", "show", "-n", "jobs", "--fail-empty").status == 3


def test_show_of_a_dead_letter_queue_says_which_queue_to_give(dead: Ctl) -> None:
    """-n is the queue that they come from, and I gave the one that they are in."""
    note = (
        "rsmqctl: queue 'jobs-dead-dead' has no dead letters of queue 'jobs-dead'; 'jobs-dead' is "
        "a dead-letter queue itself: give -n jobs\n"
    )

    assert dead("dlq", "show", "-n", "jobs-dead") == Outcome(0, "[]\n", note)


def test_show_behind_the_last_one_says_where_it_looked(dead: Ctl) -> None:
    note = "rsmqctl: queue 'jobs-dead' has no dead letters of queue 'jobs' from -s 9 on\n"

    assert dead("dlq", "show", "-n", "jobs", "-s", "9") == Outcome(0, "[]\n", note)


def test_redrive_of_everything_moves_all_back(dead: Ctl) -> None:
    """With --yes, all of them."""
    assert dead("dlq", "redrive", "-n", "jobs", "-y") == Outcome(0, '{"redriven": 4}\n', "")
    assert (messages(dead), messages(dead, "jobs-dead")) == (4, 0)
    assert dead("dlq", "redrive", "-n", "jobs", "-y").out == '{"redriven": 0}\n'


def test_redrive_by_filter_needs_no_question(dead: Ctl) -> None:
    """Some of them, chosen by what is in them."""
    line = ("dlq", "redrive", "-n", "jobs", "--filter", 'body.type == "invoice" and body.n > 1')

    assert dead(*line, "--dry-run") == Outcome(0, '{"would_redrive": 1}\n', "")
    assert messages(dead, "jobs-dead") == 4
    assert dead(*line).out == '{"redriven": 1}\n'
    (row,) = json.loads(dead("message", "peek", "-n", "jobs").out)
    assert json.loads(row["message"])["n"] == 3


def test_redrive_of_some_at_a_rate(dead: Ctl) -> None:
    """A count is enough to know what I want."""
    done = dead("dlq", "redrive", "-n", "jobs", "-c", "3", "--rate", "100/s")

    assert done.out == '{"redriven": 3}\n'
    assert messages(dead, "jobs-dead") == 1
    again = dead("dlq", "redrive", "-n", "jobs", "--dry-run", "-c", "9")
    assert again.out == '{"would_redrive": 1}\n'


def test_redrive_from_another_dead_letter_queue(dead: Ctl) -> None:
    """For a worker with another dead-letter queue."""
    dead("queue", "create", "-n", "morgue")
    dead("queue", "move", "-n", "jobs-dead", "--to", "morgue")

    assert dead("dlq", "redrive", "-n", "jobs", "--dry-run").out == '{"would_redrive": 0}\n'
    done = dead("dlq", "redrive", "-n", "jobs", "--dead-letter", "morgue", "-y")
    assert done.out == '{"redriven": 4}\n'
    absent = dead("dlq", "redrive", "-n", "jobs", "--dead-letter", "absent", "-y")
    assert absent.status == 1
    assert "queue 'absent' does not exist" in absent.sentence


def test_redrive_without_dead_letters_moves_none(jobs: Ctl) -> None:
    """Nothing to do is done."""
    assert jobs("dlq", "redrive", "-n", "jobs", "--yes").out == '{"redriven": 0}\n'
    assert jobs("dlq", "redrive", "-n", "jobs", "--dry-run").out == '{"would_redrive": 0}\n'


def test_purge_removes_them_for_good(dead: Ctl) -> None:
    """The dead letters, and nothing of the queue."""
    dead("message", "send", "-n", "jobs", "-m", "alive")

    assert dead("dlq", "purge", "-n", "jobs", "--yes") == Outcome(0, '{"purged": 4}\n', "")
    assert (messages(dead), messages(dead, "jobs-dead")) == (1, 0)


def test_purge_without_dead_letters_removes_none(jobs: Ctl) -> None:
    """Nothing to do is done."""
    assert jobs("dlq", "purge", "-n", "jobs", "--yes").out == '{"purged": 0}\n'


# the filter

LETTER = Message(
    "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd",
    b'{"type": "mail", "n": 7, "user": {"name": "Zo\\u00eb"}, "a-b": [1, {"c": null}]}',
    3,
    1645021703008,
)


@pytest.mark.parametrize(
    "condition",
    [
        "body.type == 'mail'",
        'body["type"] != "invoice"',
        "body.user.name == 'Zoë'",
        "body['a-b'][0] == 1",
        "body['a-b'][1].c == null",
        "body.absent == null and body.absent.deeper == null",
        "5 < body.n <= 7",
        "body.n in [1, 7]",
        "body.type not in ('a', 'b')",
        "'mail' in text",
        "rc >= 3 and not rc > 3",
        "rc == 0 or size > 20",
        "sent < fr",
        "id == 'g73zkl38qzSBNq2NcnVVlCldqwqFXRJd'",
        "not false and true",
        "body.n > -1",
        "body.n",
    ],
)
def test_filter_that_holds(condition: str) -> None:
    """What one writes without reading a manual."""
    assert compile_filter(condition)(LETTER) is True


@pytest.mark.parametrize(
    "condition",
    [
        "body.type == 'invoice'",
        "body.n > 'text'",
        "body.absent > 1",
        "body.absent.deeper",
        "body[9] == 1",
        "7 in body.n",
        "null",
        "text == 'mail'",
    ],
)
def test_filter_that_does_not_hold(condition: str) -> None:
    """Comparing what cannot be compared is no, not an error."""
    assert compile_filter(condition)(LETTER) is False


def test_filter_on_a_body_that_is_no_json_finds_null() -> None:
    """Such a message has a text, but no fields."""
    plain = Message("x" * 32, b"plain \xff", 0, 0)

    assert compile_filter("body == null and text == 'plain \\\\xff'")(plain)


@pytest.mark.parametrize(
    "condition",
    [
        "", "body.type =", "open('/etc/passwd')", "body.__class__()", "lambda: 1", "x == 1",
        "[i for i in body]", "body.n + 1 == 8", "(y := 1)", "f'{body}'", "body is null",
        "body[1:2]", "{'a': 1}", "b'x' == text", "...", "(" * 500,
    ],
)  # fmt: skip
def test_filter_that_is_more_than_a_comparison_is_refused(condition: str) -> None:
    """Nothing in a filter can run, before any message is looked at."""
    with pytest.raises(click.BadParameter):
        compile_filter(condition)


def test_filter_does_not_reach_into_python_objects() -> None:
    """A dot is a key of the body, never an attribute."""
    assert compile_filter("body.__class__ == null and text.upper == null")(LETTER)


def test_redrive_with_a_bad_filter_exits_with_2(jobs: Ctl) -> None:
    """And one sentence says what a filter looks like."""
    refused = jobs("dlq", "redrive", "-n", "jobs", "--filter", "open(3)")

    assert (refused.status, refused.out) == (2, "")
    assert "a filter cannot contain 'open(3)'; write it like: " in refused.sentence


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_redrive_of_less_than_one_exits_with_2(jobs: Ctl, more: tuple[str, ...]) -> None:
    """A count that cannot be meant is refused, also where there is nothing to move."""
    refused = jobs("dlq", "redrive", "-n", "jobs", "-c", "-1", *more)

    assert (refused.status, refused.out) == (2, "")
    assert "-1 is not in the range" in refused.sentence
