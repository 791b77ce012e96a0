"""Base of the drivers for Redis: encodes calls as script calls, and decodes the replies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .._common import entropy
from .._common.durability import Durability
from .._protocol.operation import Argument, Reply
from .._protocol.redis_codecs import ScriptCall, decode, encode, failures
from ..options import Options
from .driver import ImmediateDriver, NotExecuted, ReplyLost
from .server_check import check_server, read_setting

if TYPE_CHECKING:
    from .call import Call
    from .first_attempts import FirstAttempt


class ScriptMissing(Exception):
    """The server does not have the script in its cache; nothing ran."""


class WrongLayout(Exception):
    """The script found keys without RSMQ's layout. ``code`` says what is wrong."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Command(Struct):
    """One command for the server. ``written`` is set as soon as it may have left the process."""

    words: Sequence[Argument]
    #: Key by which a cluster finds the node; without one, any node runs it.
    key: str | None = None
    written: bool = False
    #: A second command (WAIT or WAITAOF), sent on the same connection after the first reply; and
    #: its reply, or the text of its error.
    follow_up: Sequence[Argument] | None = None
    confirmation: Reply = None
    #: Replicas that must have the effect of the command. If fewer have it, the driver asks which
    #: server is the primary, if it can; if that is another one, the reply counts as lost.
    min_replicas: int = 0
    #: Returns True if a reply needs that confirmation. Not used with ``follow_up``.
    needs_confirmation: Callable[[Reply], bool] | None = None
    #: The attempt that has written it already; only the reply is missing.
    begun: FirstAttempt | None = None


class RedisDriver:
    """Runs calls as script calls."""

    @property
    def immediate(self) -> ImmediateDriver | None:
        """The driver itself, if it can make attempts without waiting."""
        return None

    async def execute(self, command: Command) -> Reply:
        """Run *command* once and return the undecoded reply.

        Raises ``NotExecuted``, ``ReplyLost``, ``ScriptMissing``, ``WrongLayout``, or an
        ``RSMQError`` that is final: the command did not run.
        """
        raise NotImplementedError

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*; see ``Driver``."""
        encoded = _encoded(call)
        durability = call.durability
        question = None if durability is None else durability.question(call.confirm_ms)
        command = _command(call, encoded, question)
        command.begun, call.begun = call.begun, None
        try:
            is_missing = False
            reply: Reply = None
            try:
                reply = await self.execute(command)
            except ScriptMissing:
                is_missing = True
            if is_missing:
                # The source is sent only to a server that does not have the script. Not while the
                # error is handled: it would count as the cause of one to connect.
                command.words = ("EVAL", encoded.script.source, *command.words[2:])
                command.written = False
                reply = await self.execute(command)
        except WrongLayout as error:
            return list(failures(call.operations, error.code))
        finally:
            call.written = command.written
        if durability is not None:
            call.reached = [durability.reached(command.confirmation)] * len(call.operations)
        return self.decode(call, reply)

    def decode(self, call: Call, reply: Reply) -> list[Any]:
        """Return the results in *reply*; see ``Driver.run``."""
        return decode(call.operations, reply, repeated=call.in_doubt)

    async def command(self, *words: Argument, key: str | None = None) -> Reply:
        """Run a plain command and return the undecoded reply; *key* is one of its keys."""
        return await self.execute(Command(words, key))

    async def ping(self) -> None:
        """Return if the server answers."""
        await self.command("PING")

    async def check(self, options: Options) -> Durability:
        """Refuse a server that would break promises; return what sends wait for on this one."""
        try:
            return await check_server(self.command, options)
        except ReplyLost as error:
            # The call that follows the check did not run.
            raise NotExecuted(str(error)) from error

    async def setting(self, name: str) -> str | None:
        """Return a setting of the server; ``None`` if the server refuses."""
        return await read_setting(self.command, name)

    async def forget(self, records: Sequence[str]) -> None:
        """Remove records of calls, one command per queue: its records are on one cluster node."""
        by_queue: dict[str, list[str]] = {}
        for record in records:
            by_queue.setdefault(record.rpartition(":")[0], []).append(record)
        for names in by_queue.values():
            await self.command("UNLINK", *names, key=names[0])


def first_words(call: Call) -> tuple[Argument, ...]:
    """Return the script call of the first attempt of *call*."""
    encoded, number = _encoded(call), call.number
    keys, sha = encoded.keys, encoded.script.sha
    if number is None:
        return ("EVALSHA", sha, len(keys), *keys, *encoded.args)
    return ("EVALSHA", sha, len(keys), *keys, number.number, 1, *encoded.args)


def _encoded(call: Call) -> ScriptCall:
    encoded: ScriptCall | None = call.encoded
    if encoded is None:
        # Only once: a retry must have the same random ids.
        encoded = call.encoded = encode(call.operations, call.record, entropy.take)
    return encoded


def _command(call: Call, encoded: ScriptCall, question: Sequence[Argument] | None) -> Command:
    numbers: tuple[Argument, ...] = ()
    if call.number is not None:
        attempt = 0 if call.recall else call.attempt
        if question is not None and attempt > 1:
            # A retry of a call that has run writes nothing, so WAIT on its connection would confirm
            # nothing. A negative number makes the script write.
            attempt = -attempt
        numbers = (call.number.number, attempt)
    keys = encoded.keys
    return Command(
        ("EVALSHA", encoded.script.sha, len(keys), *keys, *numbers, *encoded.args),
        keys[0],
        follow_up=question,
        min_replicas=call.min_replicas,
        needs_confirmation=encoded.codec.took_messages,
    )
