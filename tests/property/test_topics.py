"""Any sequence of publish, subscribe, unsubscribe and observe agrees with a model."""

from __future__ import annotations

import asyncio
import os
import uuid

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, QueueNotFound

#: How many examples a long run looks at, of 100 steps each; none: a short run.
LONG = int(os.environ.get("RSMQ_MODEL_EXAMPLES", "0"))
EXAMPLES, STEPS = (LONG, 100) if LONG else (25, 40)

NAMES = st.sampled_from(["a", "b", "c_d"])
PEERS = st.sampled_from(["p1", "p2", "p3", "p4"])


class Model:
    """What should be in which queue."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        #: Consumers that share: what is in their queues, those that are gone excepted.
        self.held: dict[str, list[str]] = {}
        self.on: set[str] = set()
        #: The consumer whose peers have copies of their own.
        self.group_on = False
        self.owed: set[str] = set()
        self.handled: set[str] = set()

    def publish(self, texts: list[str]) -> None:
        # A queue that was deleted is noticed now.
        self.on &= set(self.held)
        for name in self.on:
            self.held[name] += texts
        if self.group_on:
            self.owed |= set(texts)
        if not self.on and not self.group_on:
            self.waiting += texts

    def arrive(self) -> list[str]:
        """Return what the first subscription gets."""
        if self.on or self.group_on:
            return []
        found, self.waiting = self.waiting, []
        return found


def machine(server_url: str, loop: asyncio.AbstractEventLoop) -> type[RuleBasedStateMachine]:
    """Return the state machine for one server; its rules run on *loop* from another thread."""

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.ns = f"p{uuid.uuid4().hex[:12]}"
            self.model = Model()
            self.number = 0
            self.copies = {}
            run(self.open())

        async def open(self) -> None:
            self.raw = Redis.from_url(server_url)
            # Two clients: what one knows of the topic is often old for the other.
            self.clients = [await RSMQ(server_url, ns=self.ns).open() for _ in range(2)]
            self.topics = [client.topic("t") for client in self.clients]
            self.topic = self.topics[0]

        def teardown(self) -> None:
            run(self.close())
            assert self.model.owed <= self.model.handled

        async def close(self) -> None:
            """Let new peers take over whatever was left, then clean up."""
            if self.model.owed - self.model.handled:
                for number in range(len(self.copies) + 1):
                    peer = await self.topic.subscribe("each", mode="each", peer=f"new {number}")
                    self.copies[peer.peer] = peer
                for peer in self.copies.values():
                    await self.drain(peer)
            await self.topic.delete()
            for client in self.clients:
                await client.aclose()
            await self.raw.aclose()

        async def drain(self, peer) -> None:
            while True:
                try:
                    found = await peer.observe()
                except QueueNotFound:
                    return
                if not found:
                    return
                for message in found:
                    self.model.handled.add(message.text)
                    await message.ack()

        @rule(client=st.integers(0, 1), count=st.integers(1, 3))
        def publish(self, client, count):
            texts = [str(self.number + i) for i in range(count)]
            self.number += count
            run(self.topics[client].publish_many(texts))
            self.model.publish(texts)

        @rule(client=st.integers(0, 1), name=NAMES)
        def subscribe(self, client, name):
            run(self.topics[client].subscribe(name))
            arrived = self.model.arrive() if name not in self.model.on else []
            self.model.on.add(name)
            self.model.held[name] = [*self.model.held.get(name, []), *arrived]

        @rule(client=st.integers(0, 1), name=NAMES, discard=st.booleans())
        def unsubscribe(self, client, name, discard):
            kept = run(self.topics[client].unsubscribe(name, discard=discard))
            held = self.model.held.get(name, [])
            assert kept == (0 if discard else len(held))
            self.model.on.discard(name)
            if not kept:
                self.model.held.pop(name, None)

        @rule(name=NAMES, count=st.integers(1, 4))
        def observe(self, name, count):
            async def observe():
                found = await self.topic.subscription(name).observe(count)
                for message in found:
                    await message.ack()
                return [message.text for message in found]

            if name not in self.model.held:
                with pytest.raises(QueueNotFound):
                    run(observe())
                return
            held = self.model.held[name]
            assert run(observe()) == held[:count]
            del held[:count]

        @rule(name=NAMES)
        def another_client_deletes_a_queue(self, name):
            queue = self.topic.subscription(name).name
            run(self.raw.delete(f"{self.ns}:{queue}", f"{self.ns}:{queue}:Q"))
            run(self.raw.srem(f"{self.ns}:QUEUES", queue))
            self.model.held.pop(name, None)

        @rule(client=st.integers(0, 1), peer=PEERS)
        def peer_subscribes(self, client, peer):
            topic = self.topics[client]
            self.copies[peer] = run(topic.subscribe("each", mode="each", peer=peer))
            self.model.owed |= set(self.model.arrive())
            self.model.group_on = True

        @rule(peer=PEERS)
        def peer_observes(self, peer):
            if peer in self.copies:
                run(self.drain(self.copies[peer]))

        @rule(peer=PEERS)
        def peer_is_silent(self, peer):
            if peer in self.copies:
                queue = self.copies[peer].name

                async def silence():
                    now = int((await self.raw.time())[0]) * 1000
                    if await self.raw.hexists(f"{self.ns}:t__:ng:heard", queue):
                        await self.raw.hset(f"{self.ns}:t__:ng:heard", queue, now - 60_000)

                run(silence())

        @rule()
        def peers_unsubscribe(self):
            run(self.topic.unsubscribe("each"))
            self.model.group_on = False
            self.copies.clear()

        @invariant()
        def what_waits_and_what_is_held_agrees(self):
            info = run(self.topic.describe())
            assert info.waiting == len(self.model.waiting)
            shared = [s for s in info.subscriptions if s.mode == "shared"]
            assert {s.consumer for s in shared if s.state == "on"} == self.model.on
            held = {s.consumer for s in shared if s.attributes is not None}
            assert held == set(self.model.held)
            copies = [s.state for s in info.subscriptions if s.mode == "each"]
            assert ("on" in copies) == self.model.group_on
            for s in info.subscriptions:
                if s.mode == "shared":
                    held = self.model.held.get(s.consumer)
                    assert (s.attributes and s.attributes.msgs) == (
                        None if held is None else len(held)
                    )

    return Machine


@pytest.mark.timeout(300 if not LONG else 0)
async def test_topics_agree_with_the_model(server_url):
    state_machine = machine(server_url, asyncio.get_running_loop())
    await asyncio.to_thread(
        run_state_machine_as_test,
        state_machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
