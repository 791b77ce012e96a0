"""The soak: a steady load for a long time, one random fault a minute, a ledger of every message.

A history of millions of calls would grow while it is watched for growth, so the ledger is a few
arrays of a fixed size, by the number that each message carries as its body.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Options, Queue, RSMQError, SendUnknown
from aiorsmq_ng.testing import FaultProxy, PrivateServer

from ..lab import Inventory, ResourceSnapshot

VT = 120.0


class Ledger:
    """What became of every message."""

    def __init__(self, capacity: int) -> None:
        #: Digest of the id under which it was confirmed; 0 before that.
        self.ids = array("q", bytes(8 * capacity))
        self.deliveries = bytearray(capacity)
        self.acks = bytearray(capacity)
        #: Until when its holder certainly has it; 0 without a holder.
        self.held_until = array("d", bytes(8 * capacity))
        self.begun = self.confirmed = self.received = self.again = self.refused = 0
        self.copies = self.overlaps = self.twice = 0
        self.escaped: list[str] = []

    def sent(self, number: int, id: str) -> None:
        """A send returned."""
        self.confirmed += 1
        self._same_id(number, id)

    def delivered(self, number: int, delivery: Delivery, begun: float) -> None:
        """A receive, begun at *begun*, brought it."""
        now = time.monotonic()
        self.received += 1
        self.again += self.deliveries[number] > 0
        self.deliveries[number] = min(255, self.deliveries[number] + 1)
        self.overlaps += now < self.held_until[number]
        self.held_until[number] = begun + VT
        self._same_id(number, delivery.id)

    def settling(self, number: int) -> None:
        """Its holder begins to ack it."""
        self.held_until[number] = 0.0

    def settled(self, number: int) -> None:
        """An ack was confirmed."""
        self.twice += self.acks[number] > 0
        self.acks[number] = 1

    def _same_id(self, number: int, id: str) -> None:
        digest = hash(id) or 1
        if self.ids[number] not in (0, digest):
            self.copies += 1
        self.ids[number] = digest


@dataclass
class Soak:
    """The run and what it measured."""

    minutes: float
    rate: float = 1000.0
    consumers: int = 50
    producers: int = 60
    seed: int = 1
    faults: Counter[str] = field(default_factory=Counter)
    #: (minute, fault), and per second (second, confirmed, received) since the start.
    marks: list[tuple[float, str]] = field(default_factory=list)
    seconds: list[tuple[float, int, int]] = field(default_factory=list)
    #: Per minute: memory of this process (MB), tasks, connections, memory of the server (MB).
    census: list[tuple[float, float, int, int, float]] = field(default_factory=list)

    async def run(self) -> dict[str, Any]:
        """Run it all and return the figures."""
        self.ledger = Ledger(int(self.minutes * 60 * self.rate * 1.2) + 1000)
        self.chance = random.Random(self.seed)
        async with (
            PrivateServer(persistence="always") as self.server,
            FaultProxy(self.server.url) as self.proxy,
            RSMQ(self.proxy.url, options=Options(deadline=20)) as self.rsmq,
        ):
            queue = await self.rsmq.create_queue("soak")
            self.started = time.monotonic()
            self.ends = self.started + self.minutes * 60
            tasks = [asyncio.create_task(self._consume(queue)) for _ in range(self.consumers)]
            tasks += [asyncio.create_task(self._watch()), asyncio.create_task(self._trouble())]
            await asyncio.gather(*(self._produce(queue, n) for n in range(self.producers)))
            drained = await self._drain(queue)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return self._figures(await Inventory.read(queue), drained)

    async def _produce(self, queue: Queue, number: int) -> None:
        ledger, due = self.ledger, time.monotonic()
        while time.monotonic() < self.ends:
            due += self.producers / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            at = ledger.begun
            ledger.begun += 1
            try:
                ledger.sent(at, await self._send(queue, at))
            except RSMQError as error:
                ledger.escaped.append(f"send: {error}")

    async def _send(self, queue: Queue, at: int) -> str:
        try:
            return await queue.send(str(at))
        except SendUnknown as unknown:
            while True:
                try:
                    assert unknown.token is not None
                    return (await queue.resend(unknown.token))[0]
                except SendUnknown as again:
                    unknown = again

    async def _consume(self, queue: Queue) -> None:
        ledger = self.ledger
        while True:
            begun = time.monotonic()
            try:
                message = await queue.receive(vt=VT, wait=2)
            except RSMQError:
                continue
            if message is None:
                continue
            at = int(message.body)
            ledger.delivered(at, message, begun)
            ledger.settling(at)
            while True:
                try:
                    await message.ack()
                    ledger.settled(at)
                except LeaseLost:
                    ledger.refused += 1
                except RSMQError:
                    continue
                break

    async def _trouble(self) -> None:
        kinds = ("kill", "cut", "half_open", "black_hole", "latency", "flush", "pause", "restart")
        while True:
            await asyncio.sleep(60)
            if time.monotonic() > self.ends - 10:
                return
            kind = self.chance.choice(kinds)
            self.faults[kind] += 1
            self.marks.append(((time.monotonic() - self.started) / 60, kind))
            await self._make(kind)

    async def _make(self, kind: str) -> None:
        proxy, server = self.proxy, self.server
        if kind in ("kill", "flush"):
            async with Redis.from_url(server.url) as admin:
                if kind == "flush":
                    await admin.script_flush()
                else:
                    await admin.client_kill_filter(_type="normal", skipme=True)
        elif kind == "cut":
            await proxy.cut()
        elif kind == "pause":
            server.pause()
            await asyncio.sleep(1.5)
            server.resume()
        elif kind == "restart":
            server.kill()
            await server.restart()
        else:
            if kind == "latency":
                proxy.latency = 0.03
            elif kind == "half_open":
                proxy.half_open()
            else:
                proxy.black_hole()
            await asyncio.sleep(2)
            await proxy.resume()
            if kind != "latency":
                await proxy.cut()

    async def _watch(self) -> None:
        second = 0
        while True:
            await asyncio.sleep(1)
            second += 1
            now = time.monotonic() - self.started
            self.seconds.append((now, self.ledger.confirmed, self.ledger.received))
            if second % 60 == 55:  # well after the last fault
                gc.collect()
                census = await ResourceSnapshot.take(self.rsmq)
                used = int((await self.server.info("memory"))["used_memory"])
                self.census.append(
                    (
                        now / 60,
                        (census.rss or 0) / 1e6,
                        census.tasks,
                        census.connections,
                        used / 1e6,
                    )
                )

    async def _drain(self, queue: Queue) -> float:
        began = time.monotonic()
        while time.monotonic() - began < VT + 60:
            try:
                if (await queue.attributes()).msgs == 0:
                    break
            except RSMQError:
                pass
            await asyncio.sleep(0.1)
        return time.monotonic() - began

    def _figures(self, state: Inventory, drained_s: float) -> dict[str, Any]:
        ledger, stock = self.ledger, state.queue
        there = {int(body) for body in stock.bodies.values()}
        sent = [n for n in range(ledger.begun) if ledger.ids[n]]
        lost = [n for n in sent if not ledger.deliveries[n] and n not in there]
        warm = [row for row in self.census if row[0] > 3]
        first, last = warm[: max(1, len(warm) // 5)], warm[-max(1, len(warm) // 5) :]
        growth = _mean(last, 1) / _mean(first, 1) - 1 if warm else 0.0
        return {
            "minutes": self.minutes,
            "rate asked": self.rate,
            "rate held": ledger.confirmed / (self.minutes * 60),
            "confirmed": ledger.confirmed,
            "received": ledger.received,
            "redelivered": ledger.again,
            "refused": ledger.refused,
            "faults": dict(self.faults),
            "lost": len(lost),
            "second copies": ledger.copies,
            "overlapping holders": ledger.overlaps,
            "acked twice": ledger.twice,
            "left": len(stock.scores),
            "stranded": int(drained_s > VT / 2) * len(stock.scores),
            "drained in s": drained_s,
            "drift of totalsent": stock.totalsent - ledger.confirmed,
            "leases given back": stock.totalrecv - ledger.received,
            "leaked fields": len(stock.marks),
            "errors": ledger.escaped,
            "memory growth": growth,
            "marks": self.marks,
            "seconds": self.seconds,
            "census": self.census,
        }


def _mean(rows: list[tuple[float, float, int, int, float]], column: int) -> float:
    return sum(row[column] for row in rows) / len(rows)
