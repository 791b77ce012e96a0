"""Timeouts of attempts, which share one timer; how long a server is waited for."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from aiorsmq_ng import Unavailable
from aiorsmq_ng._runtime.wait_for_server import retry_through_outages
from aiorsmq_ng._transport.call_retries import Retries
from aiorsmq_ng._transport.driver import Driver, ReplyLost
from tools.lab.virtual_loop import run_virtually

from ..support.driver import ScriptedDriver


def virtually(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def play() -> None:
        run_virtually(lambda _: test(), random.Random(0), 0)

    return play


class Asked:
    """One client's retries, and the questions that its server does not answer."""

    def __init__(self) -> None:
        self.clock = asyncio.get_running_loop().time
        self.retries = Retries(self.connect, deadline_s=10)

    async def connect(self) -> Driver:
        return ScriptedDriver(lambda _: None)

    async def answered(self, within_s: float) -> None:
        await self.retries.ask(lambda driver: driver.ping(), self.clock() + within_s)

    async def unanswered(self, within_s: float) -> float:
        """Return after how many seconds the attempt was given up."""
        began_at = self.clock()
        with pytest.raises(ReplyLost):
            await self.retries.ask(self.silence, began_at + within_s)
        return self.clock() - began_at

    async def silence(self, _: Driver) -> None:
        await asyncio.get_running_loop().create_future()


@virtually
async def test_each_attempt_in_flight_ends_in_its_own_time():
    asked = Asked()
    times = [5.0, 2.0, 9.0, 2.0, 7.0]
    took = await asyncio.gather(*(asked.unanswered(within_s) for within_s in times))
    assert took == pytest.approx(times)


@virtually
async def test_attempt_that_begins_later_and_has_less_time_ends_in_its_own_time():
    asked = Asked()
    long = asyncio.create_task(asked.unanswered(100.0))
    await asyncio.sleep(1)
    assert await asked.unanswered(2.0) == pytest.approx(2.0)
    assert await long == pytest.approx(100.0)


@virtually
async def test_answered_attempt_leaves_the_time_of_the_next_one_alone():
    asked = Asked()
    await asked.answered(2.0)
    # The timer of the first attempt is still set, and finds that the second one has time left.
    assert await asked.unanswered(5.0) == pytest.approx(5.0)


@virtually
async def test_answered_attempt_is_not_cancelled_when_its_time_is_over():
    asked = Asked()
    await asked.answered(2.0)
    await asyncio.sleep(10)
    assert asyncio.current_task().cancelling() == 0


async def test_error_that_waiting_does_not_mend_ends_the_wait_for_a_server_at_once():
    answers = iter([Unavailable("down", transient=True), Unavailable("speaks TLS")])

    async def call():
        raise next(answers)

    with pytest.raises(Unavailable, match="speaks TLS"):
        await retry_through_outages(call)
