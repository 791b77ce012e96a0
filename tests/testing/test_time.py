"""Time passes for stored messages when a test says so."""

import asyncio
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import InvalidValue, LeaseLost, Options, QueueNotFound, Retry
from aiorsmq_ng.testing import TimeMachine, temporary_client
from tools.lab import Cluster

# A receiver looks again only when it is woken, or when a message is due by the last reply.
PATIENT = Options(poll_base=60, poll_cap=60)


@pytest.fixture(params=["memory", "server"])
def url(request):
    return "memory://" if request.param == "memory" else request.getfixturevalue("server_url")


@pytest.fixture
async def client(url):
    async with temporary_client(url, options=PATIENT) as rsmq:
        yield rsmq


@pytest.fixture
async def jobs(client):
    return await client.create_queue("jobs", vt=30)


@pytest.fixture
def clock(client):
    return TimeMachine(client)


async def test_delayed_message_is_ready_when_its_time_has_passed(jobs, clock):
    await jobs.send("x", delay=60)

    assert await clock.pass_time(59) == 0
    assert await jobs.receive() is None
    assert await clock.pass_time(1) == 1
    assert (await jobs.receive()).text == "x"


async def test_time_may_be_a_timedelta_and_a_fraction(jobs, clock):
    await jobs.send("x", delay=timedelta(days=7, milliseconds=500))
    await clock.pass_time(timedelta(days=7))

    assert await clock.pass_time(0.5) == 1


async def test_lease_runs_out_and_its_holder_is_refused(jobs, clock):
    await jobs.send("x")
    stale = await jobs.receive()
    await clock.pass_time(30)

    again = await jobs.receive()

    assert (again.id, again.rc) == (stale.id, 2)
    with pytest.raises(LeaseLost):
        await stale.ack()


@pytest.mark.parametrize("seconds", [30, 45])
async def test_message_whose_lease_ran_out_is_a_suspect(jobs, clock, seconds):
    """Also if the time that passes is exactly the lease: then it had a length all the same."""
    await jobs.send("x")
    message = await jobs.receive()

    for strikes in (1, 2):
        await clock.pass_time(seconds)
        first, message = message.fr, await jobs.receive()
        assert (message.suspect, message.strikes, message.fr) == (True, strikes, first)


async def test_time_makes_no_suspect_of_a_message_that_was_not_held(jobs, clock):
    await jobs.send_many(["returned", "no length"])
    await (await jobs.receive()).release(delay=30)
    await jobs.receive(vt=0)
    await clock.pass_time(30)

    messages = await jobs.receive_many(2)

    assert [(m.suspect, m.strikes) for m in messages] == [(False, 0)] * 2


async def test_reason_of_a_dead_letter_stays(client, jobs, clock):
    await jobs.send("x")
    jobs = client.queue("jobs", retry=Retry(max_receives=1))
    await jobs.receive()
    await clock.pass_time(30)
    assert await jobs.receive() is None
    dead = client.queue("jobs-dead")
    (message,) = await dead.peek()
    before = await dead.reason(message.id)
    await clock.pass_time(30)

    assert before
    assert await dead.reason(message.id) == before


async def test_idle_time_of_leased_messages_passes(jobs, clock):
    await jobs.send("x")
    for rc in (1, 2):
        await jobs.receive(vt=3600)
        await clock.pass_time(600)
        (held,) = await jobs.pending()
        assert held.rc == rc
        assert 600 <= held.idle < 660
        await clock.pass_time(3000)


async def test_idle_message_is_recovered_when_its_time_has_passed(jobs, clock):
    await jobs.send("x")
    await jobs.receive(vt=3600)
    assert await jobs.recover(1, 600) == []
    await clock.pass_time(600)

    assert len(await jobs.recover(1, 600)) == 1


async def test_retries_come_when_their_delays_have_passed(client, clock):
    await client.create_queue("jobs")
    retry = Retry(max_receives=3, backoff="exponential", base=10, jitter=False)
    jobs = client.queue("jobs", retry=retry)
    await jobs.send("x")

    async def fail():
        async with await jobs.receive():
            raise ValueError("no luck")

    for delay in (10, 20):
        with pytest.raises(ValueError, match="no luck"):
            await fail()
        await clock.pass_time(delay - 1)
        assert await jobs.receive() is None
        assert await clock.pass_time(1) == 1
    with pytest.raises(ValueError, match="no luck"):
        await fail()

    dead = await client.queue("jobs-dead").receive()
    assert (dead.text, dead.rc) == ("x", 4)


