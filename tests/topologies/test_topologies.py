"""The same queue on a cluster, behind a sentinel, over TCP and over a unix socket."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, NotSupported, Options, Unavailable
from aiorsmq_ng.testing import PrivateServer
from aiorsmq_ng.testing.servers import free_ports
from tools.lab import Cluster, SentinelGroup


async def exercise(rsmq):
    """Go through the verbs that touch several keys, channels and scripts."""
    queue = await rsmq.create_queue("jobs")
    other = await rsmq.create_queue("other")
    waiting = asyncio.create_task(rsmq.receive("other", "jobs", wait=20))
    await asyncio.sleep(0.2)
    await queue.send_many(["a", "b", "c"])
    first = await waiting
    second, third = await queue.receive_many(2)
    assert [m.text for m in (first, second, third)] == ["a", "b", "c"]
    await first.ack()
    await second.forward(other)
    await third.reject("no")
    assert (await other.pop()).text == "b"
    assert await rsmq.list_queues() == ["jobs", "jobs-dead", "other"]
    assert (await queue.attributes()).msgs == 0


async def test_cluster_holds_a_namespace_in_braces_on_one_slot():
    async with Cluster() as cluster:
        url = cluster.url
        one_node = cluster.masters[0].url
        async with RSMQ(url, ns="{rsmq}") as rsmq:
            await exercise(rsmq)
        async with RSMQ(url, ns="plain") as rsmq:
            with pytest.raises(NotSupported, match="namespace is in braces"):
                await rsmq.create_queue("jobs")
        async with RSMQ(one_node, ns="{a}") as one:
            outcomes = []
            for ns in ("{a}", "{b}", "{c}", "{d}", "{e}", "{f}"):
                single = RSMQ(one_node, ns=ns)
                try:
                    await single.create_queue("jobs")
                except NotSupported as error:
                    outcomes.append(str(error))
                await single.aclose()
            assert one.ns == "{a}"
        assert any("redis+cluster://" in sentence for sentence in outcomes)


async def test_waiters_at_other_nodes_of_a_cluster_are_called_and_dead_ones_passed_over():
    """A node does not count subscribers of another, so a dead waiter is noticed a moment later."""
    rarely = Options(poll_base=600, poll_cap=600)
    async with Cluster() as cluster, AsyncExitStack() as stack:
        clients = [RSMQ(cluster.url, ns="{rsmq}", options=rarely) for _ in range(6)]
        for rsmq in clients:
            await stack.enter_async_context(rsmq)
        sender = await clients[0].create_queue("jobs")
        async with asyncio.timeout(60):
            # One registers, is called and gone; the others are served nevertheless.
            doomed = RSMQ(cluster.url, ns="{rsmq}", options=rarely)
            gone = asyncio.create_task(doomed.queue("jobs").receive(wait=600))
            waiting = [asyncio.create_task(r.queue("jobs").receive(wait=600)) for r in clients[1:]]
            await asyncio.sleep(1)
            await doomed.aclose()
            await asyncio.gather(gone, return_exceptions=True)
            for number in range(5):
                await sender.send(str(number))
            texts = sorted([(await task).text for task in waiting])
        assert texts == ["0", "1", "2", "3", "4"]


async def test_sentinel_leads_to_the_master():
    async with SentinelGroup(replicas=0, sentinels=1) as group:
        async with RSMQ(f"{group.url}/1") as rsmq:
            await exercise(rsmq)
        with pytest.raises(Unavailable):
            await RSMQ(group.url.replace(group.service, "unknown")).open()


async def test_connections_to_a_former_master_are_not_used_again():
    """It may be alive and take what is sent, which is lost when it learns of its successor."""
    async with SentinelGroup(replicas=0, sentinels=1) as group, RSMQ(group.url) as rsmq:
        await rsmq.list_queues()
        before = (await group.master.info("stats"))["total_connections_received"]
        # As if another connection had been led to another master meanwhile.
        rsmq._transport._driver._pool.master_address = ("127.0.0.1", 1)
        await rsmq.list_queues()
        after = (await group.master.info("stats"))["total_connections_received"]

        # One is that of the second question itself.
        assert int(after) - int(before) >= 2
        assert rsmq._transport._driver._pool.master_address == ("127.0.0.1", group.master.port)


async def test_tcp_with_a_password_and_a_database():
    async with PrivateServer(password="s3cret:@/") as server:
        url = f"redis://:s3cret%3A%40%2F@127.0.0.1:{server.port}/3"
        async with RSMQ(url) as rsmq:
            await exercise(rsmq)
        async with RSMQ(url.removesuffix("/3")) as elsewhere:
            assert await elsewhere.list_queues() == []


async def test_sentinel_url_without_a_service_is_refused():
    with pytest.raises(InvalidValue, match="names the service"):
        await RSMQ("redis+sentinel://localhost:26379").open()


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:99999999",
        "redis://:pa#ss@localhost",
        "redis://localhost?nonsense=1",
        "redis+sentinel://localhost/service/one",
        "redis+sentinel://localhost",
        "embedded:///a%00b",
        "http://localhost",
    ],
)
async def test_url_that_cannot_be_meant_is_refused_without_showing_it(url):
    with pytest.raises(InvalidValue) as caught:
        await RSMQ(url).open()

    assert "pa" not in str(caught.value).split()
    assert url not in str(caught.value)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_missing_server_is_one_sentence_for_every_scheme(scheme):
    (port,) = free_ports(1)
    path = "mymaster" if scheme == "redis+sentinel" else ""
    options = Options(deadline=0.3, connect_timeout=0.3)
    with pytest.raises(Unavailable, match="redis cannot be reached") as caught:
        await RSMQ(f"{scheme}://127.0.0.1:{port}/{path}", options=options).open()

    assert "object at" not in str(caught.value)
    assert "<" not in str(caught.value)
