"""Many messages: behind a long backlog, and among other clients."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.testing import PrivateServer
from tests.interop import drivers
from tests.interop.peers import Foreign, Ours, Peer

from ..lab import History, Inventory, Verdict, check

Figures = tuple[dict[str, Any], Verdict | None]

BATCH = 1000


async def backlog(
    _seconds: float, messages: int = 1_000_000, samples: int = 2000, body: int = 100
) -> Figures:
    """Volume: how long a receive takes with *messages* waiting, and with hardly any."""
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        few, many = await rsmq.create_queue("few"), await rsmq.create_queue("many")
        began = time.monotonic()
        for at in range(0, messages, BATCH):
            await many.send_many(["x" * body] * min(BATCH, messages - at))
        filled = time.monotonic() - began
        for queue in (few, many):
            await _receive_ms(queue, samples // 10)
        # Turn by turn, so that whatever else the machine does hits both alike.
        times: dict[str, list[float]] = {"few": [], "many": []}
        for _ in range(10):
            for queue in (few, many):
                times[queue.name] += await _receive_ms(queue, samples // 10)
        used = int((await server.info("memory"))["used_memory"])
        left = (await many.attributes()).msgs
    p99 = {name: quantiles(took, n=100)[98] for name, took in times.items()}
    return {
        "messages": messages,
        "left": left,
        "sent per s": round(messages / filled),
        "server MB": round(used / 1e6),
        "p99 ms, hardly any": round(p99["few"], 3),
        "p99 ms, backlog": round(p99["many"], 3),
        "ratio": round(p99["many"] / p99["few"], 2),
    }, None


async def _receive_ms(queue: Queue, count: int) -> list[float]:
    """Send, receive and ack, one after the other; return how long each receive took."""
    took = []
    for _ in range(count):
        await queue.send("x")
        began = time.perf_counter()
        delivery = await queue.receive()
        took.append((time.perf_counter() - began) * 1000)
        assert delivery is not None
        await delivery.ack()
    return took


@dataclass
class Tally:
    """Messages that are done with."""

    count: int = 0


async def neighbours(_seconds: float, messages: int = 5000) -> Figures:
    """Mixed clients: ours, Node's rsmq and PyRSMQ send and receive on one queue, all at once.

    ``drivers.NotInstalled`` if one of them cannot be had here.
    """
    history = History()
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        with ExitStack() as stack:
            node = stack.enter_context(drivers.node_driver(server.url))
            pyrsmq = stack.enter_context(drivers.pyrsmq_driver(server.url))
            peers: list[Peer] = [
                Ours(rsmq),
                Foreign("node", node, rsmq.ns),
                Foreign("pyrsmq", pyrsmq, rsmq.ns),
            ]
            began = time.monotonic()
            total, done = messages * len(peers), Tally()
            async with asyncio.timeout(60 + total / 50):
                await asyncio.gather(
                    *(_send(peer, messages, history) for peer in peers),
                    *(_consume(peer, total, done, history) for peer in peers),
                )
            took = time.monotonic() - began
        history.drained()
        verdict = check(history, await Inventory.read(queue))
    by = {peer.name: 0 for peer in peers}
    for event in history.of("received"):
        by[event.holder] += 1
    figures = {
        "each sent": messages,
        "acked": verdict.acked,
        "lost": verdict.lost,
        "copies": verdict.copies,
        "redelivered": verdict.redelivered,
        "received by": by,
        "per s": round(total / took),
    }
    return figures, verdict


async def _send(peer: Peer, messages: int, history: History) -> None:
    for n in range(messages):
        key = f"{peer.name}-{n}"
        history.sending(key)
        history.acked(key, await peer.send("jobs", key))


async def _consume(peer: Peer, total: int, done: Tally, history: History) -> None:
    while done.count < total:
        begun = history.clock()
        call = history.receiving(peer.name)
        got = await peer.receive("jobs", vt=600)
        if got is None:
            history.nothing(call)
            await asyncio.sleep(0.01)
            continue
        history.received(call, got.id, got.rc, got.body, holder=peer.name, begun=begun, vt=600)
        history.settling(got.id, got.rc, "ack")
        begun = history.clock()
        assert await peer.delete("jobs", got.id)
        history.settled(got.id, got.rc, "ack", begun=begun)
        done.count += 1
