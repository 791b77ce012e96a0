"""The roles of docs/guides/grpc.md: each token can do exactly what the table says."""

import asyncio
import re
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, AccessDenied, Worker
from aiorsmq_ng.broker import Broker, BrokerOptions, Tokens

from ..support.roles import BURIED, DONE, begin, prepare, serve

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "grpc.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE[PAGE.index("  | | producer |") :].split("\n\n")[0].splitlines()
]
ROLES = ROWS[0][1:]
TOKEN = {role: f"token of the {role}".replace(" ", "-") for role in ROLES}
NAMES = ["jobs", "new", "other-dead", "next"]
TOKENS = "".join(
    f"""
    ["{role}"]
    token = "{TOKEN[role]}"
    roles = {role.split(" and ")}
    queues = {NAMES}
    topics = ["news"]
    consumers = ["*"]
    """
    for role in ROLES
)


async def iterate(rsmq, inner):
    async for message in rsmq.queue("jobs"):
        await message.ack()
        break


async def lend(rsmq, inner):
    """Return a delivery; one that was taken by the admin's token if *rsmq* may not take any."""
    await inner.queue("jobs").send("held")
    return await rsmq.queue("jobs").receive(vt=60)


def settle(verb, *args, **kwargs):
    async def settling(rsmq, inner):
        await getattr(await lend(rsmq, inner), verb)(*args, **kwargs)

    return settling


async def reject_elsewhere(rsmq, inner):
    await inner.queue("jobs").send("held")
    message = await rsmq.queue("jobs", dead_letter="other-dead").receive(vt=60)
    await message.reject()


async def scan(rsmq, inner):
    async for _ in rsmq.queue("jobs").scan():
        pass


async def unsubscribe(rsmq, inner):
    await inner.topic("news").subscribe("reader")
    await rsmq.topic("news").unsubscribe("reader", discard=True)


async def delete_leased(rsmq, inner):
    await rsmq.queue("jobs").delete(await inner.queue("jobs").send("x"))


async def hide(rsmq, inner):
    await rsmq.queue("jobs").change_visibility(await inner.queue("jobs").send("x"), 60)


#: What is tried for each word of the table in backticks, or for a whole row.
OPERATIONS = {
    "exists": lambda r, i: r.queue("jobs").exists(),
    "attributes": lambda r, i: r.queue("jobs").attributes(),
    "stats": lambda r, i: r.queue("jobs").stats(),
    "list_queues": lambda r, i: r.list_queues(),
    "topic.describe": lambda r, i: r.topic("news").describe(),
    "list_topics": lambda r, i: r.list_topics(),
    "send": lambda r, i: r.queue("jobs").send("x"),
    "topic.publish": lambda r, i: r.topic("news").publish("x"),
    "receive": lambda r, i: r.queue("jobs").receive(),
    "wait": lambda r, i: r.queue("jobs").receive(wait=0.01),
    "async for": iterate,
    "ack": settle("ack"),
    "extend": settle("extend", 30),
    "release": settle("release"),
    "reject": settle("reject", "why"),
    "forward": settle("forward", "next"),
    "pop": lambda r, i: r.queue("jobs").pop(),
    "recover": lambda r, i: r.queue("jobs").recover(1, 0),
    "reason": lambda r, i: r.queue("jobs").reason("g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"),
    "topic.subscribe": lambda r, i: r.topic("news").subscribe("reader"),
    "topic.unsubscribe": unsubscribe,
    "dead_letter=": reject_elsewhere,
    "peek": lambda r, i: r.queue("jobs").peek(),
    "pending": lambda r, i: r.queue("jobs").pending(),
    "scan": scan,
    "delete": delete_leased,
    "change_visibility": hide,
    "create_queue": lambda r, i: r.create_queue("new"),
    "create_queue(exist_ok=True)": lambda r, i: r.create_queue("jobs", exist_ok=True),
    "delete_queue": lambda r, i: r.delete_queue("jobs"),
    "set_attributes": lambda r, i: r.queue("jobs").set_attributes(vt=9),
    "purge": lambda r, i: r.queue("jobs").purge(),
    "redrive": lambda r, i: r.queue("jobs").redrive("next"),
    "topic.set_backlog": lambda r, i: r.topic("news").set_backlog(max_length=5),
    "topic.delete": lambda r, i: r.topic("news").delete(),
}
WORKERS = {"`Worker` on queues that exist": True, "`Worker` that creates its queue": False}
FOREIGN = {
    "attributes": lambda r: r.queue("foreign").attributes(),
    "exists": lambda r: r.queue("foreign").exists(),
    "send": lambda r: r.queue("foreign").send("x"),
    "receive": lambda r: r.queue("foreign").receive(),
    "create_queue": lambda r: r.create_queue("foreign", exist_ok=True),
    "purge": lambda r: r.queue("foreign").purge(),
    "publish": lambda r: r.topic("elsewhere").publish("x"),
    "subscribe": lambda r: r.topic("elsewhere").subscribe("reader"),
    "delete": lambda r: r.topic("elsewhere").delete(),
}


