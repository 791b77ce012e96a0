"""TLS: everything works over it, and a server that cannot prove its name is left at once."""

import asyncio
import socket
import ssl
from contextlib import suppress
from functools import partial

import pytest
from hiredis import Reader
from redis.crc import key_slot

from aiorsmq_ng import RSMQ, Options, Unavailable
from aiorsmq_ng.testing.servers import eventually
from tools.lab import Cluster, SentinelGroup

from ..support.streams import listening
from ..support.tls import Authority, tls_proxy
from ..topologies.test_topologies import exercise

#: A refusal is met once by each call, and not asked for again.
TRIES = 1


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
async def secure(server_url, authority):
    """A proxy and the url that leads through it."""
    async with tls_proxy(server_url, authority.context("127.0.0.1", "localhost")) as (proxy, port):
        yield proxy, f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.file}"


async def every_operation(rsmq):
    """Run each operation once, the long poll and its wake-up included."""
    queue = await rsmq.create_queue("all")
    waiting = asyncio.create_task(queue.receive(wait=30))
    await asyncio.sleep(0.2)
    id = await queue.send({"n": 1})
    message = await waiting
    assert (message.id, message.json()) == (id, {"n": 1})
    assert [m.id for m in await queue.pending()] == [id]
    await message.extend(60)
    await message.release()
    (again,) = await queue.recover(1, 0) or await queue.receive_many(1)
    await again.reject("why")
    dead = rsmq.queue("all-dead")
    assert await dead.reason(id) == "why"
    assert [m.id for m in await dead.peek()] == [id]
    assert await queue.redrive() == 1
    assert await queue.change_visibility(id, 0)
    async with await queue.receive() as held:
        assert held.id == id
    first, *_ = await queue.send_many(["a", "b", "c"])
    assert await queue.delete(first)
    assert (await queue.pop()).text == "b"
    assert (await queue.set_attributes(vt=7)).vt == 7
    assert (await queue.stats()).attributes.msgs == (await queue.attributes()).msgs == 1
    assert await queue.purge() == 1
    for name in ("all", "all-dead"):
        await rsmq.delete_queue(name)
    assert await rsmq.list_queues() == []


async def test_every_operation_works_over_tls(secure, ns):
    proxy, url = secure
    async with RSMQ(url, ns=ns) as rsmq:
        await exercise(rsmq)
        for name in await rsmq.list_queues():
            await rsmq.delete_queue(name)
        await every_operation(rsmq)

    assert proxy.served >= 2  # one for calls, one for wake-ups


async def refused(url, sentence, call="open", **options):
    """Expect a final refusal by *url*, and return the error."""
    rsmq = RSMQ(url, options=Options(deadline=60, connect_timeout=60, **options))
    try:
        with pytest.raises(Unavailable, match=sentence) as caught:
            await (rsmq.open() if call == "open" else rsmq.queue("jobs").attributes())
    finally:
        await rsmq.aclose()
    assert not caught.value.transient
    assert caught.value.executed is False
    return caught.value


@pytest.mark.parametrize("call", ["open", "attributes"])
async def test_certificate_of_an_unknown_authority_is_refused_without_waiting(
    secure, tmp_path, call
):
    proxy, url = secure
    stranger = Authority(tmp_path, "stranger")

    await refused(f"{url.split('?')[0]}?ssl_ca_certs={stranger.file}", "is not trusted", call)
    await refused(url.split("?")[0], "is not trusted: .*; name its CA", call)
    assert proxy.served == 0
    assert proxy.attempts <= 2 * TRIES


async def test_certificate_for_another_name_is_refused_without_waiting(server_url, authority):
    async with tls_proxy(server_url, authority.context("elsewhere.example")) as (proxy, port):
        for host in ("127.0.0.1", "localhost"):
            url = f"rediss://{host}:{port}?ssl_ca_certs={authority.file}"
            await refused(url, "is for another host: .* mismatch")

        assert proxy.served == 0
        assert proxy.attempts <= 2 * TRIES
        url += "&ssl_check_hostname=false"
        async with RSMQ(url, options=Options(insecure_tls=True)):
            assert proxy.served == 1


async def test_waiting_receive_ends_with_the_refusal(secure, tmp_path, ns):
    proxy, url = secure
    rsmq = RSMQ(f"{url.split('?')[0]}?ssl_ca_certs={Authority(tmp_path, 'x').file}", ns=ns)
    with pytest.raises(Unavailable, match="is not trusted"):
        await rsmq.queue("jobs").receive(wait=60)
    await rsmq.aclose()


async def test_server_that_answers_without_tls_is_named_as_such():
    async def answer(_, writer):
        writer.write(b"-ERR what do you mean\r\n")
        await writer.drain()

    async with listening(answer) as port:
        await refused(f"rediss://127.0.0.1:{port}", "does not speak TLS")


