"""The errors: their families, their codes, and the page that lists them."""

import re
from pathlib import Path

import pytest

import aiorsmq_ng
from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    InvalidValue,
    LeaseLost,
    NotSupported,
    QueueNotFound,
    RSMQError,
    SendUnknown,
    ServerError,
    Unavailable,
    UsageError,
    WrongContext,
)
from aiorsmq_ng._protocol.topic_names import queue_name

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
FAMILIES = (ServerError, UsageError, Unavailable)


def library_errors() -> dict[str, type[RSMQError]]:
    found = {}
    waiting = [RSMQError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__ == "aiorsmq_ng.errors":
            found[kind.__name__] = kind
    return found


def family(kind: type[RSMQError]) -> type[RSMQError]:
    (only,) = [base for base in FAMILIES if issubclass(kind, base)]
    return only


def test_every_error_is_of_one_family_and_importable_from_the_root():
    errors = library_errors()
    del errors["RSMQError"]

    for name, kind in errors.items():
        assert getattr(aiorsmq_ng, name) is kind
        assert name in aiorsmq_ng.__all__
        assert family(kind) in FAMILIES


@pytest.mark.parametrize(
    ("kind", "base"),
    [
        (QueueNotFound, ServerError),
        (LeaseLost, ServerError),
        (AccessDenied, ServerError),
        (InvalidValue, UsageError),
        (ClientClosed, UsageError),
        (NotSupported, UsageError),
        (WrongContext, UsageError),
        (SendUnknown, Unavailable),
    ],
)
def test_the_families_are_what_a_user_would_guess(kind, base):
    assert family(kind) is base


def test_the_page_lists_every_error_with_its_code_under_its_family():
    listed: dict[str, set[str]] = {}
    heads: dict[str, str] = {}
    head = name = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            head = line
        row = re.match(r"\| (?:`(\w+)`)? ?\| `(\w+)` \|", line)
        if row and any(base.__name__ in head for base in FAMILIES):
            name = row[1] or name
            heads[name] = head
            listed.setdefault(name, set()).add(row[2])

    expected = {
        name: set(InvalidValue.CODES) if kind is InvalidValue else {kind.code}
        for name, kind in library_errors().items()
        if kind is not RSMQError
    }
    assert listed == expected
    for name, where in heads.items():
        assert f"`{family(library_errors()[name]).__name__}`" in where


@pytest.mark.parametrize("queue", [queue_name("news", "mail"), queue_name("n", "m", "p_1")])
def test_a_subscriptions_queue_that_is_missing_is_not_to_be_created_by_hand(queue):
    text = str(aiorsmq_ng.QueueNotFound(queue, "rsmq"))

    assert "topic.subscribe()" in text
    assert "subscription.join()" in text
    assert "create_queue" not in text


@pytest.mark.parametrize("queue", ["jobs", "jobs-dead", "news__", "news__mail-dead"])
def test_any_other_queue_is_created_by_create_queue(queue):
    assert "create_queue()" in str(aiorsmq_ng.QueueNotFound(queue, "rsmq"))


async def test_a_subscription_to_each_peer_names_the_argument_that_is_missing():
    topic = aiorsmq_ng.RSMQ("unix:///tmp/nowhere.sock").topic("news")
    with pytest.raises(aiorsmq_ng.InvalidValue, match="pass peer="):
        await topic.subscribe("mail", mode="broadcast")
