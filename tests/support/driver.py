"""A driver that follows a script instead of talking to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiorsmq_ng._transport.batching import Transport
from aiorsmq_ng._transport.redis_calls import Command, RedisDriver


class ScriptedDriver(RedisDriver):
    """Answers every command by *answer*, which may raise or return a future to wait for."""

    calls_per_connection = 1

    def __init__(self, answer: Callable[[Command], Any]) -> None:
        self.answer = answer
        self.commands: list[Command] = []
        #: What the server was told to forget when the transport was closed.
        self.forgotten: list[Any] = []
        self.closed = False

    async def execute(self, command: Command) -> Any:
        command.written = True
        if command.words[0] == "UNLINK":
            self.forgotten += command.words[1:]
            return len(command.words) - 1
        self.commands.append(command)
        reply = self.answer(command)
        return await reply if isinstance(reply, asyncio.Future) else reply

    def listener(self) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


def transport_on(driver: ScriptedDriver, *, deadline_s: float = 5, connections: int = 4):
    """Return a transport on *driver*."""

    async def connect() -> ScriptedDriver:
        return driver

    return Transport(connect, deadline_s=deadline_s, connections=connections)
