"""Work in its caller's task goes on if that task is cancelled."""

import asyncio

import pytest

from aiorsmq_ng.broker.idempotency import IdempotentCalls
from aiorsmq_ng.broker.uncancellable import uncancellable

from .test_idempotency import Work, key


class Steps:
    """Waits for one future after the other, and notes what each brought."""

    def __init__(self, count=2):
        self.futures = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self.seen = []

    async def work(self):
        for future in self.futures:
            try:
                self.seen.append(await future)
            except (KeyError, asyncio.CancelledError) as error:
                self.seen.append(type(error))
        await asyncio.sleep(0)
        return "done"


async def ticks(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_result_of_the_work_is_returned():
    steps = Steps()
    task = asyncio.ensure_future(uncancellable(steps.work()))
    for number, future in enumerate(steps.futures):
        await ticks()
        future.set_result(number)

    assert await task == "done"
    assert steps.seen == [0, 1]


@pytest.mark.parametrize("times", [1, 2])
async def test_cancelled_task_ends_when_its_work_has_ended(times):
    steps = Steps()
    task = asyncio.ensure_future(uncancellable(steps.work()))
    await ticks()
    for future in steps.futures:
        for _ in range(times):
            task.cancel()
        await ticks()
        assert not task.done()
        future.set_result("came")

    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps.seen == ["came", "came"]


async def test_task_cancelled_between_two_ticks_ends_when_its_work_has_ended():
    ended = []

    async def work():
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append(True)

    task = asyncio.ensure_future(uncancellable(work()))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_errors_and_cancellations_of_what_is_waited_for_reach_the_work():
    steps = Steps()
    task = asyncio.ensure_future(uncancellable(steps.work()))
    await ticks()
    steps.futures[0].set_exception(KeyError("gone"))
    steps.futures[1].cancel()

    assert await task == "done"
    assert steps.seen == [KeyError, asyncio.CancelledError]


async def test_error_of_the_work_is_raised():
    async def work():
        await asyncio.sleep(0)
        raise KeyError("gone")

    with pytest.raises(KeyError):
        await uncancellable(work())


async def test_work_is_closed_with_its_caller():
    closed = []

    async def work():
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append(True)

    async def caller():
        await uncancellable(work())

    running = caller()
    running.send(None)
    running.close()

    assert closed == [True]


async def test_call_whose_caller_leaves_is_made_and_remembered():
    requests, work = IdempotentCalls(), Work()
    work.may_end.clear()
    first = asyncio.ensure_future(requests.once(key(), work))
    await ticks()
    first.cancel()
    await ticks()
    assert not first.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await first

    assert int(await requests.once(key(), work)) == 1
    assert work.done == 1
