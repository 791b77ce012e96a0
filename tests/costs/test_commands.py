"""What each path costs the server: script calls, and commands inside them. No clock is asked.

The bounds are what the paths cost when the test was written, so a change that makes one more
expensive fails here. Lower them when a path gets cheaper.
"""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options, Worker
from aiorsmq_ng._protocol import scripts
from aiorsmq_ng._protocol.operations.spark import bulk_send, claims
from aiorsmq_ng.telemetry.opentelemetry_traces import OpenTelemetryTraces
from aiorsmq_ng.testing import PrivateServer
from tools.lab import Faults, simulate

CALM = Faults(refused=0, lost_request=0, lost_reply=0, slow_reply=0, late_request=0, lost_wake_up=0)
#: Commands that call a script.
CALLS = ("eval", "evalsha")
#: Commands that open a connection or listen for wake-ups.
TALK = ("hello", "client", "select", "ping", "subscribe", "unsubscribe")


@pytest.fixture(scope="module")
async def server():
    async with PrivateServer() as one:
        for name in scripts.names():
            await one.command("SCRIPT", "LOAD", scripts.load(name).source)
        yield one


@pytest.fixture
async def raw(server):
    """A connection to look at the counters by; its own commands are not counted."""
    async with Redis.from_url(server.url) as client:
        await client.flushall()
        yield client


