"""Every duration that users can set: seconds or a timedelta, and a refusal at once."""

import inspect
from datetime import timedelta

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, Queue, Retry, Subscription, Topic, Worker
from aiorsmq_ng.testing import FaultProxy

URL = "unix:///tmp/nowhere.sock"
#: Numbers that are no durations.
NO_DURATIONS = {(FaultProxy, "bandwidth")}
NONSENSE = ["4", True, float("nan"), float("inf"), [4], timedelta(seconds=-1), -1]


def made(kind):
    client = RSMQ(URL)
    return {
        Worker: lambda: Worker(client),
        FaultProxy: lambda: FaultProxy(URL),
        Topic: lambda: client.topic("news"),
        Queue: lambda: client.queue("jobs"),
        Subscription: lambda: client.topic("news").subscription("mail"),
        RSMQ: lambda: client,
    }[kind]()


async def handle(body: str) -> None: ...


def settable(kind):
    """Names of the public attributes of *kind* that hold a number and can be set."""
    thing = made(kind)
    names = {name for name in dir(thing) if not name.startswith("_")}
    for name in sorted(names):
        static = inspect.getattr_static(thing, name)
        if inspect.isroutine(static) or (isinstance(static, property) and static.fset is None):
            continue
        value = getattr(thing, name)
        is_limit = name == "wait_for_server"
        if (isinstance(value, float) or is_limit) and (kind, name) not in NO_DURATIONS:
            try:
                setattr(thing, name, value)
            except AttributeError:
                continue
            yield name


SETTABLE = [
    (kind, name)
    for kind in (Worker, FaultProxy, Topic, Queue, Subscription, RSMQ)
    for name in settable(kind)
]

#: Constructors and factories by what they build, and their durations.
CONSTRUCTED = [
    (Options, "deadline"),
    (Options, "connect_timeout"),
    (Options, "poll_cap"),
    (Options, "dedup_window"),
    (Retry, "base"),
    (Retry, "cap"),
    (lambda **rules: Retry(backoff=(1, rules["step"])), "step"),
    (lambda **rules: Worker(RSMQ(URL), **rules), "grace"),
    (lambda **rules: Worker(RSMQ(URL), **rules), "wait_for_server"),
    (lambda **rules: Worker(RSMQ(URL)).handler("jobs", **rules)(handle), "timeout"),
    (lambda **rules: Worker(RSMQ(URL)).handler("jobs", **rules), "vt"),
    (lambda **rules: Worker(RSMQ(URL)).batch_handler("jobs", size=2, **rules), "wait"),
    (lambda **rules: RSMQ(URL).queue("jobs", **rules), "vt"),
    (lambda **rules: RSMQ(URL).topic("news", **rules), "keep_backlog"),
]


def test_the_attributes_that_can_be_set_are_found():
    assert {(Worker, "alone"), (Worker, "wait_for_server"), (FaultProxy, "latency")} <= set(
        SETTABLE
    )


@pytest.mark.parametrize(("kind", "name"), SETTABLE)
def test_a_duration_that_is_set_is_read_as_seconds(kind, name):
    thing = made(kind)
    for value in (4, 4.0, timedelta(seconds=4)):
        setattr(thing, name, value)
        assert getattr(thing, name) == 4.0


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize(("kind", "name"), SETTABLE)
def test_what_is_no_duration_is_refused_when_it_is_set(kind, name, value):
    thing = made(kind)
    before = getattr(thing, name)
    with pytest.raises(InvalidValue, match=name):
        setattr(thing, name, value)
    assert getattr(thing, name) == before


@pytest.mark.parametrize(("make", "name"), CONSTRUCTED)
def test_a_constructor_takes_a_timedelta(make, name):
    make(**{name: timedelta(seconds=4)})


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
@pytest.mark.parametrize(("make", "name"), CONSTRUCTED)
def test_a_constructor_refuses_what_is_no_duration(make, name, value):
    with pytest.raises(InvalidValue):
        make(**{name: value})
