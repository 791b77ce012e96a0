"""Headers as they are stored: what a client of a server, and an administrator, can see of them."""

import pytest

from aiorsmq_ng import RSMQ, AccessDenied
from aiorsmq_ng.testing import FaultProxy

ONE = {"tenant": "acme", "x-note": "größer"}


async def test_backlog_kept_for_later_consumers_keeps_headers(server_url, ns):
    async with RSMQ(server_url, ns=ns) as rsmq:
        topic = rsmq.topic("news", keep_backlog=60)
        await topic.publish("a", headers=ONE)
        first, second = await topic.subscribe("first"), await topic.subscribe("second")

        assert (await first.receive()).headers == ONE
        assert (await second.receive()).headers == ONE


async def test_headers_of_a_user_without_rights_on_the_side_key_are_refused(server_url, raw, ns):
    others = " ".join(f"~{ns}:jobs:ng:{key}" for key in ("call:*", "deliveries", "waiters"))
    rules = f"on >secret ~{ns}:jobs ~{ns}:jobs:Q {others} &* +@all".split()
    await raw.execute_command("ACL", "SETUSER", f"{ns}-user", *rules)
    async with RSMQ(server_url, ns=ns) as admin:
        await admin.create_queue("jobs")
    url = server_url.replace("://", f"://{ns}-user:secret@")
    async with RSMQ(url, ns=ns) as rsmq:
        queue = rsmq.queue("jobs")
        with pytest.raises(AccessDenied, match="headers cannot be stored"):
            await queue.send("a", headers=ONE)
        await queue.send("plain")
        assert (await queue.receive()).text == "plain"


async def test_user_without_rights_on_the_side_key_uses_topics(server_url, raw, ns):
    """Its user may use all keys that do not end in "rs", and those of waiters."""
    rules = ["on", ">secret", "~*[^s]", "~*[^r]s", "~*:ng:waiters", "&*", "+@all"]
    await raw.execute_command("ACL", "SETUSER", f"{ns}-user", *rules)
    url = server_url.replace("://", f"://{ns}-user:secret@")
    async with RSMQ(url, ns=ns) as rsmq:
        topic = rsmq.topic("news", keep_backlog=60)
        await topic.publish("early")
        first = await topic.subscribe("first")
        second = await topic.subscribe("second")
        assert [(await one.receive()).text for one in (first, second)] == ["early", "early"]
        await topic.unsubscribe("first", discard=True)
        await topic.delete()

    for kind in ("", ":Q"):
        assert not await raw.exists(f"{ns}:{first.name}{kind}", f"{ns}:{second.name}{kind}")


async def test_id_that_another_client_drew_may_end_as_those_with_headers_do(queue, raw, ns):
    id = "g73zkl38qz" + "x" * 20 + "hd"
    await raw.zadd(f"{ns}:jobs", {id: 1})
    await raw.hset(f"{ns}:jobs:Q", id, "from another client")

    message = await queue.receive()

    assert (message.id, dict(message.headers)) == (id, {})
    await message.ack()
    assert not await raw.exists(f"{ns}:jobs", f"{ns}:jobs:ng:headers")


async def test_find_shows_headers(queue):
    id = await queue.send("a", headers=ONE)

    assert (await queue.find(id)).headers == ONE


async def test_doctor_names_headers_of_another_type(queue, rsmq, raw, ns):
    await raw.set(f"{ns}:jobs:ng:headers", "not a hash")

    (found,) = [f for f in (await rsmq.doctor("jobs")).findings if f.queue == "jobs"]

    assert found.kind == "wrong_type"
    assert f"{ns}:jobs:ng:headers is not a hash" in found.detail


async def test_receive_that_is_repeated_brings_headers_again(server_url, ns):
    """The reply to the first attempt is lost; what it took is returned with headers."""
    async with RSMQ(server_url, ns=ns) as rsmq, FaultProxy(server_url) as proxy:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many(["a", "b"], headers=[ONE, None])
        async with RSMQ(proxy.url, ns=ns) as other:
            await other.queue("jobs").attributes()
            proxy.drop_reply(b"EVALSHA")
            found = await other.queue("jobs").receive_many(2)

        assert [dict(m.headers) for m in found] == [ONE, {}]
        assert [m.rc for m in found] == [1, 1]
