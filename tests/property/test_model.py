"""Any sequence of operations agrees with a simple model of delayed, ready and leased messages."""

from __future__ import annotations

import asyncio
import os
import uuid

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

from aiorsmq_ng import RSMQ, LeaseLost, MessageTooLong

from ..support.clock import pass_time

#: How many examples a long run looks at, of 100 steps each; none: a short run.
LONG = int(os.environ.get("RSMQ_MODEL_EXAMPLES", "0"))
EXAMPLES, STEPS = (LONG, 100) if LONG else (150, 40)

LONG_S = 10_000  # longer than any example lasts
STEP_S = 100
#: Headers of a message.
HEADERS = [None, None, {"k": "v"}, {"n": "\u2603", "m": ""}]
#: More than the ends of leases are spread by, in all steps of an example.
SPREAD_S = 0.1


class Model:
    """What should be in the queue: id -> body, seconds until it is visible, receive count."""

    def __init__(self) -> None:
        self.body: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.visible_in: dict[str, int] = {}
        self.rc: dict[str, int] = {}
        #: Lease of the last delivery; none if that was returned in order.
        self.lease: dict[str, int | None] = {}
        self.sent = self.received = 0

    def ready(self) -> set[str]:
        return {id for id, seconds in self.visible_in.items() if seconds <= 0}

    def struck(self) -> set[str]:
        """Those ready whose last delivery was not returned: suspects, if it was a lease at all."""
        return {id for id in self.ready() if self.lease[id] is not None}

    def add(self, id: str, body: bytes, headers: dict[str, str] | None, delay: int) -> None:
        self.headers[id] = headers or {}
        self.body[id], self.visible_in[id], self.rc[id] = body, delay, 0
        self.lease[id] = None
        self.sent += 1

    def drop(self, id: str) -> None:
        del self.body[id], self.headers[id], self.visible_in[id], self.rc[id], self.lease[id]


