"""Closing a client: every caller gets an error, nothing stays leased, and it ends in time."""

import asyncio
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, AccessDenied, ClientClosed, Options
from aiorsmq_ng._protocol.operations.messages import ACK, RECEIVE, SEND, VISIBILITY
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.testing import FaultProxy

from ..support.driver import ScriptedDriver

ROOT = Path(__file__).parents[2]
ID = b"g73zkl38qz" + b"x" * 22


@pytest.fixture
def quick_close(monkeypatch):
    """Closing does not wait long for what is never answered."""
    monkeypatch.setattr("aiorsmq_ng.client._CLOSE_LONG_POLLS_S", 0.1)
    monkeypatch.setattr("aiorsmq_ng._transport.transport.CLOSE_S", 0.1)


async def settle_down():
    """Let everything run that can run without a reply."""
    for _ in range(50):
        await asyncio.sleep(0)


async def scripted(answer):
    """Return a client whose server is a script, and that script."""
    driver = ScriptedDriver(answer)
    rsmq = RSMQ("redis://never-connected", options=Options(deadline=60))
    rsmq._transport._driver = driver
    await rsmq._transport.start()
    return rsmq, driver


class HeldReplies:
    """Calls of one kind are made, and their results kept back."""

    def __init__(self, rsmq, kind):
        self.ran, self.go = asyncio.Event(), asyncio.Event()
        self._kind, driver = kind, rsmq._transport._driver
        # Runners make all calls: a first attempt is not a step that can be held.
        rsmq._transport._first_attempts.use(None)
        self._run = driver.run
        driver.run = self._held

    async def _held(self, call):
        results = await self._run(call)
        if call.kind is self._kind:
            self.ran.set()
            await self.go.wait()
        return results


async def test_message_taken_for_a_waiter_who_left_is_given_back_before_the_client_closes(
    rsmq, queue, server_url, ns
):
    closing_one = await RSMQ(server_url, ns=ns).open()
    waiting = asyncio.create_task(closing_one.queue("jobs").receive(vt=600, wait=100))
    while not closing_one.queue("jobs")._long_poll._waiters:
        await asyncio.sleep(0.01)
    held = HeldReplies(closing_one, RECEIVE)
    await queue.send("x")
    async with asyncio.timeout(10):
        while not (await queue.attributes()).leased:
            await asyncio.sleep(0.005)
    waiting.cancel()
    closing = asyncio.create_task(closing_one.aclose())
    await settle_down()
    held.go.set()
    await closing
    await asyncio.gather(waiting, return_exceptions=True)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (1, 0)


async def test_waiter_whose_look_is_under_way_at_close_gets_its_message(queue, server_url, ns):
    rsmq = await RSMQ(server_url, ns=ns).open()
    waiting = asyncio.create_task(rsmq.queue("jobs").receive(wait=100))
    while not rsmq.queue("jobs")._long_poll._waiters:
        await asyncio.sleep(0.01)
    held = HeldReplies(rsmq, RECEIVE)
    await queue.send("x")
    async with asyncio.timeout(10):
        while not (await queue.attributes()).leased:
            await asyncio.sleep(0.005)
    closing = asyncio.create_task(rsmq.aclose())
    await settle_down()
    held.go.set()
    await closing

    assert (await waiting).text == "x"


async def test_waiters_that_come_while_the_client_closes_are_sent_home(server_url, ns):
    for _ in range(10):
        rsmq = await RSMQ(
            server_url, ns=ns, options=Options(poll_base=0.001, poll_cap=0.001)
        ).open()
        for name in ("a", "b"):
            await rsmq.create_queue(name, exist_ok=True)
        waiting = [asyncio.create_task(rsmq.receive("a", wait=100))]
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(rsmq.aclose())
        await asyncio.sleep(0)
        waiting += [asyncio.create_task(rsmq.receive("b", wait=100)) for _ in range(3)]
        await closing
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(isinstance(o, ClientClosed) for o in outcomes)


async def test_close_that_is_cancelled_goes_on():
    sending = asyncio.get_running_loop().create_future()
    rsmq, driver = await scripted(lambda _: sending)
    call = asyncio.create_task(rsmq.queue("jobs").send("x"))
    await settle_down()
    closing = asyncio.create_task(rsmq.aclose())
    await settle_down()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    sending.set_result([[ID]])

    assert await call == ID.decode()
    async with asyncio.timeout(10):
        while not driver.closed:
            await asyncio.sleep(0.001)


async def test_close_that_was_cancelled_can_be_waited_for_again():
    sending = asyncio.get_running_loop().create_future()
    rsmq, driver = await scripted(lambda _: sending)
    call = asyncio.create_task(rsmq.queue("jobs").send("x"))
    await settle_down()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(rsmq.aclose(), 0.01)
    asyncio.get_running_loop().call_later(0.05, sending.set_result, [[ID]])
    await rsmq.aclose()

    assert driver.closed
    await call


