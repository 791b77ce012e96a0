"""How safe a message is: the level asked for, the level reached, and what is said below it."""

import asyncio
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import (
    RSMQ,
    DurabilityUnmet,
    InvalidValue,
    NotSupported,
    Options,
    Queue,
    SendUnknown,
)
from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng.testing import FaultProxy, operation
from tools.lab import Replication


def options(durability, deadline=5.0):
    return Options(durability=durability, deadline=deadline)


async def known(target, body):
    """Send or publish, and ask until the outcome is known: a machine may stall past a deadline."""
    try:
        return await (target.send(body) if isinstance(target, Queue) else target.publish(body))
    except SendUnknown as error:
        unknown = error
    while True:
        try:
            return await target.resend(unknown.token)
        except SendUnknown as error:
            unknown = error


@pytest.fixture
async def pair():
    """A primary with one replica: the primary's url, the replica, a client of the primary."""
    async with Replication() as group, Redis.from_url(group.master.url) as admin:
        yield group.master.url, group.replicas[0], admin


async def test_replicated_send_tells_how_many_replicas_have_it(pair):
    url, _, _ = pair
    async with RSMQ(url, options=options("replicated:1")) as rsmq:
        queue = await rsmq.create_queue("jobs")
        ids = await asyncio.gather(*(queue.send(f"{i}") for i in range(20)))

        assert {id.durability for id in ids} == {"replicated:1"}
        assert {id.durability for id in await queue.send_many(["a", "b"])} == {"replicated:1"}


async def test_send_below_its_level_says_so_and_names_what_is_stored(pair):
    url, replica, _ = pair
    async with RSMQ(url, options=options("replicated:1", 2)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        replica.pause()
        try:
            with pytest.raises(DurabilityUnmet, match="only 'memory'") as caught:
                await known(queue, "a")
        finally:
            replica.resume()

        assert caught.value.reached == "memory"
        assert [m.id for m in await queue.peek()] == list(caught.value.ids)


async def test_more_replicas_than_there_are_cannot_be_reached(pair):
    url, _, _ = pair
    async with RSMQ(url, options=options("replicated:2", 2)) as rsmq:
        queue = await rsmq.create_queue("jobs")
        with pytest.raises(DurabilityUnmet) as caught:
            await known(queue, "a")

    assert (caught.value.wanted, caught.value.reached) == ("replicated:2", "replicated:1")


async def test_confirmation_lost_with_its_connection_is_asked_for_again(pair):
    url, replica, admin = pair
    async with RSMQ(url, options=options("replicated:1")) as rsmq:
        queue = await rsmq.create_queue("jobs")
        replica.pause()
        sending = asyncio.create_task(queue.send("a"))
        try:
            while not (blocked := [c for c in await admin.client_list() if "b" in c["flags"]]):
                await asyncio.sleep(0.01)
            await admin.client_kill_filter(_id=blocked[0]["id"])
        finally:
            replica.resume()

        assert (await sending).durability == "replicated:1"
        assert (await queue.attributes()).totalsent == 1


async def test_confirmation_that_the_server_breaks_off_is_asked_for_again(pair):
    """As a primary does that becomes a replica."""
    url, replica, admin = pair
    async with RSMQ(url, options=options("replicated:1")) as rsmq:
        queue = await rsmq.create_queue("jobs")
        replica.pause()
        sending = asyncio.create_task(queue.send("a"))
        try:
            while not (blocked := [c for c in await admin.client_list() if "b" in c["flags"]]):
                await asyncio.sleep(0.01)
            await admin.client_unblock(blocked[0]["id"], error=True)
            await asyncio.sleep(0.1)
        finally:
            replica.resume()

        assert (await sending).durability == "replicated:1"
        assert (await queue.attributes()).totalsent == 1


async def test_silent_connection_does_not_use_up_the_time_of_a_replicated_send(pair):
    url, _, _ = pair
    async with (
        FaultProxy(url) as proxy,
        RSMQ(proxy.url, options=options("replicated:1", 3)) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        for connection in proxy.connections:
            connection.mute()

        assert (await queue.send("a")).durability == "replicated:1"
        assert (await queue.attributes()).totalsent == 1


@pytest.mark.parametrize("verb", ["send", "publish"])
async def test_repeated_send_is_not_taken_for_confirmed_by_a_replica_that_lacks_it(pair, verb):
    """WAIT speaks of the connection's own last write; a repetition has to make one."""
    url, replica, _ = pair
    async with (
        FaultProxy(url) as proxy,
        RSMQ(proxy.url, options=options("replicated:1", 3)) as rsmq,
    ):
        queue = await rsmq.create_queue("jobs")
        target = queue if verb == "send" else rsmq.topic("news")
        with suppress(DurabilityUnmet):
            await known(target, "the server knows the script from now on")
        replica.pause()
        try:
            proxy.drop_reply(operation(verb))
            with pytest.raises(DurabilityUnmet):
                await known(target, "a")
        finally:
            replica.resume()


async def test_fsynced_send_is_on_disk(private_server):
    async with RSMQ(private_server.url, options=options("fsynced")) as rsmq:
        queue = await rsmq.create_queue("jobs")

        assert (await queue.send("a")).durability == "fsynced"


async def test_server_without_an_append_only_file_cannot_keep_what_is_fsynced(pair):
    url, _, _ = pair
    with pytest.raises(DurabilityUnmet, match="append-only file is off"):
        await RSMQ(url, options=options("fsynced")).open()


async def test_first_call_without_open_is_refused_alike(pair):
    url, _, _ = pair
    rsmq = RSMQ(url, options=options("fsynced"))
    try:
        with pytest.raises(DurabilityUnmet):
            await rsmq.list_queues()
    finally:
        await rsmq.aclose()


@pytest.mark.parametrize("text", ["disk", "replicated", "replicated:0", "replicated:x", "", 1])
def test_level_that_does_not_exist_is_refused(text):
    with pytest.raises(InvalidValue, match="durability"):
        Options(durability=text)


@pytest.mark.parametrize("text", ["memory", "replicated:2", "fsynced"])
def test_level_is_read_and_written_alike(text):
    assert str(Durability.parse(text)) == text


POLICIES = {
    "noeviction": True,
    "volatile-lru": True,
    "volatile-ttl": True,
    "allkeys-lru": False,
    "allkeys-lfu": False,
    "allkeys-random": False,
}


@pytest.mark.parametrize(("policy", "welcome"), POLICIES.items())
async def test_server_that_evicts_queues_is_refused(private_server, admin: Redis, policy, welcome):
    await admin.config_set("maxmemory-policy", policy)
    rsmq = RSMQ(private_server.url)
    try:
        if welcome:
            await rsmq.open()
        else:
            with pytest.raises(NotSupported, match=policy):
                await rsmq.open()
    finally:
        await rsmq.aclose()

    async with RSMQ(private_server.url, options=Options(allow_eviction=True)) as allowed:
        await allowed.create_queue("jobs", exist_ok=True)


async def test_user_who_may_not_ask_is_let_in(private_server, admin: Redis):
    await admin.execute_command(
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-info", "-config"
    )
    async with RSMQ(f"unix://app:pw@{private_server.socket}") as rsmq:
        assert await rsmq.list_queues() == []
