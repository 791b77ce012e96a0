"""A driver that follows a script instead of talking to Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng._protocol.operation import Kind
from aiorsmq_ng._transport.call import Call
from aiorsmq_ng._transport.driver import Driver
from aiorsmq_ng._transport.script_calls import Command, RedisDriver
from aiorsmq_ng._transport.transport import Transport


class SeenCommand(Command):
    """A command that was executed, with the call it was encoded from, as that stood then."""

    kind: Kind[Any] | None = None
    requests: Sequence[Any] = ()
    #: Name of the call record, number, and attempt (0 for a recall).
    numbered: tuple[Any, ...] = ()


class ScriptedDriver(RedisDriver):
    """Answers every command by *answer*, which may raise or return a future to wait for."""

    calls_per_connection = 1

    def __init__(self, answer: Callable[[Command], Any]) -> None:
        self.answer = answer
        self.commands: list[SeenCommand] = []
        self._calls: dict[Any, Call] = {}
        #: Call records that were removed when the transport was closed.
        self.forgotten: list[Any] = []
        self.closed = False

    async def run(self, call: Call) -> Any:
        task = asyncio.current_task()
        self._calls[task] = call
        try:
            return await super().run(call)
        finally:
            del self._calls[task]

    async def execute(self, command: Command) -> Any:
        command.written = True
        if command.words[0] == "UNLINK":
            self.forgotten += command.words[1:]
            return len(command.words) - 1
        seen = self._seen(command)
        self.commands.append(seen)
        reply = self.answer(seen)
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _seen(self, command: Command) -> SeenCommand:
        seen = SeenCommand(command.words, command.key, written=True)
        call = self._calls.get(asyncio.current_task())
        if call is not None:
            seen.kind, seen.requests = call.kind, [o.request for o in call.operations]
            if call.number is not None:
                attempt = 0 if call.recall else call.attempt
                seen.numbered = (call.record, call.number.number, attempt)
        return seen

    def listener(self) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


def transport_on(
    driver: ScriptedDriver,
    *,
    deadline_s: float = 5,
    connections: int = 4,
    durability: Durability | None = None,
):
    """Return a transport on *driver*, whose sends wait for *durability*."""

    async def connect() -> ScriptedDriver:
        return driver

    async def check(_: Driver) -> Durability:
        return durability or Durability()

    return Transport(connect, deadline_s=deadline_s, connections=connections, check=check)
