"""First attempts, which no task makes: whatever happens to one, it ends as a call by a runner does.

Every test checks that the call was written without a runner, and if a runner had to go on with it.
Each is made twice: written at the end of the tick, and in the step of the caller.
"""

import asyncio
import math

import pytest
from redis import Redis

from aiorsmq_ng import (
    RSMQ,
    ClientClosed,
    Options,
    QueueCorrupt,
    QueueNotFound,
    SendUnknown,
    Unavailable,
    WrongContext,
)
from aiorsmq_ng._protocol.scripts import load
from aiorsmq_ng._transport import batching
from aiorsmq_ng._transport.batching import Lanes
from aiorsmq_ng._transport.first_attempts import FirstAttempt, FirstAttempts
from aiorsmq_ng.testing import FaultProxy

from ..support.deadlines import hurrying


class Ways:
    """Counts calls by how they were made."""

    def __init__(self, monkeypatch):
        #: Calls whose first attempt no runner has made; calls that runners made or went on with.
        self.begun = self.by_runners = 0
        begin, hand_over = FirstAttempts.begin, Lanes._hand_over

        def counted_begin(attempts, call, lane):
            begun = begin(attempts, call, lane)
            self.begun += begun
            return begun

        def counted_hand_over(lanes, call, lane):
            self.by_runners += 1
            hand_over(lanes, call, lane)

        monkeypatch.setattr(FirstAttempts, "begin", counted_begin)
        monkeypatch.setattr(Lanes, "_hand_over", counted_hand_over)

    def forget(self):
        """Count from now on."""
        self.begun = self.by_runners = 0

    @property
    def counts(self):
        """Both counts."""
        return self.begun, self.by_runners


@pytest.fixture(params=["end of the tick", "step of the caller"])
def in_callers_step(request, monkeypatch):
    """True if a lone call is written in the step of its caller."""
    in_step = request.param == "step of the caller"
    monkeypatch.setattr(batching, "LONE_CALLS", 0 if in_step else math.inf)
    return in_step


@pytest.fixture
def ways(monkeypatch, in_callers_step):
    return Ways(monkeypatch)


@pytest.fixture
async def proxied(server_url, ns, ways, raw):
    """A proxy, and a queue of a client that is connected through it, with one connection."""
    for name in ("send", "receive", "delete", "pop", "visibility", "attributes"):
        await raw.script_load(load(name).source)
    options = Options(deadline=30.0, connect_timeout=5.0, max_connections=1)
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=options) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        await queue.send("warm up")
        await (await queue.receive()).ack()
        ways.forget()
        yield proxy, queue, rsmq


