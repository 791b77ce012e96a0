"""The transport joins operations, keeps their fates apart, and survives its callers."""

import asyncio
import random
import time
from contextlib import asynccontextmanager

import pytest

from aiorsmq_ng import (
    ClientClosed,
    LeaseLost,
    MessageTooLong,
    QueueCorrupt,
    QueueNotFound,
    RSMQError,
    SendUnknown,
    ServerOutOfMemory,
    Unavailable,
)
from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.message_values import Receipt
from aiorsmq_ng._protocol.operations.messages import ReceiveSpec
from aiorsmq_ng._protocol.scripts import load
from aiorsmq_ng._transport import call_retries
from aiorsmq_ng._transport.batching import MAX_SIZE
from aiorsmq_ng._transport.call_numbers import CallNumbers
from aiorsmq_ng._transport.call_retries import RetryBudget
from aiorsmq_ng._transport.driver import NotExecuted, ReplyLost
from aiorsmq_ng._transport.script_calls import ScriptMissing, WrongLayout
from tools.lab.virtual_loop import run_virtually

from ..support.driver import ScriptedDriver, transport_on

KEYS = Namespace("rsmq").queue("jobs")
OTHER = Namespace("rsmq").queue("other")
ID = b"g73zkl38qz" + b"x" * 22


def send(body=b"x", keys=KEYS):
    return messages.send(keys, [body], delay_ms=-1, channel="w")


def bodies(command):
    return [body for request in command.requests for body in request.bodies]


def echo(command):
    """Answer a send with one id per part."""
    return [[ID] for _ in bodies(command)]


@asynccontextmanager
async def running(answer, **settings):
    driver = ScriptedDriver(answer)
    transport = transport_on(driver, **settings)
    try:
        yield driver, transport
    finally:
        await transport.aclose()


async def test_operations_of_one_tick_share_one_call_in_order():
    async with running(echo) as (driver, transport):
        await transport.start()
        ids = await asyncio.gather(*(transport.run(send(b"%d" % i)) for i in range(40)))

    assert len(driver.commands) == 1
    assert bodies(driver.commands[0]) == [b"%d" % i for i in range(40)]
    assert ids == [[ID.decode()]] * 40


async def test_many_operations_of_one_tick_make_two_calls_that_overlap():
    replies = [asyncio.get_running_loop().create_future() for _ in range(2)]
    async with running(lambda _: replies[len(driver.commands) - 1]) as (driver, transport):
        await transport.start()
        sends = asyncio.gather(*(transport.run(send(b"%d" % i)) for i in range(65)))
        while len(driver.commands) < 2:
            await asyncio.sleep(0)
        for reply, command in zip(replies, driver.commands, strict=True):
            reply.set_result(echo(command))
        await sends

    assert [len(bodies(command)) for command in driver.commands] == [33, 32]


async def test_operations_on_different_queues_never_share_a_call():
    async with running(echo) as (driver, transport):
        await transport.start()
        await asyncio.gather(transport.run(send()), transport.run(send(keys=OTHER)))

    assert len(driver.commands) == 2


async def test_what_comes_while_two_calls_run_gathers_for_the_next():
    gates = []

    def answer(command):
        gates.append(asyncio.get_running_loop().create_future())
        return gates[-1]

    async with running(answer) as (driver, transport):
        await transport.start()
        tasks = []
        for i in range(10):
            tasks.append(asyncio.create_task(transport.run(send(b"%d" % i))))
            await asyncio.sleep(0.001)
        assert [len(bodies(c)) for c in driver.commands] == [1, 1]
        gates[0].set_result([[ID]])
        await tasks[0]
        while len(driver.commands) < 3:
            await asyncio.sleep(0)
        gates[1].set_result([[ID]])
        gates[2].set_result([[ID]] * 8)
        await asyncio.gather(*tasks)

    assert bodies(driver.commands[2]) == [b"%d" % i for i in range(2, 10)]


async def test_call_carries_a_bounded_number_of_messages():
    async with running(echo) as (driver, transport):
        await transport.start()
        await asyncio.gather(*(transport.run(send()) for _ in range(600)))

    assert sorted(len(bodies(c)) for c in driver.commands) == [88, 256, 256]


async def test_call_carries_a_bounded_number_of_bytes():
    async with running(echo) as (driver, transport):
        await transport.start()
        await asyncio.gather(*(transport.run(send(bytes(100_000))) for _ in range(5)))

    assert sorted(len(bodies(c)) for c in driver.commands) == [1, 2, 2]


