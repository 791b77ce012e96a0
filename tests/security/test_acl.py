"""The users of docs/guides/security.md: each can do exactly what its table says."""

import asyncio
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from aiorsmq_ng import (
    RSMQ,
    AccessDenied,
    Options,
    QueueNotFound,
    Retry,
    Worker,
    _protocol,
)
from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.testing import FaultProxy

from ..support.roles import ACL_RULES, BURIED, DONE, begin, prepare, serve

SCRIPTS = Path(_protocol.__file__).with_name("scripts")

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "security.md").read_text()
RULES = ACL_RULES
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in PAGE[PAGE.index("| | producer |") :].split("\n\n")[0].splitlines()
]
ROLES = ROWS[0][1:]
ALLOWED = {
    (row[0], role): cell == "yes"
    for row in ROWS[2:]
    for role, cell in zip(ROLES, row[1:], strict=True)
}
FOREIGN = "redis.call('SET', KEYS[1], 'x') return 1"
HIDDEN = "return redis.call('SET', 'other:jobs', 'x')"


@pytest.fixture(scope="module")
def acl_server(tmp_path_factory):
    with EmbeddedServer.acquire(tmp_path_factory.mktemp("acl")) as server:
        yield server


@pytest.fixture
async def admin(acl_server):
    """A client with all rights, on a server with the users and one queue."""
    async with Redis.from_url(acl_server.url) as client:
        await client.flushall()
        for name, rules in RULES.items():
            await client.execute_command("ACL", "SETUSER", name, *rules)
        yield client


@pytest.fixture
async def owner(acl_server, admin):
    """The library with all rights, to prepare what a role is to try."""
    async with RSMQ(acl_server.url) as rsmq:
        for name in ("jobs", "jobs-dead"):
            await rsmq.create_queue(name)
        yield rsmq


def as_role(server, role, **more):
    url = server.url.replace("unix://", f"unix://{role}:password@")
    return RSMQ(url, options=Options(deadline=60, connect_timeout=60), **more)


async def held_by(rsmq, owner):
    """Return a delivery that the owner took, as if *rsmq* had taken it."""
    await owner.queue("jobs").send("held")
    delivery = await owner.queue("jobs").receive(vt=60)
    delivery._context = rsmq.queue("jobs")._context
    return delivery


async def settle(verb, rsmq, owner, *args):
    await getattr(await held_by(rsmq, owner), verb)(*args)


async def long_poll(rsmq, owner):
    waiting = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
    while not waiting.done():
        channels = await owner.raw.pubsub_numsub("rsmq:rt:jobs")
        if channels[0][1]:
            await owner.queue("jobs").send("late")
            break
        await asyncio.sleep(0.02)
    assert (await waiting).text in ("late", "ready")


async def elsewhere(rsmq, owner):
    owner.foreign = as_role(owner.server, owner.role, ns="other")
    await owner.foreign.queue("jobs").send("x")


async def topics(rsmq, owner):
    topic = rsmq.topic("news")
    await topic.publish("waits")
    for mode in ("shared", "broadcast"):
        subscription = await topic.subscribe(mode, mode=mode, peer="p")
        await topic.publish("x", dedup_key=mode)
        while delivery := await subscription.receive():
            await delivery.ack()
        await topic.unsubscribe(mode, discard=True)
    await topic.delete()


OPERATIONS = {
    "exists": lambda r, o: r.queue("jobs").exists(),
    "send": lambda r, o: r.queue("jobs").send("x"),
    "send(dedup_key=...)": lambda r, o: r.queue("jobs").send("x", dedup_key="k"),
    "send_many": lambda r, o: r.queue("jobs").send_many(["x", "y"]),
    "receive": lambda r, o: r.queue("jobs").receive(),
    "receive` of several queues": lambda r, o: r.receive("jobs", "jobs-dead"),
    "receive(wait=...)` with wake-ups": long_poll,
    "pop": lambda r, o: r.queue("jobs").pop(),
    "ack": lambda r, o: settle("ack", r, o),
    "extend": lambda r, o: settle("extend", r, o, 30),
    "release": lambda r, o: settle("release", r, o),
    "reject": lambda r, o: settle("reject", r, o, "why"),
    "delete": lambda r, o: r.queue("jobs").delete(o.ready),
    "purge": lambda r, o: r.queue("jobs").purge(),
    "peek": lambda r, o: r.queue("jobs").peek(),
    "pending": lambda r, o: r.queue("jobs").pending(),
    "attributes": lambda r, o: r.queue("jobs").attributes(),
    "stats": lambda r, o: r.queue("jobs").stats(),
    "list_queues": lambda r, o: r.list_queues(),
    "doctor": lambda r, o: r.doctor(),
    "recover": lambda r, o: r.queue("jobs").recover(1, 0),
    "redrive": lambda r, o: r.queue("jobs").redrive(),
    "set_attributes": lambda r, o: r.queue("jobs").set_attributes(vt=9),
    "create_queue": lambda r, o: r.create_queue("new"),
    "create_queue(exist_ok=True)` of a queue that exists": lambda r, o: r.create_queue(
        "jobs", exist_ok=True
    ),
    "delete_queue": lambda r, o: r.delete_queue("jobs"),
    "topics: publish, subscribe, receive, unsubscribe, delete": topics,
    "another namespace": elsewhere,
}
WORKERS = {
    "Worker` on queues that exist": True,
    "Worker` that creates its queue": False,
}
RAW = {
    "a script of one's own on a key of another namespace": [
        ("EVAL", FOREIGN, 1, "other:jobs"),
        ("EVAL", HIDDEN, 0),
    ],
    "KEYS`, `FLUSHALL`, `CONFIG": [
        ("KEYS", "*"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "requirepass"),
        ("ACL", "LIST"),
        ("SCRIPT", "FLUSH"),
        ("CLIENT", "LIST"),
    ],
}