async def test_close_called_twice_at_once_ends_for_both_when_everything_is_closed():
    sending = asyncio.get_running_loop().create_future()
    rsmq, driver = await scripted(lambda _: sending)
    call = asyncio.create_task(rsmq.queue("jobs").send("x"))
    await settle_down()
    closed_at_end = []

    async def close():
        await rsmq.aclose()
        closed_at_end.append(driver.closed)

    closing = [asyncio.create_task(close()) for _ in range(2)]
    await settle_down()
    sending.set_result([[ID]])
    await asyncio.gather(*closing, call)

    assert closed_at_end == [True, True]


@pytest.mark.usefixtures("quick_close")
async def test_close_ends_although_redis_is_silent_and_a_look_is_under_way(server_url, ns):
    async with FaultProxy(server_url) as proxy:
        options = Options(deadline=100, poll_base=0.01, poll_cap=0.01)
        rsmq = await RSMQ(proxy.url, ns=ns, options=options).open()
        queue = await rsmq.create_queue("jobs")
        waiting = asyncio.create_task(queue.receive(wait=100))
        await asyncio.sleep(0.05)
        proxy.half_open()
        await asyncio.sleep(0.05)
        async with asyncio.timeout(15):
            await rsmq.aclose()
            with pytest.raises(ClientClosed, match="closed"):
                await waiting


@pytest.mark.parametrize("held", [False, True], ids=["dropped", "held"])
async def test_prefetched_messages_are_back_when_the_client_closes_after_a_break(
    queue, server_url, ns, held
):
    await queue.send_many([str(i) for i in range(10)])
    async with RSMQ(server_url, ns=ns) as rsmq:
        consumer = rsmq.queue("jobs").consume(prefetch=8, vt=600)
        keep = consumer if held else None
        async for message in consumer:
            await message.ack()
            break
        del consumer

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (9, 0)
    del keep


async def test_prefetched_messages_are_back_when_a_cancelled_task_closes_the_client(
    queue, server_url, ns
):
    await queue.send_many([str(i) for i in range(10)])
    started = asyncio.Event()

    async def main():
        async with RSMQ(server_url, ns=ns) as rsmq:
            async for message in rsmq.queue("jobs").consume(prefetch=8, vt=600):
                async with message:
                    started.set()
                    await asyncio.sleep(100)

    task = asyncio.create_task(main())
    await started.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (10, 0)


async def in_a_block(message):
    async with message:
        await asyncio.sleep(100)


async def held_by_a_program(message):
    message.hold()
    await asyncio.sleep(100)


async def handed_over(message):
    await asyncio.sleep(100)


@pytest.mark.parametrize("work", [in_a_block, held_by_a_program, handed_over])
@pytest.mark.parametrize("prefetch", [1, 4])
async def test_what_is_worked_on_is_back_when_the_client_closes(
    queue, server_url, ns, work, prefetch
):
    """Its holder cannot settle it any more. What was leased ahead does not count as delivered."""
    await queue.send_many([str(number) for number in range(3)])
    rsmq = await RSMQ(server_url, ns=ns).open()
    consumer = rsmq.queue("jobs").consume(prefetch=prefetch, vt=600)
    message = await anext(consumer)
    task = asyncio.create_task(work(message))
    await settle_down()
    await rsmq.aclose()

    kept = work is not handed_over or prefetch > 1  # a message that is only received has no keeper
    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == ((3, 0) if kept else (2, 1))
    assert message.lease_lost is kept
    again = await queue.receive_many(3)
    begun = {"0": 2} if kept else {}
    assert {m.text: m.attempt for m in again} == {"1": 1, "2": 1} | begun
    assert not any(m.suspect for m in again)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_message_whose_holder_settles_it_is_not_given_back_by_close(queue, server_url, ns):
    await queue.send("x")
    rsmq = await RSMQ(server_url, ns=ns).open()
    message = await rsmq.queue("jobs").receive(vt=600)
    message.hold()
    replies = HeldReplies(rsmq, ACK)
    settling = asyncio.create_task(message.ack())
    await replies.ran.wait()
    closing = asyncio.create_task(rsmq.aclose())
    await settle_down()
    replies.go.set()
    await asyncio.gather(settling, closing)

    assert message.outcome == "acked"
    assert not message.lease_lost
    assert (await queue.attributes()).msgs == 0


