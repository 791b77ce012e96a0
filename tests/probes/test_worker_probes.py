"""What the probes of a worker look at: state, event loop, leases, handlers, server."""

import asyncio
import json
import socket
from contextlib import suppress

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, Worker
from aiorsmq_ng._runtime.lease_renewal import LeaseKeeper
from aiorsmq_ng.cli.health import ask
from aiorsmq_ng.probes import Probes, ProbeServer
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.worker import WorkerProbes

from ..support.waiting import until

QUICK = Options(poll_cap=0.2, deadline=1)
ANY = "127.0.0.1:0"


async def asked(server, probe):
    return await asyncio.to_thread(ask, server.address, probe, 10)


async def states(probes):
    """Return the answers of all probes: True, or the reasons."""
    answers = [await probes.livez(), await probes.readyz(), await probes.startupz()]
    return [answer.ok or " ".join(answer.reasons) for answer in answers]


@pytest.fixture
async def work(rsmq, queue):
    """Run workers until the test ends; ``handle`` may be replaced."""
    running = []

    def work(handle, **more):
        worker = Worker(rsmq, **{"grace": 0, **more})
        worker.handler("jobs", vt=60)(handle)
        running.append((worker, asyncio.create_task(worker.run(signals=False))))
        return worker

    yield work
    for worker, task in running:
        worker.stop()
        await asyncio.wait([task])


async def nothing(body: str) -> None: ...


async def test_worker_that_runs_is_live_ready_and_started(work, queue):
    worker = work(nothing)
    await until(lambda: worker.health.ok)
    await queue.send("x")
    await until(lambda: worker.health.done == 1)

    answer = await WorkerProbes(worker).readyz()

    assert (answer.ok, answer.status) == (True, 200)
    assert json.loads(answer.as_json()) == {
        "probe": "readyz", "ok": True, "state": "running", "reasons": [],
        "running": 0, "stuck": 0, "done": 1, "failed": 0, "rejected": 0,
    }  # fmt: skip


async def test_worker_whose_server_starts_late_is_live_and_not_started():
    async with PrivateServer(persistence="always") as server:
        server.kill()
        worker = Worker(server.url)
        worker.handler("jobs")(nothing)
        probes = WorkerProbes(worker)
        assert await states(probes) == [True, *2 * ["the program is starting"]]
        running = asyncio.create_task(worker.run(signals=False))

        async def told():
            live, ready, started = await states(probes)
            return live is True and ready == started and "waits for its server:" in str(ready)

        await until(told)
        await server.start()
        await until(lambda: worker.health.ok)
        assert await states(probes) == [True, True, True]
        worker.stop()
        await running


async def test_readiness_follows_the_server_and_liveness_does_not():
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=QUICK) as rsmq,
    ):
        worker = Worker(rsmq)
        worker.handler("jobs")(nothing)
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        probes = WorkerProbes(worker)

        server.kill()

        async def away():
            return "connecting to" in str((await states(probes))[1])

        await until(away)
        assert (await probes.livez()).ok
        await server.start()

        async def back():
            return (await probes.readyz()).ok

        await until(back)
        worker.stop()
        await running


async def test_server_that_is_silent_is_not_waited_for(work):
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        worker = Worker(rsmq)
        worker.handler("jobs")(nothing)
        running = asyncio.create_task(worker.run(signals=False))
        await until(lambda: worker.health.ok)
        server.pause()
        try:
            answer = await WorkerProbes(worker).readyz()
        finally:
            server.resume()
        worker.stop()
        await running

    (reason,) = answer.reasons
    assert reason.startswith("the server has not answered within 0.5 s")


async def test_queue_that_is_missing_makes_the_worker_unready(rsmq, queue):
    worker = Worker(rsmq)
    worker.handler("jobs")(nothing)
    running = asyncio.create_task(worker.run(signals=False))
    await until(lambda: worker.health.ok)
    worker.pause()
    probes = WorkerProbes(worker)
    assert (await probes.readyz()).state == "paused"
    assert await states(probes) == [True, True, True]

    await rsmq.delete_queue("jobs")

    async def missing():
        return "queue 'jobs' does not exist" in str((await states(probes))[1])

    await until(missing)
    worker.stop()
    await running


