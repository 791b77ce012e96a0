"""Replies on the short way: in pieces, too many, broken off, or no replies at all."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress

import pytest
from hiredis import Reader

from aiorsmq_ng import Options, QueueFull
from aiorsmq_ng.transport.base import Command, ReplyLost, ScriptMissing
from aiorsmq_ng.transport.connect import connect

GREETINGS = {b"CLIENT": b"+OK\r\n", b"SELECT": b"+OK\r\n", b"PING": b"+PONG\r\n"}


RESET = object()


def reset(writer):
    """End a connection by a reset instead of a farewell."""
    ending = writer.transport.get_extra_info("socket")
    ending.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Server:
    """Answers each command, after redis-py's greetings, with the next pieces of *script*."""

    def __init__(self, script):
        self.script = iter(script)
        self.connections = 0
        self.commands = []

    async def __call__(self, reader, writer):
        self.connections += 1
        parser = Reader(notEnoughData=None)
        try:
            while data := await reader.read(65536):
                parser.feed(data)
                while (command := parser.gets()) is not None:
                    if command[0] in GREETINGS:
                        writer.write(GREETINGS[command[0]])
                        continue
                    self.commands.append(command)
                    for piece in next(self.script):
                        if piece is None:
                            return
                        if piece is RESET:
                            reset(writer)
                            return
                        writer.write(piece)
                        await writer.drain()
                        await asyncio.sleep(0.001)
        finally:
            writer.close()


@asynccontextmanager
async def talking(*script):
    """Run a server of *script*: per command the pieces of the answer, ``None`` for a hang-up."""
    server = Server(script)
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    driver = await connect(f"redis://127.0.0.1:{port}", Options())
    try:
        yield driver, server
    finally:
        async with asyncio.timeout(10):
            await driver.aclose()
        listening.close()


async def ask(driver, *words):
    async with asyncio.timeout(10):
        return await driver.execute(Command(words or ("GET", "x")))


async def test_reply_in_pieces_is_put_together():
    async with talking([b"*2\r\n$3\r\na", b"bc\r", b"\n:", b"7\r\n"], [b"+next\r\n"]) as (
        driver,
        server,
    ):
        assert await ask(driver) == [b"abc", 7]
        assert await ask(driver) == b"next"

    assert server.connections == 1


async def test_large_commands_and_replies_pass_whole():
    body = bytes(range(256)) * 40_000
    async with talking([b"$%d\r\n" % len(body), body, b"\r\n"], [b":1\r\n"]) as (driver, server):
        assert await ask(driver, "SET", "x", body) == body
        assert await ask(driver) == 1

    assert server.commands[0] == [b"SET", b"x", body]
    assert server.connections == 1


async def test_connection_that_says_more_than_was_asked_is_not_used_again():
    async with talking([b":1\r\n:2\r\n"], [b":3\r\n"]) as (driver, server):
        assert await ask(driver) == 1
        assert await ask(driver) == 3

    assert server.connections == 2


async def test_connection_that_speaks_unasked_is_not_used_again():
    async with talking([b":1\r\n", b":2\r\n"], [b":3\r\n"]) as (driver, server):
        assert await ask(driver) == 1
        await asyncio.sleep(0.05)
        assert await ask(driver) == 3

    assert server.connections == 2


async def test_connection_that_was_reset_at_rest_is_noticed_at_once():
    async with talking([b":1\r\n", RESET], [b":3\r\n"]) as (driver, server):
        assert await ask(driver) == 1
        await asyncio.sleep(0.05)
        with suppress(ReplyLost):
            assert await ask(driver) == 3
        if len(server.commands) == 1:
            assert await ask(driver) == 3

    assert server.connections == 2


@pytest.mark.parametrize("pieces", [[None], [b"*2\r\n:1\r\n", None], [b"\x00nonsense\r\n"]])
async def test_reply_that_never_comes_or_is_none_is_lost(pieces):
    async with talking(pieces, [b":3\r\n"]) as (driver, server):
        with pytest.raises(ReplyLost):
            await ask(driver)
        assert await ask(driver) == 3

    assert server.connections == 2


async def test_answered_errors_keep_the_connection():
    script = (
        [b"-NOSCRIPT No matching script.\r\n"],
        [b"-OOM command not allowed\r\n"],
        [b":3\r\n"],
    )
    async with talking(*script) as (driver, server):
        with pytest.raises(ScriptMissing):
            await ask(driver)
        with pytest.raises(QueueFull):
            await ask(driver)
        assert await ask(driver) == 3

    assert server.connections == 1


async def test_call_given_up_closes_its_connection():
    async with talking([], [b":3\r\n"]) as (driver, server):
        waiting = asyncio.create_task(ask(driver))
        while not server.commands:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await ask(driver) == 3

    assert server.connections == 2
