"""No password and no body in what people and machines write down: logs, errors, reprs."""

import asyncio
import gc
import logging
import re
import traceback
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

import aiorsmq_ng
from aiorsmq_ng import (
    RSMQ,
    AccessDenied,
    ClientClosed,
    Compressed,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    Options,
    QueueCorrupt,
    Retry,
    RSMQError,
    SendUnknown,
    ServerOutOfMemory,
    Unavailable,
    Worker,
)
from aiorsmq_ng._protocol import scripts
from aiorsmq_ng.compat.redismq import ReliableQueue
from aiorsmq_ng.testing import FaultProxy, PrivateServer

PASSWORD, BODY = "c4nary-passw0rd", "c4nary-b0dy"
CANARY = re.compile("c4nary")
QUICK = Options(deadline=1, connect_timeout=1)
SCRIPTS = Path(scripts.__file__).parent


class Findings:
    """Collects texts, and says which of them hold a canary."""

    def __init__(self) -> None:
        self.texts = []

    def see(self, *things) -> None:
        self.texts += [f"{type(thing).__name__}: {thing!r} {thing}" for thing in things]

    def error(self, error) -> None:
        """Take down an error with everything that hangs on it, shown or not."""
        self.texts.append("".join(traceback.format_exception(error)))
        seen = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            self.texts.append(f"{error!r} {error} {error.args!r} {vars(error)!r}")
            error = error.__cause__ or error.__context__

    def hits(self) -> list[str]:
        return [text for text in self.texts if CANARY.search(text)]


@pytest.fixture
def findings(caplog):
    caplog.set_level(logging.DEBUG)
    for name in ("aiorsmq_ng", "redis", "asyncio"):
        caplog.set_level(logging.DEBUG, name)
    found = Findings()
    yield found
    found.texts += [caplog.text, *(f"{r.getMessage()} {r.args!r}" for r in caplog.records)]
    assert found.hits() == []


@pytest.fixture
async def server():
    async with PrivateServer(password=PASSWORD) as server:
        yield server


@pytest.fixture
async def raw(server):
    async with Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def proxied(server):
    async with FaultProxy(server.url) as proxy:
        assert PASSWORD in proxy.url
        yield proxy, proxy.url


@asynccontextmanager
async def failing(findings, *kinds):
    """Expect an error of one of *kinds*, and take it down."""
    with pytest.raises(kinds) as caught:
        yield
    findings.error(caught.value)


async def test_broad_round_of_operations_leaves_no_secret(proxied, findings):
    _, url = proxied
    async with RSMQ(url, codec=Compressed(), options=QUICK) as rsmq:
        queue = await rsmq.create_queue("jobs")
        findings.see(rsmq, queue, rsmq.codec, QUICK, Retry(), queue._context, rsmq._transport)
        await queue.send_many([f"{BODY} {i}" for i in range(8)])
        delivery = await queue.receive()
        findings.see(delivery, await queue.attributes(), await queue.stats())
        findings.see(*await queue.peek(), *await queue.pending())
        await delivery.reject("no good")
        findings.see(await queue.pop(), await queue.redrive())
        async with await queue.receive() as held:
            findings.see(held, rsmq._keeper, rsmq._presence)
        consumer = queue.consume(prefetch=2)
        async for message in consumer:
            findings.see(consumer, message, rsmq._transport._driver)
            await message.ack()
            break
        await consumer.aclose()
        reliable = ReliableQueue(rsmq, "jobs")
        findings.see(reliable)
        findings.see(*(await queue.stats()).consumers)


async def test_worker_and_its_failures_leave_no_secret(proxied, findings):
    _, url = proxied
    async with RSMQ(url, options=QUICK) as rsmq:
        queue = await rsmq.create_queue("jobs")
        worker = Worker(rsmq)
        seen = []

        @worker.handler("jobs", retry=Retry(1))
        async def handle(body: dict[str, int]) -> None:
            seen.append(body)

        await queue.send_many([BODY, {"a": BODY}, b"\xff" + BODY.encode(), {"a": 1}])
        running = asyncio.create_task(worker.run())
        while not seen or (await queue.attributes()).msgs:
            await asyncio.sleep(0.02)
        findings.see(worker, worker.health)
        worker.stop()
        await running
        dead = rsmq.queue("jobs-dead")
        for message in await dead.peek():
            findings.see(message, await dead.reason(message.id))
        assert len(await dead.peek()) == 3


