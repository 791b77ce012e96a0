"""A master that was silent, was replaced, and speaks again as if nothing had happened."""

import asyncio

from redis.asyncio import Redis
from redis.exceptions import RedisError

from aiorsmq_ng import RSMQ, DurabilityUnmet, Options, Unavailable
from aiorsmq_ng.testing.servers import eventually
from tools.lab import SentinelGroup

OPTIONS = Options(durability="replicated:1", deadline=15.0)
VERBS = ("receive", "receive-several", "pop")


async def take(rsmq, verb):
    """Take a message from the queue that is named like *verb*."""
    queue = rsmq.queue(verb)
    if verb == "pop":
        return await queue.pop()
    if verb == "receive":
        return await queue.receive(wait=30)
    return await rsmq.receive(queue, rsmq.queue("empty"), wait=30)


async def send(queue):
    """Return the id of the message, however long the new master is without a replica."""
    try:
        return await queue.send("precious")
    except DurabilityUnmet as error:
        return error.ids[0]


async def superseded(group, rsmq):
    """Let the master be replaced, and store what was on its way to it. Return it, and the sends."""
    old = group.master
    old.pause()
    sends = {verb: asyncio.create_task(send(rsmq.queue(verb))) for verb in VERBS}
    await asyncio.sleep(0)
    await group.failed_over()
    old.resume()

    async def stored():
        try:
            async with Redis.from_url(old.url) as redis:
                return all([await redis.zcard(f"rsmq:{verb}") == 1 for verb in VERBS])
        except RedisError:  # sentinels may cut connections while they look at it
            return False

    await eventually(stored, "the old master has stored what was sent to it")
    return old, sends


async def test_second_copy_on_a_superseded_master_is_not_delivered():
    async with (
        SentinelGroup() as group,
        RSMQ(group.url, options=OPTIONS) as sender,
        RSMQ(group.url, options=OPTIONS) as rsmq,
    ):
        for name in (*VERBS, "empty"):
            await sender.create_queue(name)
        for verb in VERBS:
            # The server knows the scripts from now on.
            await sender.queue(verb).send("")
            await rsmq.queue(verb).pop()
        old, sends = await superseded(group, sender)

        async def taken(verb):
            seen = []
            try:
                seen.append(await take(rsmq, verb))
            except Unavailable as error:
                # A pop is never repeated.
                assert (verb, error.executed) == ("pop", None)
            follows.set()
            id = await sends[verb]
            while id not in [message.id for message in seen if message]:
                seen.append(await take(rsmq, verb))
            return [message.text for message in seen if message]

        follows = asyncio.Event()
        takers = [asyncio.create_task(taken(verb)) for verb in VERBS]
        # The sends are confirmed when the new master has a replica.
        await follows.wait()
        await old.command("REPLICAOF", "127.0.0.1", group.master.port)

        assert await asyncio.gather(*takers) == [["precious"]] * len(VERBS)


async def test_master_that_was_silent_for_long_is_left_if_it_has_a_successor():
    """At the level ``memory``, what it answered late may be lost with it; not what follows."""
    async with SentinelGroup() as group, RSMQ(group.url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("the server knows the script from now on")
        await asyncio.gather(*(queue.attributes() for _ in range(10)))
        old = group.master
        old.pause()
        sending = asyncio.create_task(queue.send("late"))
        await asyncio.sleep(0)
        await group.failed_over()
        old.resume()
        await sending
        id = await queue.send("after")

        async with Redis.from_url(group.master.url) as redis:
            assert await redis.hget("rsmq:jobs:Q", id) == b"after"
