"""Dead letters: every move is reported, wherever it happens."""

import asyncio
import logging

import pydantic
import pytest

from aiorsmq_ng import RSMQ, Delivery, Retry, Worker

from ..support.clock import pass_time
from ..support.waiting import until
from .test_worker import work

__all__ = ["work"]

LOGGER = "aiorsmq_ng.dead_letters"


class Order(pydantic.BaseModel):
    number: int


@pytest.fixture
def letters(rsmq):
    """What the client tells of."""
    heard = []
    rsmq.dead_letters.listen(heard.append)
    return heard


async def spend(queue, raw, ns, times=3):
    """Have a message delivered so often, to holders that are never heard of again."""
    for _ in range(times):
        assert await queue.receive(vt=10)
        await pass_time(raw, f"{ns}:{queue.name}", 12)


@pytest.fixture
async def limited(rsmq):
    await rsmq.create_queue("jobs")
    return rsmq.queue("jobs", retry=Retry(3))


async def test_move_by_a_receive_is_logged_and_reported_with_a_reason(
    rsmq, limited, raw, ns, letters, caplog
):
    id = await limited.send("x")
    await spend(limited, raw, ns)

    with caplog.at_level(logging.WARNING, LOGGER):
        assert await limited.receive() is None

    (letter,) = letters
    assert (letter.message.id, letter.message.text, letter.message.rc) == (id, "x", 3)
    assert (letter.queue, letter.dead_letter, letter.by_receive) == ("jobs", "jobs-dead", True)
    assert letter.reason.startswith("received 3 times without being settled; last holder ")
    assert await rsmq.queue("jobs-dead").reason(id) == letter.reason
    assert {r.levelno for r in caplog.records if r.name == LOGGER} == {logging.WARNING}
    assert id in caplog.text
    assert letter.reason in caplog.text


async def worker_log(rsmq, work, caplog, annotation, retry):
    """Run a worker until its message is rejected; return the id and the log of the worker."""
    worker = Worker(rsmq)

    @worker.handler("jobs", retry=retry)
    async def ship(body: annotation):
        raise KeyError("no stock")

    running = work(worker)
    await until(lambda: worker.health.rejected)
    worker.stop()
    await running
    return [(r.name, r.getMessage().replace(ship.__qualname__, "ship")) for r in caplog.records]


async def test_worker_logs_why_a_body_was_refused_without_its_values(rsmq, limited, work, caplog):
    id = await limited.send({"number": "secret", "secret": 1})

    log = await worker_log(rsmq, work, caplog, Order, Retry(3))

    reason = await rsmq.queue("jobs-dead").reason(id)
    assert reason == "body does not fit Order: number: int_parsing"
    assert log[-2:] == [
        (LOGGER, f"message {id} of queue 'jobs' was moved to 'jobs-dead': {reason}"),
        (
            "aiorsmq_ng.worker",
            f"handler ship was not called for message {id} of queue 'jobs' (delivery 1): {reason}",
        ),
    ]
    assert "secret" not in caplog.text


async def test_worker_logs_the_move_after_the_last_failure(rsmq, limited, work, caplog):
    id = await limited.send({"number": 1})

    log = await worker_log(rsmq, work, caplog, Order, Retry(2, base=0))

    failed = f"handler ship failed on message {id} of queue 'jobs' (delivery"
    assert log[-3:] == [
        ("aiorsmq_ng.worker", f"{failed} 1): KeyError"),
        (LOGGER, f"message {id} of queue 'jobs' was moved to 'jobs-dead': KeyError: 'no stock'"),
        ("aiorsmq_ng.worker", f"{failed} 2): KeyError"),
    ]


async def test_reason_names_the_last_holder(rsmq, limited, raw, ns, letters):
    await limited.send("x")
    await spend(limited, raw, ns)
    await limited.receive()

    assert f"last holder {limited._context.presence.name};" in letters[0].reason


async def test_reason_stays_while_the_dead_letter_is_received_and_given_back(
    rsmq, limited, raw, ns
):
    id = await limited.send("x")
    await spend(limited, raw, ns)
    await limited.receive()
    dead = rsmq.queue("jobs-dead")
    reason = await dead.reason(id)

    await (await dead.receive()).release()
    assert await dead.reason(id) == reason
    await dead.receive()
    assert await dead.reason(id) == reason
    await dead.change_visibility(id, 0)
    await limited.redrive()
    assert await dead.reason(id) is None


async def test_move_beside_messages_that_are_delivered_is_reported(limited, raw, ns, letters):
    id = await limited.send("x")
    await spend(limited, raw, ns)
    await limited.send_many(["a", "b"])

    assert [m.text for m in await limited.receive_many(5)] == ["a", "b"]
    assert [letter.message.id for letter in letters] == [id]


async def test_moves_from_several_queues_are_reported(rsmq, raw, ns, letters):
    for name in ("one", "two"):
        await rsmq.create_queue(name)
        queue = rsmq.queue(name, retry=Retry(1))
        await queue.send(name)
        await spend(queue, raw, ns, 1)
    queues = [rsmq.queue(name, retry=Retry(1)) for name in ("one", "two")]

    assert await rsmq.receive_many(queues, 5) == []

    assert [(x.queue, x.message.text) for x in letters] == [("one", "one"), ("two", "two")]


