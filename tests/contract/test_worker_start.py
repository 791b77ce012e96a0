"""How a worker starts: its queues, its handlers, its server."""
# ruff: noqa: F811 - work is a fixture

import asyncio
import collections
import functools
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from aiorsmq_ng import RSMQ, Compressed, Delivery, InvalidValue, QueueNotFound, Retry, Worker

from ..support.waiting import until
from .test_worker import stopped, work  # noqa: F401 - work is a fixture


def stopping(worker):
    """Return a start hook that stops *worker*."""

    async def hook():
        worker.stop()

    return hook


def ready(rsmq, **more):
    worker = Worker(rsmq, **more)

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        worker.stop()

    return worker


async def test_missing_queue_is_created_and_its_dead_letter_queue_is_not(rsmq):
    worker = ready(rsmq)
    worker.on_start(stopping(worker))
    await worker.run(signals=False)

    assert await rsmq.list_queues() == ["jobs"]


@pytest.mark.parametrize(("there", "missing"), [([], "jobs"), (["jobs"], "jobs-dead")])
async def test_worker_that_must_not_create_names_the_queue_that_is_missing(rsmq, there, missing):
    for name in there:
        await rsmq.create_queue(name)

    with pytest.raises(QueueNotFound, match=f"queue '{missing}' does not exist"):
        await ready(rsmq, create=False).run(signals=False)
    assert await rsmq.list_queues() == there


async def test_worker_that_must_not_create_serves_what_is_there(rsmq, queue):
    await rsmq.create_queue("jobs-dead")
    await queue.send("x")

    async with asyncio.timeout(30):
        await ready(rsmq, create=False).run(signals=False)
    assert (await queue.attributes()).msgs == 0


async def test_queue_with_stored_attributes_keeps_them(rsmq):
    await rsmq.create_queue("jobs", vt=77, maxsize=2048)
    worker = ready(rsmq)
    worker.on_start(stopping(worker))
    await worker.run(signals=False)

    attributes = await rsmq.queue("jobs").attributes()
    assert (attributes.vt, attributes.maxsize) == (77, 2048)


async def test_half_made_queue_is_completed(rsmq, raw, ns):
    await raw.hset(f"{ns}:jobs:Q", "vt", "5")
    assert not await rsmq.queue("jobs").exists()
    worker = ready(rsmq)
    worker.on_start(stopping(worker))
    await worker.run(signals=False)

    assert (await rsmq.queue("jobs").attributes()).vt == 5


class Model(pydantic.BaseModel):
    number: int
    tags: list[str] = []


class Plain:
    def __init__(self, number):
        self.number = number


class Struct(msgspec.Struct):
    model: Model


class Interface(Protocol):
    number: int


@dataclass
class Tree:
    model: Model
    children: "list[Tree]" = field(default_factory=list)


@dataclass
class Holder:
    plain: Plain


@dataclass
class Lenient:
    number: int
    plain: Plain | None = None


class Row(TypedDict):
    model: Model


class Pair(NamedTuple):
    number: int
    model: Model


def taking(annotation):
    async def handle(value):
        seen.append(value)

    seen = handle.seen = []
    handle.__annotations__["value"] = annotation
    return handle


@pytest.mark.parametrize(
    ("annotation", "body", "expected"),
    [
        (list[Model], [{"number": 1}], [Model(number=1)]),
        (Model | None, {"number": 1}, Model(number=1)),
        (Model | None, None, None),
        (dict[str, Model], {"a": {"number": 1}}, {"a": Model(number=1)}),
        (dict[str, list[Model | None]], {"a": [None]}, {"a": [None]}),
        (Tree, {"model": {"number": 1}}, Tree(Model(number=1))),
        (Row, {"model": {"number": 1}}, {"model": Model(number=1)}),
        (Pair, [1, {"number": 1}], Pair(1, Model(number=1))),
        (Struct, {"model": {"number": 1}}, Struct(Model(number=1))),
        (Lenient, {"number": 1}, Lenient(1)),
        (object, {"number": 1}, {"number": 1}),
        (Any, [1], [1]),
    ],
)
@pytest.mark.parametrize("codec", [None, Compressed(min_size=1)], ids=["json", "compressed"])
async def test_models_inside_of_containers_are_decoded(
    server_url,
    ns,
    work,
    codec,
    annotation,
    body,
    expected,
):
    async with RSMQ(server_url, ns=ns, codec=codec) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send(msgspec.json.encode(body) if codec is None else body)
        worker, handle = Worker(rsmq), taking(annotation)
        worker.handler("jobs")(handle)
        running = work(worker)
        await until(lambda: worker.health.done or worker.health.rejected)
        await stopped(worker, running)

    assert handle.seen == [expected]
    assert type(handle.seen[0]) is type(expected)


