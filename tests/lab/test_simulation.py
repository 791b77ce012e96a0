"""Many worlds, each from its seed: nothing is lost in any of them, and each can be repeated."""

import asyncio
import itertools
import os
import random
import secrets
import subprocess
import sys
import time
import types
import uuid

import pytest

from aiorsmq_ng import LeaseLost, Options, SendUnknown, Unavailable
from aiorsmq_ng._transport.call import Call
from aiorsmq_ng._transport.call_numbers import CallNumber
from tools.lab import Faults, History, Jobs, RecordedQueue, simulate

#: How many worlds to look at; more for a long run.
SEEDS = int(os.environ.get("RSMQ_TEST_SEEDS", "60"))
BLOCK = 20
CALM = Faults(refused=0, lost_request=0, lost_reply=0, slow_reply=0, late_request=0, lost_wake_up=0)


def played(play, faults=CALM, seed=0):
    """Simulate the coroutine function *play* and return what it returned."""
    results = []

    async def scenario(world):
        results.append(await play(world))

    simulate(scenario, seed, faults=faults)
    return results[0]


def only(**fault):
    """Nothing but one fault."""
    return Faults(**{**{name: getattr(CALM, name) for name in Faults.__slots__}, **fault})


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_jobs_get_done_in_every_world(first):
    for seed in range(first, min(first + BLOCK, SEEDS)):
        simulate(Jobs(replay=True), seed).require()


def test_worlds_are_bad_enough_to_matter():
    outcomes = [simulate(Jobs(), seed) for seed in range(8)]
    trace = "\n".join(line for outcome in outcomes for line in outcome.trace)

    for fault in ("refused", "lost_request", "lost_reply", "slow_reply", "arrives late", "crash"):
        assert fault in trace
    assert sum(outcome.verdict.redelivered for outcome in outcomes)
    assert sum(outcome.verdict.refused for outcome in outcomes)


def test_same_seed_gives_the_same_trace_and_another_one_does_not():
    first, again, other = (simulate(Jobs(), seed) for seed in (7, 7, 8))

    assert first.trace == again.trace
    assert list(first.history) == list(again.history)
    assert first.digest == again.digest != other.digest


def test_seed_gives_the_same_trace_in_another_process():
    code = "from tools.lab import *; print(simulate(Jobs(), 7).digest)"
    there = subprocess.run(
        [sys.executable, "-c", code],
        # Sets of strings have another order there.
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout.strip() == simulate(Jobs(), 7).digest


def test_order_of_tasks_comes_from_the_seed():
    def order(seed):
        async def play(world):
            seen = []

            async def step(number):
                for _ in range(3):
                    await asyncio.sleep(0)
                    seen.append(number)

            await asyncio.gather(*(step(number) for number in range(5)))
            return seen

        return played(play, seed=seed)

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_time_passes_for_server_and_client_without_waiting():
    async def play(world):
        client = await world.client("a")
        queue = await client.create_queue("jobs")
        await queue.send("x", delay=86400)
        await asyncio.sleep(86399)
        early = await queue.receive()
        message = await queue.receive(wait=10)
        return early, message.text, world.elapsed_s

    started = time.time()
    early, text, elapsed_s = played(play)

    assert (early, text) == (None, "x")
    assert elapsed_s >= 86400
    assert time.time() - started < 86400


def test_chance_and_clock_of_the_process_are_its_own_again():
    drawn = {
        source: {source() for _ in range(2) if played(_nothing) is None}
        for source in (lambda: secrets.token_hex(8), lambda: str(uuid.uuid4()))
    }
    random.seed(1)
    expected = random.Random(1).random()
    played(_nothing)

    assert all(len(values) == 2 for values in drawn.values())
    assert random.random() == expected
    assert isinstance(time.time, types.BuiltinFunctionType)


async def _nothing(world):
    await asyncio.sleep(1)


def test_world_in_which_all_tasks_wait_is_an_error():
    async def play(world):
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="is deadlocked"):
        played(play)


