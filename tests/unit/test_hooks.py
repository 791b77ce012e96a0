"""Decorators of a worker refuse a function that could not be called, when it is registered."""

import functools

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Worker

#: Each decorator, and how many arguments its functions are called with.
DECORATORS = {
    "middleware": 2,
    "on_start": 0,
    "on_stop": 0,
    "on_failure": 2,
    "on_dead_letter": 1,
}


def decorator(name):
    return getattr(Worker(RSMQ("unix:///nowhere.sock")), name)


def test_every_decorator_is_listed():
    found = {name for name in dir(Worker) if name.startswith("on_")}
    assert found | {"middleware"} == set(DECORATORS)


@pytest.mark.parametrize("name", DECORATORS)
def test_a_function_that_is_not_async_is_refused(name):
    with pytest.raises(InvalidValue, match="must be an async function"):
        decorator(name)(lambda *arguments: None)


@pytest.mark.parametrize(("name", "arguments"), DECORATORS.items())
def test_a_function_with_other_arguments_is_refused(name, arguments):
    async def four(a, b, c, d): ...

    async def keyword(*arguments, needed): ...

    async def fewer(*, needed=None): ...

    async def more(a, b, c): ...

    wanted = {0: "no arguments", 1: "1 argument", 2: "2 arguments"}[arguments]
    for function in (four, keyword, fewer if arguments else more):
        with pytest.raises(InvalidValue, match=f"must take {wanted}"):
            decorator(name)(function)


@pytest.mark.parametrize(("name", "arguments"), DECORATORS.items())
def test_what_can_be_called_is_registered(name, arguments):
    async def none(): ...

    async def one(first): ...

    async def two(first, second): ...

    async def more(first, second, third): ...

    class Called:
        async def __call__(self, *arguments): ...

    bound = functools.partial(more, *range(3 - arguments))
    for function in ((none, one, two)[arguments], Called(), Called().__call__, bound):
        assert decorator(name)(function) is function
