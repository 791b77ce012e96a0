"""A scene: producers and consumers at work on one queue while faults are made to happen."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiorsmq_ng import RSMQ, Delivery, Options, Queue, RSMQError

from ..lab import History, Inventory, RecordedQueue, Verdict, check

#: A fault makes trouble until it is cancelled, and says so: ``scene.mark("kill")``.
Fault = Callable[["Scene"], Awaitable[None]]


@dataclass
class Load:
    """Who works, and how."""

    producers: int = 4
    consumers: int = 16
    #: Far longer than a storm's aftermath: a message that is stranded is missed.
    vt: float = 60.0
    #: Messages per second of all producers together; none: as fast as they can.
    rate: float | None = None
    deadline: float = 10.0
    durability: str = "memory"
    #: How long a receive waits for a message.
    wait: float = 0.5


@dataclass
class Scene:
    """The queue, its senders and consumers, and the record of what happened."""

    url: str
    ns: str = "storm"
    load: Load = field(default_factory=Load)
    seed: int = 0

    async def __aenter__(self) -> Self:
        self.chance = random.Random(self.seed)
        self.history = History()
        self.marks: list[tuple[float, str]] = []
        #: Calls in flight, for faults that cancel them.
        self.calls: set[asyncio.Task[Any]] = set()
        self.options = Options(deadline=self.load.deadline, durability=self.load.durability)
        self.rsmq = RSMQ(self.url, ns=self.ns, options=self.options)
        await self.rsmq.open()
        self.queue: Queue = await self.rsmq.create_queue("jobs", exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.rsmq.aclose()

    def mark(self, kind: str, count: int = 1) -> None:
        """Record that a fault happened."""
        now = self.history.clock()
        self.marks += [(now, kind)] * count

    @property
    def faults(self) -> dict[str, int]:
        """How often which fault happened."""
        kinds = [kind for _, kind in self.marks]
        return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}

    async def play(self, seconds: float, *faults: Fault, least: int = 0) -> None:
        """Run all producers and consumers for *seconds* under *faults*, then drain the queue.

        Go on until *least* sends are confirmed, if the machine is slow.
        """

        async def all_faults(_: Scene) -> None:
            trouble = [asyncio.create_task(fault(self)) for fault in faults]
            try:
                await asyncio.sleep(seconds)
                while len(self.history.of("acked")) < least:
                    await asyncio.sleep(0.05)
            finally:
                await _end(trouble)

        await self.play_through(all_faults)

    async def play_through(self, fault: Fault) -> None:
        """Run all producers and consumers until *fault* ends, then drain the queue."""
        self.began = self.history.clock()
        consumers = [asyncio.create_task(self._consume(n)) for n in range(self.load.consumers)]
        producers = [asyncio.create_task(self._produce(n)) for n in range(self.load.producers)]
        try:
            await fault(self)
            self.ended = self.history.clock()
            self._stopping = True
            await asyncio.gather(*producers)
            self.history.fault_over()
            await self._until_empty()
            self.history.drained()
        finally:
            for task in (*producers, *consumers):
                task.cancel()
            await asyncio.gather(*producers, *consumers, return_exceptions=True)

    async def verdict(self, **rules: Any) -> Verdict:
        """Check the history, after all clients have ended."""
        rules.setdefault("drain_within_s", self.load.vt / 2)
        return check(self.history, await Inventory.read(self.queue), **rules)

    @property
    def rate(self) -> float:
        """Confirmed sends per second while the faults lasted."""
        sent = [e for e in self.history.of("acked") if e.at <= self.ended]
        return len(sent) / (self.ended - self.began)

    _stopping = False

    async def _produce(self, number: int) -> None:
        recorded = RecordedQueue(self.queue, self.history, f"producer-{number}")
        pause = self.load.producers / self.load.rate if self.load.rate else 0
        n = 0
        while not self._stopping:
            n += 1
            await self._call(recorded.send(f"{self.ns}-{number}-{n}"))
            await asyncio.sleep(pause)

    async def _consume(self, number: int) -> None:
        recorded = RecordedQueue(self.queue, self.history, f"consumer-{number}")
        while True:
            message = await self._call(recorded.receive(vt=self.load.vt, wait=self.load.wait))
            if isinstance(message, Delivery):
                await asyncio.sleep(self.chance.random() * 0.002)
                # An ack that was cancelled is made again: its holder is still there.
                while await self._call(recorded.ack(message)) is None:
                    pass

    async def _call(self, call: Awaitable[Any]) -> Any:
        """Make a call that a fault may cancel; ``None`` then."""
        task: asyncio.Task[Any] = asyncio.ensure_future(call)
        self.calls.add(task)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self.calls.discard(task)
        if task.cancelled() or isinstance(task.exception(), asyncio.CancelledError):
            return None
        return task.result()

    async def _until_empty(self) -> None:
        for _ in range(1200):
            try:
                if (await self.queue.attributes()).msgs == 0:
                    return
            except RSMQError:
                pass
            await asyncio.sleep(0.05)


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel until all have ended: the driver they use may take one for a lost connection."""
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=0.2)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()):
            raise error
