"""The driver for a broker: a typed request becomes protobuf, protobuf becomes the typed result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._common.durability import Durability
from .._protocol.operation import Kind
from .._transport.calls import Call
from .._transport.driver import NotExecuted, ReplyLost
from .._transport.urls import Address
from ..errors import NotSupported, RSMQError
from ..options import Options
from . import queues, receive, send, settle, topics
from .attempt import Attempt, Handler
from .channel import BrokerChannel
from .errors import Answered
from .listener import WatchListener

#: What a broker offers.
HANDLERS: dict[Kind[Any], Handler] = {
    **send.HANDLERS,
    **receive.HANDLERS,
    **settle.HANDLERS,
    **queues.HANDLERS,
    **topics.HANDLERS,
}


class BrokerDriver:
    """Makes calls of ``aiorsmq.v1``."""

    calls_per_connection = 1

    def __init__(self, channel: BrokerChannel) -> None:
        self._channel = channel

    async def run(self, call: Call) -> list[Any]:
        """Make one attempt of *call*; see ``Driver``."""
        handler = HANDLERS.get(call.kind)
        if handler is None:
            raise NotSupported("this call cannot be done through a broker; connect to its Redis")
        # The broker process must be known before anything is asked for that may be repeated.
        await self._channel.ready()
        attempt = Attempt(self._channel, call)
        requests = [operation.request for operation in call.operations]
        try:
            if call.kind.merge:
                results: list[Any] = await handler(attempt, requests)
                return results
            return [await handler(attempt, requests[0])]
        except Answered as answered:
            return [answered.error] * len(requests)
        except (NotExecuted, RSMQError) as error:
            if attempt.acted:
                # A part of it has run.
                raise ReplyLost(str(error)) from None
            raise

    async def ping(self) -> None:
        """Return if the broker answers."""
        await self._channel.ready(again=True)

    async def check(self, options: Options) -> Durability:
        """Return what sends wait for: the broker says what each reached."""
        await self.ping()
        return Durability.parse(options.durability)

    async def setting(self, name: str) -> str | None:
        """Return nothing: a broker does not tell how its server is set up."""
        return None

    async def forget(self, records: Sequence[str]) -> None:
        """Do nothing: what a broker remembers of calls expires by itself."""

    def listener(self) -> WatchListener:
        """Return a listener that is not connected yet."""
        return WatchListener(self._channel)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def open_driver(address: Address, namespace: str, options: Options) -> BrokerDriver:
    """Return a driver for the broker at *address*; nothing is connected yet."""
    return BrokerDriver(BrokerChannel(address, namespace, options))