def sending(faults, deadline=2.0):
    """Send one message under *faults*; return the error, and what is stored at once and later."""

    async def play(world):
        client = await world.client("a", reliable=True, options=Options(deadline=deadline))
        queue = await client.create_queue("jobs")
        await queue.send("warm up")
        client.reliable = False
        error = None
        try:
            await queue.send("x")
        except Unavailable as failure:
            error = type(failure)
        client.reliable = True
        at_once = (await queue.attributes()).totalsent - 1
        await asyncio.sleep(100)
        return error, at_once, (await queue.attributes()).totalsent - 1

    return played(play, faults)


def test_refused_connection_stores_nothing_and_says_so():
    assert sending(only(refused=1)) == (Unavailable, 0, 0)


def test_lost_request_stores_nothing_and_its_sender_cannot_tell():
    assert sending(only(lost_request=1)) == (SendUnknown, 0, 0)


def test_lost_reply_stores_the_message_and_its_sender_cannot_tell():
    assert sending(only(lost_reply=1)) == (SendUnknown, 1, 1)


def test_slow_reply_stores_the_message_and_is_given_up_at_the_deadline():
    assert sending(only(slow_reply=1, slow_s=100), deadline=1) == (SendUnknown, 1, 1)


def test_late_request_stores_the_message_after_its_caller_has_gone():
    assert sending(only(late_request=1, slow_s=90), deadline=1) == (SendUnknown, 0, 1)


def test_calm_world_has_no_faults_left():
    async def play(world):
        world.calm()
        client = await world.client("a")
        queue = await client.create_queue("jobs")
        return [await queue.send("x") for _ in range(20)]

    assert len(played(play, Faults(lost_reply=0.9))) == 20


def test_client_that_crashes_cleans_nothing_up():
    async def play(world):
        observer = await world.client("observer", reliable=True)
        client = await world.client("worker")
        queue = await client.create_queue("jobs", vt=30)
        await queue.send("x")

        async def work():
            async with await queue.receive():
                await asyncio.sleep(1000)

        client.start(work())
        await asyncio.sleep(1)
        await world.crash(client)
        held = (await observer.queue("jobs").attributes()).leased
        await asyncio.sleep(30)
        return held, (await observer.queue("jobs").attributes()).ready

    assert played(play) == (1, 1)


def found(monkeypatch, name, broken):
    """The rules that the first world finds broken when a verb of the queue is replaced."""
    monkeypatch.setattr(RecordedQueue, name, broken)
    for seed in range(20):
        if violations := simulate(Jobs(), seed).verdict.violations:
            return {violation.oracle for violation in violations}
    return set()


def test_ack_without_a_fence_is_found_out(monkeypatch):
    async def ack(self, delivery):
        begun = self.history.clock()
        self.history.settling(delivery.id, delivery.rc, "ack")
        try:
            deleted = await self.queue.delete(delivery.id)
        except Unavailable:
            return False
        if deleted:
            self.history.settled(delivery.id, delivery.rc, "ack", begun=begun)
        return deleted

    assert "O2" in found(monkeypatch, "ack", ack)


def test_calls_that_are_repeated_under_another_number_are_found_out(monkeypatch):
    doubt = Call.doubt
    numbers = itertools.count(1_000_000)

    def renumbered(self):
        doubt(self)
        if self.number is not None:
            self.number = CallNumber(self.number.series, next(numbers))

    monkeypatch.setattr(Call, "doubt", renumbered)
    verdicts = [simulate(Jobs(), seed).verdict for seed in range(24)]

    assert sum(verdict.copies for verdict in verdicts)
    assert any(v.oracle == "O1" for verdict in verdicts for v in verdict.violations)


def test_handler_that_loses_what_it_received_is_found_out(monkeypatch):
    async def forget(self, delivery):
        try:
            await delivery.ack()
        except (LeaseLost, Unavailable):
            return False
        return True

    assert "O3" in found(monkeypatch, "ack", forget)


def test_unknown_sends_and_stranded_leases_are_faults_where_replies_are_made_good():
    history = History()
    history.unknown("a", "SendUnknown")
    history.unknown("b", "CancelledError")
    history.unclaimed("1", "Unavailable")
    world = types.SimpleNamespace(history=history)

    rules = [violation.oracle for violation in Jobs(replay=True)._not_made_good(world)]

    assert rules == ["O1", "O7"]