async def test_operation_to_be_seen_through_is_made_without_its_caller():
    async with running(lambda command: [[1]] * 2) as (driver, transport):
        await transport.start()
        given_up = transport.submit(send())
        gone = transport.see_through(messages.ack(KEYS, Receipt("a" * 32, 1, 5)))
        there = transport.see_through(messages.ack(KEYS, Receipt("b" * 32, 1, 5)))
        given_up.cancel()
        gone.cancel()
        await there

    assert [[r.receipt.id for r in c.requests] for c in driver.commands] == [["a" * 32, "b" * 32]]


async def test_acks_repeated_after_a_lost_reply_take_messages_that_are_gone_for_acked():
    replies = iter([ReplyLost("gone"), [[0, 1, -1]]])

    def answer(command):
        reply = next(replies)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async with running(answer) as (_, transport):
        receipts = [Receipt(letter * 32, 1, 5) for letter in "abc"]
        first, second, third = await transport.run(messages.ack_many(KEYS, receipts))
    assert (first, second) == (None, None)
    assert isinstance(third, LeaseLost)
    assert not third.gone


async def test_failure_of_one_operation_is_its_own():
    def answer(command):
        return [[b"messageTooLong", 9, 1] if body == b"bad" else [ID] for body in bodies(command)]

    async with running(answer) as (driver, transport):
        await transport.start()
        good, bad, also_good = await asyncio.gather(
            *(transport.run(send(body)) for body in (b"a", b"bad", b"b")), return_exceptions=True
        )

    assert len(driver.commands) == 1
    assert good == also_good == [ID.decode()]
    assert isinstance(bad, MessageTooLong)


async def test_code_word_reaches_every_caller_as_an_error_of_its_own():
    async with running(lambda _: b"queueNotFound") as (_, transport):
        await transport.start()
        errors = await asyncio.gather(
            *(transport.run(send()) for _ in range(3)), return_exceptions=True
        )

    assert all(isinstance(e, QueueNotFound) for e in errors)
    assert len({id(e) for e in errors}) == 3


@pytest.mark.parametrize("refuse", ["code", "layout"])
async def test_refused_send_is_made_once_whatever_durability_is_demanded(refuse):
    def refused(command):
        if refuse == "layout":
            raise WrongLayout("wrongType")
        return b"queueNotFound"

    settings = {"deadline_s": 1, "durability": Durability(fsync=True)}
    async with running(refused, **settings) as (driver, transport):
        with pytest.raises((QueueNotFound, QueueCorrupt)):
            await transport.run(send())
        assert len(driver.commands) == 1


async def test_missing_script_is_sent_with_its_text_once():
    def answer(command):
        if command.words[0] == "EVALSHA":
            raise ScriptMissing
        return [[ID]]

    async with running(answer) as (driver, transport):
        assert await transport.run(send()) == [ID.decode()]

    assert [c.words[0] for c in driver.commands] == ["EVALSHA", "EVAL"]
    assert driver.commands[1].words[1] == load("send").source


async def test_command_that_did_not_run_is_tried_again():
    failures = [NotExecuted("loading"), NotExecuted("loading")]

    def answer(command):
        if failures:
            raise failures.pop()
        return [[ID]]

    async with running(answer) as (driver, transport):
        assert await transport.run(send()) == [ID.decode()]

    assert len(driver.commands) == 3


async def test_server_that_stays_away_gives_one_sentence_at_the_deadline():
    def answer(command):
        raise NotExecuted("connection refused")

    async with running(answer, deadline_s=1) as (_, transport):
        with pytest.raises(Unavailable, match=r"connection refused .gave up after 1 s") as caught:
            await transport.run(send())

    assert caught.value.executed is False
    assert caught.value.transient


def ticket(command):
    """Return the call record, the number of the call, and the attempt."""
    return command.numbered


async def test_lost_reply_of_a_send_is_asked_for_again_under_the_same_number():
    def answer(command):
        if len(driver.commands) < 3:
            raise ReplyLost("connection reset")
        return [[ID]]

    async with running(answer) as (driver, transport):
        assert await transport.run(send()) == [ID.decode()]
        await transport.run(send())

    memory = ticket(driver.commands[0])[0]
    assert [ticket(c) for c in driver.commands] == [
        (memory, 1, 1), (memory, 1, 2), (memory, 1, 3), (memory, 2, 1)
    ]  # fmt: skip


