"""A scenario for simulations: producers, consumers, failures, retries and crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from aiorsmq_ng.delivery import Delivery
from aiorsmq_ng.options import Options
from aiorsmq_ng.queue import Queue
from aiorsmq_ng.retry import Retry

from .checker import Verdict, Violation, check
from .inventory import Inventory
from .recorder import RecordedQueue
from .simulation import SimulatedClient, World

_QUEUE = "jobs"
_POISON = "poison"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Producers send, consumers work, fail, stall and crash; in the end everything is done.

    Some bodies are poison: their handlers fail until they are rejected. With *replay*, lost replies
    must have been recovered: no send of unknown outcome and no lease without a holder, except for
    those of clients that crashed.
    """

    producers: int = 2
    messages: int = 6
    consumers: int = 2
    crashes: int = 2
    vt: int = 2
    max_receives: int = 5
    #: Parts of one: bodies that are poison, work that takes too long, work that fails.
    poison: float = 0.1
    stall: float = 0.15
    fail: float = 0.1
    replay: bool = False

    async def __call__(self, world: World) -> Verdict:
        """Play it, drain the queue and check what happened."""
        observer = await world.client("observer", reliable=True)
        await observer.create_queue(_QUEUE, vt=self.vt)
        consumers = [await self._consumer(world, f"consumer-{i}") for i in range(self.consumers)]
        producers = [await self._client(world, f"producer-{i}") for i in range(self.producers)]
        sending = [client.start(self._produce(world, client)) for client in producers]
        await self._crash_some(world, [*consumers, *producers])
        await asyncio.wait(sending)
        world.calm()
        await world.settled()
        # At least one consumer must be left.
        await self._consumer(world, "consumer-last")
        queue = self._queue(observer)
        while (await queue.attributes()).msgs:  # noqa: ASYNC110 - the queue sends no events
            await asyncio.sleep(0.5)
        world.history.drained()
        await world.end_all(observer)
        verdict = check(world.history, await Inventory.read(queue))
        if self.replay:
            verdict.violations += self._not_made_good(world)
        return verdict

    async def _client(self, world: World, name: str) -> SimulatedClient:
        # Replies that are made good take time; otherwise some calls shall be given up.
        deadline = 60 if self.replay else 3
        return await world.client(name, options=Options(deadline=deadline, poll_base=0.5))

    async def _consumer(self, world: World, name: str) -> SimulatedClient:
        client = await self._client(world, name)
        client.start(self._consume(world, client))
        return client

    async def _produce(self, world: World, client: SimulatedClient) -> None:
        queue = RecordedQueue(self._queue(client), world.history, client.name)
        rng = world.rng
        for number in range(self.messages):
            kind = _POISON if rng.random() < self.poison else "job"
            await queue.send(f"{kind} {client.name} {number}", delay=rng.choice((0, 0, 0.5)))
            await asyncio.sleep(rng.uniform(0, 0.5))

    async def _consume(self, world: World, client: SimulatedClient) -> None:
        queue = RecordedQueue(self._queue(client), world.history, client.name)
        while True:
            delivery = await queue.receive(wait=world.rng.choice((0, 1)))
            if delivery is None:
                await asyncio.sleep(world.rng.uniform(0.1, 0.8))
            else:
                await self._work(world, queue, delivery)

    async def _work(self, world: World, queue: RecordedQueue, delivery: Delivery) -> None:
        rng, luck = world.rng, world.rng.random()
        await asyncio.sleep(rng.uniform(0, self.vt / 4))
        if luck < self.stall:
            await asyncio.sleep(self.vt * 1.2)
        elif luck < 2 * self.stall:
            await queue.extend(delivery, self.vt)
            await asyncio.sleep(self.vt / 2)
        if delivery.text.startswith(_POISON) or rng.random() < self.fail:
            await queue.release(delivery, rng.uniform(0, 1))
        else:
            await queue.ack(delivery)

    async def _crash_some(self, world: World, clients: list[SimulatedClient]) -> None:
        for number in range(self.crashes):
            await asyncio.sleep(world.rng.uniform(0.2, 3))
            client = world.rng.choice(clients)
            clients.remove(client)
            await world.crash(client)
            if client.name.startswith("consumer"):
                clients.append(await self._consumer(world, f"consumer-again-{number}"))

    def _queue(self, client: SimulatedClient) -> Queue:
        return client.queue(_QUEUE, retry=Retry(self.max_receives))

    def _not_made_good(self, world: World) -> Iterator[Violation]:
        # A client that crashed was cancelled, and recovers nothing.
        for event in world.history.of("unknown", "unclaimed"):
            if event.detail != "CancelledError":
                oracle = "O1" if event.kind == "unknown" else "O7"
                yield Violation(oracle, f"{event.key or event.call} ended with {event.detail}")
