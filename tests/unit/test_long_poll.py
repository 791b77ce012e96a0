"""The loop of a long poll ends: what its queues know of it is removed, under the right name."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from aiorsmq_ng import ClientClosed, Options
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._runtime import long_poll
from aiorsmq_ng._runtime.long_poll import LongPoll

from ..support.driver import ScriptedDriver, transport_on

JOBS, MAILS = (messages.ReceiveSpec(Namespace("rsmq").queue(name)) for name in ("jobs", "mails"))
HOUR_MS = 3_600_000


class Subscriptions:
    """A notifier whose subscriptions stand, or do not."""

    def __init__(self, standing):
        self.standing = standing
        self.watched = []

    def is_subscribed(self, channels):
        return self.standing

    def watch(self, channels, wake):
        self.watched += channels

    def forget(self, channels, wake):
        for channel in channels:
            self.watched.remove(channel)


class Scene:
    """A long poll on queues that are empty for an hour."""

    def __init__(self, specs, standing):
        self.driver = ScriptedDriver(self._answer)
        self.transport = transport_on(self.driver)
        self.subscriptions = Subscriptions(standing)
        source = partial(messages.source, specs)
        self.poll = LongPoll(self.transport, self.subscriptions, source, Options())

    @staticmethod
    def _answer(command):
        if command.kind is messages.UNWAIT:
            return 1
        if command.kind is messages.RECEIVE:
            return [[30_000, HOUR_MS] for _ in command.requests]
        return [HOUR_MS]

    def sent(self, *kinds):
        return [request for c in self.driver.commands if c.kind in kinds for request in c.requests]

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)

    async def waiting(self):
        """Start to wait; return the task once its loop sleeps."""
        before = len(self.sent(messages.RECEIVE, messages.RECEIVE_FIRST))
        task = asyncio.create_task(self.poll.receive(1, -1, 600))
        await self.until(
            lambda: (
                len(self.sent(messages.RECEIVE, messages.RECEIVE_FIRST)) > before
                and self.poll._waiters
            )
        )
        return task

    async def wait_in_vain(self):
        """Wait, be cancelled, and see the loop end."""
        task = await self.waiting()
        task.cancel()
        await asyncio.wait([task])
        await self.until(self.poll._stopped.is_set)
        await self.transport.quiet(10)


@asynccontextmanager
async def scene(*specs, standing=True):
    it = Scene(specs, standing)
    await it.transport.start()
    try:
        yield it
    finally:
        await it.poll.aclose()
        await it.transport.aclose()


@pytest.fixture
def no_linger(monkeypatch):
    """A loop without waiters ends at once."""
    monkeypatch.setattr(long_poll, "_LINGER_S", 0)


@pytest.mark.usefixtures("no_linger")
@pytest.mark.parametrize("specs", [[JOBS], [JOBS, MAILS]], ids=["one queue", "several"])
async def test_loop_that_ends_is_removed_from_each_queue_under_the_name_it_had(specs):
    async with scene(*specs) as s:
        await s.wait_in_vain()
        await s.wait_in_vain()

        asked = s.sent(messages.RECEIVE, messages.RECEIVE_FIRST)
        names = [request.waiter.name for request in asked]
        assert len(set(names)) == 2, "a loop that ended is not called by its old name"
        assert [(r.keys, r.waiter, r.for_good) for r in s.sent(messages.UNWAIT)] == [
            (spec.keys, name, True) for name in names for spec in specs
        ]
        assert s.subscriptions.watched == []


@pytest.mark.usefixtures("no_linger")
async def test_loop_that_no_queue_knows_sends_nothing_when_it_ends():
    """Its receives registered nothing: its subscription did not stand yet."""
    async with scene(JOBS, standing=False) as s:
        task = await s.waiting()
        s.subscriptions.standing = True
        task.cancel()
        await s.until(s.poll._stopped.is_set)
        await s.transport.quiet(10)

        assert s.sent(messages.UNWAIT) == []


@pytest.mark.usefixtures("no_linger")
async def test_loop_without_a_connection_sends_nothing_when_it_ends():
    """The queue learns that its subscription is gone when it calls it."""
    async with scene(JOBS) as s:
        task = await s.waiting()
        s.subscriptions.standing = False
        task.cancel()
        await s.until(s.poll._stopped.is_set)
        await s.transport.quiet(10)

        assert s.sent(messages.UNWAIT) == []


async def test_loop_that_is_closed_is_removed_and_its_waiters_fail():
    async with scene(JOBS) as s:
        tasks = [await s.waiting(), asyncio.create_task(s.poll.receive(1, -1, 600))]
        await s.until(lambda: len(s.poll._waiters) == 2)
        await s.poll.aclose()

        for task in tasks:
            with pytest.raises(ClientClosed):
                await task
        await s.transport.aclose()
        (left,) = s.sent(messages.UNWAIT)
        assert (left.keys, left.for_good) == (JOBS.keys, True)
        assert left.waiter == s.sent(messages.RECEIVE)[0].waiter.name


async def test_loop_whose_waiter_comes_back_in_time_stays():
    async with scene(JOBS) as s:
        for _ in range(2):
            task = await s.waiting()
            task.cancel()
            await asyncio.wait([task])

        assert s.sent(messages.UNWAIT) == []
        assert not s.poll._stopped.is_set()
        assert len({request.waiter.name for request in s.sent(messages.RECEIVE)}) == 1
