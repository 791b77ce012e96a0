"""Any sequence of publish, subscribe, unsubscribe and observe agrees with a model.

Of the consumer whose peers have copies of their own, the model knows only what is promised: what is
published while it has a peer reaches it, whatever peers come, go, hop, die or return; no copy is
delivered twice; a peer that is heard of all the time gets everything; nothing is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, QueueNotFound

#: How many examples a long run looks at, of 100 steps each; none: a short run.
LONG = int(os.environ.get("RSMQ_MODEL_EXAMPLES", "0"))
EXAMPLES, STEPS = (LONG, 100) if LONG else (25, 50)

NAMES = st.sampled_from(["a", "b", "c_d"])
PEERS = st.sampled_from(["p1", "p2", "p3"])


class Model:
    """What should be in which queue."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        #: Consumers that share: what is in their queues, those that are gone excepted.
        self.held: dict[str, list[str]] = {}
        self.on: set[str] = set()
        #: The consumer whose peers have copies of their own: what it is to get, and has got.
        self.group_on = False
        self.owed: set[str] = set()
        self.delivered: Counter[str] = Counter()
        #: How many peers had a copy when it was published.
        self.copies: Counter[str] = Counter()
        #: Peers that were heard of ever since they subscribed, and what they are still to get.
        self.steady: dict[str, set[str]] = {}
        #: What they have got since.
        self.had: dict[str, set[str]] = {}

    def publish(self, texts: list[str]) -> None:
        # A queue that was deleted is noticed now.
        self.on &= set(self.held)
        for name in self.on:
            self.held[name] += texts
        if self.group_on:
            self.owed |= set(texts)
            for due in self.steady.values():
                due |= set(texts)
        if not self.on and not self.group_on:
            self.waiting += texts

    def arrive(self) -> list[str]:
        """Return what the first subscription gets."""
        if self.on or self.group_on:
            return []
        found, self.waiting = self.waiting, []
        return found