async def test_faults_leave_no_secret(proxied, raw, findings):
    proxy, url = proxied
    async with RSMQ(url, options=QUICK) as rsmq:
        queue = await rsmq.create_queue("jobs", maxsize=2000)
        async with failing(findings, MessageTooLong):
            await queue.send(BODY * 1000)
        async with failing(findings, InvalidValue):
            await queue.send({BODY: object()})
        async with failing(findings, InvalidValue):
            await queue.send(BODY + "\ud800")
        await queue.send(BODY)
        delivery = await queue.receive(vt=0)
        async with failing(findings, InvalidValue):
            delivery.json()
        await queue.receive()
        async with failing(findings, LeaseLost):
            await delivery.ack()
        proxy.half_open()
        async with failing(findings, SendUnknown):
            await queue.send(BODY)
        await proxy.resume()
        sending = asyncio.create_task(queue.send(BODY))
        await asyncio.sleep(0)
        sending.cancel()
        async with failing(findings, asyncio.CancelledError):
            await sending
        await raw.config_set("maxmemory", 1)
        async with failing(findings, ServerOutOfMemory):
            await queue.send(BODY)
        await raw.config_set("maxmemory", 0)
        await proxy.refuse()
        async with failing(findings, Unavailable):
            await queue.send(BODY)
        await proxy.resume()
        await raw.delete("rsmq:jobs")
        await raw.set("rsmq:jobs", BODY)
        async with failing(findings, QueueCorrupt):
            await queue.send(BODY)
        waiting = asyncio.create_task(queue.receive(wait=60))
        async with failing(findings, QueueCorrupt):
            await waiting
    async with failing(findings, ClientClosed):
        await queue.send(BODY)
    gc.collect()  # an error that was never retrieved is logged when it is collected


async def test_wrong_password_leaves_no_secret(proxied, raw, server, findings):
    _, url = proxied
    for wrong in (
        url.replace(PASSWORD, f"{PASSWORD}-wrong"),
        f"redis://x:{PASSWORD}@127.0.0.1:{server.port}",
    ):
        async with failing(findings, AccessDenied):
            await RSMQ(wrong, options=QUICK).open()
        rsmq = RSMQ(wrong, options=QUICK)
        async with failing(findings, AccessDenied):
            await rsmq.queue("jobs").send(BODY)
        await rsmq.aclose()
    for wrong in (f"redis://:{PASSWORD}@db.example", f"redis://:{PASSWORD}#@localhost"):
        async with failing(findings, InvalidValue):
            RSMQ(wrong)


@pytest.mark.parametrize("command", ["EVALSHA", "AUTH"])
async def test_server_that_repeats_a_command_it_does_not_know_leaves_no_secret(findings, command):
    async with PrivateServer("--rename-command", command, "") as server:
        login = f":{PASSWORD}@" if command == "AUTH" else ""
        rsmq = RSMQ(f"redis://{login}127.0.0.1:{server.port}", options=QUICK)
        async with failing(findings, RSMQError):
            await rsmq.open()
            await rsmq.queue("jobs").send(BODY)
        async with failing(findings, RSMQError):
            await rsmq.queue("jobs").send(BODY)
        await rsmq.aclose()


def test_scripts_are_constants():
    """Their text comes from files of the package; no other place makes a script."""
    package = Path(aiorsmq_ng.__file__).parent
    makers = [
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bScript\(|redis\.p?call|\"EVAL|'EVAL", path.read_text())
    ]
    files = {path.stem for path in SCRIPTS.rglob("*.lua") if not path.name.startswith("_")}

    # Drivers for Redis send the text to a server that lacks the script.
    assert set(makers) == {"_protocol/scripts/__init__.py", "_transport/script_calls.py"}
    assert set(scripts.names()) == files
    shas = {name: scripts.load(name).sha for name in files}
    assert len(set(shas.values())) == len(files)
    for name in files:
        source = scripts.load(name).source.decode()
        assert scripts.load(name).sha == shas[name]
        assert not re.search(r"\b(loadstring|load|dofile|setfenv)\b", source)
