"""What is lost with a server, and what is not (tests 7, 8 and 15 of the plan)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiorsmq_ng import RSMQ, Options, Queue, RSMQError
from aiorsmq_ng.testing import FaultProxy, PrivateServer
from aiorsmq_ng.testing.servers import Persistence

from ..lab import Inventory, Verdict, Violation

Figures = tuple[dict[str, Any], Verdict | None]
#: A url to send to, and what happens then; it returns the url under which the messages are.
Case = tuple[str, Callable[[], Awaitable[str]]]
Make = Callable[[], AbstractAsyncContextManager[Case]]

SENDERS = 8


@dataclass
class Ledger:
    """What became of sends."""

    acked: set[str] = field(default_factory=set)
    errors: Counter[str] = field(default_factory=Counter)
    escaped: list[str] = field(default_factory=list)
    delivered: set[str] = field(default_factory=set)
    stop: bool = False

    async def send(self, queue: Queue, sender: int) -> None:
        """Send one message after the other until stopped."""
        n = 0
        while not self.stop:
            n += 1
            key = f"{sender}-{n}"
            try:
                await queue.send(key)
                self.acked.add(key)
            except RSMQError as error:
                self.errors[type(error).__name__] += 1
                await asyncio.sleep(0.01)
            except Exception as error:
                self.escaped.append(f"{type(error).__name__}: {error}")


@asynccontextmanager
async def alone(persistence: Persistence) -> AsyncIterator[Case]:
    """A server that is killed and started again."""
    async with PrivateServer(persistence=persistence) as server:

        async def fault() -> str:
            await server.restart()
            return server.url

        yield server.url, fault


@asynccontextmanager
async def replaced() -> AsyncIterator[Case]:
    """A master that loses its replica, goes on for a while and dies; the replica takes over."""
    async with AsyncExitStack() as stack:
        master = await stack.enter_async_context(PrivateServer())
        proxy = await stack.enter_async_context(FaultProxy(master.url))
        replica = await master.replica(by=proxy.url)
        stack.push_async_callback(replica.aclose)

        async def fault() -> str:
            proxy.black_hole()
            await asyncio.sleep(0.5)
            master.kill()
            await proxy.cut()
            await proxy.resume()
            await replica.command("REPLICAOF", "NO", "ONE")
            return replica.url

        yield master.url, fault


#: The row, how it is made, the level that sends ask for, and whether nothing may be lost.
ROWS: tuple[tuple[str, Make, str, bool], ...] = (
    ("no AOF, kill -9", lambda: alone("none"), "memory", False),
    ("AOF everysec, kill -9", lambda: alone("everysec"), "memory", False),
    ("AOF always, kill -9", lambda: alone("always"), "memory", True),
    ("AOF everysec, kill -9", lambda: alone("everysec"), "fsynced", True),
    ("AOF always, kill -9", lambda: alone("always"), "fsynced", True),
    ("cut off from its replica, killed", replaced, "memory", False),
    ("cut off from its replica, killed", replaced, "replicated:1", True),
)


async def durability_matrix(seconds: float, *, at_once: bool = False) -> Figures:
    """Durability: *seconds* of sends per row, then the fault; what was confirmed must be there.

    The rows one after the other, or all *at_once* if only what is lost matters, not how much is
    sent.
    """
    verdict = Verdict()
    if at_once:
        rows = await asyncio.gather(*(_row(*row, seconds, verdict) for row in ROWS))
    else:
        rows = [await _row(*row, seconds, verdict) for row in ROWS]
    return dict(rows), verdict


async def _row(
    name: str, make: Make, level: str, safe: bool, seconds: float, verdict: Verdict
) -> tuple[str, dict[str, int]]:
    ledger = Ledger()
    async with make() as (url, fault):
        there = await _play(url, fault, level, ledger, seconds)
    lost = ledger.acked - there
    row = f"{name}, {level!r}"
    verdict.acked += len(ledger.acked)
    if safe and lost:
        verdict.lost += len(lost)
        verdict.violations.append(Violation("O1", f"{row}: {len(lost)} are lost"))
    verdict.violations += [Violation("O8", f"{row}: {text}") for text in ledger.escaped]
    return row, {"acked": len(ledger.acked), "lost": len(lost), **ledger.errors}


async def _play(
    url: str, fault: Callable[[], Awaitable[str]], level: str, ledger: Ledger, seconds: float
) -> set[str]:
    """Send, let the fault happen in the middle of it, and return what is there then."""
    async with RSMQ(url, options=Options(deadline=2, durability=level)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        # What the replica has before it is cut off.
        await asyncio.sleep(0.2)
        senders = [asyncio.create_task(ledger.send(queue, n)) for n in range(SENDERS)]
        await asyncio.sleep(seconds)
        while not ledger.acked:  # a machine under load may have confirmed nothing yet
            await asyncio.sleep(0.01)
        found_at = await fault()
        ledger.stop = True
        await asyncio.gather(*senders)
    async with RSMQ(found_at) as rsmq:
        stock = (await Inventory.read(rsmq.queue("jobs"))).queue
        return {stock.bodies[id].decode() for id in stock.scores if id in stock.bodies}


async def forgetful_restarts(seconds: float) -> Figures:
    """Forgetful servers: restarted without data in the middle of sends; calls go on."""
    ledger = Ledger()
    restarts, after = 0, 0
    async with (
        PrivateServer() as server,
        RSMQ(server.url, options=Options(deadline=20)) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        senders = [asyncio.create_task(ledger.send(queue, n)) for n in range(SENDERS)]
        receiver = asyncio.create_task(_consume(queue, ledger))
        until = time.monotonic() + seconds
        while restarts == 0 or time.monotonic() < until:
            await asyncio.sleep(0.5)
            await server.restart()
            restarts += 1
            await rsmq.create_queue("jobs", exist_ok=True)
            before = len(ledger.acked)
            async with asyncio.timeout(60):
                while len(ledger.acked) < before + SENDERS:
                    await asyncio.sleep(0.02)
            after += 1
        ledger.stop = True
        await asyncio.gather(*senders)
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)
        stock = (await Inventory.read(queue)).queue
    there = {body.decode() for body in stock.bodies.values()}
    figures = {
        "restarts": restarts,
        "went on after": after,
        "acked": len(ledger.acked),
        "lost with the server": len(ledger.acked - there - ledger.delivered),
        "errors": dict(ledger.errors),
    }
    return figures, Verdict([Violation("O8", text) for text in ledger.escaped])


async def _consume(queue: Queue, ledger: Ledger) -> None:
    while True:
        try:
            for delivery in await queue.receive_many(20, wait=1):
                ledger.delivered.add(delivery.text)
                await delivery.ack()
        except RSMQError as error:
            ledger.errors[type(error).__name__] += 1
            await asyncio.sleep(0.01)
        except Exception as error:
            ledger.escaped.append(f"{type(error).__name__}: {error}")


async def paused_receives(
    _seconds: float, pause_s: float = 7.0, deadline_s: float = 5.0
) -> Figures:
    """Silence: the server stands still for longer than 20 receives wait for it."""
    asked, vt_s = 20, 120.0
    async with PrivateServer() as server, AsyncExitStack() as stack:
        options = Options(deadline=deadline_s)
        clients = [
            await stack.enter_async_context(RSMQ(server.url, options=options)) for _ in range(asked)
        ]
        queue = await clients[0].create_queue("jobs")
        for rsmq in clients:
            # Connected, and the script is known to the server.
            assert await rsmq.queue("jobs").receive() is None
        await queue.send_many([str(n) for n in range(2 * asked)])
        server.pause()
        calls = [asyncio.create_task(r.queue("jobs").receive(vt=vt_s)) for r in clients]
        await asyncio.sleep(pause_s)
        server.resume()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        # The server has all that was written to it meanwhile still to read.
        await asyncio.sleep(1)
        held = [o for o in outcomes if o is not None and not isinstance(o, BaseException)]
        hidden = await _hidden(queue, len(held))
        attributes = await queue.attributes()
    errors = Counter(type(o).__name__ for o in outcomes if isinstance(o, BaseException))
    strange = [
        f"{type(o).__name__}: {o}"
        for o in outcomes
        if isinstance(o, BaseException) and not isinstance(o, RSMQError)
    ]
    figures = {
        "receives": asked,
        "delivered": len(held),
        "errors": dict(errors),
        "totalrecv": attributes.totalrecv,
        "hidden without a holder": hidden - len(held),
    }
    verdict = Verdict([Violation("O8", text) for text in strange], delivered=len(held))
    verdict.stranded = hidden - len(held)
    return figures, verdict


async def _hidden(queue: Queue, held: int) -> int:
    """Return how many are hidden once that no longer changes, and wait for it not for long."""
    hidden = -1
    for _ in range(40):
        try:
            hidden = (await queue.attributes()).hiddenmsgs
        except RSMQError:
            hidden = -1
        if hidden == held:
            break
        await asyncio.sleep(0.25)
    return hidden