async def test_message_whose_lease_is_being_extended_is_given_back_after_that(
    queue, server_url, ns
):
    await queue.send("x")
    rsmq = await RSMQ(server_url, ns=ns).open()
    message = await rsmq.queue("jobs").receive(vt=600)
    message.hold()
    replies = HeldReplies(rsmq, VISIBILITY)
    extending = asyncio.create_task(message.extend(900))
    await replies.ran.wait()
    closing = asyncio.create_task(rsmq.aclose())
    await settle_down()
    replies.go.set()
    await asyncio.gather(extending, closing)

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (1, 0)


async def test_block_that_is_entered_while_the_client_closes_gives_its_message_back(
    queue, server_url, ns
):
    await queue.send("x")
    rsmq = await RSMQ(server_url, ns=ns).open()
    message = await rsmq.queue("jobs").receive(vt=600)
    replies = HeldReplies(rsmq, SEND)
    sending = asyncio.create_task(rsmq.queue("jobs").send("y"))
    await replies.ran.wait()
    closing = asyncio.create_task(rsmq.aclose())
    await settle_down()
    with pytest.raises(ClientClosed):
        async with message:
            pytest.fail("its message cannot be settled")
    replies.go.set()
    await asyncio.gather(sending, closing)

    assert (await queue.attributes()).leased == 0


@pytest.mark.parametrize("closing", ["block", "never"])
@pytest.mark.parametrize(
    ("program", "ending"),
    [
        ("Blocks", "end_of_main"),
        ("Blocks", "system_exit"),
        ("Blocks", "cancel_everything"),
        ("PrefetchAndBlock", "end_of_main"),
        ("PrefetchAndBlock", "system_exit"),
        ("PrefetchAndBlock", "cancel_everything"),
        ("Handlers", "system_exit"),
        ("Handlers", "cancel_everything"),
    ],
)
async def test_program_that_ends_with_messages_in_hand_leaves_none_leased(
    queue, server_url, ns, program, ending, closing
):
    """asyncio.run cancels all tasks at once, those of the client, too, and then waits for them."""
    await queue.send_many([str(number) for number in range(8)])
    words = ("-m", "tests.support.abrupt_program", server_url, ns, program, ending, closing)
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT)
    await process.wait()

    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (8, 0)
    assert attributes.totalrecv > 0


async def test_consumer_whose_client_was_closed_says_so(queue, server_url, ns):
    for prefetch in (1, 5):
        rsmq = await RSMQ(server_url, ns=ns).open()
        consumer = rsmq.queue("jobs").consume(prefetch=prefetch)
        waiting = asyncio.create_task(anext(consumer))
        await asyncio.sleep(0.05)
        await rsmq.aclose()

        async with asyncio.timeout(10):
            with pytest.raises(ClientClosed, match="closed"):
                await waiting


async def test_receive_from_several_queues_cut_off_while_redis_executes_it_gives_back(rsmq, raw):
    queues = [await rsmq.create_queue(name) for name in ("a", "b")]
    for queue in queues:
        await queue.send("x")
    await raw.execute_command("CLIENT", "PAUSE", "150", "ALL")
    task = asyncio.create_task(rsmq.receive_many(["a", "b"], 2, vt=600))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    for queue in queues:
        async with asyncio.timeout(10):
            while (await queue.attributes()).totalrecv < 1 or (await queue.attributes()).leased:
                await asyncio.sleep(0.01)
        assert (await queue.attributes()).ready == 1


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_iteration_ends_with_an_error_when_the_right_to_receive_is_revoked(
    tmp_path, prefetch
):
    with EmbeddedServer.acquire(tmp_path / "data") as server:
        async with Redis.from_url(server.url) as admin:
            await admin.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
            options = Options(poll_base=0.02, poll_cap=0.02)
            async with RSMQ(f"unix://app:pw@{server.socket}", options=options) as rsmq:
                queue = await rsmq.create_queue("jobs")
                consumer = queue.consume(prefetch=prefetch)
                waiting = asyncio.create_task(anext(consumer))
                await asyncio.sleep(0.05)
                await admin.execute_command("ACL", "SETUSER", "app", "-evalsha", "-eval")

                async with asyncio.timeout(10):
                    with pytest.raises(AccessDenied, match="refused access"):
                        await waiting


async def test_close_hook_that_raises_is_logged_and_the_client_is_closed(caplog):
    rsmq, driver = await scripted(lambda _: [[ID]])
    others = []

    async def refuse():
        raise ZeroDivisionError("a fault of the program")

    def refuse_at_once():
        raise KeyError("another fault")

    async def end():
        await settle_down()
        others.append("ended")

    for hook in (refuse, refuse_at_once, end):
        rsmq.add_close_hook(hook)
    await rsmq.aclose()

    assert others == ["ended"]
    assert driver.closed
    assert "a fault of the program" in caplog.text
    assert "another fault" in caplog.text
    with pytest.raises(ClientClosed):
        await rsmq.queue("jobs").send("x")