async def test_worker_that_stops_is_live_and_not_ready(work, queue):
    let_go = asyncio.Event()

    async def handle(body: str) -> None:
        await let_go.wait()

    worker = work(handle, grace=60)
    await queue.send("x")
    await until(lambda: worker.health.running == 1)
    worker.stop()

    assert await states(WorkerProbes(worker)) == [True, "the program is stopping", True]
    let_go.set()
    await until(lambda: worker.health.state == "stopped")
    assert await states(WorkerProbes(worker)) == [True, "the program is stopped", True]


async def test_worker_that_has_ended_with_an_error_is_dead(rsmq, queue):
    worker = Worker(rsmq)
    worker.handler("jobs")(nothing)

    @worker.on_start
    async def start() -> None:
        raise RuntimeError("password=secret")

    with pytest.raises(RuntimeError):
        await worker.run(signals=False)

    assert await states(WorkerProbes(worker)) == ["the worker has ended with RuntimeError"] * 3


async def test_handler_that_ignores_its_cancellation_for_too_long_is_fatal(rsmq, queue):
    let_go = asyncio.Event()
    worker = Worker(rsmq, grace=0)

    @worker.handler("jobs", timeout=0.05)
    async def handle(body: str) -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    running = asyncio.create_task(worker.run(signals=False))
    await queue.send("x")
    await until(lambda: worker.health.stuck == 1)

    assert await states(WorkerProbes(worker, stuck_limit=3600)) == [True, True, True]
    (reason,) = (await WorkerProbes(worker, stuck_limit=0).livez()).reasons
    assert reason.startswith("a handler has ignored its cancellation for ")
    let_go.set()
    await until(lambda: worker.health.stuck == 0)
    assert (await WorkerProbes(worker, stuck_limit=0).livez()).ok
    worker.stop()
    await running


async def test_leases_that_are_not_renewed_are_fatal(work, queue, monkeypatch):
    let_go = asyncio.Event()

    async def handle(body: str) -> None:
        await let_go.wait()

    worker = work(handle)
    probes = WorkerProbes(worker)
    await queue.send("x")
    await until(lambda: worker.health.running == 1)
    keeper = queue._context.keeper
    assert (await probes.livez()).ok

    monkeypatch.setattr(keeper, "_wakes_at", keeper._wakes_at - 3600)
    (reason,) = (await probes.livez()).reasons
    assert reason.startswith("leases have not been renewed: their task is ")
    monkeypatch.undo()
    assert (await probes.livez()).ok
    let_go.set()
    await until(lambda: worker.health.done == 1)


async def test_renewal_task_that_has_died_is_fatal(rsmq, queue, monkeypatch):
    await queue.send("x")
    message = await queue.receive(vt=60)
    probes = Probes(rsmq, lambda: "running")

    async def die(keeper):
        keeper._running = False

    monkeypatch.setattr(LeaseKeeper, "_run", die)
    message.hold()

    async def dead():
        return (await probes.livez()).reasons == ("the task that renews leases has ended",)

    await until(dead)
    message.let_go()
    assert (await probes.livez()).ok


async def test_answer_about_the_server_serves_several_probes(rsmq, queue, monkeypatch):
    calls = []
    probes = Probes(rsmq, lambda: "running")

    async def reach():
        calls.append(1)

    monkeypatch.setattr(probes, "_ask_server", reach)
    await asyncio.gather(*(probes.readyz() for _ in range(50)))

    assert calls == [1]


async def test_program_needs_its_queues(rsmq, queue):
    assert (await Probes(rsmq, lambda: "running").readyz()).ok
    assert (await Probes(rsmq, lambda: "running", ["jobs"]).readyz()).ok
    answer = await Probes(rsmq, lambda: "running", ["jobs", "missing"]).readyz()

    assert "queue 'missing' does not exist" in answer.reasons[0]


async def test_blocked_event_loop_is_said_by_the_server_of_the_probes(work, queue):
    answers, address = [], []

    async def handle(body: str) -> None:
        # Nothing is awaited: this blocks the event loop until the probe has failed.
        answers.append(ask(*address, "livez", 10))
        probes.blocked_limit = 0.2
        while (last := ask(*address, "livez", 10))[0] == 200:
            pass
        answers.append(last)
        answers.append(ask(*address, "readyz", 10))

    worker = work(handle)
    probes = WorkerProbes(worker, blocked_limit=3600)
    await until(lambda: worker.health.ok)
    async with ProbeServer(probes, ANY) as server:
        address.append(server.address)
        assert (await asked(server, "livez"))[0] == 200
        await queue.send("x")
        await until(lambda: worker.health.done == 1)
        assert (await asked(server, "livez"))[0] == 200

    (early, answer), (late, fatal), (unready, _) = answers
    assert (early, answer["state"], answer["reasons"]) == (200, "blocked", [])
    assert (late, fatal["ok"], unready) == (503, False, 503)
    assert fatal["reasons"][0].startswith("the event loop has not answered for ")


