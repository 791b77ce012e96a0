"""The proxy fails as the test asks it to, and in no other way."""

import asyncio

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected

from aiorsmq_ng import RSMQ, InvalidValue
from aiorsmq_ng.testing import FaultProxy, operation
from aiorsmq_ng.testing.resp_splitter import Splitter

from ..support.waiting import until


def plain(url, **settings):
    """A client that neither retries nor waits without end."""
    return Redis.from_url(
        url, retry=Retry(NoBackoff(), 0), protocol=2, socket_timeout=30, **settings
    )


@pytest.fixture(params=["unix", "tcp"])
async def proxy(request, server_url):
    async with FaultProxy(server_url, listen=request.param) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy):
    async with plain(proxy.url) as client:
        yield client


@pytest.fixture
def key(ns):
    return f"{ns}:key"


async def test_everything_passes_when_nothing_is_asked_for(proxy, client, key):
    body = bytes(range(256)) * 2000
    await client.set(key, body, ex=60)

    assert await client.get(key) == body
    assert proxy.accepted == len(proxy.connections) == 1


async def test_login_and_database_are_those_of_the_server(tmp_path):
    proxy = FaultProxy("redis://me:p%40ss@127.0.0.1:7000/3", listen="tcp")
    await proxy.start()
    assert proxy.url.startswith("redis://me:p%40ss@127.0.0.1:")
    assert proxy.url.endswith("/3")
    await proxy.aclose()

    async with FaultProxy("unix://me:pw@/run/s.sock?db=2") as proxy:
        assert proxy.url.startswith("unix://me:pw@/")
        assert proxy.url.endswith("?db=2")


async def test_server_that_a_proxy_cannot_stand_before_is_refused():
    with pytest.raises(InvalidValue, match="not rediss://"):
        FaultProxy("rediss://localhost")


async def test_proxy_leaves_no_socket_and_no_task_behind(server_url):
    before = asyncio.all_tasks()
    async with FaultProxy(server_url, listen="unix") as proxy:
        folder = proxy._folder
        async with plain(proxy.url) as client:
            await client.ping()
            proxy.hold_request(b"PING")
            waiting = asyncio.create_task(client.ping())
            await asyncio.sleep(0.01)
    with pytest.raises(Disconnected):
        await waiting

    assert not folder.exists()
    assert asyncio.all_tasks() == before


async def test_refusing_proxy_accepts_no_connection_until_it_resumes(proxy, client):
    await client.ping()
    address = proxy.url
    await proxy.refuse()

    for _ in range(2):
        with pytest.raises(Disconnected):
            await client.ping()
    await proxy.resume()
    assert proxy.url == address
    assert await client.ping()


async def test_cut_is_felt_once(proxy, client):
    await client.ping()
    await proxy.cut()

    with pytest.raises(Disconnected):
        await client.ping()
    assert await client.ping()
    assert proxy.accepted == 2


async def test_half_open_server_executes_and_is_silent(proxy, client, key, raw):
    await client.ping()
    proxy.half_open()
    asking = asyncio.create_task(client.set(key, "x", ex=60))

    async def stored():
        return await raw.get(key)

    await until(stored)
    assert not asking.done()
    await proxy.resume()
    await proxy.cut()
    with pytest.raises(Disconnected):
        await asking


async def test_one_connection_can_be_muted_alone(proxy, client):
    async with plain(proxy.url) as other:
        await client.ping()
        await other.ping()
        proxy.connections[0].mute()
        asking = asyncio.create_task(client.ping())

        assert await other.ping()
        assert not asking.done()
        proxy.connections[0].cut()
        with pytest.raises(Disconnected):
            await asking
        assert await other.ping()


async def test_black_hole_keeps_everything_and_delivers_it_later(proxy, client, key, raw):
    await client.ping()
    proxy.black_hole()
    asking = asyncio.create_task(client.set(key, "x", ex=60))
    async with plain(proxy.url) as newcomer:
        arriving = asyncio.create_task(newcomer.ping())
        await asyncio.sleep(0.1)
        assert proxy.accepted == 2
        assert not asking.done()
        assert not arriving.done()
        assert await raw.get(key) is None
        await proxy.resume()

        assert await asking
        assert await arriving


async def test_latency_is_added_each_way(proxy, client):
    await client.ping()
    proxy.latency = 0.1
    loop = asyncio.get_running_loop()
    started = loop.time()
    await client.ping()

    assert loop.time() - started >= 0.2


async def test_bandwidth_limits_how_fast_bytes_pass(proxy, client, key):
    await client.ping()
    proxy.bandwidth = 100_000
    loop = asyncio.get_running_loop()
    started = loop.time()
    await client.set(key, bytes(20_000), ex=60)

    assert loop.time() - started >= 0.2


