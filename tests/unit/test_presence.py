"""Presence: the last announcement that a server gets is the present state."""

import asyncio

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import presence
from aiorsmq_ng._runtime.lease_renewal import LeaseKeeper
from aiorsmq_ng._runtime.presence import Presence

from ..support.driver import ScriptedDriver, transport_on

JOBS, MAILS = (Namespace("rsmq").queue(name) for name in ("jobs", "mails"))


class Server:
    """Answers announcements when told to, and stores what it was given."""

    def __init__(self):
        self.waiting = []
        self.driver = ScriptedDriver(self.take)
        self.transport = transport_on(self.driver)
        self.presence = Presence(self.transport, LeaseKeeper(self.transport))

    def take(self, command):
        assert command.kind is presence.ANNOUNCE
        (request,) = command.requests
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append((request.keys.queue, request.consumers, answer))
        return answer

    async def in_flight(self, expected):
        async with asyncio.timeout(10):
            while [(queue, consumers) for queue, consumers, _ in self.waiting] != expected:
                await asyncio.sleep(0)

    def answer(self):
        for _, _, answer in self.waiting:
            answer.set_result(1)
        self.waiting.clear()


async def test_consumer_that_leaves_is_not_overtaken_by_its_own_announcement():
    server = Server()
    await server.transport.start()
    server.presence.enter(JOBS)
    await server.in_flight([("jobs", 1)])
    server.presence.leave(JOBS)
    # Another queue is announced meanwhile: ticks enough for the departure to be written too.
    server.presence.enter(MAILS)
    await server.in_flight([("jobs", 1), ("mails", 1)])

    server.answer()
    await server.in_flight([("jobs", 0)])
    server.answer()
    server.presence.leave(MAILS)
    await server.in_flight([("mails", 0)])
    server.answer()
    await server.transport.aclose()


async def test_changes_during_an_announcement_are_announced_together():
    server = Server()
    await server.transport.start()
    server.presence.enter(JOBS)
    await server.in_flight([("jobs", 1)])
    for _ in range(3):
        server.presence.leave(JOBS)
        server.presence.enter(JOBS)
    server.presence.leave(JOBS)
    server.answer()
    await server.in_flight([("jobs", 0)])
    server.answer()
    await server.transport.aclose()

    assert [command.requests[0].consumers for command in server.driver.commands] == [1, 0]


async def test_closing_client_is_removed_after_an_announcement_in_flight():
    server = Server()
    await server.transport.start()
    server.presence.enter(JOBS)
    await server.in_flight([("jobs", 1)])
    closing = asyncio.create_task(server.transport.aclose())
    await asyncio.sleep(0)
    server.answer()
    await server.in_flight([("jobs", 0)])
    server.answer()
    await closing


async def test_consumer_that_leaves_others_behind_is_not_announced_before_it_is_time():
    """The count is for people: the next announcement brings it."""
    server = Server()
    await server.transport.start()
    server.presence.enter(JOBS)
    server.presence.enter(JOBS)
    await server.in_flight([("jobs", 2)])
    server.answer()
    server.presence.leave(JOBS)
    server.presence.enter(MAILS)
    async with asyncio.timeout(10):
        while ("jobs", 1) not in [(queue, consumers) for queue, consumers, _ in server.waiting]:
            await asyncio.sleep(0)
    server.answer()
    await asyncio.sleep(0)
    server.presence.leave(JOBS)
    await server.in_flight([("jobs", 0)])
    server.answer()
    server.presence.leave(MAILS)
    await server.in_flight([("mails", 0)])
    server.answer()
    await server.transport.aclose()
    server.presence.leave(JOBS)  # of a consumer that is collected later