async def until(condition):
    """Let the event loop run until *condition* holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def unleased(queue):
    """Wait until no message of *queue* is leased, and return the number of ready ones."""
    async with asyncio.timeout(20):
        while (now := await queue.attributes()).leased:
            await asyncio.sleep(0.001)
    return now.ready


async def test_calls_of_a_connected_client_need_no_runner(proxied, ways):
    _, queue, _ = proxied
    await queue.send("a")
    message = await queue.receive()
    await message.ack()
    await queue.pop()
    await queue.attributes()

    assert message.text == "a"
    assert ways.counts == (5, 0)


async def test_refusals_inside_a_reply_need_no_runner(proxied, ways):
    _, _, rsmq = proxied
    with pytest.raises(QueueNotFound):
        await rsmq.queue("missing").send("x")

    assert ways.counts == (1, 0)


async def test_calls_of_one_tick_are_two_writes(proxied, ways, monkeypatch):
    _, queue, rsmq = proxied
    others = [await rsmq.create_queue(f"q{i}") for i in range(5)]
    writes = []
    [connection] = rsmq._transport._driver._pipelined.values()
    write = connection._transport.write
    monkeypatch.setattr(
        connection._transport, "write", lambda data: (writes.append(data), write(data))
    )
    monkeypatch.setattr(batching, "LONE_CALLS", math.inf)
    ways.forget()
    await asyncio.gather(queue.send("x"), *(other.send("x") for other in others))

    assert ways.counts == (6, 0)
    # The server works on the first while the others are encoded.
    assert len(writes) == 2
    assert writes[0].count(b"EVALSHA") == 1


async def test_lone_call_is_written_in_the_step_of_its_caller(proxied, ways, in_callers_step):
    _, queue, _ = proxied
    await queue.send("another of the same task")
    ways.forget()
    sending = queue.send("x")
    future = sending.send(None)  # its first step

    assert ways.begun == in_callers_step
    future.add_done_callback(lambda _: None)
    await until(future.done)
    with pytest.raises(StopIteration):
        sending.send(None)


async def test_operations_of_other_tasks_share_a_call_after_lone_ones(proxied, monkeypatch):
    monkeypatch.undo()
    _, queue, rsmq = proxied
    for _ in range(batching.LONE_CALLS + 2):
        await queue.send("x")
    taken, batch = [], batching.Lane.batch

    def watched(lane):
        taken.append(batch(lane))
        return taken[-1]

    monkeypatch.setattr(batching.Lane, "batch", watched)
    await asyncio.gather(*(queue.send("x") for _ in range(40)))

    assert [len(operations) for operations in taken] == [40]
    assert rsmq._transport._lanes._lone_calls == 0


async def test_caller_cancelled_before_the_write(proxied, ways):
    _, queue, _ = proxied
    sending = asyncio.create_task(queue.send("x"))
    asyncio.get_running_loop().call_soon(sending.cancel)
    with pytest.raises(asyncio.CancelledError):
        await sending

    await until(lambda: not queue._context.transport._lanes.busy)
    assert (await queue.attributes()).totalsent == 1
    assert ways.by_runners == 0


async def test_caller_cancelled_between_write_and_reply(proxied, ways):
    proxy, queue, _ = proxied
    await queue.send("x")
    held = proxy.hold_request(b"EVALSHA")
    receiving = asyncio.create_task(queue.receive(vt=600))
    await held.caught()
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    await held.release()

    assert await unleased(queue) == 1
    assert ways.by_runners == 0


async def test_caller_cancelled_with_the_reply_in_hand(proxied, ways, monkeypatch):
    _, queue, _ = proxied
    await queue.send("x")
    finish = FirstAttempts.finish
    receiving = asyncio.create_task(queue.receive(vt=600))

    def finish_and_cancel(*given):
        done = finish(*given)
        receiving.cancel()
        return done

    monkeypatch.setattr(FirstAttempts, "finish", finish_and_cancel)
    with pytest.raises(asyncio.CancelledError):
        await receiving
    monkeypatch.undo()

    assert await unleased(queue) == 1


async def test_connection_cut_while_idle(proxied, ways):
    proxy, queue, _ = proxied
    await proxy.cut()
    await asyncio.gather(queue.send("x"), queue.send("y"))

    assert (await queue.attributes()).totalsent == 3
    assert ways.by_runners


async def test_connection_cut_before_the_server_has_the_request(proxied, ways):
    proxy, queue, _ = proxied
    held = proxy.hold_request(b"EVALSHA")
    sending = asyncio.create_task(queue.send("x"))
    await held.caught()
    await proxy.cut()
    await held.release()
    await sending

    assert (await queue.attributes()).totalsent == 2
    assert ways.by_runners == 1


async def test_connection_cut_before_the_reply(proxied, ways):
    proxy, queue, _ = proxied
    await queue.send("x")
    ways.forget()
    proxy.drop_reply(b"EVALSHA")
    message = await queue.receive()

    assert (message.text, message.rc) == ("x", 1)
    assert ways.counts == (1, 1)


async def test_lost_reply_of_a_pop_is_not_asked_for_again(proxied, ways):
    proxy, queue, _ = proxied
    await queue.send_many(["a", "b"])
    ways.forget()
    proxy.drop_reply(b"EVALSHA")
    with pytest.raises(Unavailable) as caught:
        await queue.pop()

    assert caught.value.executed is None
    assert ways.counts == (1, 1)
    assert (await queue.pop()).text == "b"


async def test_server_that_is_silent_is_given_up_at_the_deadline(proxied, ways, raw):
    proxy, queue, rsmq = proxied
    proxy.half_open()
    sending = asyncio.create_task(queue.send("x"))
    with hurrying(rsmq), pytest.raises(SendUnknown) as caught:
        await sending
    assert ways.counts == (1, 1)
    await proxy.resume()

    assert len(await queue.resend(caught.value.token)) == 1
    assert (await queue.attributes()).totalsent == 2


async def test_all_attempts_in_flight_share_one_timer(proxied, ways, monkeypatch):
    _, queue, rsmq = proxied
    timers = []
    loop = asyncio.get_running_loop()
    call_at = loop.call_at

    def counted_call_at(*given, **named):
        timers.append(given)
        return call_at(*given, **named)

    monkeypatch.setattr(loop, "call_at", counted_call_at)
    for _ in range(20):
        await queue.send("x")

    assert len(timers) <= 1
    assert rsmq._transport._retries.timeouts.of_type(object) == []


async def test_missing_script_is_sent_with_its_text(proxied, ways, raw):
    _, queue, _ = proxied
    await raw.script_flush()
    await queue.send("x")

    assert ways.counts == (1, 1)
    await queue.send("y")
    assert ways.counts == (2, 1)
    assert (await queue.attributes()).totalsent == 3


async def test_missing_script_on_a_connection_that_is_lost_right_after(
    proxied, ways, raw, monkeypatch
):
    proxy, queue, rsmq = proxied
    await raw.script_flush()
    driver, refused = rsmq._transport._driver, []
    acquire = driver._acquire

    async def lost_connection():
        # As if the connection were cut after the refusal, and the server away for a moment.
        while driver._idle:
            await driver._discard(driver._idle.pop())
        if not refused:
            refused.append(True)
            await proxy.refuse()
            asyncio.get_running_loop().call_later(0.05, resumed.set)
        return await acquire()

    resumed = asyncio.Event()
    resuming = asyncio.create_task(_resume(proxy, resumed))
    monkeypatch.setattr(driver, "_acquire", lost_connection)
    await queue.send("x")
    await resuming
    monkeypatch.undo()

    assert refused
    assert (await queue.attributes()).totalsent == 2


async def _resume(proxy, resumed):
    await resumed.wait()
    await proxy.resume()


async def test_error_reply_is_the_callers_own(proxied, ways, raw, ns):
    _, queue, rsmq = proxied
    await raw.set(f"{ns}:odd:Q", "not a hash")
    with pytest.raises(QueueCorrupt):
        await rsmq.queue("odd").send("x")

    assert ways.counts == (1, 1)
    await queue.send("x")
    assert ways.counts == (2, 1)


async def test_paused_server_delays_calls_and_changes_nothing(proxied, ways, raw):
    _, queue, _ = proxied
    await raw.execute_command("CLIENT", "PAUSE", "200", "ALL")
    await asyncio.gather(*(queue.send(f"{i}") for i in range(5)))

    assert ways.by_runners == 0
    assert (await queue.attributes()).totalsent == 6


async def test_closing_waits_for_the_reply(proxied, ways, server_url, ns):
    proxy, queue, rsmq = proxied
    held = proxy.hold_request(b"EVALSHA")
    sending = asyncio.create_task(queue.send("x"))
    await held.caught()
    closing = asyncio.create_task(rsmq.aclose())
    await asyncio.sleep(0)
    await held.release()

    assert len(await sending) == 32
    await closing
    assert ways.counts[0] >= 1
    async with RSMQ(server_url, ns=ns) as other:
        assert (await other.queue("jobs").attributes()).totalsent == 2


async def test_client_closed_without_a_reply_fails_the_caller(proxied, ways, monkeypatch):
    proxy, queue, rsmq = proxied
    monkeypatch.setattr("aiorsmq_ng._transport.transport.CLOSE_S", 0.05)
    proxy.half_open()
    sending = asyncio.create_task(queue.send("x"))
    receiving = asyncio.create_task(queue.receive())
    await until(lambda: ways.begun == 2)
    await rsmq.aclose()

    outcomes = await asyncio.gather(sending, receiving, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [SendUnknown, Unavailable]
    assert all("closed while the call ran" in str(outcome) for outcome in outcomes)
    with pytest.raises(ClientClosed):
        await queue.send("x")


def test_event_loop_that_ends_takes_the_reply_and_gives_the_message_back(server_url, ns):
    async def main():
        rsmq = RSMQ(server_url, ns=ns)
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        await queue.delete("a" * 32)
        with Redis.from_url(server_url) as other:
            other.execute_command("CLIENT", "PAUSE", "200", "ALL")
        receiving = asyncio.create_task(queue.receive(vt=600))
        await until(lambda: rsmq._transport._retries.timeouts.of_type(FirstAttempt))
        assert not receiving.done()
        # The client is not closed: asyncio.run cancels all tasks.

    async def look():
        async with RSMQ(server_url, ns=ns) as rsmq:
            return await unleased(rsmq.queue("jobs"))

    asyncio.run(main())
    assert asyncio.run(look()) == 1


async def test_other_loop_is_refused_before_anything_is_begun(proxied, ways):
    _, queue, _ = proxied

    def elsewhere():
        with pytest.raises(WrongContext):
            asyncio.run(queue.send("x"))

    await asyncio.to_thread(elsewhere)
    assert ways.counts == (0, 0)


async def test_call_that_was_submitted_before_a_fork_is_not_written_by_the_child(
    proxied, ways, monkeypatch
):
    monkeypatch.setattr(batching, "LONE_CALLS", math.inf)
    _, queue, rsmq = proxied
    guard = rsmq._transport._loop_guard
    sending = asyncio.create_task(queue.send("x"))
    # What a fork puts in its place, in the child.
    asyncio.get_running_loop().call_soon(monkeypatch.setattr, guard, "here", object())
    with pytest.raises(WrongContext):
        await sending
    monkeypatch.undo()

    assert (await queue.attributes()).totalsent == 1


async def test_connection_with_unread_data_is_not_used(proxied, ways):
    _, queue, rsmq = proxied
    [connection] = rsmq._transport._driver._idle
    connection._reader.feed_data(b":7\r\n")
    await queue.send("x")

    assert ways.counts == (0, 1)
    assert connection not in rsmq._transport._driver._idle or not connection._reader._buffer


async def test_connection_that_was_idle_for_long_is_asked_first(proxied, ways, raw):
    _, queue, rsmq = proxied
    [connection] = rsmq._transport._driver._idle
    connection.next_health_check = 0
    connection.health_check_interval = 1
    before = (await raw.info("commandstats"))["cmdstat_ping"]["calls"]
    await queue.send("x")

    assert ways.counts == (0, 1)
    assert (await raw.info("commandstats"))["cmdstat_ping"]["calls"] > before


async def test_reply_on_a_connection_that_was_marked_broken_ends_by_a_runner(proxied, ways):
    proxy, queue, rsmq = proxied
    held = proxy.hold_request(b"EVALSHA")
    sending = asyncio.create_task(queue.send("x"))
    await held.caught()
    [connection] = rsmq._transport._driver._shared
    connection.broken = True
    await held.release()

    assert len(await sending) == 32
    assert ways.counts == (1, 1)
    assert connection.connection not in rsmq._transport._driver._idle


async def test_more_calls_than_may_be_in_flight_wait_their_turn(proxied, ways, monkeypatch):
    _, _, rsmq = proxied
    queues = [await rsmq.create_queue(f"q{i}") for i in range(30)]
    lanes = rsmq._transport._lanes
    most = 0
    begin = FirstAttempts.begin

    def watched(*given):
        nonlocal most
        begun = begin(*given)
        most = max(most, lanes._first_in_flight + begun)
        return begun

    monkeypatch.setattr(FirstAttempts, "begin", watched)
    await asyncio.gather(*(queue.send("x") for queue in queues))

    assert most == lanes._runners == 8
    assert [(await queue.attributes()).msgs for queue in queues] == [1] * 30