#: doctor asks for two settings, and does without them and without a search for keys. What it needs
#: is refused once.
DOCTOR_TRIES = {
    "producer": {"rsmq:QUEUES": 1},
    "consumer": {"config|get": 2, "sscan": 1},
    "monitor": {"config|get": 2, "scan": 1, "type": 1},
}


async def snapshot(raw):
    """Return everything that is stored."""
    return {key: await raw.dump(key) for key in sorted(await raw.keys())}


def test_table_names_every_operation_and_role_that_is_tried():
    assert ROLES == list(RULES) == ["producer", "consumer", "monitor", "admin"]
    assert {row[0] for row in ROWS[2:]} == set(OPERATIONS) | set(WORKERS) | set(RAW)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("role", RULES)
async def test_role_can_do_what_the_table_says_and_nothing_else(
    acl_server, admin, owner, role, operation
):
    await owner.queue("jobs-dead").send("dead")
    await held_by(owner, owner)
    owner.ready = await owner.queue("jobs").send("ready")
    owner.raw, owner.server, owner.role = admin, acl_server, role
    # As after a restart: the server knows no script.
    await admin.script_flush()
    async with as_role(acl_server, role) as rsmq:
        if ALLOWED[operation, role]:
            await OPERATIONS[operation](rsmq, owner)
            return
        prepared = operation in ("ack", "extend", "release", "reject")
        delivery = await held_by(rsmq, owner) if prepared else None
        before = await snapshot(admin)
        await admin.execute_command("ACL", "LOG", "RESET")
        with pytest.raises(AccessDenied, match="refused access") as refused:
            if delivery is None:
                await OPERATIONS[operation](rsmq, owner)
            else:
                await getattr(delivery, operation)(*([30] if operation == "extend" else []))
        assert ".;" not in str(refused.value)
        log = await admin.acl_log()
    if operation == "another namespace":
        await owner.foreign.aclose()
    assert await snapshot(admin) == before
    # It was tried once. What a new client tells of its library, and asks first, is refused, too.
    tries = {e["object"]: e["count"] for e in log if not e["object"].startswith(("client", "info"))}
    if operation == "doctor":
        assert tries == DOCTOR_TRIES[role]
    else:
        assert list(tries.values()) == [1]


@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.parametrize("role", RULES)
async def test_role_can_run_a_worker_if_the_table_says_so(acl_server, admin, owner, role, kind):
    if WORKERS[kind]:
        await prepare(owner)
    else:
        await owner.delete_queue("jobs")
    await admin.script_flush()
    before = await snapshot(admin)
    async with as_role(acl_server, role) as rsmq:
        worker = Worker(rsmq)
        if not ALLOWED[kind, role]:
            with pytest.raises(AccessDenied, match="refused access") as caught:
                await serve(worker, owner) if WORKERS[kind] else await begin(worker)
            assert "the user lacks a right for this operation" in str(caught.value)
            assert "password" not in str(caught.value)
        elif WORKERS[kind]:
            await serve(worker, owner)
        else:
            await begin(worker)
    if not ALLOWED[kind, role]:
        assert await snapshot(admin) == before
    elif WORKERS[kind]:
        dead = {m.text for m in await owner.queue("jobs-dead").peek()}
        assert dead == BURIED
        assert worker.health.done == DONE
    else:
        assert await owner.list_queues() == ["jobs", "jobs-dead"]


async def test_worker_without_the_right_to_create_names_the_queue_that_it_lacks(acl_server, owner):
    await owner.delete_queue("jobs-dead")
    async with as_role(acl_server, "consumer") as rsmq:
        with pytest.raises(QueueNotFound, match="'jobs-dead'"):
            await begin(Worker(rsmq, create=False))

    assert await owner.list_queues() == ["jobs"]