async def test_lost_reply_of_a_pop_is_never_asked_for_again():
    def answer(command):
        raise ReplyLost("connection reset")

    async with running(answer) as (driver, transport):
        with pytest.raises(Unavailable) as caught:
            await transport.run(messages.pop(KEYS, 1))

    assert len(driver.commands) == 1
    assert caught.value.executed is None


async def test_send_whose_outcome_stays_unknown_parks_its_series_until_it_is_resumed():
    lost = True

    def answer(command):
        if lost and ticket(command)[1] == 1:
            raise ReplyLost("connection reset")
        return [[ID] for _ in bodies(command)]

    async with running(answer, deadline_s=0.6) as (driver, transport):
        with pytest.raises(SendUnknown) as caught:
            await transport.run(send())
        parked = ticket(driver.commands[0])[0]
        driver.commands.clear()
        # Nothing that follows may be taken for the call that is still open.
        for _ in range(3):
            with pytest.raises(SendUnknown):
                await transport.run(send())
        assert parked not in {ticket(c)[0] for c in driver.commands}
        driver.commands.clear()

        lost = False
        assert await transport.resume(caught.value.token) == [ID.decode()]
        series, number, attempt = ticket(driver.commands[0])
        assert (series, number) == (parked, 1)
        assert attempt > 1
        # Another use of the same token makes no call.
        assert await transport.resume(caught.value.token) == [ID.decode()]
        assert len(driver.commands) == 1
        await transport.run(send())
        assert ticket(driver.commands[1])[:2] == (parked, 2)


async def test_refusal_after_a_lost_reply_leaves_the_outcome_unknown():
    def answer(command):
        if len(driver.commands) == 1:
            raise ReplyLost("connection reset")
        raise ServerOutOfMemory("redis is out of memory")

    async with running(answer) as (driver, transport):
        with pytest.raises(SendUnknown, match="out of memory"):
            await transport.run(send())


async def test_ack_repeated_after_a_lost_reply_takes_a_message_that_is_gone_for_settled():
    def answer(command):
        if len(driver.commands) == 1:
            raise ReplyLost("connection reset")
        return [[0]]

    async with running(answer) as (driver, transport):
        await transport.run(messages.ack(KEYS, Receipt(ID.decode(), 1, 17)))

    assert len(driver.commands) == 2


async def test_ack_repeated_after_a_lost_reply_still_notices_another_holder():
    def answer(command):
        if len(driver.commands) == 1:
            raise ReplyLost("connection reset")
        return [[-1]]

    async with running(answer) as (driver, transport):
        with pytest.raises(LeaseLost):
            await transport.run(messages.ack(KEYS, Receipt(ID.decode(), 1, 17)))


async def test_receives_of_long_bodies_share_calls_whose_replies_are_not_too_long():
    size = [MAX_SIZE // 4]

    def one_each(command):
        return [[30000, 0, ID, b"x" * size[0], 1, b"1"] for _ in command.requests]

    spec = ReceiveSpec(KEYS, body_size=messages.BodySize())

    async def receive(transport):
        return await transport.run(messages.receive(spec, 1, vt_ms=-1))

    async with running(one_each) as (driver, transport):
        await receive(transport)
        await asyncio.gather(*(receive(transport) for _ in range(12)))
        size[0] = 3 * MAX_SIZE
        await asyncio.gather(*(receive(transport) for _ in range(4)))
        await asyncio.gather(*(receive(transport) for _ in range(2)))
        size[0] = 10
        await receive(transport)
        await asyncio.gather(*(receive(transport) for _ in range(20)))

    shared = [len(command.requests) for command in driver.commands]
    assert shared == [1, 4, 4, 4, 4, 1, 1, 1, 20]


async def test_receive_whose_outcome_stays_unknown_is_recalled():
    def answer(command):
        if ticket(command)[2] == 0:
            return [[0, 0]]
        raise ReplyLost("connection reset")

    async with running(answer, deadline_s=0.6) as (driver, transport):
        with pytest.raises(Unavailable):
            await transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1))
        for _ in range(5000):
            if ticket(driver.commands[-1])[2] == 0:
                break
            await asyncio.sleep(0.001)

    memory, number, attempt = ticket(driver.commands[-1])
    assert (memory, number, attempt) == (*ticket(driver.commands[0])[:2], 0)


