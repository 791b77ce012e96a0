"""Replies on the short way: in pieces, too many, broken off, or no replies at all."""

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress

import pytest
from hiredis import Reader

from aiorsmq_ng import Options, ServerOutOfMemory
from aiorsmq_ng._transport.connect import connect
from aiorsmq_ng._transport.driver import NotExecuted, ReplyLost
from aiorsmq_ng._transport.script_calls import Command, ScriptMissing

from ..support.streams import listening

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
        #: What came, and on which connection.
        self.commands = []
        self.lines = []

    async def __call__(self, reader, writer):
        self.connections += 1
        line = self.connections
        parser = Reader(notEnoughData=None)
        while data := await reader.read(65536):
            parser.feed(data)
            while (command := parser.gets()) is not None:
                if command[0] in GREETINGS:
                    writer.write(GREETINGS[command[0]])
                    continue
                self.commands.append(command)
                self.lines.append(line)
                for piece in next(self.script):
                    if piece is None:
                        return
                    if isinstance(piece, asyncio.Event):
                        await piece.wait()
                        continue
                    if piece is RESET:
                        reset(writer)
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.001)


@asynccontextmanager
async def talking(*script, **options):
    """Run a server of *script*: per command the pieces of the answer, ``None`` for a hang-up.

    An event among the pieces is waited for.
    """
    server = Server(script)
    async with listening(server) as port:
        driver = await connect(f"redis://127.0.0.1:{port}", Options(**options))
        try:
            yield driver, server
        finally:
            async with asyncio.timeout(10):
                await driver.aclose()


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
        with pytest.raises(ServerOutOfMemory):
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


async def test_commands_of_one_tick_share_a_connection_and_are_answered_in_turn():
    script = ([b"$%d\r\n%d\r\n" % (len(b"%d" % i), i)] for i in range(40))
    async with talking(*script) as (driver, server):
        await ask(driver, "PING")
        replies = await asyncio.gather(*(ask(driver, "GET", f"k{i}") for i in range(40)))

    asked = [command[1].decode() for command in server.commands]
    assert dict(zip(asked, replies, strict=True)) == {f"k{i}": b"%d" % i for i in range(40)}
    assert server.connections == 1


async def test_refusal_of_one_command_leaves_those_beside_it_alone():
    script = ([b":1\r\n"], [b"-OOM command not allowed\r\n"], [b":3\r\n"], [b":4\r\n"])
    async with talking(*script) as (driver, server):
        await ask(driver, "PING")
        first, refused, third = await asyncio.gather(
            ask(driver), ask(driver), ask(driver), return_exceptions=True
        )
        assert (first, third) == (1, 3)
        assert isinstance(refused, ServerOutOfMemory)
        assert await ask(driver) == 4

    assert server.connections == 1


async def test_connection_that_ends_loses_every_reply_that_did_not_come():
    async with talking([b":1\r\n"], [b"*2\r\n:2\r\n", None], [b":4\r\n"]) as (driver, server):
        await ask(driver, "PING")
        outcomes = await asyncio.gather(*(ask(driver) for _ in range(4)), return_exceptions=True)
        assert outcomes[0] == 1
        assert [type(outcome) for outcome in outcomes[1:]] == [ReplyLost] * 3
        assert await ask(driver) == 4

    assert server.connections == 2


async def test_call_given_up_leaves_its_neighbours_without_reply_and_no_connection_behind():
    held = asyncio.Event()
    async with talking([held, None], [b":3\r\n"]) as (driver, server):
        await ask(driver, "PING")
        given_up, neighbour = (asyncio.create_task(ask(driver)) for _ in range(2))
        while not server.commands:
            await asyncio.sleep(0.001)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        with pytest.raises(ReplyLost):
            await neighbour
        assert await ask(driver) == 3
        held.set()

    assert server.connections == 2


async def test_replica_answers_all_that_wait_and_is_not_asked_again():
    refusal = b"-READONLY You can't write against a read only replica.\r\n"
    async with talking([refusal], [b":2\r\n"], [b":3\r\n"]) as (driver, server):
        await ask(driver, "PING")
        refused, neighbour = await asyncio.gather(ask(driver), ask(driver), return_exceptions=True)
        assert isinstance(refused, NotExecuted)
        assert neighbour == 2
        assert await ask(driver) == 3

    assert server.connections == 2


async def test_more_calls_than_connections_join_those_in_use():
    held = asyncio.Event()
    script = ([b":1\r\n"], *([held, b":1\r\n"] for _ in range(5)))
    async with talking(*script, max_connections=2) as (driver, server):
        await ask(driver)
        commands = [Command(("GET", "x")) for _ in range(5)]
        calls = []
        for command in commands:
            calls.append(asyncio.create_task(driver.execute(command)))
            while not command.written:
                await asyncio.sleep(0)
        held.set()
        assert await asyncio.gather(*calls) == [1] * 5

    assert server.connections == 2


@pytest.mark.parametrize("first", ["waiting", "other"])
async def test_call_that_waits_for_a_confirmation_has_its_connection_alone(first):
    async with talking(*[[b":1\r\n"]] * 3) as (driver, server):
        await ask(driver, "PING")
        waiting = driver.execute(Command(("SET", "x", "1"), follow_up=("WAIT", 1, 100)))
        calls = [waiting, ask(driver)]
        await asyncio.gather(*(calls if first == "waiting" else calls[::-1]))

    line_of = {
        command[0]: line for line, command in zip(server.lines, server.commands, strict=True)
    }
    assert line_of[b"SET"] == line_of[b"WAIT"] != line_of[b"GET"]