@pytest.mark.parametrize("probe", RAW)
@pytest.mark.parametrize("role", RULES)
async def test_role_cannot_reach_around_the_library(acl_server, admin, owner, role, probe):
    before = await snapshot(admin)
    assert not ALLOWED[probe, role]
    async with Redis.from_url(
        acl_server.url, username=role, password="password", protocol=2
    ) as raw:
        for command in RAW[probe]:
            with pytest.raises((NoPermissionError, ResponseError), match=r"(?i)permission|can't"):
                await raw.execute_command(*command)

    assert await snapshot(admin) == before


async def test_consumer_with_a_limit_buries_into_the_queue_that_was_created_for_it(
    acl_server, owner
):
    async with as_role(acl_server, "consumer") as rsmq:
        jobs = rsmq.queue("jobs", retry=Retry(max_receives=1))
        await owner.queue("jobs").send("poison")
        await jobs.receive(vt=0)

        assert await jobs.receive() is None
    assert (await owner.queue("jobs-dead").attributes()).msgs == 1


async def test_consumer_cannot_create_the_dead_letter_queue_and_loses_nothing(
    acl_server, owner, admin
):
    await owner.delete_queue("jobs-dead")
    async with as_role(acl_server, "consumer") as rsmq:
        delivery = await held_by(rsmq, owner)
        before = await snapshot(admin)
        with pytest.raises(AccessDenied, match="refused access"):
            await delivery.reject("why")

        assert await snapshot(admin) == before
        await admin.execute_command("ACL", "SETUSER", "consumer", "+sadd", "+hsetnx")
        await delivery.reject("why")
    assert await owner.list_queues() == ["jobs", "jobs-dead"]


async def test_consumer_with_the_rights_for_it_recovers(acl_server, owner, admin):
    await admin.execute_command("ACL", "SETUSER", "consumer", "+zcount")
    async with as_role(acl_server, "consumer") as rsmq:
        await held_by(rsmq, owner)
        (taken,) = await rsmq.queue("jobs").recover(1, 0)

        assert taken.rc == 2


@pytest.mark.parametrize(("role", "operation"), [("producer", "send"), ("consumer", "receive")])
async def test_role_can_repeat_a_call_whose_reply_was_lost(acl_server, owner, role, operation):
    assert await owner.queue("jobs").receive() is None  # so that the server has the script
    await owner.queue("jobs").send("ready")
    async with (
        FaultProxy(acl_server.url.replace("unix://", f"unix://{role}:password@")) as proxy,
        RSMQ(proxy.url, options=Options(deadline=60, connect_timeout=60)) as rsmq,
    ):
        lost = proxy.drop_reply(b"EVAL")
        await OPERATIONS[operation](rsmq, owner)

        await lost.done()
    received = 1 if operation == "receive" else 0
    assert (await owner.queue("jobs").attributes()).totalrecv == received
    assert (await owner.queue("jobs").attributes()).msgs == 2 - received


async def test_consumer_without_subscribe_still_waits_for_messages(acl_server, owner, admin):
    await admin.execute_command("ACL", "SETUSER", "consumer", "-subscribe")
    async with as_role(acl_server, "consumer") as rsmq:
        waiting = asyncio.create_task(rsmq.queue("jobs").receive(wait=60))
        await asyncio.sleep(0.1)
        await owner.queue("jobs").send("late")

        assert (await waiting).text == "late"


async def test_side_keys_of_the_queue_can_be_read_and_set(acl_server, owner):
    for role in ("producer", "consumer", "admin"):
        async with Redis.from_url(
            acl_server.url, username=role, password="password", protocol=2
        ) as raw:
            script = "redis.call('SET', KEYS[1], 'x', 'PX', 9000) return redis.call('GET', KEYS[1])"
            assert await raw.eval(script, 1, "rsmq:jobs:ng:lane:1") == b"x"
            with pytest.raises(ResponseError, match=r"(?i)permission|access"):
                await raw.eval(script, 1, "rsmq2:jobs:ng:lane:1")


def test_admin_may_run_every_command_of_every_script_within_a_namespace():
    # Queues of Go's rmq are in a namespace of their own, which the rules of these users leave out.
    scripts = [path for path in SCRIPTS.rglob("*.lua") if path.parent.name != "rmq"]
    text = "".join(path.read_text() for path in scripts)
    used = {c.lower() for c in re.findall(r"redis\.p?call\(\s*'([A-Z]+)'", text)}
    allowed = {word[1:] for word in ACL_RULES["admin"] if word.startswith("+")}

    assert len(used) > 40
    assert used <= allowed