async def test_recall_whose_reply_cannot_be_read_leaves_the_client_alone():
    recalled = asyncio.Event()

    def answer(command):
        if ticket(command)[2] == 0:
            recalled.set()
            raise ValueError("not a reply")
        if command.kind is messages.SEND:
            return echo(command)
        raise ReplyLost("connection reset")

    async with running(answer, deadline_s=0.6) as (_, transport):
        with pytest.raises(Unavailable):
            await transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1))
        async with asyncio.timeout(30):
            await recalled.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert await transport.run(send()) == [ID.decode()]


async def test_resumed_send_whose_reply_cannot_be_read_may_be_resumed_again():
    replies = []

    def answer(command):
        if not replies:
            raise ReplyLost("connection reset")
        return replies[-1]

    async with running(answer, deadline_s=0.6) as (_, transport):
        with pytest.raises(SendUnknown) as caught:
            await transport.run(send())
        replies.append(7)
        with pytest.raises(SendUnknown) as again:
            await transport.resume(caught.value.token)
        replies.append([[ID]])
        assert await transport.resume(again.value.token) == [ID.decode()]


async def test_lease_counts_from_before_the_attempt_that_was_answered():
    gate = asyncio.get_running_loop().create_future()
    async with running(lambda _: gate) as (driver, transport):
        before = asyncio.get_running_loop().time()
        task = asyncio.create_task(transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1)))
        while not driver.commands:
            await asyncio.sleep(0)
        written = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        gate.set_result([leased(ID)])

        assert before <= (await task).asked_at <= written


async def test_closing_removes_call_records_that_are_not_needed():
    def answer(command):
        if ticket(command)[0].startswith("rsmq:other") and ticket(command)[2] == 1:
            raise ReplyLost("connection reset")
        return echo(command)

    async with running(answer) as (driver, transport):
        await transport.run(send())
        await transport.run(send())
        await transport.run(send(keys=OTHER))

    # The first attempt of the last call may still be on its way.
    assert driver.forgotten == [ticket(driver.commands[0])[0]]


async def test_closing_leaves_the_memory_of_a_call_that_is_still_open():
    lost = False

    def answer(command):
        if lost:
            raise ReplyLost("connection reset")
        return echo(command)

    async with running(answer, deadline_s=0.6) as (driver, transport):
        await transport.run(send())
        lost = True
        with pytest.raises(SendUnknown) as caught:
            await transport.run(send())

    assert driver.forgotten == []
    for _ in range(2):
        with pytest.raises(ClientClosed):
            await transport.resume(caught.value.token)


@pytest.mark.parametrize("uptime_s", [0.3, 1000.7, 1e6 + 0.1])
def test_turn_that_comes_too_late_is_not_taken(monkeypatch, uptime_s):
    monkeypatch.setattr("aiorsmq_ng._transport.call_retries.time.monotonic", lambda: uptime_s)
    retry_budget = RetryBudget(burst=1, per_second=10)
    assert retry_budget.reserve(0.0) == pytest.approx(0.0, abs=1e-6)
    for _ in range(50):
        assert retry_budget.reserve(0.0, within_s=0.05) is None

    assert retry_budget.reserve(0.0, within_s=0.5) < 0.2


def test_child_process_never_continues_the_series_of_its_parent(monkeypatch):
    book = CallNumbers()
    ticket = book.take()
    book.settle(ticket)
    monkeypatch.setattr("os.getpid", lambda: -1)

    assert book.take().series.split("-")[0] != ticket.series.split("-")[0]


async def test_lost_reply_of_a_look_is_asked_for_again():
    def answer(command):
        if len(driver.commands) == 1:
            raise ReplyLost("connection reset")
        return [b"0", b"b", b"a"]

    async with running(answer) as (driver, transport):
        page = await transport.run(queues.list_queues(Namespace("rsmq"), b"0"))

    assert page == (b"0", ["b", "a"])
    assert len(driver.commands) == 2


async def test_server_that_never_answers_ends_at_the_deadline():
    async with running(lambda _: asyncio.get_running_loop().create_future(), deadline_s=0.6) as (
        _,
        transport,
    ):
        with pytest.raises(SendUnknown, match="not answer in time"):
            await transport.run(send())


