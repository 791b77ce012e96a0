"""Messages between queues of rmq and of RSMQ: in order, none lost, also if the bridge is killed."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE

import pytest

from aiorsmq_ng import RSMQ, QueueNotFound
from aiorsmq_ng.cli import main
from aiorsmq_ng.rmq import Bridge, BridgeReport
from aiorsmq_ng.rmq import bridge as bridges
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .test_client import READY, REJECTED, listed

HEADED = b'\xff\x00\xbe\xbeJ{"Traceparent":["00-1"]}\nbody'


@pytest.fixture
async def jobs(url):
    async with RSMQ(url) as rsmq:
        yield await rsmq.create_queue("jobs", maxsize=1024)


@pytest.fixture
async def far_jobs():
    """A queue of RSMQ on another server."""
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        yield await rsmq.create_queue("jobs", maxsize=1024)


async def bodies(queue, count):
    return [m.body for m in await queue.peek(0, count)]


@pytest.mark.parametrize("near", [True, False], ids=["one-server", "two-servers"])
async def test_messages_go_both_ways_in_order_as_they_are(rmq, redis, jobs, far_jobs, near):
    queue = jobs if near else far_jobs
    things = await rmq.queue("things")
    await things.publish(*(f"m{n}" for n in range(230)))
    await redis.lpush(READY, HEADED, b"x" * 2000, b"last")
    steps = []

    report = await Bridge(things, queue, same_server=near, progress=steps.append).to_rsmq()

    expected = [*(b"m%d" % n for n in range(230)), HEADED, b"last"]
    assert report == BridgeReport(moved=232, rejected=1)
    assert sum(steps) == 233
    assert await bodies(queue, 300) == expected
    assert (await listed(redis, READY), await listed(redis, REJECTED)) == ([], [b"x" * 2000])
    assert (await queue.attributes()).totalsent == 232

    report = await Bridge(things, queue, same_server=near).from_rsmq(200)
    assert report.moved == 200
    report = await Bridge(things, queue, same_server=near).from_rsmq()
    assert report.moved == 32
    assert await listed(redis, READY) == expected
    assert (await queue.attributes()).msgs == 0


@pytest.mark.parametrize("near", [True, False], ids=["one-server", "two-servers"])
async def test_headers_of_rsmq_become_headers_of_rmq(rmq, redis, url, jobs, far_jobs, near):
    queue, things = jobs if near else far_jobs, await rmq.queue("things")
    many = {"traceparent": "00-1", "x-TEXT": 'ä"/<', "a": "1", "A": "2"}
    await queue.send("plain")
    await queue.send(HEADED)
    await queue.send("a", headers=many)
    await queue.send(HEADED, headers={"tenant": "x"})

    report = await Bridge(things, queue, same_server=near).from_rsmq()

    assert report == BridgeReport(moved=4)
    assert (await listed(redis, READY))[:2] == [b"plain", HEADED]
    async with things.consume(prefetch=4) as deliveries:
        got = []
        for _ in range(4):
            async with (delivery := await anext(deliveries)):
                got.append((delivery.body, delivery.headers, delivery.header("TRACEPARENT")))
    assert got[:2] == [(b"plain", {}, None), (b"body", {"Traceparent": ["00-1"]}, "00-1")]
    assert got[2][1].pop("A") in (["1", "2"], ["2", "1"])
    assert got[2] == (b"a", {"Traceparent": ["00-1"], "X-Text": ['ä"/<']}, "00-1")
    assert got[3] == (HEADED, {"Tenant": ["x"]}, None)
    if near:
        assert await redis.exists("rsmq:jobs:ng:headers") == 0


@pytest.mark.parametrize("stored", [b"[1]", b"{", b'{"a":1}', b"7", b"null", b"[" * 5000, b"{}"])
async def test_headers_that_another_program_has_damaged_do_not_stop_the_bridge(
    rmq, redis, jobs, stored
):
    id = await jobs.send("a", headers={"tenant": "x"})
    await redis.hset("rsmq:jobs:ng:headers", id, stored)
    report = await Bridge(await rmq.queue("things"), jobs, same_server=True).from_rsmq()
    assert (report.moved, await listed(redis, READY)) == (1, [b"a"])


async def test_leased_messages_stay_and_a_missing_queue_takes_nothing(rmq, redis, jobs, url):
    await jobs.send_many(["a", "b"])
    held = await jobs.receive()
    things = await rmq.queue("things")
    assert (await Bridge(things, jobs, same_server=True).from_rsmq()).moved == 1
    assert await listed(redis, READY) == [b"b"]
    await held.ack()
    async with RSMQ(url) as rsmq:
        missing = rsmq.queue("missing")
        for same in (True, False):
            with pytest.raises(QueueNotFound):
                await Bridge(things, missing, same_server=same).to_rsmq()
    assert await listed(redis, READY) == [b"b"]


async def test_a_message_that_the_bridge_moves_wakes_a_receiver(rmq, jobs):
    waiting = asyncio.create_task(jobs.receive(wait=30))
    await asyncio.sleep(0.1)
    await rmq.queue("things").publish("a")
    await Bridge(rmq.queue("things"), jobs, same_server=True).to_rsmq()
    message = await waiting
    assert message.body == b"a"
    await message.ack()


async def killed_bridge(url, *words, dice, progress):
    """Start the command, and kill it a moment after it has begun to move messages."""
    before = await progress()
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", url, "rmq", "bridge", "-n", "things"),
        *words,
        stdout=PIPE,
        stderr=PIPE,
    )

    async def has_begun():
        return program.returncode is not None or await progress() > before

    await until(has_begun)
    await asyncio.sleep(dice.uniform(0, 0.05))
    if program.returncode is None:
        program.kill()
    await program.communicate()


@pytest.mark.parametrize("way", ["--to-rsmq", "--from-rsmq"])
async def test_bridge_that_is_killed_loses_and_doubles_nothing_on_one_server(
    rmq, redis, jobs, url, way
):
    """Messages go on arriving all the time, so it is killed in the middle of its work."""
    dice, sent, enough = random.Random(3), [], asyncio.Event()
    things, to_rsmq = await rmq.queue("things"), way == "--to-rsmq"

    async def feed():
        while not enough.is_set():
            texts = [f"m{len(sent) + n}" for n in range(50)]
            await (things.publish(*texts) if to_rsmq else jobs.send_many(texts))
            sent.extend(texts)
            await asyncio.sleep(0.005)

    async def moved():
        return (await jobs.attributes()).msgs if to_rsmq else await redis.llen(READY)

    feeding = asyncio.create_task(feed())
    for _ in range(2):
        await killed_bridge(url, way, "jobs", "--follow", dice=dice, progress=moved)
    enough.set()
    await feeding
    assert 0 < await moved() <= len(sent)
    bridge = Bridge(things, jobs, same_server=True)
    await (bridge.to_rsmq() if to_rsmq else bridge.from_rsmq())

    ready = await listed(redis, READY)
    stored = [m.body async for m in jobs.scan()]
    here, there = (stored, ready) if to_rsmq else (ready, stored)
    assert there == []
    assert sorted(here) == sorted(text.encode() for text in sent)


@pytest.mark.parametrize("way", ["to", "from"])
@pytest.mark.parametrize("answers", [True, False], ids=["answered", "mute"])
async def test_bridge_between_servers_that_is_cancelled_finishes_its_slice(
    rmq, redis, far_jobs, monkeypatch, way, answers
):
    """Stored in the target and not removed from the source yet: it would be in both queues."""
    things, total = await rmq.queue("things"), 30
    texts = [f"m{n}" for n in range(total)]
    await (things.publish(*texts) if way == "to" else far_jobs.send_many(texts))
    target, verb = (far_jobs, "send_many") if way == "to" else (things, "publish_payloads")
    stored, gate, store = asyncio.Event(), asyncio.Event(), getattr(target, verb)

    async def slow(bodies):
        result = await store(bodies)
        stored.set()
        await gate.wait()
        return result

    monkeypatch.setattr(target, verb, slow)
    if not answers:
        monkeypatch.setattr(bridges, "_FINISH_S", 0.05)
    bridge = Bridge(things, far_jobs)
    moving = asyncio.create_task(bridge.to_rsmq() if way == "to" else bridge.from_rsmq())
    await stored.wait()
    moving.cancel()
    if answers:
        asyncio.get_running_loop().call_soon(gate.set)
    with pytest.raises(asyncio.CancelledError):
        await moving

    attributes = await far_jobs.attributes()
    here, there = await redis.llen(READY), attributes.msgs
    held = (await rmq.stats()).queues["things"].unacked + attributes.leased
    if answers:
        assert (here, there) == ((0, total) if way == "to" else (total, 0))
        assert bridge.report == BridgeReport(moved=total)
    else:  # it ends all the same, and gives back what it had taken
        assert (here, there) == (total, total)
        assert bridge.report == BridgeReport()
    assert held == 0


async def test_bridge_between_servers_that_is_killed_loses_nothing(rmq, redis, url):
    dice, total = random.Random(5), 6000
    things = await rmq.queue("things")
    await things.publish(*(f"m{n}" for n in range(total)))
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        jobs = await rsmq.create_queue("jobs")

        async def moved():
            return (await jobs.attributes()).msgs

        for _ in range(2):
            words = ("--to-rsmq", "jobs", "--rmq-url", url)
            await killed_bridge(server.url, *words, dice=dice, progress=moved)
            for name in await redis.smembers("rmq::connections"):
                await redis.delete(f"rmq::connection::{name.decode()}::heartbeat")
            await rmq.clean()
        await Bridge(things, jobs).to_rsmq()
        stored = [m.body async for m in jobs.scan()]
    assert set(stored) == {b"m%d" % n for n in range(total)}
    # At most one slice for each kill.
    assert len(stored) - total <= 2 * 100


async def terminated(*words, begun):
    """Start the command, send it SIGTERM once it has *begun*; return its status and stderr."""
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", *words), stdout=PIPE, stderr=PIPE
    )
    try:
        await begun(program)
    finally:
        program.terminate()
        _, err = await program.communicate()
    return program.returncode, err.decode()


async def test_sigterm_ends_a_bridge_as_ctrl_c_does(rmq, redis, url):
    """It gives back what it has taken, and says how far it came."""
    total = 20_000
    things = await rmq.queue("things")
    await things.publish(*(f"m{n}" for n in range(total)))
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        jobs = await rsmq.create_queue("jobs")

        async def some_arrived():
            return (await jobs.attributes()).msgs > 0

        async def begun(_):
            await until(some_arrived)

        words = ("rmq", "bridge", "-n", "things", "--to-rsmq", "jobs", "--rmq-url", url, "--follow")
        status, err = await terminated("-r", server.url, *words, begun=begun)
        stored = {m.body async for m in jobs.scan()}
    assert status == 130
    assert "moved before the end" in err
    assert "interrupted" in err
    assert (await rmq.stats(["things"])).queues["things"].unacked == 0
    assert stored | set(await listed(redis, READY)) == {b"m%d" % n for n in range(total)}


async def test_cleaner_reports_what_it_returns_and_sigterm_ends_it_as_ctrl_c_does(redis, url):
    await redis.sadd("rmq::connections", "gone-abcdef")
    await redis.sadd("rmq::connection::gone-abcdef::queues", "things")
    await redis.lpush("rmq::connection::gone-abcdef::queue::[things]::unacked", "a", "b")

    lines = []

    async def begun(program):
        lines.append(await asyncio.wait_for(program.stderr.readline(), 60))

    status, err = await terminated("-r", url, "rmq", "clean", "--every", "60", begun=begun)
    assert (status, err.strip()) == (130, "rsmqctl: interrupted")
    assert lines[0].endswith(b": 2 deliveries of dead connections are back in their queues\n")


async def test_command_line(url, redis, capsys):
    async def ctl(*words):
        status = await asyncio.to_thread(main, ("-r", url, "rmq", *words))
        out, err = capsys.readouterr()
        return status, json.loads(out) if out.strip() else None, err

    words = ("publish", "-n", "things", "-m", "a", "-m", "b", "-H", "traceparent: 00-1")
    assert (await ctl(*words))[:2] == (0, {"published": 2})
    row = {"message": "a", "headers": {"Traceparent": ["00-1"]}}
    assert (await ctl("consume", "-n", "things", "--then", "release"))[:2] == (0, [row])
    assert (await ctl("consume", "-n", "things", "--then", "reject"))[:2] == (0, [row])
    [stats] = (await ctl("stats"))[1]
    assert (stats["queue"], stats["ready"], stats["rejected"]) == ("things", 1, 1)
    assert (await ctl("return", "-n", "things"))[1] == {"returned": 1}
    assert len((await ctl("consume", "-n", "things", "-c", "9"))[1]) == 2
    assert (await ctl("consume", "-n", "things", "--fail-empty"))[0] == 3
    await redis.sadd("rmq::connections", "gone-abcdef")
    assert (await ctl("clean"))[:2] == (0, {"returned": 0})
    assert await redis.smembers("rmq::connections") == set()
    await ctl("publish", "-n", "things", "-m", "a")
    assert (await ctl("purge", "-n", "things"))[0] == 2  # there is no terminal to ask on
    assert (await ctl("purge", "-n", "things", "--yes"))[1] == {"purged": 1}
    assert (await ctl("destroy", "-n", "things", "-y"))[1] == {"ready": 0, "rejected": 0}
    status, _, err = await ctl("destroy", "-n", "things", "-y")
    assert (status, err) == (
        1,
        "rsmqctl: rmq has no queue 'things'; list its queues with: rsmqctl rmq stats\n",
    )
    for words in (
        *(("consume",), ("purge", "--yes"), ("destroy", "--yes"), ("return",)),
        *(("return", "--unacked", "gone-abcdef"), ("bridge", "--to-rsmq", "jobs")),
    ):
        status, _, err = await ctl(*words, "-n", "typo")
        assert (status, err.count("\n"), "rmq has no queue 'typo'" in err) == (1, 1, True)
    assert await redis.smembers("rmq::queues") == set()
    await asyncio.to_thread(main, ("rmq", "publish", "--help"))
    assert "--header NAME:VALUE" in capsys.readouterr().out
    assert (await ctl("bridge", "-n", "things"))[0] == 2
    assert (await ctl("publish", "-n", "things", "-m", "a", "-H", "no"))[0] == 2
    await ctl("publish", "-n", "things", "-m", "a")
    status, _, err = await ctl("bridge", "-n", "things", "--to-rsmq", "jobs")
    assert (status, err.count("\n"), "'jobs' does not exist" in err) == (1, 1, True)
    async with RSMQ(url) as rsmq:
        await rsmq.create_queue("jobs")
        done = {"moved": 1, "rejected": 0, "doubtful": 0}
        assert (await ctl("bridge", "-n", "things", "--to-rsmq", "jobs"))[1] == done
        assert (await ctl("bridge", "-n", "things", "--from-rsmq", "jobs"))[1] == done
    assert await listed(redis, READY) == [b"a"]


async def test_command_line_lists_connections_by_the_names_that_return_takes(
    rmq, redis, url, capsys
):
    async def ctl(*words):
        status = await asyncio.to_thread(main, ("-r", url, "rmq", *words))
        return status, *capsys.readouterr()

    assert await ctl("stats", "--connections") == (
        *(0, "[]\n", "rsmqctl: there is no connection of rmq\n"),
    )
    things = await rmq.queue("things")
    await things.publish("a", "b")
    consumer = things.consume(prefetch=2)
    await anext(consumer)
    await redis.sadd("rmq::connections", "gone-abcdef")

    status, out, _ = await ctl("stats", "--connections")

    row = {"connection": rmq.connection, "alive": True, "queue": "things"}
    idle = {"connection": "gone-abcdef", "alive": False, "queue": None}
    assert (status, json.loads(out)) == (
        *(0, [{**idle, "unacked": 0, "consumers": 0}, {**row, "unacked": 2, "consumers": 1}]),
    )
    words = ("return", "-n", "things", "--unacked")
    status, _, err = await ctl(*words, "gone-abcdef")
    assert (status, "no connection 'gone-abcdef' consumes queue 'things'" in err) == (1, True)
    assert (await ctl(*words, rmq.connection))[:2] == (0, '{"returned": 2}\n')
    await consumer.aclose()
