"""What a queue, its deliveries and its consumers share: keys, transport and background services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Literal, TypeVar

from .._common.queue_defaults import dead_letter_queue
from .._protocol import argument_checks
from .._protocol.keys import QueueKeys
from .._protocol.operations.message_values import Dedup
from .._protocol.operations.messages import BodySize, ReceiveSpec
from .._transport.transport import Transport
from ..codec import JSON, Codec
from ..errors import SendToken
from ..models import Message
from ..retry import Retry
from .background_acks import BackgroundAcks, LeaseAcks, LeasedMessage, is_background
from .dead_letter_listeners import DeadLetterReports
from .lease_renewal import LeaseKeeper
from .presence import Presence
from .recorder import Recorder

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class QueueContext:
    """One queue of one client, with the services that its operations need."""

    keys: QueueKeys
    transport: Transport
    keeper: LeaseKeeper
    presence: Presence
    letters: DeadLetterReports
    #: Return the keys of another queue of the same client; checks the name.
    sibling: Callable[[str], QueueKeys]
    #: Return the channel on which arrivals in a queue are announced.
    channel: Callable[[QueueKeys], str]
    dead_letter: str
    #: Turns values into bodies and back.
    codec: Codec = JSON
    #: Rule for a message whose block raised; without one it is visible again at once.
    retry: Retry | None = None
    #: Lease in milliseconds for receives that name none; -1 for the queue's stored one.
    vt_ms: int = -1
    #: How long a second message with the same dedup key is not stored.
    dedup_window_ms: int = 300_000
    #: Acks messages whose blocks have ended; without it, each block waits for its own ack.
    background_acks: BackgroundAcks[LeasedMessage] | None = None
    #: Reports what the client does; ``None`` for a client without telemetry.
    recorder: Recorder | None = None
    #: How long its bodies are, as far as receives tell.
    body_size: BodySize = field(default_factory=BodySize)

    def settling(self, settle: Literal["await", "background"]) -> QueueContext:
        """Return the context for deliveries of a consumer that settles in this way."""
        if is_background(settle):
            acks = BackgroundAcks(self.transport, LeaseAcks(self.keeper))
            return replace(self, background_acks=acks)
        return self

    async def resume(self, token: SendToken) -> Any:
        """Repeat the call of *token*, and return the result of the send."""
        if self.recorder is None:
            return await self.transport.resume(token)
        keys = self.keys
        with self.recorder.resending(keys.namespace.name, keys.queue) as call:
            call.ids = await self.transport.resume(token)
        return call.ids

    def receiving(
        self, queues: tuple[str, ...], count: int, wait_s: float, receive: Awaitable[list[M]]
    ) -> Awaitable[list[M]]:
        """Return what to await for *receive*, by which the program asks for messages."""
        if self.recorder is None:
            return receive
        return self.recorder.receive(self.keys.namespace.name, queues, count, wait_s, receive)

    def dedup(self, key: str) -> Dedup:
        """Return the dedup key *key* as the protocol has it."""
        return Dedup(argument_checks.digest(key), self.dedup_window_ms)

    @property
    def counted_dead_letters(self) -> QueueKeys:
        """Keys of the dead-letter queue, to count it; the default one's name may be too long."""
        if self.dead_letter == dead_letter_queue(self.keys.queue):
            return self.keys.namespace.queue(self.dead_letter)
        return self.sibling(self.dead_letter)

    @property
    def receive_spec(self) -> ReceiveSpec:
        """How to receive from this queue."""
        if self.retry is None or not self.retry.max_receives:
            return ReceiveSpec(
                self.keys, vt_ms=self.vt_ms, holder=self.presence.named, body_size=self.body_size
            )
        dead = self.sibling(self.dead_letter)
        return ReceiveSpec(
            self.keys,
            self.retry.max_receives,
            dead,
            self.channel(dead),
            vt_ms=self.vt_ms,
            holder=self.presence.named,
            body_size=self.body_size,
        )


#: Return the context of a queue or a delivery: the one way to it for other modules of the core.
context_of: Callable[[Any], QueueContext] = attrgetter("_context")