def cells():
    """Yield what is tried, as which role, and whether the table allows it."""
    for name, *marks in ROWS[2:]:
        if name in WORKERS or not name.startswith("`"):
            continue
        words = re.findall(r"`([^`]+)`", name)
        for word in words:
            if word != "<queue>-dead":
                for role, mark in zip(ROLES, marks, strict=True):
                    yield word, role, mark == "yes"


CELLS = list(cells())
ALLOWED = {
    (row[0], role): cell == "yes"
    for row in ROWS[2:]
    for role, cell in zip(ROLES, row[1:], strict=True)
}


@pytest.fixture
async def connect(inner, ns):
    """Open clients of a broker that wants tokens, by role."""
    for name in ("jobs", "next", "foreign", "other-dead"):
        await inner.create_queue(name)
    await inner.topic("news").subscribe("known")
    clients = []
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)
    async with Broker(inner, options, Tokens.read(TOKENS)) as broker:

        async def connect(role):
            rsmq = RSMQ(f"grpc://{broker.addresses[0]}", ns=ns, token=TOKEN[role])
            clients.append(rsmq)
            return await rsmq.open()

        yield connect
        for rsmq in clients:
            await rsmq.aclose()


async def snapshot(raw, ns):
    """Return everything that is stored, but what broker and client remember for each other."""
    keys = [key async for key in raw.scan_iter(f"{ns}:*") if b":ng:call:" not in key]
    return {key: await raw.dump(key) for key in sorted(keys)}


def test_every_operation_and_role_that_is_tried_is_in_the_table():
    assert ROLES == ["producer", "consumer", "producer and consumer", "admin"]
    assert {word for word, _, _ in CELLS} == set(OPERATIONS)
    assert {row[0] for row in ROWS[2:]} >= set(WORKERS)


@pytest.mark.parametrize(("operation", "role", "allowed"), CELLS)
async def test_token_can_do_what_the_table_says_and_nothing_else(
    connect, inner, raw, ns, operation, role, allowed
):
    await inner.queue("jobs").send("there")
    await inner.queue("next").send("to be moved")
    rsmq = await connect(role)
    if allowed:
        await OPERATIONS[operation](rsmq, inner)
        return
    if operation in ("ack", "extend", "release", "reject"):
        # It never gets as far by itself, so the delivery is one that the admin's token took.
        admin = await connect("admin")
        delivery = await lend(admin, inner)
        handle = rsmq.queue("jobs").delivery(delivery.receipt)
        before = await snapshot(raw, ns)
        with pytest.raises((AccessDenied, ValueError)):
            await getattr(handle, operation)(*([30] if operation == "extend" else []))
        assert await snapshot(raw, ns) == before
        return
    with pytest.raises(AccessDenied, match="the broker refused"):
        await OPERATIONS[operation](rsmq, inner)


@pytest.mark.parametrize("role", ROLES[:3])
@pytest.mark.parametrize("operation", FOREIGN)
async def test_no_token_reaches_what_it_does_not_name(connect, raw, ns, role, operation):
    rsmq = await connect(role)
    before = await snapshot(raw, ns)

    with pytest.raises(AccessDenied, match="the broker refused"):
        await FOREIGN[operation](rsmq)
    assert await snapshot(raw, ns) == before


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("kind", WORKERS)
@pytest.mark.parametrize("create", [True, False])
async def test_token_can_run_a_worker_if_the_table_says_so(connect, inner, role, kind, create):
    allowed, there = ALLOWED[kind, role], WORKERS[kind]
    if not (there or create):
        pytest.skip("nothing is created")
    if there:
        await prepare(inner)
    else:
        await inner.delete_queue("jobs")
    worker = Worker(await connect(role), create=create)
    starting = serve(worker, inner) if there else begin(worker)
    async with asyncio.timeout(60):
        if not allowed:
            with pytest.raises(AccessDenied, match="the broker refused"):
                await starting
            assert await inner.queue("jobs").exists() is there
            return
        await starting
    if there:
        assert {m.text for m in await inner.queue("jobs-dead").peek()} == BURIED
        assert worker.health.done == DONE
    else:
        assert await inner.queue("jobs").exists()
