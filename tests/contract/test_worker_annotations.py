"""Odd annotations of handlers, as users write them: decoded, or refused when registered."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar

import msgspec
import pytest

from aiorsmq_ng import RSMQ, Delivery, InvalidValue, Worker

from ..support.waiting import until

T = TypeVar("T")
OrderId = NewType("OrderId", int)
SEEN: list[Any] = []


class Box(msgspec.Struct, Generic[T]):
    content: T


class Color(StrEnum):
    RED = "red"


async def a_list(body: list[int]) -> None:
    SEEN.append(body)


async def annotated(body: Annotated[int, msgspec.Meta(gt=0)]) -> None:
    SEEN.append(body)


async def optional(body: Optional[int]) -> None:  # noqa: UP045 - as users write it
    SEEN.append(body)


async def generic(body: Box[int]) -> None:
    SEEN.append(body)


async def new_type(body: OrderId) -> None:
    SEEN.append(body)


async def anything(body: Any) -> None:
    SEEN.append(body)


async def raw(body: bytes) -> None:
    SEEN.append(body)


async def word(body: Literal["go", "stop"]) -> None:
    SEEN.append(body)


async def color(body: Color) -> None:
    SEEN.append(body)


async def bare(message) -> None:  # type: ignore[no-untyped-def]
    SEEN.append(message.text)


async def bare_with_body(message: Delivery, body) -> None:  # type: ignore[no-untyped-def]
    SEEN.append(body)


async def more(body: int, message: Delivery, *, factor: int = 2) -> None:
    SEEN.append(body * factor)


class Called:
    async def __call__(self, body: list[int]) -> None:
        SEEN.append(body)


class Service:
    async def handle(self, body: list[int]) -> None:
        SEEN.append(body)

    @staticmethod
    async def static(body: list[int]) -> None:
        SEEN.append(body)

    @classmethod
    async def of_class(cls, body: list[int]) -> None:
        SEEN.append(body)


@pytest.mark.parametrize(
    ("handler", "sent", "expected"),
    [
        (a_list, [1, 2], [1, 2]),
        (annotated, 5, 5),
        (optional, None, None),
        (generic, Box(3), Box(3)),
        (new_type, 7, 7),
        (anything, {"a": 1}, {"a": 1}),
        (raw, b"\xff", b"\xff"),
        (word, "go", "go"),
        (color, Color.RED, Color.RED),
        (bare, "text", "text"),
        (bare_with_body, [1], [1]),
        (Called(), [1], [1]),
        (functools.partial(more, factor=3), 4, 12),
        (Service().handle, [1], [1]),
        (Service.static, [1], [1]),
        (Service.of_class, [1], [1]),
    ],
    ids=lambda x: getattr(x, "__name__", type(x).__name__),
)
async def test_handler_gets_what_it_is_annotated_with(
    rsmq: RSMQ, handler: Callable[..., Any], sent: object, expected: object
) -> None:
    SEEN.clear()
    await (await rsmq.create_queue("jobs")).send(sent)
    worker = Worker(rsmq)
    worker.handler("jobs")(handler)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.done or worker.health.rejected)
    worker.stop()
    await running

    assert [expected] == SEEN
    assert type(SEEN[0]) is type(expected)


def test_local_type_behind_a_string_annotation_is_refused_with_what_to_do() -> None:
    @dataclass
    class Local:
        number: int

    async def handle(body: Local) -> None: ...

    with pytest.raises(InvalidValue, match=r"handle.*cannot be read.*Local.*top level"):
        Worker("redis://localhost").handler("jobs")(handle)


async def text_or_number(body: str | int) -> None: ...


async def missing(body: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


async def two_bodies(order: dict[str, int], lines: list[int]) -> None: ...


async def three(a: int, b: int, c: Delivery) -> None: ...


def not_async(body: int) -> None: ...


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (text_or_number, "stored as they are"),
        (missing, "Missing"),
        (two_bodies, r"not 2 bodies \(order, lines\); write .*body: dict, message: Delivery"),
        (three, "not 3 arguments"),
        (not_async, "must be an async function"),
        (functools.partial(more, 1, 2, factor=1), "not 0 arguments"),
        (Service, "must be an async function"),
    ],
    ids=[
        "text or number",
        "missing",
        "two bodies",
        "three",
        "not async",
        "partial of all",
        "class",
    ],
)
def test_handler_that_could_never_be_called_is_refused(
    handler: Callable[..., Any], told: str
) -> None:
    with pytest.raises(InvalidValue, match=told):
        Worker("redis://localhost").handler("jobs")(handler)