async def test_server_of_the_probes_answers_every_probe_and_nothing_else(work):
    worker = work(nothing)
    await until(lambda: worker.health.ok)
    async with ProbeServer(WorkerProbes(worker), ANY) as server:
        for probe in ("livez", "readyz", "startupz"):
            status, answer = await asked(server, probe)
            assert (status, answer["probe"], answer["ok"]) == (200, probe, True)
        status, answer = await asked(server, "metrics")
        assert status == 404
        assert answer["error"] == "the probes are /livez, /readyz, /startupz"
        for request, found in [
            (b"POST /livez HTTP/1.1\r\n\r\n", b"405"),
            (b"HEAD /livez?verbose HTTP/1.1\r\n\r\n", b"200"),
            (b"nonsense\r\n\r\n", b"400"),
            (b"x" * 10_000 + b"\r\n\r\n", b""),
        ]:
            host, _, port = server.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            try:
                reply = await reader.read()
            except ConnectionResetError:
                reply = b""
            writer.close()
            assert reply[9:12] == found
            if b"HEAD" in request:
                assert reply.endswith(b"\r\n\r\n")
    with pytest.raises(OSError, match="refused"):
        await asked(server, "livez")


async def test_idle_connections_do_not_silence_the_probes(rsmq):
    async with ProbeServer(Probes(rsmq, lambda: "running"), ANY) as server:
        host, _, port = server.address.rpartition(":")
        idle = [await asyncio.open_connection(host, int(port)) for _ in range(150)]
        assert (await asked(server, "livez"))[0] == 200
        for _, writer in idle:
            writer.close()


async def test_error_that_is_not_of_the_library_is_an_answer(rsmq, monkeypatch):
    probes = Probes(rsmq, lambda: "running")

    async def fail(*_):
        raise OSError("secret")

    async with ProbeServer(probes, ANY) as server:
        monkeypatch.setattr(probes, "_ask_server", fail)
        status, answer = await asked(server, "readyz")
        assert (status, answer["reasons"]) == (503, ["the server cannot be asked: OSError"])
        monkeypatch.setattr(probes, "check", fail)
        status, answer = await asked(server, "livez")
        assert (status, answer) == (500, {"error": "the probe has failed with OSError"})


async def test_error_of_the_thread_is_raised_at_the_start(rsmq, monkeypatch):
    server = ProbeServer(Probes(rsmq, lambda: "running"), ANY)

    async def fail(*_):
        raise RuntimeError("no loop")

    monkeypatch.setattr(server, "_serve", fail)
    with pytest.raises(RuntimeError, match="no loop"):
        await server.__aenter__()


async def test_socket_of_a_process_that_has_died_is_replaced(rsmq, tmp_path):
    probes, path = Probes(rsmq, lambda: "running"), tmp_path / "probes.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    async with ProbeServer(probes, f"unix:{path}") as server:
        assert path.stat().st_mode & 0o777 == 0o600
        assert (await asked(server, "readyz"))[0] == 200
        with pytest.raises(InvalidValue, match="address already in use"):
            async with ProbeServer(probes, f"unix:{path}"):
                pass
        assert (await asked(server, "readyz"))[0] == 200
    assert not path.exists()


@pytest.mark.parametrize(
    "listen", ["nowhere", "127.0.0.1:", ":8080", "192.0.2.1:8080", "[::1]:x", "127.0.0.1:99999"]
)
async def test_address_that_cannot_be_listened_on_is_refused(rsmq, listen):
    with pytest.raises(
        InvalidValue, match=r"is not a port, host:port or unix:/path$|^cannot listen on"
    ):
        async with ProbeServer(Probes(rsmq, lambda: "running"), listen):
            pass


@pytest.mark.parametrize("listen", [0, "0"])
async def test_port_alone_means_every_address(rsmq, listen):
    async with ProbeServer(Probes(rsmq, lambda: "running"), listen) as server:
        port = server.address.rpartition(":")[2]
        assert (await asyncio.to_thread(ask, port, "livez", 10))[0] == 200
        assert (await asyncio.to_thread(ask, server.address, "livez", 10))[0] == 200