async def test_pause_that_outlasts_the_deadline_tells_the_reason_of_the_pause(monkeypatch):
    async def oversleep(pause_s):
        await asyncio.sleep(0.6)

    def lose(command):
        raise ReplyLost("connection reset")

    monkeypatch.setattr("aiorsmq_ng._transport.call_retries.rest", oversleep)
    async with running(lose, deadline_s=0.5) as (driver, transport):
        with pytest.raises(SendUnknown, match="connection reset"):
            await transport.run(send())

    assert len(driver.commands) == 1


async def test_keys_of_another_layout_are_a_corrupt_queue():
    def answer(command):
        raise WrongLayout("wrongType")

    async with running(answer) as (_, transport):
        with pytest.raises(QueueCorrupt, match="another type"):
            await transport.run(send())


def given_back(command):
    [request] = command.requests
    return request.receipt, request.vt_ms, request.how


def leased(*ids):
    row = [30000, 0]
    for id in ids:
        row += [id, b"body", 1, 17]
    return row


async def test_message_taken_for_a_cancelled_caller_is_given_back():
    gate = asyncio.get_running_loop().create_future()

    def answer(command):
        return gate if len(driver.commands) == 1 else [1]

    async with running(answer) as (driver, transport):
        task = asyncio.create_task(transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1)))
        while not getattr(driver, "commands", None):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.set_result([leased(ID)])

    give_back = driver.commands[1]
    assert given_back(give_back) == (Receipt(ID.decode(), 1, 17), 0, "u")


def test_message_of_a_cancelled_caller_is_given_back_after_seconds_without_the_server():
    released = []

    async def cancel_and_wait(loop):
        def answer(command):
            if command.kind is messages.RECEIVE:
                return reply
            if loop.time() < away_until:
                raise NotExecuted("the server is away")
            released.append(given_back(command))
            return [1]

        reply, away_until = loop.create_future(), loop.time() + 4
        async with running(answer) as (_, transport):
            receiving = asyncio.create_task(
                transport.run(messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1))
            )
            await asyncio.sleep(0.1)
            receiving.cancel()
            reply.set_result([leased(ID)])
            await asyncio.sleep(5)

    run_virtually(cancel_and_wait, random.Random(0), 0)
    assert released == [(Receipt(ID.decode(), 1, 17), 0, "u")]


async def test_message_whose_caller_is_cancelled_as_it_arrives_is_given_back():
    gate = asyncio.get_running_loop().create_future()

    def answer(command):
        return gate if len(driver.commands) == 1 else [1]

    async with running(answer) as (driver, transport):
        operation = messages.receive(ReceiveSpec(KEYS), 1, vt_ms=-1)
        await transport.start()
        task = asyncio.create_task(transport.run(operation))
        while not driver.commands:
            await asyncio.sleep(0)
        conductor = transport._calls
        settle = conductor._hand_out

        def settle_then_cancel(call, results):
            settle(call, results)
            task.cancel()

        conductor._hand_out = settle_then_cancel
        gate.set_result([leased(ID)])
        with pytest.raises(asyncio.CancelledError):
            await task
        conductor._hand_out = settle

    assert len(driver.commands) == 2
    assert given_back(driver.commands[1]) == (Receipt(ID.decode(), 1, 17), 0, "u")


async def test_cancelling_one_caller_leaves_its_neighbours_alone():
    gate = asyncio.get_running_loop().create_future()
    async with running(lambda _: gate) as (driver, transport):
        await transport.start()
        tasks = [asyncio.create_task(transport.run(send(b"%d" % i))) for i in range(3)]
        while not driver.commands:
            await asyncio.sleep(0)
        tasks[1].cancel()
        gate.set_result([[ID]] * 3)
        results = await asyncio.gather(*tasks, return_exceptions=True)

    assert results[0] == results[2] == [ID.decode()]
    assert isinstance(results[1], asyncio.CancelledError)


async def test_operation_cancelled_before_its_call_is_not_sent():
    gates = []

    def answer(command):
        gates.append(asyncio.get_running_loop().create_future())
        return gates[-1]

    async with running(answer) as (driver, transport):
        await transport.start()
        tasks = []
        for i in range(3):
            tasks.append(asyncio.create_task(transport.run(send(b"%d" % i))))
            await asyncio.sleep(0.001)
        tasks[2].cancel()
        for gate in gates:
            gate.set_result([[ID]])
        await asyncio.gather(*tasks, return_exceptions=True)

    assert [bodies(c) for c in driver.commands] == [[b"0"], [b"1"]]