def machine(server_url: str, loop: asyncio.AbstractEventLoop) -> type[RuleBasedStateMachine]:
    """Return the state machine for one server; its rules run on *loop* from another thread."""

    def run(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    class Machine(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.ns = f"p{uuid.uuid4().hex[:12]}"
            self.model = Model()
            self.held: list = []
            run(self.open())

        async def open(self) -> None:
            self.raw = Redis.from_url(server_url)
            self.rsmq = await RSMQ(server_url, ns=self.ns).open()
            self.queue = await self.rsmq.create_queue("jobs", maxsize=1024, vt=LONG_S)

        def teardown(self) -> None:
            async def close() -> None:
                await self.rsmq.delete_queue("jobs")
                await self.rsmq.aclose()
                await self.raw.aclose()

            run(close())

        @rule(
            bodies=st.lists(st.binary(max_size=1100), min_size=1, max_size=4),
            delay=st.sampled_from([0, 0, STEP_S, 2 * STEP_S]),
            headers=st.lists(st.sampled_from(HEADERS), min_size=4, max_size=4),
        )
        def send(self, bodies, delay, headers):
            try:
                ids = run(self.queue.send_many(bodies, delay=delay, headers=headers[: len(bodies)]))
            except MessageTooLong:
                assert any(len(b) > 1024 for b in bodies)
            else:
                assert all(len(b) <= 1024 for b in bodies)
                for id, body, own in zip(ids, bodies, headers, strict=False):
                    self.model.add(id, body, own, delay)

        @rule(count=st.integers(1, 4), vt=st.sampled_from([0, STEP_S, LONG_S, None]))
        def receive(self, count, vt):
            received = run(self.queue.receive_many(count, vt=vt))
            ready, struck = self.model.ready(), self.model.struck()
            assert bool(received) == bool(ready)
            if any(message.suspect for message in received):
                assert len(received) == 1
            elif not struck:
                assert len(received) == min(count, len(ready))
            for message in received:
                assert message.id in ready
                if self.model.lease[message.id] != 0:
                    assert message.suspect == (message.id in struck)
                assert message.body == self.model.body[message.id]
                assert message.headers == self.model.headers[message.id]
                self.model.rc[message.id] += 1
                assert message.rc == self.model.rc[message.id]
                self.model.visible_in[message.id] = LONG_S if vt is None else vt
                self.model.lease[message.id] = self.model.visible_in[message.id]
                self.model.received += 1
            self.held += received

        @rule()
        def pop(self):
            message = run(self.queue.pop())
            ready = self.model.ready()
            assert (message is None) == (not ready)
            if message is not None:
                assert message.id in ready
                assert message.body == self.model.body[message.id]
                assert message.headers == self.model.headers[message.id]
                self.model.received += 1
                self.model.drop(message.id)

        @precondition(lambda self: self.held)
        @rule(
            data=st.data(),
            verb=st.sampled_from(["ack", "release", "extend", "reject"]),
            seconds=st.sampled_from([0, STEP_S]),
        )
        def settle(self, data, verb, seconds):
            message = data.draw(st.sampled_from(self.held))
            holds = self.model.rc.get(message.id) == message.rc
            call = {
                "ack": message.ack,
                "release": lambda: message.release(seconds),
                "extend": lambda: message.extend(seconds),
                "reject": message.reject,
            }[verb]
            try:
                run(call())
            except LeaseLost as error:
                assert not holds
                assert error.gone == (message.id not in self.model.body)
            else:
                assert holds
                if verb in ("ack", "reject"):
                    self.model.drop(message.id)
                else:
                    self.model.visible_in[message.id] = seconds
                    if verb == "release" or not seconds:
                        self.model.lease[message.id] = None

        @precondition(lambda self: self.model.body)
        @rule(data=st.data())
        def delete(self, data):
            id = data.draw(st.sampled_from(sorted(self.model.body)))
            assert run(self.queue.delete(id)) is True
            self.model.drop(id)

        @precondition(lambda self: self.model.body)
        @rule(data=st.data(), seconds=st.sampled_from([0, STEP_S]))
        def change_visibility(self, data, seconds):
            id = data.draw(st.sampled_from(sorted(self.model.body)))
            assert run(self.queue.change_visibility(id, seconds)) is True
            self.model.visible_in[id] = seconds
            if not seconds:
                self.model.lease[id] = None

        @rule()
        def time_passes(self):
            run(pass_time(self.raw, f"{self.ns}:jobs", STEP_S + SPREAD_S))
            for id in self.model.visible_in:
                self.model.visible_in[id] -= STEP_S

        @rule(leased=st.booleans())
        def purge(self, leased):
            model = self.model
            kept = {
                id for id in model.body if model.rc[id] and model.visible_in[id] > 0 and not leased
            }
            assert run(self.queue.purge(leased=leased)) == len(model.body) - len(kept)
            for id in set(model.body) - kept:
                model.drop(id)

        @rule()
        def look(self):
            seen = {m.id: m.headers for m in run(self.queue.peek(0, 1000))}
            assert seen == {id: self.model.headers[id] for id in self.model.ready()}
            pending = {m.id: m.deliveries for m in run(self.queue.pending(0, 1000))}
            assert pending == {
                id: rc for id, rc in self.model.rc.items() if rc and self.model.visible_in[id] > 0
            }

        @invariant()
        def counts_agree(self):
            attributes = run(self.queue.attributes())
            ready = self.model.ready()
            hidden = set(self.model.body) - ready
            assert attributes.msgs == len(self.model.body)
            assert attributes.ready == len(ready)
            assert attributes.leased == sum(self.model.rc[id] > 0 for id in hidden)
            assert attributes.delayed == sum(self.model.rc[id] == 0 for id in hidden)
            assert attributes.totalsent == self.model.sent
            assert attributes.totalrecv == self.model.received

        @invariant()
        def no_field_is_left_over(self):
            fields = run(self.raw.hkeys(f"{self.ns}:jobs:Q"))
            owners = {f.decode().split(":")[0] for f in fields if len(f) >= 32}
            assert owners == set(self.model.body)
            headers = run(self.raw.hkeys(f"{self.ns}:jobs:ng:headers"))
            assert {id.decode() for id in headers} == {
                id for id, own in self.model.headers.items() if own
            }

    return Machine


@pytest.mark.timeout(300 if not LONG else 0)
async def test_operations_agree_with_the_model(server_url):
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
