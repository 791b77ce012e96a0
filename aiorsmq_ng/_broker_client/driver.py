"""The driver for a broker: finds out what a command is about, and asks the broker for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from .._protocol.operation import Reply
from .._protocol.scripts import load
from .._transport.driver import Command, NotExecuted, ReplyLost
from .._transport.urls import Address
from ..errors import NotSupported, RSMQError
from ..options import Options
from . import admin, receive, send, settle, topics
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
_NAMES = {load(name).sha: name for name in TRANSLATIONS}


class BrokerDriver:
    """Executes script calls by calls of ``aiorsmq.v1``.

    The broker's scripts are its own: which of them a call means is told by the digest alone, so
    client and broker need not be of the same version, and the text is never sent.
    """

    calls_per_connection = 1

    def __init__(self, link: Link) -> None:
        self._link = link
        self._session = Session(link)

    async def execute(self, command: Command) -> Reply:
        """Do what *command* asks for, once."""
        word = command.words[0]
        if word != "EVALSHA":
            return await self._plain(command)
        name = _NAMES.get(command.words[1])  # type: ignore[arg-type]
        if name is None:
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

    def listener(self) -> WatchListener:
        """Return a listener that is not connected yet."""
        return WatchListener(self._link)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._link.aclose()

    async def _plain(self, command: Command) -> Reply:
        """Answer what the transport asks of a server besides scripts."""
        match command.words[0]:
            case "PING":
                await self._link.ready(anew=True)
                return b"PONG"
            case "UNLINK":
                return 0  # what a broker remembers expires by itself
            case "WAITAOF":
                return [1, 0]  # sends are told what was reached
        raise _not_here(str(command.words[0]))


def _not_here(what: str) -> NotSupported:
    return NotSupported(f"{what} cannot be done through a broker; connect to its Redis instead")


def open_driver(address: Address, namespace: str, options: Options) -> BrokerDriver:
    """Return a driver for the broker at *address*; nothing is connected yet."""
    return BrokerDriver(Link(address, namespace, options))