@pytest.fixture
async def queue(server, raw):
    """A queue of a client that is warm: connected, scripts loaded, nothing in the background."""
    async with RSMQ(server.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many(["a", "b"])
        await (await queue.receive()).ack()
        await queue.pop()
        yield queue


class Bill:
    """What was spent."""

    #: Script calls, commands inside scripts, and all else by name.
    calls = inside = 0
    other: dict[str, int]


@asynccontextmanager
async def billed(raw):
    """Count what the server does for the block."""
    bill = Bill()
    before = await _counters(raw)
    yield bill
    after = await _counters(raw)
    spent = {name: count - before.get(name, 0) for name, count in after.items()}
    spent = {name: count for name, count in spent.items() if count}
    bill.calls = sum(spent.pop(name, 0) for name in CALLS)
    bill.other = {name: spent.pop(name) for name in list(spent) if name.startswith(TALK)}
    bill.inside = sum(spent.values())


async def _counters(raw) -> dict[str, int]:
    found = await raw.info("commandstats")
    return {
        name.removeprefix("cmdstat_"): told["calls"]
        for name, told in found.items()
        if name != "cmdstat_info"
    }


async def leased(queue, count):
    await queue.send_many(map(str, range(count)))
    return await queue.receive_many(count)


# Each path: what it needs beforehand, what is counted, the limit of script calls, and of commands
# inside them.
async def nothing(queue):
    return None


async def ten(queue):
    return await queue.send_many(map(str, range(10)))


async def send(queue, _):
    await queue.send("x")


async def ten_with_headers(queue):
    return await queue.send_many(map(str, range(10)), headers={"k": "v"})


async def one_of_ten_with_headers(queue):
    return await queue.send_many(map(str, range(10)), headers=[{"k": "v"}, *[None] * 9])


async def ten_with_headers_leased(queue):
    await ten_with_headers(queue)
    return await queue.receive_many(10)


async def send_with_headers(queue, _):
    await queue.send("x", headers={"k": "v"})


async def send_100_with_headers(queue, _):
    await queue.send_many(["x"] * 100, headers={"k": "v"})


async def send_with_key(queue, _):
    await queue.send("x", dedup_key="k")


async def send_100(queue, _):
    await queue.send_many(["x"] * 100)


async def send_64_at_once(queue, _):
    await asyncio.gather(*(queue.send("x") for _ in range(64)))


async def receive(queue, _):
    assert await queue.receive() is not None


async def receive_10(queue, _):
    assert len(await queue.receive_many(10)) == 10


async def receive_10_at_once(queue, _):
    assert all(await asyncio.gather(*(queue.receive() for _ in range(10))))


async def receive_none(queue, _):
    assert await queue.receive() is None


async def ack(queue, deliveries):
    await deliveries[0].ack()


async def ack_10_at_once(queue, deliveries):
    await asyncio.gather(*(one.ack() for one in deliveries))


async def extend_10_at_once(queue, deliveries):
    await asyncio.gather(*(one.extend(60) for one in deliveries))


def prunes(delivery):
    """Return True if the note on this one makes the server look for notes that are left over."""
    return ord(delivery.id[-3]) % 8 == 0


async def release(queue, deliveries):
    await next(one for one in deliveries if not prunes(one)).release()


async def release_and_prune(queue, deliveries):
    await next(one for one in deliveries if prunes(one)).release()


async def reject(queue, deliveries):
    await deliveries[0].reject("because")


async def pop(queue, _):
    assert await queue.pop() is not None


async def pop_10(queue, _):
    assert len(await queue.pop_many(10)) == 10


async def delete(queue, ids):
    assert await queue.delete(ids[0])


async def delete_10(queue, ids):
    assert len(await queue.delete_many(ids)) == 10


async def ten_again(queue):
    for one in await leased(queue, 10):
        await one.release()


async def claim(queue, _):
    terms = claims.Terms(1000, 100, 60_000, 600)
    ledger = claims.Ledger(queue._context.keys, "spark", "lease")
    claimed = await queue._context.transport.run(claims.claim(ledger, 1, terms, create=True))
    assert claimed.messages == 10


async def claimed(queue):
    await ten(queue)
    await claim(queue, None)


async def claim_release(queue, _):
    ledger = claims.Ledger(queue._context.keys, "spark", "lease")
    given = await queue._context.transport.run(claims.release(ledger, 1, count=100))
    assert given.given == 10


async def attributes(queue, _):
    await queue.attributes()


async def ten_leased(queue):
    return await leased(queue, 10)


async def many_leased(queue):
    return await leased(queue, 500)


PATHS = [
    (nothing, send, 1, 8),
    (nothing, send_with_key, 1, 11),
    (nothing, send_100, 1, 8),
    (nothing, send_64_at_once, 2, 16),
    # Headers: a look at the side key, HSET, TTL, and EXPIRE once a day; for one id in eight also
    # three commands that look for headers left over.
    (ten_with_headers, send_with_headers, 1, 8 + 6),
    (ten_with_headers, send_100_with_headers, 1, 8 + 6),
    # Those without headers cost what they did, also beside others.
    (ten_with_headers, send, 1, 8),
    (ten_with_headers, receive, 1, 10 + 1),
    (ten_with_headers, receive_10, 1, 10 + 1),
    (one_of_ten_with_headers, receive_10, 1, 10 + 1),
    (ten_with_headers_leased, ack, 1, 5 + 1),
    (ten_with_headers_leased, ack_10_at_once, 1, 5 + 1),
    (ten_with_headers_leased, extend_10_at_once, 1, 7 + 1),
    (ten_with_headers, pop_10, 1, 9 + 2),
    (ten, receive, 1, 10),
    (ten, receive_10, 1, 10),
    (ten, receive_10_at_once, 1, 10),
    (nothing, receive_none, 1, 5),
    (ten_leased, ack, 1, 5),
    (ten_leased, ack_10_at_once, 1, 5),
    (ten_leased, extend_10_at_once, 1, 7),
    (many_leased, release, 1, 13),
    (many_leased, release_and_prune, 1, 15),
    (ten_leased, reject, 1, 26),
    (ten, pop, 1, 9),
    (ten, pop_10, 1, 9),
    (ten, delete, 1, 5),
    (ten, delete_10, 1, 5),
    (nothing, attributes, 1, 5),
    (ten, claim, 1, 18),
    (ten_again, claim, 1, 25),
    (claimed, claim_release, 1, 20),
]


@pytest.mark.parametrize(
    ("before", "path", "calls", "inside"),
    PATHS,
    ids=[f"{path[1].__name__}-{path[0].__name__}" for path in PATHS],
)
async def test_path_costs_no_more_than_it_did(queue, raw, before, path, calls, inside):
    given = await before(queue)
    async with billed(raw) as bill:
        await path(queue, given)

    assert 1 <= bill.calls <= calls
    assert 1 <= bill.inside <= inside
    assert not bill.other


@pytest.mark.parametrize(("sampler", "more"), [(ALWAYS_OFF, 0), (ALWAYS_ON, 6)])
async def test_traces_cost_commands_only_for_sampled_sends(server, raw, queue, sampler, more):
    """Those that are not sampled are sent, received and acked as without traces."""
    traces = OpenTelemetryTraces(TracerProvider(sampler=sampler))
    async with RSMQ(server.url, telemetry=[traces]) as rsmq:
        queue = rsmq.queue("jobs")
        await queue.send("warm up")
        await (await queue.receive()).ack()
        async with billed(raw) as sending:
            await queue.send("x")
        async with billed(raw) as receiving:
            message = await queue.receive()
        async with billed(raw) as acking:
            await message.ack()

    assert [bill.calls for bill in (sending, receiving, acking)] == [1, 1, 1]
    assert sending.inside <= 8 + more
    assert receiving.inside <= 10 + (more > 0)
    assert acking.inside <= 5 + (more > 0)


@pytest.mark.parametrize(("header", "more_written", "more_read"), [(b"", 0, 0), (b"{}", 7, 1)])
async def test_spark_pays_for_headers_only_if_there_are_some(
    queue, raw, header, more_written, more_read
):
    """Asked for or not, the column costs no command on a queue without headers."""
    keys, run = queue._context.keys, queue._context.transport.run
    ids = [bulk_send.kept(f"{n:030}" + ("hd" if header else "kk")) for n in range(10)]
    rows = bulk_send.Rows(ids, -1, [b"x"] * 10, [header] * 10 if header else [])
    place = bulk_send.Place("job", "0")
    ledger = claims.Ledger(keys, "spark", "lease")
    terms = claims.Terms(10, 100, 60_000, 600)
    async with billed(raw) as writing:
        await run(bulk_send.send(keys, rows, place, ttl_s=60, oversize="fail"))
    await run(claims.claim(ledger, 1, terms, create=True))
    read = {}
    for asked in (False, True):
        async with billed(raw) as read[asked]:
            await run(claims.read(ledger, 1, 0, 10, bodies=True, headers=asked))

    # Ten ids that are kept are looked for one by one.
    assert writing.inside <= 10 + 11 + more_written
    assert read[False].inside == read[True].inside - more_read


async def test_concurrent_calls_of_a_warm_client_share_few_script_calls(queue, raw):
    """Ten rounds of 64 tasks: the next call gathers what comes while two are under way."""

    async def work():
        for _ in range(10):
            await queue.send("x")

    await asyncio.gather(*(queue.send("x") for _ in range(64)))
    async with billed(raw) as bill:
        await asyncio.gather(*(work() for _ in range(64)))

    # Not one per send (640). All tasks in step: 10; in two groups, each waiting for the other: 20.
    assert bill.calls <= 20
    assert bill.inside <= 8 * bill.calls


async def test_consumer_with_prefetch_receives_half_its_stock_at_a_time(queue, raw):
    await queue.send_many(["x"] * 300)
    async with queue.consume(prefetch=50) as consumer, billed(raw) as bill:
        for _ in range(200):
            await (await anext(consumer)).ack()

    # An ack each; one receive for all 50, then at least 25 at a time. Presence and, on a machine
    # that stalls, renewals come on top.
    assert bill.calls <= 200 + 1 + 200 // 25 + 10


async def test_asking_a_consumer_with_a_short_time_limit_costs_no_calls(queue, raw):
    async with queue.consume(prefetch=5) as consumer:
        with suppress(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.2)
        async with billed(raw) as bill:
            for _ in range(100):
                with suppress(TimeoutError):
                    await asyncio.wait_for(anext(consumer), 0.001)

    # A look or two, and presence; not one of each per attempt. A machine that stalls has some more.
    assert bill.calls <= 25


async def test_worker_costs_less_than_a_call_for_two_messages(server, raw, queue):
    done = asyncio.Event()
    worker = Worker(server.url, concurrency=20)
    seen = 0

    @worker.handler("jobs")
    async def handle(body: str) -> None:
        nonlocal seen
        seen += 1
        if seen == 200:
            done.set()

    await queue.send_many(["x"] * 200)
    async with billed(raw) as bill:
        running = asyncio.create_task(worker.run(signals=False))
        async with asyncio.timeout(60):
            await done.wait()
        worker.stop()
        await running

    # Handlers of one moment share their acks, and one receive leases for many.
    assert (await queue.attributes()).msgs == 0
    assert bill.calls <= 100


async def test_opening_and_closing_asks_little(server, raw):
    async with billed(raw) as bill, RSMQ(server.url):
        pass

    assert bill.calls == 0
    assert bill.inside == 0
    assert sum(bill.other.values()) <= 6


async def test_client_that_made_one_call_used_one_connection(server, raw):
    before = (await raw.info("stats"))["total_connections_received"]
    async with billed(raw) as bill, RSMQ(server.url) as rsmq:
        await rsmq.create_queue("once")
        await rsmq.queue("once").send("x")
    after = (await raw.info("stats"))["total_connections_received"]

    assert after - before <= 1
    assert bill.calls == 2


def test_hundred_idle_consumers_share_one_look_now_and_then():
    """Ten minutes of virtual time, on a network without faults."""

    async def scenario(world):
        client = await world.client("idle", reliable=True, options=Options(poll_cap=5.0))
        queue = await client.create_queue("jobs")

        async def consume():
            async for message in queue:
                await message.ack()

        for _ in range(100):
            client.start(consume())
        await asyncio.sleep(600)

    trace = simulate(scenario, 1, faults=CALM).trace
    late = [line for line in trace if float(line.split()[0]) > 60]

    assert late
    # One look on behalf of all every 2.5 to 5 s, and presence is announced every 10 s.
    assert len(late) <= 540 / 2.5 + 540 / 10
