"""The users of docs/reference/topics.md can do what the page says, and nothing beside the topic."""

import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, AccessDenied, Options
from aiorsmq_ng.embedded import EmbeddedServer

from ..contract.test_topics import texts

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "topics.md").read_text()
RULES = {
    match[1]: match[2].split() for match in re.finditer(r"ACL SETUSER (\w+) ([^`]+?)\n```", PAGE)
}


@pytest.fixture
async def server(tmp_path):
    with EmbeddedServer.acquire(tmp_path / "data") as server:
        async with Redis.from_url(server.url) as admin:
            for name, rules in RULES.items():
                await admin.execute_command("ACL", "SETUSER", name, *rules)
        yield server


def user(server, name):
    url = server.url.replace("unix://", f"unix://{name}:password@")
    return RSMQ(url, options=Options(deadline=10))


async def test_publisher_and_subscriber_do_their_work_and_no_more(server):
    async with user(server, "publisher") as publisher, user(server, "subscriber") as subscriber:
        out, into = publisher.topic("news"), subscriber.topic("news", keep_backlog=60)
        await out.publish("waits")
        await into.set_backlog(max_length=10, max_age=60)
        one = await into.subscribe("a")
        copies = [await into.subscribe("b", mode="broadcast", peer=name) for name in "12"]
        assert await texts(copies[0]) == ["waits"]
        await out.publish_many(["x"] * 3)
        assert await texts(one) == ["waits", "x", "x", "x"]
        copies.append(await into.subscribe("b", mode="broadcast", peer="3"))
        async with Redis.from_url(server.url) as admin:
            for dead in copies[:2]:
                await admin.hset("rsmq:news__:ng:heard", dead.name, 1)
            await admin.hset("rsmq:news__:ng:heard", "clock:b", "60000 0")
        assert len(await texts(copies[2])) == 3
        assert await copies[0].keep_alive()
        await into.unsubscribe("b", peer="1")
        await subscriber.delete_queue(copies[2].name)
        await out.publish("y")
        assert (await into.describe()).lost == 1
        await into.unsubscribe("a")
        await into.unsubscribe("b", discard=True)
        await out.publish_many(["z"] * 20)
        assert (await into.describe()).trimmed == 10
        assert await into.delete()
        for rsmq in (publisher, subscriber):
            with pytest.raises(AccessDenied, match="permission"):
                await rsmq.topic("other").publish("x")
        with pytest.raises(AccessDenied, match="permission"):
            await out.subscribe("c")
