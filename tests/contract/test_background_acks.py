"""``consume(settle="background")``: blocks that end without waiting for their acks."""

import asyncio

import pytest

from aiorsmq_ng import Delivery, InvalidValue, LeaseLost, QueueNotFound, Worker

from ..support.waiting import until


async def consumed(consumer, count, work=None):
    """Take *count* messages, each in a block; return their texts."""
    texts = []
    async for message in consumer:
        async with message:
            texts.append(message.text)
            if work is not None:
                await work(message)
        if len(texts) == count:
            break
    return texts


async def all_ready(queue, count):
    """Return True if there are *count* messages, none of them leased.

    A receive ahead that the end of the consumer has cancelled may still be giving back.
    """
    found = await queue.attributes()
    return (found.msgs, found.ready) == (count, count)


async def holds(queue, texts):
    """Return True if the messages with *texts* are ready."""
    return {message.text for message in await queue.peek()} == texts


@pytest.mark.parametrize("prefetch", [1, 10, 100])
async def test_every_message_is_handled_once_and_gone_after_aclose(queue, prefetch):
    await queue.send_many([str(n) for n in range(250)])

    async with queue.consume(prefetch=prefetch, settle="background") as consumer:
        texts = await consumed(consumer, 250)

    assert texts == [str(n) for n in range(250)]
    assert (await queue.attributes()).msgs == 0


async def test_messages_that_were_not_worked_on_are_given_back(queue):
    await queue.send_many(["x"] * 50)

    async with queue.consume(prefetch=20, settle="background") as consumer:
        await consumed(consumer, 5)

    await until(all_ready, queue, 45)


async def test_block_that_raises_gives_its_message_back_and_others_are_acked(queue):
    await queue.send_many(["a", "bad", "c"])

    async def work(message):
        if message.text == "bad":
            raise ValueError(message.text)

    async with queue.consume(prefetch=3, settle="background") as consumer:
        with pytest.raises(ValueError, match="bad"):
            await consumed(consumer, 3, work)

    await until(holds, queue, {"c", "bad"})


async def test_lost_lease_is_raised_by_the_next_step_and_the_loop_can_go_on(queue):
    await queue.send_many(["lost", "kept", "last"])

    async with queue.consume(prefetch=3, settle="background") as consumer:
        async with await anext(consumer) as lost:
            # Another client deletes it while the block runs.
            await queue.delete(lost.id)
        assert lost.settled
        await until(lambda: not lost.settled)

        with pytest.raises(LeaseLost, match=lost.id) as caught:
            await anext(consumer)
        assert caught.value.gone
        assert await consumed(consumer, 2) == ["kept", "last"]

    assert (await queue.attributes()).msgs == 0


async def test_lost_leases_that_no_step_has_raised_are_raised_by_aclose(queue):
    await queue.send_many(["a", "b"])

    async def delete(message):
        await queue.delete(message.id)

    consumer = queue.consume(prefetch=2, settle="background")
    with pytest.raises(LeaseLost) as caught:
        async with consumer, await anext(consumer) as first, await anext(consumer) as second:
            await delete(first)
            await delete(second)

    # Blocks end from the inside out.
    assert caught.value.id == second.id
    assert first.id in caught.value.__notes__[0]
    await consumer.aclose()  # raised once


async def test_queue_that_was_deleted_is_an_error_of_the_next_step(rsmq, queue):
    await queue.send("x")

    async with queue.consume(settle="background") as consumer:
        async with await anext(consumer) as message:
            await rsmq.delete_queue(queue.name)
        await until(lambda: not message.settled)
        with pytest.raises((LeaseLost, QueueNotFound)):
            await anext(consumer)


async def test_acks_of_one_tick_share_a_call(queue, raw):
    await queue.send_many(["x"] * 60)
    async with queue.consume(prefetch=60, settle="background") as consumer:
        held = [await anext(consumer) for _ in range(60)]
        before = (await raw.info("commandstats")).get("cmdstat_zrem", {}).get("calls", 0)

        for message in held:
            async with message:
                pass
        await consumer.aclose()

    assert (await raw.info("commandstats"))["cmdstat_zrem"]["calls"] - before == 1


async def test_cancelled_loop_acks_what_it_has_done(queue):
    await queue.send_many(["x"] * 10)
    done = []

    async def loop():
        async with queue.consume(prefetch=10, settle="background") as consumer:
            async for message in consumer:
                async with message:
                    done.append(message.id)
                    if len(done) == 4:
                        task.cancel()
                        await asyncio.sleep(30)

    task = asyncio.create_task(loop())
    await asyncio.wait([task])

    assert task.cancelled()
    await until(all_ready, queue, 7)
    assert await queue.delete_many(done[:3]) == []


async def test_unknown_word_is_refused(queue):
    with pytest.raises(InvalidValue, match="settle must be await or background, not 'never'"):
        queue.consume(settle="never")


@pytest.mark.parametrize("settle", ["await", "background"])
async def test_worker_that_is_stopped_has_acked_all_it_has_done(rsmq, queue, settle):
    worker = Worker(rsmq, concurrency=1, prefetch=50, settle=settle)
    await queue.send_many([str(n) for n in range(200)])
    seen = []

    @worker.handler(queue.name)
    async def handle(body: str) -> None:
        seen.append(body)
        if len(seen) == 120:
            worker.stop()

    await worker.run(signals=False)

    assert seen == [str(n) for n in range(120)]
    assert worker.health.done == 120
    await until(all_ready, queue, 80)


async def test_worker_waits_at_its_end_for_replies_that_are_late(rsmq, queue, raw):
    worker = Worker(rsmq, concurrency=1)
    await queue.send_many(["a", "b", "c"])
    seen = []

    @worker.handler(queue.name)
    async def handle(body: str) -> None:
        seen.append(body)
        if body == "c":
            await raw.execute_command("CLIENT", "PAUSE", "500", "ALL")
            worker.stop()

    await worker.run(signals=False)

    assert seen == ["a", "b", "c"]
    assert worker.health.done == 3


async def test_worker_logs_a_lost_message_and_does_not_count_it(rsmq, queue, caplog):
    worker = Worker(rsmq, concurrency=2)
    await queue.send_many(["lost", "kept"])

    @worker.handler(queue.name)
    async def handle(body: str, message: Delivery) -> None:
        if body == "lost":
            await queue.delete(message.id)

    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.done == 1 and "is lost" in caplog.text)
    worker.stop()
    await running

    assert worker.health.done == 1
    assert (await queue.attributes()).msgs == 0


async def test_worker_with_an_unknown_word_is_refused(rsmq):
    with pytest.raises(InvalidValue, match="settle must be await or background, not 'soon'"):
        Worker(rsmq, settle="soon")


@pytest.mark.parametrize("ends_by", ["cancellation", "timeout", "error"])
async def test_failed_ack_does_not_replace_what_ends_the_loop(queue, ends_by, caplog):
    await queue.send("x")
    inside = asyncio.Event()

    async def loop():
        async with queue.consume(settle="background") as consumer:
            async with await anext(consumer) as message:
                await queue.delete(message.id)
            inside.set()
            if ends_by == "error":
                raise KeyError("mine")
            async with asyncio.timeout(0.05 if ends_by == "timeout" else 30):
                await asyncio.sleep(30)

    task = asyncio.create_task(loop())
    await inside.wait()
    if ends_by == "cancellation":
        task.cancel()
    await asyncio.wait([task])

    if ends_by == "cancellation":
        assert task.cancelled()
    else:
        expected = KeyError if ends_by == "error" else TimeoutError
        assert isinstance(task.exception(), expected)
    assert "is lost" in caplog.text
