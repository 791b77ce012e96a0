"""The drop-in for aiorsmq 0.1.2: its names, its results, its errors."""

from __future__ import annotations

import asyncio
import gc
import inspect
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from redis import exceptions as redis_errors
from redis.asyncio import Redis

import aiorsmq_ng
from aiorsmq_ng.compat.aiorsmq import AIORSMQ, Message, QueueAttributes, exceptions
from aiorsmq_ng.compat.aiorsmq.exceptions import (
    AIORSMQException,
    InvalidValueException,
    MessageNotFoundException,
    NoAttributesSpecified,
    QueueExistsException,
    QueueNotFoundException,
)
from aiorsmq_ng.compat.aiorsmq.translation import translate

#: aiorsmq works on a client of one server.
BACKENDS = ("server",)

UNKNOWN_ID = "dhoiwpiirm" + "A" * 22
BAD_NAMES = ["", "a" * 161, "hello!", "a:b", "line\n", "QUEUES"]
BAD_SECONDS = [-1, 10_000_000]
BAD_SIZES = [-2, 0, 1023, 65537]
BAD_IDS = ["", "testing", "!" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n"]


@pytest.fixture
async def text_client(server_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(server_url, decode_responses=True)
    yield client
    await client.aclose()


@pytest.fixture
async def bytes_client(server_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(server_url)
    yield client
    await client.aclose()


@pytest.fixture(params=[True, False], ids=["str", "bytes"])
def client(request: pytest.FixtureRequest, text_client: Redis, bytes_client: Redis) -> Redis:
    return text_client if request.param else bytes_client


@pytest.fixture
async def aio(client: Redis, ns: str) -> AsyncIterator[AIORSMQ]:
    """Yield the drop-in, on a client of either decode setting."""
    aio = AIORSMQ(client=client, namespace=ns)
    yield aio
    await aio.aclose()


@pytest.fixture
async def jobs(aio: AIORSMQ) -> str:
    """Name of a queue that exists."""
    await aio.create_queue("jobs")
    return "jobs"


def as_contents(client: Redis, text: str) -> str | bytes:
    """Return *text* in the type that *client* gives contents."""
    return text if client.get_encoder().decode_responses else text.encode()


# The table below is written by hand from aiorsmq 0.1.2: (name, default) in order, "*" before
# keyword-only ones.
REQUIRED = inspect.Parameter.empty
SIGNATURES: dict[str, list[tuple[str, object]]] = {
    "__init__": [
        ("*", None),
        ("client", REQUIRED),
        ("client_encoding", "utf-8"),
        ("namespace", "rsmq"),
        ("real_time", False),
    ],
    "create_queue": [("queue_name", REQUIRED), ("vt", 30), ("delay", 0), ("max_size", 65536)],
    "list_queues": [],
    "delete_queue": [("queue_name", REQUIRED)],
    "get_queue_attributes": [("queue_name", REQUIRED)],
    "set_queue_attributes": [
        ("queue_name", REQUIRED),
        ("vt", None),
        ("delay", None),
        ("max_size", None),
    ],
    "send_message": [("queue_name", REQUIRED), ("contents", REQUIRED), ("delay", None)],
    "receive_message": [("queue_name", REQUIRED), ("vt", None)],
    "delete_message": [("queue_name", REQUIRED), ("id", REQUIRED)],
    "pop_message": [("queue_name", REQUIRED)],
    "change_message_visibility": [("queue_name", REQUIRED), ("id", REQUIRED), ("vt", REQUIRED)],
    "quit": [],
}
MESSAGE_FIELDS = ["contents", "id", "fr", "rc", "sent"]
ATTRIBUTE_FIELDS = [
    "vt", "delay", "max_size", "total_recv", "total_sent", "created", "modified", "messages",
    "hidden_messages",
]  # fmt: skip


def shape(function: Callable[..., Any]) -> list[tuple[str, object]]:
    """Return names and defaults of a function's parameters, in the form of the table."""
    rows: list[tuple[str, object]] = []
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY and ("*", None) not in rows:
            rows.append(("*", None))
        rows.append((parameter.name, parameter.default))
    return rows


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_that_of_aiorsmq(name: str) -> None:
    assert shape(getattr(AIORSMQ, name)) == SIGNATURES[name]


def test_public_methods_are_those_of_aiorsmq_and_aclose() -> None:
    public = {name for name in vars(AIORSMQ) if not name.startswith("_")}

    assert public | {"__init__"} == SIGNATURES.keys() | {"aclose"}


@pytest.mark.parametrize(
    ("made", "fields"), [(Message, MESSAGE_FIELDS), (QueueAttributes, ATTRIBUTE_FIELDS)]
)
def test_result_takes_and_has_the_fields_of_aiorsmq(made: type, fields: list[str]) -> None:
    """Tests of users build results themselves, by keyword, and may change them."""
    assert shape(made.__init__) == [("*", None), *((name, REQUIRED) for name in fields)]
    result = made(**dict.fromkeys(fields, 1))
    for name in fields:
        setattr(result, name, 2)

    assert [getattr(result, name) for name in fields] == [2] * len(fields)


def test_exceptions_form_the_tree_of_aiorsmq() -> None:
    names = {name for name in vars(exceptions) if isinstance(getattr(exceptions, name), type)}

    assert names == {
        "AIORSMQException",
        "InvalidValueException",
        "MessageNotFoundException",
        "NoAttributesSpecified",
        "QueueExistsException",
        "QueueNotFoundException",
    }
    for name in names - {"AIORSMQException"}:
        assert getattr(exceptions, name).__bases__ == (AIORSMQException,)
    assert AIORSMQException.__bases__ == (Exception,)


def test_message_repr_keeps_contents_private() -> None:
    message = Message(contents="secret", id=UNKNOWN_ID, fr=1, rc=1, sent=1.0)

    assert "secret" not in repr(message)


async def test_create_queue_stores_what_was_asked_for(aio: AIORSMQ) -> None:
    assert await aio.create_queue("jobs", 44, 12, 2000) is None
    attributes = await aio.get_queue_attributes("jobs")

    assert (attributes.vt, attributes.delay, attributes.max_size) == (44, 12, 2000)


async def test_create_queue_without_limit_accepts_large_contents(aio: AIORSMQ) -> None:
    await aio.create_queue("jobs", max_size=-1)

    assert len(await aio.send_message("jobs", b"x" * 70_000)) == 32


async def test_create_queue_twice_raises_queue_exists(aio: AIORSMQ, jobs: str) -> None:
    with pytest.raises(QueueExistsException) as caught:
        await aio.create_queue(jobs)

    assert "'jobs' exists already" in str(caught.value)
    assert "exist_ok" not in str(caught.value)
    assert isinstance(caught.value.__cause__, aiorsmq_ng.QueueExists)


async def test_create_queue_with_fractions_is_refused(aio: AIORSMQ) -> None:
    """With aiorsmq, 2.5 is stored and the queue cannot be read any more."""
    with pytest.raises(InvalidValueException):
        await aio.create_queue("jobs", vt=2.5)  # type: ignore[arg-type]

    assert await aio.list_queues() == []


async def test_list_queues_returns_names(aio: AIORSMQ) -> None:
    assert await aio.list_queues() == []
    await aio.create_queue("b")
    await aio.create_queue("a")

    names = await aio.list_queues()

    assert names == ["a", "b"]
    assert isinstance(names, list)
    assert all(isinstance(name, str) for name in names)


async def test_delete_queue_removes_queue_and_messages(aio: AIORSMQ, jobs: str) -> None:
    await aio.send_message(jobs, "hello")

    assert await aio.delete_queue(jobs) is None
    assert await aio.list_queues() == []
    await aio.create_queue(jobs)
    assert (await aio.get_queue_attributes(jobs)).messages == 0


async def test_get_queue_attributes_of_a_new_queue_are_the_defaults(
    aio: AIORSMQ, jobs: str
) -> None:
    attributes = await aio.get_queue_attributes(jobs)

    assert isinstance(attributes, QueueAttributes)
    assert {name: getattr(attributes, name) for name in ATTRIBUTE_FIELDS} == {
        "vt": 30,
        "delay": 0,
        "max_size": 65536,
        "total_recv": 0,
        "total_sent": 0,
        "created": attributes.modified,
        "modified": attributes.modified,
        "messages": 0,
        "hidden_messages": 0,
    }
    assert attributes.created > 1_600_000_000
    assert all(type(getattr(attributes, name)) is int for name in ATTRIBUTE_FIELDS)


async def test_get_queue_attributes_counts_traffic(aio: AIORSMQ, jobs: str) -> None:
    """A message just sent is not hidden; aiorsmq counts it so until the second is over."""
    await aio.send_message(jobs, "one")
    await aio.send_message(jobs, "two")
    await aio.receive_message(jobs)

    attributes = await aio.get_queue_attributes(jobs)

    assert (attributes.total_sent, attributes.total_recv) == (2, 1)
    assert (attributes.messages, attributes.hidden_messages) == (2, 1)


async def test_get_queue_attributes_rounds_down_what_others_stored(
    aio: AIORSMQ, jobs: str, raw: Redis, ns: str
) -> None:
    await raw.hset(f"{ns}:jobs:Q", "vt", "2.5")

    assert (await aio.get_queue_attributes(jobs)).vt == 2


async def test_set_queue_attributes_changes_and_describes(aio: AIORSMQ, jobs: str) -> None:
    attributes = await aio.set_queue_attributes(jobs, 44, 12, 2000)

    assert (attributes.vt, attributes.delay, attributes.max_size) == (44, 12, 2000)


async def test_set_queue_attributes_leaves_the_others(aio: AIORSMQ) -> None:
    await aio.create_queue("jobs", vt=44)
    attributes = await aio.set_queue_attributes("jobs", max_size=-1)

    assert (attributes.vt, attributes.delay, attributes.max_size) == (44, 0, -1)


async def test_set_queue_attributes_with_nothing_raises(aio: AIORSMQ, jobs: str) -> None:
    with pytest.raises(NoAttributesSpecified):
        await aio.set_queue_attributes(jobs)


async def test_send_message_returns_an_id_of_its_own(aio: AIORSMQ, jobs: str) -> None:
    ids = [await aio.send_message(jobs, "hello") for _ in range(20)]

    assert len(set(ids)) == 20
    assert all(isinstance(id, str) and len(id) == 32 for id in ids)


@pytest.mark.parametrize("contents", ["täxt", "", b"bytes", bytearray(b"array")])
async def test_send_message_takes_what_the_client_takes(
    aio: AIORSMQ, jobs: str, client: Redis, contents: Any
) -> None:
    await aio.send_message(jobs, contents)
    received = await aio.pop_message(jobs)

    text = contents.decode() if isinstance(contents, bytes | bytearray) else contents
    assert received is not None
    assert received.contents == as_contents(client, text)


@pytest.mark.parametrize("contents", [None, True, 5, 2.5, {"a": 1}, ["a"]])
async def test_send_message_of_another_type_is_refused_and_stores_nothing(
    aio: AIORSMQ, jobs: str, contents: Any
) -> None:
    """Only the new interface turns values into JSON."""
    with pytest.raises(InvalidValueException, match="give text or bytes"):
        await aio.send_message(jobs, contents)
    assert await aio.receive_message(jobs) is None


async def test_send_message_measures_bytes(aio: AIORSMQ) -> None:
    await aio.create_queue("jobs", max_size=1024)
    await aio.send_message("jobs", "ü" * 512)

    with pytest.raises(InvalidValueException, match="1026 bytes exceeds"):
        await aio.send_message("jobs", "ü" * 513)


async def test_send_message_with_delay_hides_it(aio: AIORSMQ, jobs: str) -> None:
    await aio.send_message(jobs, "hello", delay=30)

    assert await aio.receive_message(jobs) is None


async def test_send_message_without_delay_takes_the_queues(aio: AIORSMQ) -> None:
    await aio.create_queue("jobs", delay=30)
    await aio.send_message("jobs", "later")
    await aio.send_message("jobs", "now", 0)

    assert await aio.receive_message("jobs") is not None
    assert await aio.receive_message("jobs") is None


async def test_send_message_in_real_time_publishes_the_number(
    client: Redis, ns: str, raw: Redis
) -> None:
    aio = AIORSMQ(client=client, namespace=ns, real_time=True)
    await aio.create_queue("jobs")
    async with raw.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(f"{ns}:rt:jobs")
        await pubsub.get_message(timeout=5)
        heard = []
        for delay in (0, 30):
            await aio.send_message("jobs", "hello", delay)
            heard.append(await pubsub.get_message(timeout=5))
    await aio.aclose()

    assert [(m["channel"], m["data"]) for m in heard if m] == [
        (f"{ns}:rt:jobs".encode(), b"1"),
        (f"{ns}:rt:jobs".encode(), b"2"),
    ]


async def test_send_message_without_real_time_is_silent(
    aio: AIORSMQ, jobs: str, ns: str, raw: Redis
) -> None:
    async with raw.pubsub(ignore_subscribe_messages=True) as pubsub:
        await pubsub.subscribe(f"{ns}:rt:jobs")
        await pubsub.get_message(timeout=5)
        await aio.send_message(jobs, "hello")

        assert await pubsub.get_message(timeout=0.1) is None


async def test_receive_message_from_an_empty_queue_is_none(aio: AIORSMQ, jobs: str) -> None:
    assert await aio.receive_message(jobs) is None


async def test_receive_message_has_all_attributes(aio: AIORSMQ, jobs: str, client: Redis) -> None:
    id = await aio.send_message(jobs, "hello")
    message = await aio.receive_message(jobs)

    assert isinstance(message, Message)
    assert message.contents == as_contents(client, "hello")
    assert message.id == id
    assert message.rc == 1
    assert isinstance(message.fr, int)
    assert isinstance(message.sent, float)
    assert message.sent == int(id[:10], 36) / 1000
    assert 0 <= message.fr - int(message.sent) < 60_000


async def test_receive_message_hides_for_vt(aio: AIORSMQ, jobs: str) -> None:
    await aio.send_message(jobs, "hello")
    first = await aio.receive_message(jobs, vt=0)
    second = await aio.receive_message(jobs)

    assert first is not None
    assert second is not None
    assert (second.id, second.rc, second.fr) == (first.id, 2, first.fr)
    assert await aio.receive_message(jobs) is None


async def test_receive_message_without_vt_takes_the_queues(aio: AIORSMQ) -> None:
    await aio.create_queue("jobs", vt=0)
    await aio.send_message("jobs", "hello")

    assert await aio.receive_message("jobs") is not None
    assert await aio.receive_message("jobs") is not None


async def test_receive_message_with_a_short_foreign_id_knows_no_send_time(
    aio: AIORSMQ, jobs: str, raw: Redis, ns: str
) -> None:
    id = "k" * 30
    await raw.hset(f"{ns}:jobs:Q", id, "body")
    await raw.zadd(f"{ns}:jobs", {id: 1})
    message = await aio.receive_message(jobs)

    assert message is not None
    assert message.id == id
    assert math.isnan(message.sent)


async def test_receive_message_that_is_not_text_raises_with_the_body(
    text_client: Redis, ns: str
) -> None:
    """As with aiorsmq; the body is in the error, so even a popped one is not lost."""
    aio = AIORSMQ(client=text_client, namespace=ns)
    await aio.create_queue("jobs")
    await aio.send_message("jobs", b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError) as caught:
        await aio.pop_message("jobs")
    await aio.aclose()

    assert caught.value.object == b"\xff\xfe"


async def test_contents_follow_the_encoding_of_the_client(server_url: str, ns: str) -> None:
    client = Redis.from_url(server_url, decode_responses=True, encoding="latin-1")
    aio = AIORSMQ(client=client, client_encoding="latin-1", namespace=ns)
    await aio.create_queue("jobs", max_size=1024)
    await aio.send_message("jobs", "ü" * 1024)
    message = await aio.pop_message("jobs")
    await aio.quit()

    assert message is not None
    assert message.contents == "ü" * 1024


async def test_ids_and_names_from_a_bytes_client_are_text_that_may_be_decoded(
    bytes_client: Redis, ns: str
) -> None:
    """With aiorsmq they were bytes, and had to be decoded to be passed back."""
    aio = AIORSMQ(client=bytes_client, namespace=ns)
    await aio.create_queue("jobs")
    await aio.send_message("jobs", b"one")
    await aio.send_message("jobs", b"two")
    [name] = await aio.list_queues()
    for queue, decode in ((name, False), (name.decode(), True)):  # type: ignore[attr-defined]
        message = await aio.receive_message(queue)
        assert message is not None
        assert isinstance(message.id, str)
        id = message.id.decode() if decode else message.id  # type: ignore[attr-defined]
        await aio.delete_message(queue, id)
    left = (await aio.get_queue_attributes(name)).messages
    await aio.aclose()

    assert left == 0


@pytest.mark.parametrize("received", [True, False])
async def test_delete_message_removes_it(aio: AIORSMQ, jobs: str, received: bool) -> None:
    id = await aio.send_message(jobs, "hello")
    if received:
        await aio.receive_message(jobs)

    assert await aio.delete_message(jobs, id) is None
    assert (await aio.get_queue_attributes(jobs)).messages == 0


@pytest.mark.parametrize("queue", ["jobs", "nowhere"])
@pytest.mark.usefixtures("jobs")
async def test_delete_message_that_is_not_there_raises(aio: AIORSMQ, queue: str) -> None:
    """A missing queue has no messages: the same error."""
    with pytest.raises(MessageNotFoundException, match=UNKNOWN_ID):
        await aio.delete_message(queue, UNKNOWN_ID)


async def test_pop_message_takes_in_order_and_deletes(
    aio: AIORSMQ, jobs: str, client: Redis
) -> None:
    sent = [await aio.send_message(jobs, str(number)) for number in range(10)]
    popped = [await aio.pop_message(jobs) for _ in range(10)]

    assert [m.id for m in popped if m] == sent
    assert [m.contents for m in popped if m] == [as_contents(client, str(n)) for n in range(10)]
    assert [m.rc for m in popped if m] == [1] * 10
    assert await aio.pop_message(jobs) is None
    assert (await aio.get_queue_attributes(jobs)).messages == 0


async def test_change_message_visibility_shows_a_hidden_message(aio: AIORSMQ, jobs: str) -> None:
    id = await aio.send_message(jobs, "hello")
    await aio.receive_message(jobs)
    assert await aio.receive_message(jobs) is None

    assert await aio.change_message_visibility(jobs, id, vt=0) is None
    message = await aio.receive_message(jobs)
    assert message is not None
    assert message.id == id


async def test_change_message_visibility_of_a_popped_message_raises(
    aio: AIORSMQ, jobs: str
) -> None:
    id = await aio.send_message(jobs, "hello")
    await aio.pop_message(jobs)

    with pytest.raises(MessageNotFoundException):
        await aio.change_message_visibility(jobs, id, 10)


ON_A_QUEUE: dict[str, Callable[[AIORSMQ, str], Awaitable[Any]]] = {
    "delete_queue": lambda aio, name: aio.delete_queue(name),
    "get_queue_attributes": lambda aio, name: aio.get_queue_attributes(name),
    "set_queue_attributes": lambda aio, name: aio.set_queue_attributes(name, vt=1),
    "send_message": lambda aio, name: aio.send_message(name, "hello"),
    "receive_message": lambda aio, name: aio.receive_message(name),
    "pop_message": lambda aio, name: aio.pop_message(name),
    "change_message_visibility": lambda aio, name: aio.change_message_visibility(
        name, UNKNOWN_ID, 10
    ),
}
ON_A_NAME = {
    **ON_A_QUEUE,
    "create_queue": lambda aio, name: aio.create_queue(name),
    "delete_message": lambda aio, name: aio.delete_message(name, UNKNOWN_ID),
}


@pytest.mark.parametrize("method", ON_A_QUEUE)
async def test_missing_queue_raises_queue_not_found(aio: AIORSMQ, method: str) -> None:
    with pytest.raises(QueueNotFoundException, match="'nowhere'"):
        await ON_A_QUEUE[method](aio, "nowhere")


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("method", ON_A_NAME)
async def test_bad_name_raises_invalid_value(aio: AIORSMQ, method: str, name: str) -> None:
    """The line break at the end is one that aiorsmq overlooks."""
    with pytest.raises(InvalidValueException):
        await ON_A_NAME[method](aio, name)


OUT_OF_RANGE: list[tuple[str, list[Any], Callable[[AIORSMQ, Any], Awaitable[Any]]]] = [
    ("create vt", BAD_SECONDS, lambda aio, bad: aio.create_queue("new", vt=bad)),
    ("create delay", BAD_SECONDS, lambda aio, bad: aio.create_queue("new", delay=bad)),
    ("create max_size", BAD_SIZES, lambda aio, bad: aio.create_queue("new", max_size=bad)),
    ("set vt", BAD_SECONDS, lambda aio, bad: aio.set_queue_attributes("jobs", vt=bad)),
    ("set delay", BAD_SECONDS, lambda aio, bad: aio.set_queue_attributes("jobs", delay=bad)),
    ("set max_size", BAD_SIZES, lambda aio, bad: aio.set_queue_attributes("jobs", max_size=bad)),
    ("send delay", BAD_SECONDS, lambda aio, bad: aio.send_message("jobs", "hello", bad)),
    ("receive vt", BAD_SECONDS, lambda aio, bad: aio.receive_message("jobs", bad)),
    ("delete id", BAD_IDS, lambda aio, bad: aio.delete_message("jobs", bad)),
    ("hide id", BAD_IDS, lambda aio, bad: aio.change_message_visibility("jobs", bad, 1)),
    (
        "hide vt",
        BAD_SECONDS,
        lambda aio, bad: aio.change_message_visibility("jobs", UNKNOWN_ID, bad),
    ),
]


@pytest.mark.parametrize(
    ("call", "bad"),
    [
        pytest.param(call, bad, id=f"{what}-{bad!r}")
        for what, values, call in OUT_OF_RANGE
        for bad in values
    ],
)
async def test_argument_out_of_range_raises_invalid_value(
    aio: AIORSMQ, jobs: str, call: Callable[[AIORSMQ, Any], Awaitable[Any]], bad: object
) -> None:
    with pytest.raises(InvalidValueException):
        await call(aio, bad)

    assert await aio.list_queues() == [jobs]
    assert (await aio.get_queue_attributes(jobs)).messages == 0


async def test_namespace_with_a_colon_is_accepted(bytes_client: Redis, ns: str) -> None:
    aio = AIORSMQ(client=bytes_client, namespace=f"{ns}:queues")
    await aio.create_queue("jobs")

    assert await bytes_client.smembers(f"{ns}:queues:QUEUES") == {b"jobs"}
    await aio.aclose()


def test_namespace_that_cannot_be_used_is_refused_at_once(bytes_client: Redis) -> None:
    with pytest.raises(InvalidValueException, match="namespace"):
        AIORSMQ(client=bytes_client, namespace="")


def test_client_is_required() -> None:
    """``None`` must not lead to whatever server the environment names."""
    with pytest.raises(AttributeError):
        AIORSMQ(client=None)  # type: ignore[arg-type]


async def test_queues_are_shared_with_the_new_interface(
    aio: AIORSMQ, jobs: str, rsmq: aiorsmq_ng.RSMQ
) -> None:
    """One part of a program may move on before the other."""
    await aio.send_message(jobs, "from old")
    delivery = await rsmq.queue(jobs).receive()
    assert delivery is not None
    await delivery.ack()
    id = await rsmq.queue(jobs).send("from new")
    message = await aio.receive_message(jobs)

    assert delivery.text == "from old"
    assert message is not None
    assert message.id == id


async def test_quit_closes_the_redis_client_and_later_calls_reconnect(
    server_url: str, ns: str
) -> None:
    client = Redis.from_url(server_url)
    aio = AIORSMQ(client=client, namespace=ns)
    await aio.create_queue("jobs")
    await aio.quit()
    again = await aio.list_queues()
    await aio.quit()
    await aio.quit()

    assert again == ["jobs"]


async def test_aclose_leaves_the_redis_client_open(aio: AIORSMQ, jobs: str, client: Redis) -> None:
    await aio.aclose()

    assert await client.ping()
    assert await aio.list_queues() == [jobs]


async def test_dropped_objects_leave_no_tasks_behind(bytes_client: Redis, ns: str) -> None:
    """With aiorsmq there is nothing to close: a program may make one object per request."""
    before = asyncio.all_tasks()
    for _ in range(10):
        await AIORSMQ(client=bytes_client, namespace=ns).list_queues()
    gc.collect()
    _, pending = await asyncio.wait(asyncio.all_tasks() - before, timeout=5)

    assert not pending


def test_object_serves_one_event_loop_after_another(server_url: str, ns: str) -> None:
    client = Redis.from_url(server_url)
    aio = AIORSMQ(client=client, namespace=ns)

    async def use(create: bool) -> list[str]:
        if create:
            await aio.create_queue("jobs")
        names = await aio.list_queues()
        await client.aclose()
        return names

    assert asyncio.run(use(create=True)) == ["jobs"]
    assert asyncio.run(use(create=False)) == ["jobs"]
    asyncio.run(aio.aclose())


async def test_unreachable_server_raises_the_drivers_error(
    ns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs written for aiorsmq catch what their Redis client raises."""
    options = aiorsmq_ng.Options(nested_ns=True, deadline=0.1)
    monkeypatch.setattr("aiorsmq_ng.compat.aiorsmq.client._OPTIONS", options)
    aio = AIORSMQ(client=Redis(unix_socket_path="/nonexistent/redis.sock"), namespace=ns)

    with pytest.raises(redis_errors.ConnectionError):
        await aio.list_queues()
    await aio.aclose()


async def test_damaged_queue_raises_the_drivers_error(aio: AIORSMQ, ns: str, raw: Redis) -> None:
    await raw.set(f"{ns}:jobs:Q", "not a hash")

    with pytest.raises(redis_errors.ResponseError):
        await aio.receive_message("jobs")


ERRORS: dict[type[aiorsmq_ng.RSMQError], tuple[aiorsmq_ng.RSMQError, type[Exception]]] = {
    type(error): (error, theirs)
    for error, theirs in [
        (aiorsmq_ng.RSMQError("x"), AIORSMQException),
        (aiorsmq_ng.QueueExists("q", "ns"), QueueExistsException),
        (aiorsmq_ng.QueueNotFound("q", "ns"), QueueNotFoundException),
        (aiorsmq_ng.MessageTooLong("q", 2, 1), InvalidValueException),
        (aiorsmq_ng.InvalidValue("x"), InvalidValueException),
        (aiorsmq_ng.NoAttributeSupplied("q"), NoAttributesSpecified),
        (aiorsmq_ng.LeaseLost("q", UNKNOWN_ID, gone=True), AIORSMQException),
        (aiorsmq_ng.ServerOutOfMemory("x"), redis_errors.OutOfMemoryError),
        (aiorsmq_ng.QueueCorrupt("q", "x"), redis_errors.ResponseError),
        (aiorsmq_ng.SendUnknown("x"), redis_errors.ConnectionError),
        (aiorsmq_ng.Unavailable("x"), redis_errors.ConnectionError),
        (aiorsmq_ng.WrongContext("x"), redis_errors.ConnectionError),
        (aiorsmq_ng.ClientClosed(), redis_errors.ConnectionError),
        (aiorsmq_ng.AccessDenied("x"), redis_errors.AuthenticationError),
        (aiorsmq_ng.NotSupported("x"), redis_errors.ResponseError),
        (aiorsmq_ng.ServerError("x"), redis_errors.ResponseError),
        (aiorsmq_ng.UsageError("x"), AIORSMQException),
        (aiorsmq_ng.ClaimLost("q", "x", "fenced"), AIORSMQException),
        (aiorsmq_ng.RowsDiffer("x"), AIORSMQException),
        (aiorsmq_ng.SnapshotGone("x"), AIORSMQException),
        (aiorsmq_ng.DurabilityUnmet("fsynced", "memory"), AIORSMQException),
    ]
}


@pytest.mark.parametrize("error", ERRORS)
def test_error_becomes_the_one_that_users_of_aiorsmq_catch(
    error: type[aiorsmq_ng.RSMQError],
) -> None:
    ours, theirs = ERRORS[error]

    assert type(translate(ours)) is theirs


def test_every_public_error_has_its_translation_checked() -> None:
    public = (getattr(aiorsmq_ng, name) for name in aiorsmq_ng.__all__)
    errors = {e for e in public if isinstance(e, type) and issubclass(e, aiorsmq_ng.RSMQError)}

    assert errors == ERRORS.keys()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create_queue("jobs", max_size=3),
        lambda client: client.set_queue_attributes("jobs", max_size=3),
        lambda client: client.set_queue_attributes("jobs"),
        lambda client: client.send_message("jobs", "x" * 70_000),
    ],
)
async def test_errors_name_arguments_as_the_package_does(aio, call):
    await aio.create_queue("jobs")
    with pytest.raises(exceptions.AIORSMQException) as caught:
        await call(aio)

    assert "max_size" in str(caught.value)
    assert "maxsize" not in str(caught.value)