async def test_body_that_does_not_fit_a_container_of_models_is_not_quoted(
    rsmq, queue, work, caplog
):
    await queue.send([{"number": "secret"}, {"secret": 1}])
    worker = Worker(rsmq)
    worker.handler("jobs")(taking(list[Model]))
    running = work(worker)
    await until(lambda: worker.health.rejected)
    await stopped(worker, running)

    (dead,) = await rsmq.queue("jobs-dead").peek()
    reason = await rsmq.queue("jobs-dead").reason(dead.id)
    assert "Model]: 0.number: int_parsing, 1.number: missing" in reason
    assert "secret" not in reason + caplog.text


@pytest.mark.parametrize(
    "annotation",
    [
        Plain, list[Plain], Plain | None, dict[str, Plain], Holder, list[Holder], Interface,
        Model | Struct, list[Plain | Model], collections.OrderedDict, complex, str | bytes,
        str | int, "Missing", 3,
    ],
    ids=str,
)  # fmt: skip
def test_annotation_that_no_body_can_fit_is_refused_at_registration(annotation):
    worker = Worker()
    with pytest.raises(InvalidValue, match=r"cannot be called: bodies cannot|cannot be read"):
        worker.handler("jobs")(taking(annotation))
    assert "no queues" in repr(worker)
    worker.handler("jobs")(taking(str))
    assert "jobs" in repr(worker)


@pytest.mark.parametrize("compressed", [False, True])
async def test_codec_of_ones_own_may_know_any_class(server_url, ns, work, compressed):
    class Own:
        def encode(self, value):
            return str(value.number).encode()

        def decode(self, body, type):
            return type(int(body))

    codec = Compressed(Own()) if compressed else Own()
    async with RSMQ(server_url, ns=ns, codec=codec) as rsmq:
        await (await rsmq.create_queue("jobs")).send(Plain(7))
        worker, handle = Worker(rsmq), taking(Plain)
        worker.handler("jobs")(handle)
        running = work(worker)
        await until(lambda: worker.health.done or worker.health.rejected)
        await stopped(worker, running)

    (seen,) = handle.seen
    assert (type(seen), seen.number) == (Plain, 7)


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("bad name!", {}),
        ("", {}),
        ("x" * 161, {}),
        ("QUEUES", {}),
        ("x" * 160, {}),  # its dead-letter queue would be too long
        ("jobs", {"dead_letter": "bad name!"}),
        ("jobs", {"dead_letter": "bad name!", "retry": Retry(0)}),
        ("jobs", {"dead_letter": "jobs"}),
        ("jobs", {"vt": -1}),
        ("jobs", {"timeout": timedelta(0)}),
        ("jobs", {"timeout": "soon"}),
    ],
)
def test_queue_that_cannot_exist_is_refused_at_registration(name, more):
    worker = Worker()
    with pytest.raises(InvalidValue):
        worker.handler(name, **more)(taking(str))
    assert "no queues" in repr(worker)


async def test_objects_that_can_be_called_and_partials_are_handlers(rsmq, work):
    @dataclass
    class Counter:
        total: int = 0

        async def __call__(self, body: int, message: Delivery) -> None:
            self.total += body

    async def handle(prefix: str, body: int) -> None:
        seen.append(f"{prefix}{body}")

    counter, seen, worker = Counter(), [], Worker(rsmq)
    assert worker.handler("jobs")(counter) is counter
    worker.handler("more")(functools.partial(handle, "n"))
    for name in ("jobs", "more"):
        await (await rsmq.create_queue(name)).send("5")
    running = work(worker)
    await until(lambda: worker.health.done == 2)
    await stopped(worker, running)

    assert (counter.total, seen) == (5, ["n5"])


@pytest.mark.parametrize(
    "wrong",
    [Plain, Plain(1), print, lambda body: None],
    ids=["class", "object", "builtin", "lambda"],
)
def test_what_is_not_async_is_no_handler(wrong):
    worker = Worker()
    with pytest.raises(InvalidValue, match="must be an async function"):
        worker.handler("jobs")(wrong)
    assert "no queues" in repr(worker)


async def test_durations_may_be_timedeltas(rsmq, queue, work):
    second = timedelta(seconds=1)
    worker = Worker(rsmq, grace=second, wait_for_server=60 * second)
    retry = Retry(2, base=second / 100, cap=second)

    @worker.handler("jobs", vt=60 * second, timeout=second / 10, retry=retry)
    async def handle(message: Delivery) -> None:
        held.append(message.lease.vt)
        await asyncio.sleep(60)

    held = []
    batches = worker.batch_handler("batches", size=2, wait=second / 10)
    batches(taking(list[Delivery]))
    await queue.send("x")
    running = work(worker)
    await until(lambda: worker.health.rejected)
    await stopped(worker, running)

    assert held == [60, 60]
    ladder = Retry(backoff=(second, 2 * second), jitter=False)
    assert [ladder.delay(rc) for rc in (1, 2, 3)] == [1.0, 2.0, 2.0]
    assert Retry(base=second, cap=2 * second, jitter=False).delay(9) == 2.0
    for bad in ({"base": -second}, {"base": second, "cap": 0.5}, {"backoff": (-second,)}):
        with pytest.raises(InvalidValue):
            Retry(**bad)
    with pytest.raises(InvalidValue, match="grace must be at least 0"):
        Worker(rsmq, grace=-second)