async def test_client_certificate_is_shown_to_a_server_that_wants_one(server_url, authority, ns):
    context = authority.context("127.0.0.1", wants_certificate=True)
    certificate, key = authority.client_files()
    async with tls_proxy(server_url, context) as (_, port):
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={authority.file}"
        async with RSMQ(f"{url}&ssl_certfile={certificate}&ssl_keyfile={key}", ns=ns) as rsmq:
            await exercise(rsmq)


async def test_server_that_refuses_for_lack_of_a_client_certificate_is_final(authority):
    context = authority.context("127.0.0.1", wants_certificate=True)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # later ones refuse after the handshake

    def turn_away(listening):  # asyncio would cut the connection without saying why
        while listening.fileno() >= 0:
            with suppress(OSError):
                client, _ = listening.accept()
                with client:
                    context.wrap_socket(client, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        guard = asyncio.create_task(asyncio.to_thread(turn_away, listening))
        url = f"rediss://127.0.0.1:{listening.getsockname()[1]}?ssl_ca_certs={authority.file}"
        await refused(url, "refused the TLS connection .*handshake failure")
    await guard


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile"])
async def test_certificate_file_that_cannot_be_used_is_said_without_connecting(
    secure, tmp_path, option
):
    proxy, url = secure
    (tmp_path / "rubbish").write_text("rubbish")
    for name in ("missing", "rubbish"):
        await refused(f"{url.split('?')[0]}?{option}={tmp_path / name}", "cannot be used")
    assert proxy.attempts == 0


async def test_sentinel_and_its_master_over_tls(authority):
    context = authority.context("127.0.0.1")
    async with SentinelGroup(replicas=0, sentinels=1) as group:
        master, (watch,) = group.master, group.sentinels
        async with (
            tls_proxy(master.url, context) as (_, master_port),
            tls_proxy(watch.url, context) as (guard, guard_port),
        ):
            guard.replace = (b"$5\r\n%d\r\n" % master.port, b"$5\r\n%d\r\n" % master_port)
            place = f"127.0.0.1:{guard_port}/{group.service}"
            url = f"rediss+sentinel://{place}?ssl_ca_certs={authority.file}"
            async with RSMQ(url) as rsmq:
                await exercise(rsmq)
            before = guard.attempts
            await refused(f"rediss+sentinel://{place}", "is not trusted")
            assert guard.attempts <= before + TRIES


async def test_cluster_over_tls(authority):
    context = authority.context("127.0.0.1")
    async with Cluster() as cluster:
        nodes = cluster.masters
        async with (
            tls_proxy(nodes[0].url, context) as (first, port),
            tls_proxy(nodes[1].url, context) as (_, second),
            tls_proxy(nodes[2].url, context) as (_, third),
        ):
            announced = {port, second, third}
            for node, own in zip(nodes, (port, second, third), strict=True):
                await node.command("CONFIG", "SET", "cluster-announce-port", own)
            for node in nodes:
                await eventually(partial(knows, node, announced), "the nodes know all ports")
            url = f"rediss+cluster://127.0.0.1:{port}?ssl_ca_certs={authority.file}"
            async with RSMQ(url, ns="{tls}") as rsmq:
                await exercise(rsmq)
            before = first.attempts
            await refused(f"rediss+cluster://127.0.0.1:{port}", "is not trusted")
            assert first.attempts <= before + TRIES


async def knows(node, ports):
    """Return True if *node* knows the announced ports of all nodes."""
    return {entry[2][1] for entry in await node.command("CLUSTER", "SLOTS")} == ports


async def test_password_is_kept_from_a_master_on_another_machine():
    async with SentinelGroup(replicas=0, sentinels=1) as group:
        (watch,) = group.sentinels
        await watch.command("SENTINEL", "MONITOR", "far", "192.0.2.1", group.master.port, 1)
        url = f"redis+sentinel://:hunter2@127.0.0.1:{watch.port}/far"
        error = await refused(url, "would be sent to 192.0.2.1 in clear text")
        assert "hunter2" not in str(error)


async def test_password_is_kept_from_a_node_that_a_redirection_names():
    def answer(words):
        """Answer as the only node of a cluster, which sends every script to another machine."""
        if words[0].startswith("EVAL"):
            return f"-MOVED {key_slot(words[3].encode())} far.invalid:6379"
        if words[0] == "CLUSTER":
            own = f"*3\r\n$9\r\n127.0.0.1\r\n:{port}\r\n$2\r\nid"
            return f"*1\r\n*3\r\n:0\r\n:16383\r\n{own}"
        return "*0" if words[0] == "COMMAND" else "+OK"

    async def node(reader, writer):
        parser = Reader(encoding="utf-8")
        while data := await reader.read(65536):
            parser.feed(data)
            while (words := parser.gets()) is not False:
                writer.write(f"{answer(words)}\r\n".encode())

    async with listening(node) as port:
        url = f"redis+cluster://:hunter2@127.0.0.1:{port}"
        async with asyncio.timeout(60):
            error = await refused(url, "would be sent to far.invalid in clear text", "attributes")
        assert "hunter2" not in str(error)
