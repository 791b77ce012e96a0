"""What ``worker.health`` says must be true, also while the server is away and after a death."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from aiorsmq_ng import RSMQ, AccessDenied, Delivery, InvalidValue, Options, Unavailable, Worker
from aiorsmq_ng._transport.server_monitor import AWAY_S, ServerMonitor
from aiorsmq_ng.broker import Broker, BrokerOptions
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .test_worker import stopped, work  # noqa: F401 - work is a fixture

QUICK = Options(poll_cap=0.2, deadline=1)
NOWHERE = "unix:///nonexistent/redis.sock"


def serving(rsmq, **more):
    worker = Worker(rsmq, **more)

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    return worker


async def test_health_tells_that_the_server_is_away_and_back(caplog):
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=QUICK) as rsmq,
    ):
        worker = serving(rsmq)
        assert (worker.health.ok, worker.health.state) == (False, "new")
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        before = worker.health.last_reply
        assert before <= datetime.now(UTC)

        server.kill()
        await until(lambda: not worker.health.ok)
        health = worker.health
        assert (health.state, health.server_away, health.failure) == ("running", True, None)
        # The first error is that of the call in flight; those that follow cannot connect.
        await until(lambda: "connecting to" in (worker.health.last_error or ""))
        assert health.last_reply < datetime.now(UTC)
        # What receiving met stays known when the server is back.
        await until(lambda: "cannot be reached" in (worker._counters.last_error or ""))
        await server.start()
        await until(lambda: worker.health.ok)
        assert worker.health.last_error.startswith("Unavailable: redis cannot be reached")
        assert worker.health.last_reply > before
        await stopped(worker, running)
    told = [r.getMessage() for r in caplog.records if r.name == "aiorsmq_ng.server"]
    assert [line.split(",")[0] for line in told] == [
        "the server does not answer",
        "the server answers again",
    ]


async def test_silent_server_is_noticed_too():
    async with PrivateServer() as server, RSMQ(server.url, options=QUICK) as rsmq:
        worker = serving(rsmq)
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        server.pause()
        try:
            await until(lambda: worker.health.server_away)
            assert not worker.health.ok
        finally:
            server.resume()
        await until(lambda: worker.health.ok)
        await stopped(worker, running)


async def test_error_of_a_task_that_is_not_awaited_is_shown_and_logged(server_url, ns, caplog):
    async with RSMQ(server_url, ns=ns, options=QUICK) as rsmq:
        worker = serving(rsmq)
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        await rsmq.delete_queue("jobs")
        await until(lambda: worker.health.state == "stopped")

    health = worker.health
    assert not health.ok
    assert health.failure.startswith("QueueNotFound: queue 'jobs' does not exist")
    assert health.last_error == health.failure
    await asyncio.wait([running])
    assert f"the worker has ended: {health.failure}" in caplog.text
    assert running.exception() is not None


async def test_cancelled_run_is_shown(rsmq, queue):
    worker = serving(rsmq)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.ok)
    running.cancel()
    await asyncio.wait([running])

    assert (worker.health.ok, worker.health.failure) == (False, "CancelledError")


async def test_stop_in_good_order_is_no_failure(rsmq, queue):
    worker = serving(rsmq)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.ok)
    worker.pause()
    assert worker.health.ok
    await stopped(worker, running)

    assert (worker.health.ok, worker.health.state, worker.health.failure) == (
        False,
        "stopped",
        None,
    )


async def test_run_that_is_refused_from_the_start_is_shown(rsmq):
    worker = Worker(rsmq)
    running = asyncio.create_task(worker.run(signals=False))
    await asyncio.wait([running])

    assert isinstance(running.exception(), InvalidValue)
    assert worker.health.failure == "InvalidValue: " + str(running.exception())


async def test_what_handlers_settle_themselves_is_counted(rsmq, work):  # noqa: F811
    await rsmq.create_queue("elsewhere")
    worker = Worker(rsmq)

    @worker.handler("jobs")
    async def handle(message: Delivery) -> None:
        if message.text == "release" and message.rc > 1:
            return
        settle = getattr(message, message.text)
        await settle(*["elsewhere"] * (message.text == "forward"))
        assert message.settled

    @worker.batch_handler("batches", size=3, wait=5)
    async def batch(batch: list[Delivery]) -> None:
        await batch[0].ack()
        await batch[1].reject("no")

    await (await rsmq.create_queue("jobs")).send_many(["ack", "reject", "release", "forward"])
    await (await rsmq.create_queue("batches")).send_many(["a", "b", "c"])
    running = work(worker)
    await until(lambda: worker.health.done == 5)
    await stopped(worker, running)

    # done: ack, forward, the released one at its second delivery, one by the batch, its rest.
    assert (worker.health.done, worker.health.failed, worker.health.rejected) == (5, 1, 2)


@pytest.mark.parametrize("own", [True, False])
async def test_worker_waits_for_its_server(own):
    async with PrivateServer(persistence="always") as server:
        server.kill()
        rsmq = RSMQ(server.url, options=Options(deadline=0.5, connect_timeout=0.5))
        worker = serving(server.url if own else rsmq)
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.server_away)
        assert (worker.health.state, worker.health.ok) == ("starting", False)
        worker.pause()  # it begins as soon as there is a server
        worker.resume()
        await server.start()
        await until(lambda: worker.health.ok)
        await stopped(worker, running)
        await rsmq.aclose()


async def test_stop_ends_the_wait_at_once(rsmq):
    worker = serving(NOWHERE)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.server_away)
    worker.stop()
    async with asyncio.timeout(20):
        await running

    assert (worker.health.state, worker.health.failure) == ("stopped", None)


PATIENT = Options(deadline=600, connect_timeout=500)


@pytest.mark.parametrize("url", [NOWHERE, "grpc://127.0.0.1:1"])
@pytest.mark.parametrize("how", ["url", "client", "client in use"])
async def test_wait_for_the_server_has_a_limit(url, how):
    rsmq = RSMQ(url, options=PATIENT)
    if how == "client in use":
        calling = asyncio.create_task(rsmq.list_queues())
        await until(lambda: rsmq.server_status.error)
    worker = serving(url if how == "url" else rsmq, wait_for_server=0.25)
    async with asyncio.timeout(20):
        with pytest.raises(Unavailable, match=r"cannot be reached.*gave up after 0\.25 s") as away:
            await worker.run(signals=False)

    assert away.value.transient
    assert "connect" in str(away.value)
    assert "cannot be reached" in worker.health.failure
    if how == "client in use":
        assert not calling.done()  # what others do with it is no matter of the worker
        calling.cancel()
    await rsmq.aclose()


async def test_wait_for_a_server_behind_a_broker_has_a_limit():
    async with (
        PrivateServer() as server,
        RSMQ(server.url, options=QUICK) as inner,
        Broker(inner, BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)) as broker,
    ):
        server.kill()
        rsmq = RSMQ(f"grpc://{broker.addresses[0]}", options=PATIENT)
        async with asyncio.timeout(20):
            with pytest.raises(Unavailable, match=r"gave up after 0\.25 s") as away:
                await serving(rsmq, wait_for_server=0.25).run(signals=False)
            assert away.value.transient
            await rsmq.aclose()


async def test_wait_of_no_time_is_one_try():
    rsmq = RSMQ(NOWHERE, options=Options(deadline=600, connect_timeout=0.2))
    for start in (serving(rsmq, wait_for_server=0).run(signals=False), rsmq.open()):
        with pytest.raises(Unavailable, match=r"gave up after 0\.2 s"):
            async with asyncio.timeout(20):
                await start


async def test_refusal_is_not_waited_for():
    async with PrivateServer(password="right") as server:
        worker = serving(server.url.replace("right", "wrong"))
        with pytest.raises(AccessDenied, match="refused access"):
            async with asyncio.timeout(30):
                await worker.run(signals=False)

    assert "refused access" in str(worker.health.failure)


async def test_client_can_be_opened_with_a_wait_of_its_own():
    with pytest.raises(InvalidValue, match="wait_for_server must be at least 0"):
        await RSMQ(NOWHERE).open(wait_for_server=-1)
    async with PrivateServer(persistence="always") as server:
        server.kill()
        rsmq = RSMQ(server.url)
        opening = asyncio.create_task(rsmq.open(wait_for_server=None))
        await until(lambda: rsmq.server_status.away)
        await server.start()
        await opening
        assert not rsmq.server_status.away
        await rsmq.aclose()


def test_short_break_is_not_logged(caplog):
    monitor, caplog.handler.level = ServerMonitor(), logging.DEBUG
    monitor.failed(OSError("reset"), 10.0, 10.1)
    monitor.failed(OSError("reset"), 10.2, 10.0 + AWAY_S * 0.9)
    assert (monitor.status.away, monitor.status.error) == (False, "reset")
    monitor.answered(10.0 + AWAY_S)

    assert (monitor.status.away, monitor.status.error, caplog.text) == (False, None, "")
    monitor.failed(OSError("reset"), 20.0, 20.0 + AWAY_S)
    assert monitor.status.away


async def hooked(rsmq, **more):
    """Run a worker until it ends, and return the hooks that were called."""
    worker, called = serving(rsmq, **more), []

    @worker.on_start
    async def start():
        called.append("start")
        worker.stop()

    @worker.on_start
    async def fail():
        raise KeyError

    @worker.on_stop
    async def stop():
        called.append("stop")

    running = asyncio.create_task(worker.run(signals=False))
    if more.get("wait_for_server", 0) is None:
        await until(lambda: worker.health.server_away)
        worker.stop()
    await asyncio.wait([running], timeout=30)
    assert running.done()
    return called


async def test_stop_hooks_are_called_only_after_start_hooks(rsmq, queue):
    assert await hooked(NOWHERE, wait_for_server=0.1) == []
    assert await hooked(NOWHERE, wait_for_server=None) == []  # stopped while it waits
    assert await hooked(rsmq, create=False) == []  # there is no dead-letter queue
    assert await hooked(rsmq) == ["start", "stop"]  # also if a hook for the start fails


async def test_open_that_fails_leaves_a_client_in_use_alone():
    async with PrivateServer() as server, RSMQ(server.url, options=PATIENT) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("x")
        driver = rsmq._transport._driver
        server.pause()
        popping = asyncio.create_task(queue.pop())  # which is never repeated
        with pytest.raises(Unavailable, match=r"gave up after 0\.25 s"):
            await rsmq.open(wait_for_server=0.25)
        assert rsmq._transport._driver is driver
        server.resume()

        assert (await popping).text == "x"
