"""A side key of waiters that cannot be written: the server goes on, and so does every call."""

import asyncio
import time

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.testing import PrivateServer

WAITERS = "rsmq:jobs:ng:waiters"
OWN = ["~rsmq:jobs", "~rsmq:jobs:Q", "~rsmq:jobs:ng:call:*", "~rsmq:jobs:ng:deliveries"]
USERS = {
    "may only read it": ["+@all", *OWN, f"%R~{WAITERS}"],
    "may not add to it": ["+@all", "-zadd", "~*", "(+zadd ~rsmq:jobs)"],
    "may not remove from it": ["+@all", "-zremrangebyscore", "~*"],
    "with all rights": ["+@all", "~*"],
}


@pytest.fixture
async def server():
    """A server of its own: one that hangs in a script must be killed."""
    async with PrivateServer() as server, RSMQ(server.url) as owner:
        queue = await owner.create_queue("jobs")
        await queue.send_many(["a", "b", "c"])
        yield server


async def add_dead(raw, number=3):
    """Register waiters that promise to look, and that no publication reaches."""
    await raw.zadd(WAITERS, {f"dead{n}": (time.time() + 900 + n) * 1000 for n in range(number)})


@pytest.mark.parametrize("full", [False, True], ids=["", "on a full server"])
@pytest.mark.parametrize("user", USERS)
async def test_dead_waiters_stop_no_call_of_a_user(server, user, full):
    async with Redis.from_url(server.url) as raw, asyncio.timeout(30):
        await raw.execute_command("ACL", "SETUSER", "app", "on", ">pw", "&*", *USERS[user])
        await add_dead(raw)
        url, options = server.url.replace("://", "://app:pw@"), Options(deadline=5)
        async with RSMQ(url, options=options) as rsmq:
            jobs = rsmq.queue("jobs")
            for delay in () if full else (0, 60):
                await jobs.send("x", delay=delay)
            if full:
                await raw.config_set("maxmemory", 1)
            held = await jobs.receive(vt=60)
            if not full:
                await add_dead(raw)
            await held.release()
            held = await jobs.receive(vt=60)
            await held.extend(30)
            await held.ack()
            assert await jobs.receive(wait=0.3) is not None

            assert await raw.ping()


async def test_call_of_a_user_who_may_not_add_waiters_reaches_one_of_them(server):
    async with Redis.from_url(server.url) as raw, asyncio.timeout(30):
        await raw.execute_command(
            "ACL", "SETUSER", "app", "on", ">pw", "&*", *USERS["may not add to it"]
        )
        async with (
            RSMQ(server.url, options=Options(poll_base=600, poll_cap=600)) as owner,
            RSMQ(server.url.replace("://", "://app:pw@")) as app,
        ):
            await owner.queue("jobs").purge()
            waiting = asyncio.create_task(owner.queue("jobs").receive(wait=600))
            while not await raw.zcard(WAITERS):
                await asyncio.sleep(0.01)
            await app.queue("jobs").send("x")

            assert (await waiting).text == "x"