async def test_many_busy_queues_take_turns_on_few_connections():
    async with running(echo, connections=1) as (driver, transport):
        await transport.start()
        keys = [Namespace("rsmq").queue(f"q{i}") for i in range(20)]
        await asyncio.gather(*(transport.run(send(keys=k)) for k in keys for _ in range(3)))

    assert len(driver.commands) == 20


async def test_closed_transport_refuses_with_a_sentence():
    async with running(echo) as (driver, transport):
        await transport.run(send())

    assert driver.closed
    with pytest.raises(ClientClosed, match="closed"):
        await transport.run(send())


async def test_closing_finishes_calls_under_way():
    gate = asyncio.get_running_loop().create_future()
    async with running(lambda _: gate) as (driver, transport):
        task = asyncio.create_task(transport.run(send()))
        while not driver.commands:
            await asyncio.sleep(0)
        closing = asyncio.create_task(transport.aclose())
        await asyncio.sleep(0)
        gate.set_result([[ID]])
        await closing

    assert await task == [ID.decode()]


@pytest.mark.parametrize("finished", [False, True])
async def test_operation_submitted_while_the_runners_are_cancelled_is_made_unless_closing_is_over(
    finished,
):
    """``asyncio.run`` cancels all tasks at its end; what they do then may submit operations."""
    async with running(echo) as (_, transport):
        await transport.start()
        await transport.run(send())
        resting = list(transport._lanes._resting)
        for rest in resting:
            rest.cancel()
        transport._finished = finished
        transport._host.cancel()
        future = transport.submit(send())
        if finished:
            with pytest.raises(ClientClosed):
                await future
        else:
            assert await future == [ID.decode()]
            await asyncio.wait([transport._host])

        assert resting
        assert transport._lanes._resting == []


async def test_transport_closed_by_another_task_than_its_opener_is_fine():
    driver = ScriptedDriver(echo)
    transport = transport_on(driver)
    await asyncio.create_task(transport.start())
    await transport.run(send())
    await asyncio.create_task(transport.aclose())

    assert driver.closed


async def test_every_failure_of_an_operation_is_an_error_of_ours():
    receipt = Receipt(ID.decode(), 1, 5)
    async with running(lambda _: [[0]]) as (_, transport):
        with pytest.raises(LeaseLost) as caught:
            await transport.run(messages.ack(KEYS, receipt))

    assert isinstance(caught.value, RSMQError)


async def test_closing_while_every_connection_hangs_fails_the_calls_that_wait(monkeypatch):
    monkeypatch.setattr("aiorsmq_ng._transport.transport.CLOSE_S", 0.05)
    hang = asyncio.get_running_loop().create_future()
    async with running(lambda _: hang, connections=1, deadline_s=60) as (_, transport):
        await transport.start()
        hanging = asyncio.create_task(transport.run(send()))
        await asyncio.sleep(0.01)
        waiting = [
            asyncio.create_task(transport.run(queues.attributes(KEYS))),
            asyncio.create_task(transport.run(send(keys=OTHER))),
        ]
        await asyncio.sleep(0.01)
        await transport.aclose()
        async with asyncio.timeout(5):
            outcomes = await asyncio.gather(hanging, *waiting, return_exceptions=True)

    assert isinstance(outcomes[0], SendUnknown)
    assert all("closed before the call was made" in str(e) for e in outcomes[1:])


async def test_client_that_could_not_be_opened_may_be_opened_later():
    failures = [NotExecuted("refused")] * 100

    def answer(command):
        if failures:
            raise failures.pop()
        return b"PONG"

    async with running(answer) as (driver, transport):
        with pytest.raises(Unavailable):
            await transport.ping(0.05)
        assert driver.closed
        failures.clear()
        await transport.ping(0.05)


async def test_turns_that_a_busy_loop_heaped_up_are_spread_over_as_long(monkeypatch):
    spread = []

    def uniform(least, most):
        spread.append((least, most))
        return 0.0

    monkeypatch.setattr(call_retries.random, "uniform", uniform)
    resting = [asyncio.create_task(call_retries.rest(0.01)) for _ in range(3)]
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - the loop stands still
    await asyncio.gather(*resting)

    assert len(spread) == 3
    assert all(least == 0 and most > 0.2 for least, most in spread)
