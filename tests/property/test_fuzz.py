"""Whatever is passed in or lies in Redis: only documented errors, and no foreign key is touched."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import Counter
from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options, Retry, RSMQError
from aiorsmq_ng.embedded import EmbeddedServer

ID = "g73zkl38qz" + "x" * 22
EXAMPLES = settings(
    max_examples=int(os.environ.get("RSMQ_FUZZ_EXAMPLES", "400")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

any_text = st.text(st.characters(), max_size=40)
names = st.one_of(
    st.sampled_from(["jobs", "jobs", "jobs", "jobs-dead", "other", "QUEUES", "", "Q", "a" * 160]),
    st.sampled_from(["jobs\n", "jobs:Q", "other:Q", "jobs:ng:wake", "{jobs}", "j\0bs", "*", "é"]),
    any_text,
)
namespaces = st.one_of(
    st.sampled_from(["rsmq", "rsmq", "rsmq", "rsmq:jobs", "rsmq:other", "", "r s", "{x}", "*"]),
    any_text,
)
ids = st.one_of(
    st.just(ID),
    st.sampled_from(
        ["vt", "totalsent", "maxsize", ID + ":rc", ID + ":fr", ID + "\n", "x" * 64, ""]
    ),
    st.text("abcxyz019:", min_size=18, max_size=66),
    any_text,
)
numbers = st.one_of(
    st.sampled_from([0, 1, 2, 5]),
    st.integers(),
    st.floats(),
    st.sampled_from([10**30, -(10**30), 2**63, True, None, "1", timedelta(days=999999)]),
)
bodies = st.one_of(
    any_text,
    st.binary(max_size=200),
    st.sampled_from(["x" * 70_000, None, 1.5, float("nan"), {"a": [1]}, object(), {1, 2}, 10**400]),
)


@st.composite
def calls(draw):
    """A call on a queue, as (name of the operation, arguments)."""
    n = lambda: draw(numbers)  # noqa: E731
    options = {
        "send": lambda: (draw(bodies), n()),
        "send_many": lambda: (draw(st.lists(bodies, max_size=3)), n()),
        "receive": lambda: (n(),),
        "receive_many": lambda: (n(), n()),
        "receive_limited": lambda: (n(),),
        "receive_first": lambda: (draw(st.lists(names, max_size=3)), n()),
        "pop_many": lambda: (n(),),
        "delete": lambda: (draw(ids),),
        "delete_many": lambda: (draw(st.lists(ids, max_size=3)), draw(st.booleans())),
        "change_visibility": lambda: (draw(ids), n()),
        "attributes": lambda: (),
        "stats": lambda: (),
        "set_attributes": lambda: (n(), n(), n()),
        "peek": lambda: (n(), n()),
        "pending": lambda: (n(), n()),
        "recover": lambda: (n(), n(), n()),
        "reason": lambda: (draw(ids),),
        "redrive": lambda: (draw(st.none() | names), n()),
        "purge": lambda: (draw(st.booleans()),),
        "create": lambda: (n(), n(), n()),
        "delete_queue": lambda: (),
        "list": lambda: (),
        "ack": lambda: (),
        "extend": lambda: (n(),),
        "release": lambda: (n(),),
        "reject": lambda: (draw(any_text),),
        "forward": lambda: (draw(names), n()),
    }
    name = draw(st.sampled_from(sorted(options)))
    return name, options[name]()


async def perform(rsmq, name, dead, operation, args):
    """Do *operation*, and look at what it returned as a user would."""
    queue = rsmq.queue(name, dead_letter=dead)
    match operation:
        case "send" | "send_many":
            return await getattr(queue, operation)(args[0], delay=args[1])
        case "receive":
            got = [await queue.receive(vt=args[0])]
        case "receive_many":
            got = await queue.receive_many(args[0], vt=args[1])
        case "receive_limited":
            limited = rsmq.queue(name, dead_letter=dead, retry=Retry(max_receives=1))
            got = [await limited.receive(vt=args[0])]
        case "receive_first":
            got = [await rsmq.receive(name, *args[0], vt=args[1])]
        case "pop_many" | "peek" | "pending":
            got = await getattr(queue, operation)(*args)
        case "recover":
            got = await queue.recover(args[0], args[1], vt=args[2])
        case "delete_many":
            return await queue.delete_many(args[0], only_leased=args[1])
        case "set_attributes":
            return await queue.set_attributes(vt=args[0], delay=args[1], maxsize=args[2])
        case "redrive":
            return await queue.redrive(args[0], count=args[1])
        case "purge":
            return await queue.purge(leased=args[0])
        case "create":
            return await rsmq.create_queue(name, vt=args[0], delay=args[1], maxsize=args[2])
        case "delete_queue":
            return await rsmq.delete_queue(name)
        case "list":
            return await rsmq.list_queues()
        case "ack" | "extend" | "release" | "reject" | "forward":
            delivery = await queue.receive()
            if delivery is None:
                return None
            if operation == "forward":
                return await delivery.forward(args[0], delay=args[1])
            return await getattr(delivery, operation)(*args)
        case _:
            return await getattr(queue, operation)(*args)
    for message in got:
        read(message)
    return got


def read(message):
    if message is None:
        return
    repr(message)
    _ = message.sent
    for look in (lambda: message.text, message.json):
        with suppress(RSMQError, UnicodeDecodeError):
            look()


async def snapshot(raw):
    """Return everything that is stored, by key."""
    keys = await raw.keys()
    async with raw.pipeline(transaction=False) as pipeline:
        for key in keys:
            pipeline.dump(key)
        return dict(zip(keys, await pipeline.execute(), strict=True))


def own(ns, *queues):
    """Return a test for keys that an operation on *queues* of *ns* may change."""
    exact = {f"{ns}:QUEUES".encode("utf-8", "surrogatepass")}
    prefixes = []
    for name in queues:
        base = f"{ns}:{name}".encode("utf-8", "surrogatepass")
        exact |= {base, base + b":Q"}
        prefixes.append(base + b":ng:")

    def may_change(key):
        # Built from another namespace and name, a key of these queues would look like ours.
        match = re.fullmatch(rb"rsmq:(jobs|other|jobs-dead|QUEUES)(:.*)?", key, re.DOTALL)
        if match and match[1] != b"QUEUES" and match[1].decode() not in queues:
            return False
        if match and ns != "rsmq":
            return False
        return key in exact or key.startswith(tuple(prefixes))

    return may_change


@pytest.fixture(scope="module")
def fuzz_server(tmp_path_factory):
    with EmbeddedServer.acquire(tmp_path_factory.mktemp("fuzz")) as server:
        yield server


class Case:
    """One example after the other: a database with bystanders, a call, and what it may touch."""

    def __init__(self, url, raw, loop) -> None:
        self.url = url
        self.raw = raw
        self.outcomes = Counter()
        self._start = {}
        self._loop = loop

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def build(self) -> None:
        """Make the database that every example starts with."""
        raw = self.raw
        await raw.flushall()
        async with RSMQ(self.url) as rsmq:
            for name in ("jobs", "other", "jobs-dead"):
                await rsmq.create_queue(name)
            await rsmq.queue("jobs").send_many(["a", b"\xff", "c"])
            await rsmq.queue("jobs").receive(vt=9999)
            await rsmq.queue("other").send("bystander")
            await rsmq.queue("jobs-dead").send("dead")
        await raw.zadd("rsmq:jobs", {ID: 1})
        await raw.hset("rsmq:jobs:Q", ID, "mine")
        for key in ("QUEUES", "rsmq", "jobs", "jobs:Q", ":jobs", ":QUEUES", "a", "rsmq:", ":"):
            await raw.set(key, "bystander")
        self._start = await snapshot(raw)

    async def reset(self) -> None:
        async with self.raw.pipeline(transaction=False) as pipeline:
            pipeline.flushall()
            for key, value in self._start.items():
                pipeline.restore(key, 0, value)
            await pipeline.execute()

    async def check(self, ns, name, dead, call, damage=None) -> None:
        operation, args = call
        others = [dead or f"{name}-dead"]
        for arg in args:
            others += arg if isinstance(arg, list) else [arg]
        queues = [name, *(other for other in others if isinstance(other, str))]
        queues += [f"{queue}-dead" for queue in queues]
        await self.reset()
        if damage is not None:
            await damage(self.raw)
        before = await snapshot(self.raw)
        outcome = "done"
        try:
            async with (
                asyncio.timeout(20),
                RSMQ(self.url, ns=ns, options=Options(deadline=15)) as rsmq,
            ):
                await perform(rsmq, name, dead, operation, args)
        except RSMQError as error:
            outcome = type(error).__name__
            assert "unexpected" not in str(error)
            assert "could not be read" not in str(error)
        self.outcomes[outcome] += 1
        if damage is None and operation not in ("set_attributes", "delete_queue"):
            stored = await self.raw.hmget("rsmq:jobs:Q", "vt", "delay", "maxsize", "totalsent")
            assert stored[:3] == [b"30", b"0", b"65536"]
            assert int(stored[3]) >= 3
        after = await snapshot(self.raw)
        mine = own(ns, *queues)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        assert [key for key in changed if not mine(key)] == []


@pytest.fixture
async def fuzz(fuzz_server, caplog):
    """Run a hypothesis test in a thread, its coroutines on this loop; tell how calls ended."""
    caplog.set_level(logging.WARNING, "aiorsmq_ng")

    async def run(test):
        async with Redis.from_url(fuzz_server.url) as raw:
            await raw.config_set("appendonly", "no")
            case = Case(fuzz_server.url, raw, asyncio.get_running_loop())
            await case.build()
            await asyncio.to_thread(test, case)
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
        return case.outcomes

    return run


async def test_any_argument_is_taken_or_refused_and_touches_its_queue_only(fuzz):
    @EXAMPLES
    @given(ns=namespaces, name=names, dead=st.none() | names, call=calls())
    def test(case, ns, name, dead, call):
        case.run(case.check(ns, name, dead, call))

    outcomes = await fuzz(test)
    assert {"done", "InvalidValue"} <= set(outcomes)


scores = (
    st.integers(0, 10**9)
    | st.floats(allow_nan=False)
    | st.integers(-(2**60), 2**60)
    | st.sampled_from([0.5, 1e300])
)
values = st.one_of(
    st.binary(max_size=30),
    st.integers().map(lambda n: str(n).encode()),
    st.sampled_from(
        [b"nan", b"inf", b"-1", b"1e5", b"0x10", b"2.5", b"", b"9" * 400, b" 1", b"-0"]
    ),
)
members = st.one_of(st.just(ID.encode()), st.just(b"\xff"), st.binary(max_size=40))
fields = st.one_of(
    st.sampled_from(
        ["vt", "delay", "maxsize", "totalsent", "totalrecv", "created", "modified", "", ":rc"]
    ).map(str.encode),
    st.sampled_from([ID, f"{ID}:rc", f"{ID}:fr", f"{ID}:meta"]).map(str.encode),
    st.binary(max_size=40),
)
KEYS = [
    "rsmq:jobs", "rsmq:jobs:Q", "rsmq:QUEUES", "rsmq:jobs:ng:deliveries", "rsmq:jobs:ng:consumers",
    "rsmq:jobs-dead", "rsmq:jobs-dead:Q", f"rsmq:jobs:ng:reason:{ID}",
]  # fmt: skip
damages = st.lists(
    st.one_of(
        st.tuples(st.just("score"), members, scores),
        st.tuples(st.just("field"), fields, values),
        st.tuples(st.just("field"), fields, values),
        st.tuples(st.just("message"), members, st.tuples(scores, values, values, values)),
        st.tuples(st.just("message"), members, st.tuples(scores, values, values, values)),
        st.tuples(st.just("drop"), fields, st.none()),
        st.tuples(st.just("side"), members, values),
        st.tuples(st.just("index"), members, st.none()),
        st.tuples(
            st.just("type"),
            st.sampled_from(KEYS),
            st.sampled_from(["string", "list", "set", "hash"]),
        ),
    ),
    min_size=1,
    max_size=5,
)


def damage_by(steps):
    async def damage(raw):
        for kind, what, value in steps:
            try:
                if kind == "score":
                    await raw.zadd("rsmq:jobs", {what: value})
                elif kind == "field":
                    await raw.hset("rsmq:jobs:Q", what, value)
                elif kind == "message":
                    score, body, rc, fr = value
                    for queue in ("jobs", "jobs-dead"):
                        stored = {what: body, what + b":rc": rc, what + b":fr": fr}
                        await raw.zadd(f"rsmq:{queue}", {what: score})
                        await raw.hset(f"rsmq:{queue}:Q", mapping=stored)
                elif kind == "drop":
                    await raw.hdel("rsmq:jobs:Q", what)
                elif kind == "side":
                    for key in ("deliveries", "consumers"):
                        await raw.hset(f"rsmq:jobs:ng:{key}", what, value)
                elif kind == "index":
                    await raw.sadd("rsmq:QUEUES", what)
                else:
                    await raw.delete(what)
                    await {
                        "string": lambda key: raw.set(key, "x"),
                        "list": lambda key: raw.rpush(key, "x"),
                        "set": lambda key: raw.sadd(key, "x"),
                        "hash": lambda key: raw.hset(key, "x", "y"),
                    }[value](what)
            except Exception as error:
                assert "WRONGTYPE" in str(error), error  # an earlier step took the key

    return damage


SECONDS, COUNT = st.sampled_from([0, 0.5, 30]), st.sampled_from([1, 2, 1000])
START = st.sampled_from([0, -1, -5, 2])
#: Arguments that are fine in themselves.
PLAIN = {
    "send": (st.just("x"), st.none() | SECONDS),
    "receive": (st.none() | SECONDS,),
    "receive_many": (COUNT, st.none() | SECONDS),
    "receive_limited": (st.none() | SECONDS,),
    "receive_first": (st.just(["other"]), st.none() | SECONDS),
    "pop_many": (COUNT,),
    "delete": (st.just(ID),),
    "delete_many": (st.just([ID]), st.booleans()),
    "change_visibility": (st.just(ID), SECONDS),
    "attributes": (),
    "stats": (),
    "set_attributes": (st.just(5), st.none(), st.none()),
    "peek": (START, COUNT),
    "pending": (START, COUNT),
    "recover": (COUNT, st.just(0), st.none() | SECONDS),
    "reason": (st.just(ID),),
    "redrive": (st.none(), st.none() | COUNT),
    "purge": (st.booleans(),),
    "create": (st.just(30), st.just(0), st.just(2000)),
    "delete_queue": (),
    "list": (),
    "ack": (),
    "extend": (SECONDS,),
    "release": (SECONDS,),
    "reject": (st.just("why"),),
    "forward": (st.just("other"), st.none() | SECONDS),
}


@st.composite
def plain_calls(draw):
    """A call with arguments that are fine in themselves."""
    name = draw(st.sampled_from(sorted(PLAIN)))
    return name, tuple(draw(argument) for argument in PLAIN[name])


#: Namespaces and names that, put together without a check, give foreign keys.
TRAPS = [
    ("rsmq:jobs", "Q"), ("rsmq:other", "Q"), ("rsmq", "QUEUES"), ("rsmq", "jobs:Q"), ("", "jobs"),
    ("rsmq", "jobs\n"), ("rsmq", ""), ("rsmq", "jobs:ng:x"), ("rsmq:jobs:ng", "consumers"),
]  # fmt: skip
TRAP_IDS = [
    "vt",
    "delay",
    "maxsize",
    "totalsent",
    "created",
    f"{ID}:rc",
    f"{ID}:fr",
    "",
    "x\n" * 16,
]


async def test_names_and_ids_that_are_traps_are_refused_by_every_operation(fuzz):
    examples = {"send": ("x", 0), "delete_many": ([ID], False), "redrive": (None, None)}
    plain = {name: examples.get(name) or tuple(map(first, PLAIN[name])) for name in PLAIN}

    def test(case):
        for ns, name in TRAPS:
            for call in plain.items():
                if call[0] == "list" and ns == "rsmq":
                    continue  # it needs no name
                case.run(case.check(ns, name, "jobs-dead", call))
        for id in TRAP_IDS:
            for call in (
                ("delete", (id,)),
                ("delete_many", ([ID, id], False)),
                ("delete_many", ([id], True)),
                ("change_visibility", (id, 0)),
                ("reason", (id,)),
            ):
                case.run(case.check("rsmq", "jobs", None, call))

    assert set(await fuzz(test)) == {"InvalidValue"}


def first(strategy):
    """Return a simple value of *strategy*."""
    return find(strategy, lambda _: True)


async def test_any_content_of_its_keys_gives_a_result_or_a_documented_error(fuzz):
    @EXAMPLES
    @given(steps=damages, call=plain_calls())
    def test(case, steps, call):
        case.run(case.check("rsmq", "jobs", None, call, damage_by(steps)))

    outcomes = await fuzz(test)
    assert {"done", "QueueCorrupt"} <= set(outcomes)
