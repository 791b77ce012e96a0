"""Readers that claim, and other clients beside them, in random order, against a model."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk_send, claims
from aiorsmq_ng._protocol.operations.spark.claims import Ledger

from .claim_desk import TTL_S, Desk

STEPS = 150


@dataclass
class Known:
    """What the model knows of a message."""

    body: bytes
    #: As stored in the queue.
    rc: int = 0
    visible: bool = True
    #: The claim that has it and still holds it, and how: "lean", "counted" or "moved".
    holder: tuple[str, int] | None = None
    how: str = ""
    #: True if the lease of a claim expired and no other client has touched it since.
    lapsed: bool = False
    in_queue: bool = True
    #: The claim from which it went to the dead-letter queue.
    buried_by: tuple[str, int] | None = None


@dataclass
class Model:
    """The queue, its readers, and what they must see."""

    desk: Desk
    dice: random.Random
    known: dict[bytes, Known] = field(default_factory=dict)
    #: Per claim the ids with the count that each was claimed with.
    claims: dict[tuple[str, int], list[tuple[bytes, int]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    sent: int = 0

    def __post_init__(self) -> None:
        keys = self.desk.keys
        modes = {"one": "lease", "two": "lease", "away": "move"}
        self.dead = keys.namespace.queue("jobs-dead")
        self.ledgers = {name: Ledger(keys, name, mode) for name, mode in modes.items()}

    def queued(self) -> list[bytes]:
        return [id for id, one in self.known.items() if one.in_queue]

    def some_claim(self) -> tuple[str, int] | None:
        return self.dice.choice(sorted(self.claims)) if self.claims else None

    def send(self) -> None:
        """Send messages under ids of several lengths."""
        ids, bodies = [], []
        for _ in range(self.dice.randint(1, 12)):
            self.sent += 1
            width = self.dice.choice([32, 32, 32, 22, 41])
            ids.append(f"{self.sent:010d}{'x' * (width - 10)}".encode())
            bodies.append(b"\n" * self.dice.choice([0, 1, 3, 2000]) + b"%d" % self.sent)
        rows = bulk_send.Rows([bulk_send.kept(id.decode()) for id in ids], -1, bodies)
        place = bulk_send.Place(f"job{self.sent}", "0")
        self.desk.run(bulk_send.send(self.desk.keys, rows, place, ttl_s=60, oversize="fail"))
        self.known.update({id: Known(body) for id, body in zip(ids, bodies, strict=True)})

    def claim(self) -> None:
        name = self.dice.choice(sorted(self.ledgers))
        number, limit = self.numbers.get(name, 0) + 1, self.dice.randint(1, 15)
        visible = [id for id in self.queued() if self.known[id].visible]
        chunk, call_bytes = self.dice.randint(1, 6), self.dice.choice([3, 10, 1000, 5000])
        claimed = claims.Claimed(0, False, False)
        while not claimed.complete:
            claimed = self.desk.claim(
                self.ledgers[name], number, limit=limit, chunk=chunk, call_bytes=call_bytes
            )
        assert claimed.messages == min(limit, len(visible))
        if not claimed.messages:
            return
        self.numbers[name] = number
        page = self.desk.read(self.ledgers[name], claimed.messages, number)
        counts = [int(run.rc) for run in page.runs for _ in range(run.size)]
        listed = list(zip(page.held, counts, strict=True))
        self.claims[name, number] = listed
        assert {id for id, _ in listed} <= set(visible)
        for id, rc in listed:
            one = self.known[id]
            assert rc == one.rc + one.lapsed + 1, (id, one)
            fresh = one.rc + one.lapsed == 0
            one.holder, one.visible, one.lapsed = (name, number), False, False
            if self.ledgers[name].mode == "move":
                one.how, one.in_queue = "moved", False
            elif fresh:
                one.how = "lean"
            else:
                one.how, one.rc = "counted", rc

    def read(self) -> None:
        """Any part of a claim has what is held of it, as often as it is read."""
        if (chosen := self.some_claim()) is None:
            return
        listed = self.claims[chosen]
        start = self.dice.randrange(len(listed))
        stop = self.dice.randint(start + 1, len(listed))
        read = claims.read(self.ledgers[chosen[0]], chosen[1], start, stop, bodies=True)
        page, part = self.desk.run(read), listed[start:stop]
        held = [id for id, _ in part if self.known[id].holder == chosen]
        assert page.held == held
        assert [body for body in page.bodies if body is not None] == [
            self.known[id].body for id in held
        ]
        lost = [id for id, _ in part if id not in held]
        assert page.gone == sum(self._is_gone(id) for id in lost)
        assert page.taken == len(lost) - page.gone

    def _is_gone(self, id: bytes) -> bool:
        return not self.known[id].in_queue

    def acknowledge(self) -> None:
        if (chosen := self._first_claim()) is None:
            return
        acknowledge = claims.acknowledge(
            self.ledgers[chosen[0]], chosen[1], count=self.dice.randint(1, 9)
        )
        while self.desk.run(acknowledge):
            pass
        for id, _ in self.claims.pop(chosen):
            one = self.known[id]
            if one.holder == chosen:
                one.holder, one.in_queue, one.visible = None, False, False

    def _first_claim(self) -> tuple[str, int] | None:
        """Return the first claim of a ledger: they are acknowledged in order."""
        first = {}
        for name, number in sorted(self.claims):
            first.setdefault(name, (name, number))
        return self.dice.choice(sorted(first.values())) if first else None

    def release(self) -> None:
        """Everything that is held returns, with its count."""
        if (chosen := self.some_claim()) is None:
            return
        held = [(id, rc) for id, rc in self.claims.pop(chosen) if self.known[id].holder == chosen]
        count, most = self.dice.randint(1, 9), self.dice.choice([2, 1000, 4000])
        release = claims.release(self.ledgers[chosen[0]], chosen[1], count=count, max_bytes=most)
        given, left = 0, 1
        while left:
            released = self.desk.run(release)
            given, left = given + released.given, released.left
        assert given == len(held)
        for id, rc in held:
            one = self.known[id]
            one.holder, one.visible, one.lapsed = None, True, False
            one.in_queue, one.rc = True, rc

    def dead_letter(self) -> None:
        """Some messages of a claim go to the dead-letter queue, if they are held."""
        if (chosen := self.some_claim()) is None:
            return
        listed = list(enumerate(self.claims[chosen]))
        some = sorted(self.dice.sample(listed, min(len(listed), self.dice.randint(1, 4))))
        letters = [
            claims.DeadLetter(number, id, self.known[id].body, "it is bad")
            for number, (id, _) in some
        ]
        call = claims.dead_letter(self.ledgers[chosen[0]], chosen[1], letters, self.dead)
        held = [(id, rc) for _, (id, rc) in some if self.known[id].holder == chosen]
        assert self.desk.run(call) == len(held)
        for id, rc in held:
            one = self.known[id]
            one.holder, one.in_queue, one.visible = None, False, False
            one.buried_by, one.rc = chosen, rc

    def renew(self) -> None:
        self._renew(60_000)

    def expire(self) -> None:
        self._renew(1)

    def _renew(self, lease_ms: int) -> None:
        if (chosen := self.some_claim()) is None or self.ledgers[chosen[0]].mode == "move":
            return
        at = taken = gone = 0
        while at >= 0:
            renewed = self.desk.run(
                claims.renew(
                    *(self.ledgers[chosen[0]], chosen[1], at),
                    count=self.dice.randint(1, 9),
                    lease_ms=lease_ms,
                    ttl_s=TTL_S,
                )
            )
            at, taken, gone = renewed.next, taken + renewed.taken, gone + renewed.gone
        ids = [id for id, _ in self.claims[chosen]]
        held = [id for id in ids if self.known[id].holder == chosen]
        dead = [id for id in ids if self.known[id].buried_by == chosen]
        assert taken + gone == len(ids) - len(held) - len(dead)
        for id in held:
            one = self.known[id]
            one.visible = lease_ms == 1
            one.lapsed = one.visible and one.how == "lean"
        while self.desk.run(claims.backlog(self.desk.keys)).visible < self._visible():
            pass

    def _visible(self) -> int:
        return sum(self.known[id].visible for id in self.queued())

    def receive(self) -> None:
        """Receive as other clients do; they know nothing of lean leases."""
        for leased in self.desk.receive(self.dice.randint(1, 5)):
            one = self.known[leased.id.encode()]
            assert one.visible
            assert one.in_queue
            assert leased.body == one.body
            assert leased.rc == one.rc + 1, one
            one.rc, one.holder, one.visible, one.lapsed = leased.rc, None, False, False

    def delete(self) -> None:
        """Delete any message of the queue, as RSMQ allows."""
        for id in self.dice.sample(self.queued(), min(2, len(self.queued()))):
            self.desk.run(messages.delete(self.desk.keys, [id.decode()]))
            one = self.known[id]
            one.in_queue, one.visible, one.holder = False, False, None

    def change_visibility(self) -> None:
        """Set the time of a message that the client does not hold."""
        if not (queued := self.queued()):
            return
        id, visible = self.dice.choice(queued), self.dice.random() < 0.6
        now = self.desk.run(claims.backlog(self.desk.keys)).now_ms
        self.desk.redis.zadd(self.desk.keys.zset, {id: 1 if visible else now + 60_000})
        one = self.known[id]
        one.visible, one.lapsed = visible, False
        if one.how == "lean":
            one.holder = None

    def check_queue(self) -> None:
        """Raise unless the queue has the messages of the model, and nothing besides."""
        desk, queued = self.desk, self.queued()
        assert set(desk.redis.zrange(desk.keys.zset, 0, -1)) == set(queued)
        stored = desk.redis.hgetall(desk.keys.hash)
        for id in queued:
            one = self.known[id]
            assert stored[id] == one.body
            assert int(stored.get(id + b":rc", 0)) == one.rc, one
        received = sum(2 for id in queued if self.known[id].rc)
        attributes = {b"vt", b"delay", b"maxsize", b"created", b"modified"}
        attributes |= {b"totalsent", b"totalrecv"} & stored.keys()
        assert len(stored) == len(attributes) + len(queued) + received
        dead = [id for id, one in self.known.items() if one.buried_by]
        assert set(desk.redis.zrange(self.dead.zset, 0, -1)) == set(dead)
        letters = desk.redis.hgetall(self.dead.hash)
        for id in dead:
            assert letters[id] == self.known[id].body
            assert int(letters[id + b":rc"]) == self.known[id].rc
        told = desk.run(queues.attributes(desk.keys))
        assert (told.msgs, told.ready) == (len(queued), self._visible())


@pytest.mark.parametrize("seed", range(12))
def test_random_work_on_a_queue_gives_what_the_model_says(server_url, ns, seed):
    model = Model(Desk(server_url, ns), random.Random(seed))
    steps = [model.send, model.claim, model.read, model.acknowledge, model.release, model.renew]
    steps += [model.expire, model.receive, model.delete, model.change_visibility, model.claim]
    steps += [model.send, model.read, model.dead_letter]
    for _ in range(STEPS):
        model.dice.choice(steps)()
        model.check_queue()

    while model.claims:
        model.release()
    model.check_queue()
    for key in model.desk.side_keys():
        assert key.split(":")[0] in ("marks", "ledger", "deliveries", "waiters"), key
