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
    "on_dead_letter": 2,
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
    async def one(a): ...

    async def three(a, b, c): ...

    async def keyword(*arguments, needed): ...

    for function in (one, three, keyword):
        with pytest.raises(InvalidValue, match=f"must take {arguments or 'no'} arguments"):
            decorator(name)(function)


@pytest.mark.parametrize(("name", "arguments"), DECORATORS.items())
def test_what_can_be_called_is_registered(name, arguments):
    async def none(): ...

    async def two(first, second): ...

    async def more(first, second, third): ...

    class Called:
        async def __call__(self, *arguments): ...

    bound = functools.partial(more, 1) if arguments else functools.partial(two, 1, 2)
    for function in (two if arguments else none, Called(), Called().__call__, bound):
        assert decorator(name)(function) is function