async def test_waiting_receive_wakes_up(jobs, clock):
    await jobs.send("x", delay=3600)
    waiting = asyncio.create_task(jobs.receive(wait=60))
    await asyncio.sleep(0.1)
    await clock.pass_time(3600)

    async with asyncio.timeout(5):
        assert (await waiting).text == "x"


async def test_waiting_receive_learns_that_a_message_is_due_sooner(jobs, clock):
    await jobs.send("x", delay=3600)
    waiting = asyncio.create_task(jobs.receive(wait=60))
    await asyncio.sleep(0.1)
    await clock.pass_time(3599.9)

    async with asyncio.timeout(5):
        assert (await waiting).text == "x"


async def test_order_of_delivery_stays(jobs, clock):
    await jobs.send("late", delay=20)
    await jobs.send("soon", delay=10)
    await jobs.send("now")
    await clock.pass_time(60)

    assert [m.text for m in await jobs.peek()] == ["now", "soon", "late"]
    assert 59.9 < (await jobs.attributes()).oldest_age < 70


async def test_lease_that_is_renewed_does_not_end(jobs, clock):
    await jobs.send("x")
    async with await jobs.receive() as message:
        assert await clock.pass_time(3600) == 0
        assert await jobs.receive() is None
        assert not message.lease_lost

    assert (await jobs.attributes()).msgs == 0


async def test_prefetched_messages_stay_leased(jobs, clock):
    await jobs.send_many(list("abcd"))
    consumer = jobs.consume(prefetch=4)
    async with await anext(consumer):
        assert await clock.pass_time(3600) == 0
    await consumer.aclose()

    assert (await jobs.attributes()).ready == 3


async def test_stalled_holder_loses_the_lease_that_it_renews(jobs, clock):
    await jobs.send("x")

    with pytest.raises(LeaseLost):
        async with await jobs.receive():
            assert await clock.pass_time(30, stalled=True) == 1
            assert (await jobs.receive()).rc == 2


async def test_leases_of_other_clients_are_honoured_if_they_are_named(url, client, jobs):
    async with temporary_client(url, ns=client.ns) as program:
        await jobs.send("x")
        async with await program.queue("jobs").receive():
            assert await TimeMachine(client, program).pass_time(30) == 0
            assert await TimeMachine(client).pass_time(30) == 1


async def test_time_passes_only_in_the_given_queues(client, jobs, clock):
    other = await client.create_queue("other")
    for queue in (jobs, other):
        await queue.send("x", delay=60)

    assert await clock.pass_time(60, "other", other) == 1
    assert await jobs.receive() is None
    assert await clock.pass_time(60) == 1


async def test_missing_queue_is_said(clock):
    with pytest.raises(QueueNotFound, match="nowhere"):
        await clock.pass_time(1, "nowhere")


@pytest.mark.parametrize("wrong", [-1, float("nan"), "soon", None])
async def test_time_that_is_none_is_refused(clock, wrong):
    with pytest.raises(InvalidValue, match="time to pass"):
        await clock.pass_time(wrong)


async def test_queue_of_many_messages_moves_as_a_whole(jobs, clock):
    await jobs.send_many(["x"] * 5000, delay=60)

    assert await clock.pass_time(60) == 5000


async def test_half_made_queue_of_another_client_is_passed_over(server_url, raw):
    async with temporary_client(server_url) as rsmq:
        await raw.sadd(f"{rsmq.ns}:QUEUES", "half.made")
        await (await rsmq.create_queue("jobs")).send("x", delay=60)

        assert await TimeMachine(rsmq).pass_time(60) == 1
    assert await raw.keys(f"{rsmq.ns}:*") == []


async def test_time_passes_on_a_cluster_and_nothing_is_left_there():
    async with Cluster() as cluster:
        url = cluster.url
        async with temporary_client(url) as rsmq:
            jobs = await rsmq.create_queue("jobs")
            await jobs.send("x", delay=60)
            assert await TimeMachine(rsmq).pass_time(60) == 1
            await (await jobs.receive()).reject("no")
        left = []
        for master in cluster.masters:
            async with Redis.from_url(master.url) as node:
                left += await node.keys("*")
    assert left == []