async def test_split_traffic_arrives_byte_by_byte_and_whole(proxy, client, key):
    await client.ping()
    proxy.split = True
    pieces = []
    reader, writer = (
        await asyncio.open_unix_connection(proxy._path)
        if proxy.url.startswith("unix")
        else await asyncio.open_connection("127.0.0.1", proxy._port)
    )
    writer.write(b"*2\r\n$4\r\nECHO\r\n$9\r\nsome\r\ntxt\r\n")
    while b"".join(pieces) != b"$9\r\nsome\r\ntxt\r\n":
        pieces.append(await asyncio.wait_for(reader.read(100), 15))
    writer.close()

    assert len(pieces) > 5
    await client.set(key, b"\r\n$3\r\n" * 20, ex=60)
    assert await client.get(key) == b"\r\n$3\r\n" * 20


async def test_connection_is_reset_after_so_many_bytes(proxy, client, key, raw):
    await raw.set(key, bytes(10_000), ex=60)
    await client.ping()
    proxy.reset_after = 5_000

    with pytest.raises(Disconnected):
        await client.get(key)
    await client.ping()
    proxy.reset_after = None
    assert len(await client.get(key)) == 10_000


async def test_request_cut_off_in_its_middle_is_not_executed(proxy, client, key, raw):
    await client.ping()
    proxy.reset_after = 5_000

    with pytest.raises(Disconnected):
        await client.set(key, bytes(10_000))
    assert await raw.get(key) is None


async def test_reply_of_the_nth_matching_request_is_lost_and_it_was_executed(
    proxy, client, key, raw
):
    await raw.expire(key, 60)
    trap = proxy.drop_reply(key.encode(), nth=3)
    assert [await client.incr(key) for _ in range(2)] == [1, 2]
    await client.ping()

    with pytest.raises(Disconnected):
        await client.incr(key)
    await trap.done()
    assert await raw.get(key) == b"3"
    assert await client.incr(key) == 4
    await raw.delete(key)


async def test_earlier_replies_of_a_pipeline_arrive_although_a_later_one_is_lost(
    proxy, key, raw, server_url
):
    proxy.drop_reply(lambda request: b"second" in request)
    reader, writer = (
        await asyncio.open_unix_connection(proxy._path)
        if proxy.url.startswith("unix")
        else await asyncio.open_connection("127.0.0.1", proxy._port)
    )
    for word in (b"first", b"second", b"third"):
        writer.write(b"*3\r\n$6\r\nAPPEND\r\n$%d\r\n%b\r\n" % (len(key), key.encode()))
        writer.write(b"$%d\r\n%b\r\n" % (len(word), word))
    seen = b""
    try:
        async with asyncio.timeout(15):
            while data := await reader.read(100):
                seen += data
    except ConnectionResetError:
        pass
    writer.close()

    assert seen == b":5\r\n"
    assert await raw.getdel(key) == b"firstsecond"


async def test_held_request_reaches_the_server_after_its_client_is_gone(proxy, key, raw):
    trap = proxy.hold_request(b"APPEND")
    client = plain(proxy.url)
    asking = asyncio.create_task(client.append(key, "late"))
    await asyncio.wait_for(trap.caught(), 15)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await client.aclose()
    await proxy.cut()
    await raw.append(key, "early ")

    async with asyncio.timeout(15):
        await trap.release()
    assert await raw.getdel(key) == b"early late"


async def test_held_request_is_answered_if_its_client_still_waits(proxy, client):
    trap = proxy.hold_request(b"PING", nth=2)
    await client.ping()
    asking = asyncio.create_task(client.ping())
    await asyncio.wait_for(trap.caught(), 15)
    assert not asking.done()

    await trap.release()
    assert await asking


async def test_operations_of_the_library_are_caught_by_name(proxy, ns):
    async with RSMQ(proxy.url, ns=ns) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send("warm up")
        trap = proxy.drop_reply(operation("send"), nth=2)
        await queue.send("a")
        await queue.attributes()
        await queue.send("b")
        await trap.done()

        assert (await queue.attributes()).totalsent == 3


def test_requests_and_replies_are_found_whatever_the_pieces():
    values = [
        b"*2\r\n$3\r\nGET\r\n$5\r\na\r\nb\n\r\n", b"+OK\r\n", b"$-1\r\n", b"*-1\r\n", b":1\r\n",
        b"*2\r\n*1\r\n$0\r\n\r\n*0\r\n", b"PING\r\n", b"%1\r\n+a\r\n*1\r\n:1\r\n",
        b">2\r\n+message\r\n$1\r\nx\r\n", b"|1\r\n+ttl\r\n:1\r\n$1\r\ny\r\n", b"-ERR no\r\n",
    ]  # fmt: skip
    stream = b"".join(values)

    for size in (1, 2, 3, 7, len(stream)):
        splitter = Splitter()
        found = [
            value
            for at in range(0, len(stream), size)
            for value in splitter.feed(stream[at : at + size])
        ]
        assert found == values