def machine(
    server_url: str, loop: asyncio.AbstractEventLoop, *, shared: bool
) -> type[RuleBasedStateMachine]:
    """Return the state machine for one server; its rules run on *loop* from another thread.

    Not *shared*: there are only peers with copies of their own.
    """

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
            self.heard = f"{self.ns}:t__:ng:heard"

        def teardown(self) -> None:
            try:
                run(self.settle())
            finally:
                run(self.close())

        async def settle(self) -> None:
            """Let all peers die, and a last one come: it has what was not handled, and no more."""
            for peer in list(self.copies):
                await self.time_out(peer)
            await self.pass_time(3600)
            last = await self.topic.subscribe("group", mode="broadcast", peer="last")
            self.arrived(last)
            await self.drain(last, look=True)
            missing = self.model.owed - set(self.model.delivered)
            assert not missing, missing
            found = (await self.topic.describe()).subscriptions
            left = {
                s.queue: s.attributes.msgs for s in found if s.mode == "broadcast" and s.attributes
            }
            assert left == {last.name: 0}
            queues = [name for name in await self.clients[0].list_queues() if "__group" in name]
            assert queues == [last.name]

        async def close(self) -> None:
            await self.topic.delete()
            for client in self.clients:
                await client.aclose()
            await self.raw.aclose()

        async def time_out(self, peer) -> None:
            """Let it seem that a peer was silent for a minute while others were heard of."""
            if await self.raw.hexists(self.heard, queue := self.copies[peer].name):
                await self.raw.hset(self.heard, queue, 1)
            self.model.steady.pop(peer, None)

        async def pass_time(self, seconds) -> None:
            """Let it seem that no peer was heard of for a while."""
            if note := await self.raw.hget(self.heard, "clock:group"):
                clock, at = map(int, note.split())
                await self.raw.hset(self.heard, "clock:group", f"{clock} {at - seconds * 1000}")

        def arrived(self, peer) -> None:
            """Record that a peer has subscribed."""
            waited = self.model.arrive()
            self.model.owed |= set(waited)
            self.model.copies.update(waited)
            self.model.group_on = True
            self.copies[peer.peer] = peer
            if peer.peer not in self.model.steady:
                self.model.steady[peer.peer], self.model.had[peer.peer] = set(), set()

        async def drain(self, peer, look=False) -> None:
            if look:
                # So that it is time to look for silent siblings.
                await self.pass_time(4)
                peer._beat_at = 0.0
            seen = []
            while True:
                try:
                    found = await peer.observe()
                except QueueNotFound:
                    break
                if not found:
                    break
                for message in found:
                    await message.ack()
                    seen.append(message.text)
            self.model.delivered.update(seen)
            assert len(seen) == len(set(seen))
            assert self.model.delivered <= self.model.copies, "a copy was delivered twice"
            if (due := self.model.steady.get(peer.peer)) is not None:
                assert due <= set(seen), f"{peer.peer} lacks {due - set(seen)}"
                due.clear()
                had = self.model.had.setdefault(peer.peer, set())
                assert not had & set(seen), f"{peer.peer} was given {had & set(seen)} again"
                had |= set(seen)

        @rule(client=st.integers(0, 1), count=st.integers(1, 3))
        def publish(self, client, count):
            texts = [str(self.number + i) for i in range(count)]
            self.number += count
            if not run(self.published_for(texts)):
                self.model.group_on = False  # all its queues were deleted
            run(self.topics[client].publish_many(texts))
            self.model.publish(texts)

        async def published_for(self, texts):
            """Count the copies that are to be made for peers."""
            found = (await self.topic.describe()).subscriptions
            peers = [s for s in found if s.mode == "broadcast" and s.state == "on" and s.attributes]
            for text in texts:
                self.model.copies[text] = len(peers)
            return peers

        @precondition(lambda _: shared)
        @rule(client=st.integers(0, 1), name=NAMES)
        def subscribe(self, client, name):
            run(self.topics[client].subscribe(name))
            arrived = self.model.arrive() if name not in self.model.on else []
            self.model.on.add(name)
            self.model.held[name] = [*self.model.held.get(name, []), *arrived]

        @precondition(lambda _: shared)
        @rule(client=st.integers(0, 1), name=NAMES, discard=st.booleans())
        def unsubscribe(self, client, name, discard):
            kept = run(self.topics[client].unsubscribe(name, discard=discard))
            held = self.model.held.get(name, [])
            assert kept == (0 if discard else len(held))
            self.model.on.discard(name)
            if not kept:
                self.model.held.pop(name, None)

        @precondition(lambda _: shared)
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

        @precondition(lambda _: shared)
        @rule(name=NAMES)
        def another_client_deletes_a_queue(self, name):
            queue = self.topic.subscription(name).name
            run(self.raw.delete(f"{self.ns}:{queue}", f"{self.ns}:{queue}:Q"))
            run(self.raw.srem(f"{self.ns}:QUEUES", queue))
            self.model.held.pop(name, None)

        @rule(client=st.integers(0, 1), peer=PEERS)
        def peer_subscribes(self, client, peer):
            self.arrived(run(self.topics[client].subscribe("group", mode="broadcast", peer=peer)))

        @rule(client=st.integers(0, 1), peer=PEERS)
        def peer_hops(self, client, peer):
            """It comes back under another name, and says nothing under the old one any more."""
            if peer in self.copies:
                run(self.time_out(peer))
                self.number += 1
                topic, name = self.topics[client], f"hop {self.number}"
                self.arrived(run(topic.subscribe("group", mode="broadcast", peer=name)))
                run(self.drain(self.copies[name]))

        @rule(peer=PEERS, look=st.booleans())
        def peer_observes(self, peer, look):
            if peer in self.copies:
                run(self.drain(self.copies[peer], look))

        @rule(peer=PEERS)
        def peer_is_silent(self, peer):
            if peer in self.copies:
                run(self.time_out(peer))

        @rule(peer=PEERS, what=st.sampled_from(["outage", "one leaves", "all leave", "deleted"]))
        def something_rare_happens(self, peer, what):
            {
                "outage": self.no_peer_is_alive_for_long,
                "one leaves": self.peer_unsubscribes,
                "all leave": self.peers_unsubscribe,
                "deleted": self.another_client_deletes_the_queue_of_a_peer,
            }[what](peer)

        def no_peer_is_alive_for_long(self, _):
            run(self.pass_time(3600))
            # A newcomer takes the keeper's place.
            self.model.steady.clear()

        def peer_unsubscribes(self, peer):
            async def leave():
                await self.topic.unsubscribe("group", peer=peer)
                return (await self.topic.describe()).subscriptions

            self.copies.pop(peer, None)
            self.model.steady.pop(peer, None)
            self.model.group_on = any(
                s.mode == "broadcast" and s.state == "on" for s in run(leave())
            )

        def peers_unsubscribe(self, _):
            run(self.topic.unsubscribe("group"))
            self.model.group_on = False
            self.copies.clear()
            self.model.steady.clear()

        def another_client_deletes_the_queue_of_a_peer(self, peer):
            """What is only there is lost with it."""
            if peer not in self.copies or not self.model.group_on:
                return

            async def delete():
                queue = self.copies.pop(peer)
                with contextlib.suppress(QueueNotFound):
                    held = [m.text async for m in queue.scan()]
                    await self.clients[0].delete_queue(queue.name)
                    self.model.owed -= set(held)

            run(delete())
            self.model.steady.pop(peer, None)

        @invariant()
        def what_waits_and_what_is_held_agrees(self):
            info = run(self.topic.describe())
            assert info.waiting == len(self.model.waiting)
            shared = [s for s in info.subscriptions if s.mode == "shared"]
            assert {s.consumer for s in shared if s.state == "on"} == self.model.on
            held = {s.consumer for s in shared if s.attributes is not None}
            assert held == set(self.model.held)
            copies = [s.state for s in info.subscriptions if s.mode == "broadcast"]
            assert ("on" in copies) == self.model.group_on
            for s in info.subscriptions:
                if s.mode == "shared":
                    held = self.model.held.get(s.consumer)
                    assert (s.attributes and s.attributes.msgs) == (
                        None if held is None else len(held)
                    )

    return Machine


@pytest.mark.timeout(300 if not LONG else 0)
@pytest.mark.parametrize("shared", [True, False], ids=["all consumers", "peers with copies"])
async def test_topics_agree_with_the_model(server_url, shared):
    state_machine = machine(server_url, asyncio.get_running_loop(), shared=shared)
    await asyncio.to_thread(
        run_state_machine_as_test,
        state_machine,
        settings=settings(
            max_examples=EXAMPLES if shared else 2 * EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
