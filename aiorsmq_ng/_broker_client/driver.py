"""The driver for a broker: finds out what a command is about, and asks the broker for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from .._common.durability import Durability
from .._protocol.operation import Reply
from .._transport.calls import Call
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.urls import Address
from ..errors import NotSupported, RSMQError
from ..options import Options
from . import admin, receive, send, settle, topics
from .argv_adapter import Command, run_as_script
from .channel import Link
from .listener import WatchListener
from .script_call import ScriptCall, Session

#: What a broker offers, by the script that does it on a server.
TRANSLATIONS: dict[str, Callable[[ScriptCall], Awaitable[Reply]]] = {
    "announce": admin.announce,
    "attributes": admin.attributes,
    "create_queue": admin.create_queue,
    "delete": settle.delete,
    "delete_leased": settle.delete_leased,
    "delete_queue": admin.delete_queue,
    "exists": admin.exists,
    "list_queues": admin.list_queues,
    "move": settle.move,
    "peek": admin.peek,
    "pending": admin.pending,
    "pop": receive.pop,
    "publish": send.publish,
    "purge": admin.purge,
    "purge_all": admin.purge_all,
    "reason": admin.reason,
    "receive": receive.receive,
    "receive_first": receive.receive_first,
    "recover": receive.recover,
    "redrive": admin.redrive,
    "scan": admin.scan,
    "send": send.send,
    "set_attributes": admin.set_attributes,
    "stats": admin.stats,
    "topic_adopt": topics.adopt,
    "topic_beat": topics.beat,
    "topic_delete": topics.delete,
    "topic_join": topics.join,
    "topic_leave": topics.leave,
    "topic_limits": topics.set_limits,
    "topic_read": topics.read,
    "visibility": settle.visibility,
}


class BrokerDriver:
    """Makes calls of ``aiorsmq.v1``."""

    calls_per_connection = 1

    def __init__(self, link: Link) -> None:
        self._link = link
        self._session = Session(link)

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*; see ``Driver``."""
        return await run_as_script(call, self._execute)

    async def _execute(self, name: str, command: Command) -> Reply:
        """Do what *command* asks for, once."""
        if name not in TRANSLATIONS:
            raise _not_here("this")
        # Who answers must be known before anything is asked for that may be repeated.
        await self._link.ready()
        call = ScriptCall(self._session, command)
        try:
            reply = await TRANSLATIONS[name](call)
        except (NotExecuted, RSMQError) as error:
            if call.acted:
                # A part of it has run.
                raise ReplyLost(str(error)) from None
            raise
        call.settled()
        return reply

    async def ping(self) -> None:
        """Return if the broker answers."""
        await self._link.ready(anew=True)

    async def check(self, options: Options) -> Durability:
        """Return what sends wait for: the broker says what each reached."""
        try:
            await self.ping()
        except ReplyLost as error:
            # What the caller is about to do has certainly not run.
            raise NotExecuted(str(error)) from error
        return Durability.parse(options.durability)

    async def setting(self, name: str) -> str | None:
        """Return nothing: a broker does not tell how its server is set up."""
        return None

    async def forget(self, records: Sequence[str]) -> None:
        """Do nothing: what a broker remembers of calls expires by itself."""

    def listener(self) -> WatchListener:
        """Return a listener that is not connected yet."""
        return WatchListener(self._link)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._link.aclose()


def _not_here(what: str) -> NotSupported:
    return NotSupported(f"{what} cannot be done through a broker; connect to its Redis instead")


def open_driver(address: Address, namespace: str, options: Options) -> BrokerDriver:
    """Return a driver for the broker at *address*; nothing is connected yet."""
    return BrokerDriver(Link(address, namespace, options))