async def test_move_by_recover_is_reported(limited, letters):
    await limited.send("x")
    await limited.receive(vt=60)
    for _ in range(2):
        await limited.recover(1, idle=0, vt=60)

    assert await limited.recover(1, idle=0) == []
    assert [x.message.text for x in letters] == ["x"]


async def test_move_for_a_cancelled_caller_is_reported(limited, raw, ns, letters):
    await limited.send("x")
    await spend(limited, raw, ns)

    receiving = asyncio.create_task(limited.receive(wait=5))
    while not letters:
        await asyncio.sleep(0.001)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)

    assert [x.message.text for x in letters] == ["x"]


async def test_reject_is_reported_with_its_reason(queue, letters):
    await queue.send("x")
    message = await queue.receive()

    await message.reject("too old")

    (letter,) = letters
    assert (letter.message, letter.reason, letter.by_receive) == (message, "too old", False)


async def test_rejected_dead_letters_are_no_suspects(rsmq, queue):
    await queue.send_many(["a", "b", "c"])
    for message in await queue.receive_many(3):
        await message.reject("no")

    assert len(await rsmq.queue("jobs-dead").receive_many(3)) == 3


async def test_worker_hears_of_every_dead_letter_and_counts_it(rsmq, limited, raw, ns, work):
    await limited.send("1")
    await spend(limited, raw, ns)
    await limited.send_many(["2", "[", "3"])
    worker = Worker(rsmq)
    told, places = {}, set()

    @worker.on_dead_letter
    async def hear(letter) -> None:
        told[letter.message.text] = letter.reason
        places.add((letter.queue, letter.dead_letter))

    @worker.on_dead_letter
    async def broken(letter) -> None:
        raise RuntimeError("never mind")

    @worker.handler("jobs", retry=Retry(3, base=0, jitter=False))
    async def handle(number: int, message: Delivery) -> None:
        if number == 3:
            await message.reject("not wanted")
        else:
            raise KeyError(number)

    task = work(worker)
    await until(lambda: len(told) == 4)
    worker.stop()
    await task

    assert told["1"].startswith("received 3 times without being settled")
    assert told["2"] == "KeyError: 2"
    assert told["3"] == "not wanted"
    assert "JSON" in told["["] or "body" in told["["]
    assert places == {("jobs", "jobs-dead")}
    assert worker.health.rejected >= 3


async def test_listener_that_fails_harms_neither_the_receive_nor_other_listeners(
    rsmq, limited, raw, ns, caplog
):
    def fails(letter):
        raise RuntimeError("listener")

    heard = []
    rsmq.dead_letters.listen(fails)
    rsmq.dead_letters.listen(heard.append)
    await limited.send("poison")
    await spend(limited, raw, ns)
    await limited.send("good")
    with caplog.at_level(logging.ERROR, LOGGER):
        good = await limited.receive()

    assert good is not None
    assert good.text == "good"
    assert [letter.message.text for letter in heard] == ["poison"]
    assert "a listener failed on a dead letter" in caplog.text


async def test_reject_succeeds_if_a_listener_fails(rsmq, limited):
    def fails(letter):
        raise RuntimeError("listener")

    rsmq.dead_letters.listen(fails)
    await limited.send("x")
    await (await limited.receive()).reject("why")

    assert (await rsmq.queue("jobs-dead").attributes()).msgs == 1


async def test_every_listener_hears_of_a_dead_letter_a_worker_or_not(rsmq, raw, ns, work):
    await rsmq.create_queue("jobs")
    worker, heard = Worker(rsmq), []

    @worker.handler("jobs", retry=Retry(3))
    async def handle(body: str) -> None:
        raise AssertionError(body)

    work(worker)
    await until(lambda: worker.health.state == "running")
    rsmq.dead_letters.listen(heard.append)
    queue = rsmq.queue("jobs")
    id = await queue.send("poison", delay=600)
    await raw.hset(f"{ns}:jobs:Q", mapping={f"{id}:rc": 3, f"{id}:fr": 1})
    await queue.change_visibility(id, 0)

    await until(lambda: len(heard) == 1)
    assert worker.health.rejected == 1


async def test_dead_letter_that_a_receive_moved_is_decoded_by_the_clients_codec(server_url, ns):
    class Reversed:
        def encode(self, value):
            return value[0].encode()[::-1]

        def decode(self, body, type):
            return [body[::-1].decode()]

    async with RSMQ(server_url, ns=ns, codec=Reversed()) as rsmq:
        heard = []
        rsmq.dead_letters.listen(heard.append)
        await rsmq.create_queue("jobs")
        queue = rsmq.queue("jobs", retry=Retry(1))
        await queue.send(["abc"])
        assert await queue.receive_many(1, vt=0)
        assert await queue.receive_many(1) == []

        assert [letter.by_receive for letter in heard] == [True]
        assert heard[0].message.body == b"cba"
        assert heard[0].message.decode(list) == ["abc"]
