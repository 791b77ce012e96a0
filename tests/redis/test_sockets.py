"""What a connection asks of its socket."""

import socket

import pytest
from redis.asyncio import UnixDomainSocketConnection

from aiorsmq_ng._transport.batching import MAX_SIZE
from aiorsmq_ng._transport.pipelined_connection import PipelinedConnection
from aiorsmq_ng.embedded import EmbeddedServer


@pytest.fixture
def unix_path():
    with EmbeddedServer.ephemeral() as server:
        yield server.url.removeprefix("unix://")


async def test_unix_socket_takes_the_largest_call_at_once(unix_path):
    connection = UnixDomainSocketConnection(path=unix_path)
    await connection.connect()

    PipelinedConnection(connection)

    peer = connection._writer.get_extra_info("socket")
    assert peer.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= MAX_SIZE
    await connection.disconnect()
