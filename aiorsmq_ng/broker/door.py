"""The door: every call passes here. Who is it, may they, is there room, what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio

from aiorsmq_ng import RSMQError

from ..rpc.routeguide_pb2 import RecordSet
from .options import Limits
from .status import Answer, BrokerError, answer
from .tokens import ADMIN, CALLER, CONSUMER, PRODUCER, Refused, Tokens

logger = logging.getLogger("aiorsmq_ng.broker")

Handler = Callable[[Any, Any], Awaitable[Any]]

QUEUES, TOPICS, GOMQ = "/aiorsmq.v1.Queues/", "/aiorsmq.v1.Topics/", "/routeguide.RouteGuide/"
#: Whoever asks whether the broker is well need not be known; it tells nothing else.
_OPEN = "/grpc.health.v1.Health/"
#: Before what stands for an answer is given, or its client would come again at once.
_PAUSE_S = 0.5


class Rule(NamedTuple):
    """What a call needs: one of some roles; whether it waits for messages; whether it settles."""

    roles: tuple[str, ...]
    waits: bool = False
    #: Taken even while the broker stops, so that messages in clients' hands can be settled.
    settles: bool = False
    #: What is answered, after a pause, where there is no room: clients that crash on an error.
    instead: Callable[[], Any] | None = None


_ANY, _P, _C, _A = (PRODUCER, CONSUMER), (PRODUCER,), (CONSUMER,), (ADMIN,)

#: Every method of ours. One that is not listed is refused, so that none is forgotten.
RULES = {
    **{f"{QUEUES}{name}": Rule(_A) for name in (
        "CreateQueue", "DeleteQueue", "SetAttributes", "Purge", "Redrive", "DeleteMessages",
        "ChangeVisibility", "Peek", "ListPending", "Scan",
    )},
    **{f"{QUEUES}{name}": Rule(_ANY) for name in (
        "GetInfo", "ListQueues", "GetAttributes", "GetStats",
    )},
    **{f"{QUEUES}{name}": Rule(_C, settles=True) for name in (
        "Ack", "Extend", "Release", "Reject", "Forward", "Announce",
    )},
    **{f"{QUEUES}{name}": Rule(_C) for name in ("Pop", "Recover", "GetReason")},
    **{f"{QUEUES}{name}": Rule(_C, waits=True) for name in ("Receive", "Consume", "Watch")},
    f"{QUEUES}Send": Rule(_P),
    f"{TOPICS}ListTopics": Rule(_ANY),
    f"{TOPICS}DescribeTopic": Rule(_ANY),
    f"{TOPICS}Publish": Rule(_P),
    f"{TOPICS}Subscribe": Rule(_C),
    f"{TOPICS}Unsubscribe": Rule(_C),
    f"{TOPICS}KeepAlive": Rule(_C, settles=True),
    f"{TOPICS}SetBacklog": Rule(_A),
    f"{TOPICS}DeleteTopic": Rule(_A),
    f"{GOMQ}Publish": Rule(_P),
    f"{GOMQ}Subscribe": Rule(_C),
    f"{GOMQ}Unsubscribe": Rule(_C),
    f"{GOMQ}Observe": Rule(_C, waits=True, settles=True, instead=RecordSet),
}  # fmt: skip


class Room:
    """How many calls are under way, and how many there may be."""

    def __init__(self, limits: Limits) -> None:
        self._most = {False: limits.calls, True: limits.streams}
        self._under_way = {False: 0, True: 0}
        #: Set when the broker stops: only what settles messages is taken then.
        self.stopping = asyncio.Event()

    @property
    def under_way(self) -> int:
        """How many calls there are."""
        return sum(self._under_way.values())

    def enter(self, rule: Rule) -> None:
        """Let a call in, or raise ``BrokerError``."""
        if self.stopping.is_set() and not rule.settles:
            raise BrokerError("stopping", "the broker is being stopped; try again elsewhere")
        if self._under_way[rule.waits] >= self._most[rule.waits]:
            what = "streams and waiting calls" if rule.waits else "calls"
            raise BrokerError(
                "tooManyCalls",
                f"{self._most[rule.waits]} {what} are under way, and no more are taken; "
                "try again later",
            )
        self._under_way[rule.waits] += 1

    def leave(self, rule: Rule) -> None:
        """Take note that a call has ended."""
        self._under_way[rule.waits] -= 1


class Door(grpc.aio.ServerInterceptor):
    """Lets calls in that may come in, and turns errors into statuses."""

    def __init__(self, tokens: Tokens, room: Room, broker: str) -> None:
        self._tokens = tokens
        self._room = room
        self._metadata = (("rsmq-broker", broker),)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Return the handler of a call, or one that refuses it."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None or method.startswith(_OPEN):
            return handler
        try:
            caller = self._tokens.caller(handler_call_details.invocation_metadata or ())
            rule = RULES.get(method, Rule(_ANY))
            if method not in RULES and method.startswith((QUEUES, TOPICS, GOMQ)):
                raise Refused(f"nobody may call {method}", known=True)
            caller.need(*rule.roles)
        except Refused as refusal:
            logger.info("refused a call of %s: %s", method, refusal)
            return _refusing(handler, answer(refusal), self._metadata)
        if method not in RULES:
            return handler

        async def call(request: Any, context: Any) -> Any:
            CALLER.set(caller)
            return await self._call(method, rule, inner, request, context)

        inner: Handler = handler.unary_stream or handler.unary_unary
        return _like(handler, call)

    async def _call(
        self, method: str, rule: Rule, inner: Handler, request: Any, context: Any
    ) -> Any:
        try:
            try:
                self._room.enter(rule)
            except BrokerError as full:
                if rule.instead is None:
                    raise
                logger.warning("%s was answered with nothing: %s", method, full)
                await asyncio.sleep(_PAUSE_S)
                return rule.instead()
            try:
                result = await inner(request, context)
            finally:
                self._room.leave(rule)
            context.set_trailing_metadata(self._metadata)
        except Refused as refusal:
            logger.info("refused a call of %s: %s", method, refusal)
            said = answer(refusal)
        except RSMQError as error:
            said = answer(error)
        except (grpc.RpcError, grpc.aio.AbortError):
            raise
        except grpc.aio.InternalError:
            logger.info("a client of %s went away while it was written to", method)
            return None
        except Exception as error:
            # The request is not shown: it may hold a body.
            logger.exception("%s failed in an unexpected way; please report it", method)
            said = answer(error)
        else:
            return result
        await context.abort(said.status, said.message, (*self._metadata, *said.metadata))
        return None


def _like(handler: Any, call: Handler) -> Any:
    """Return *call* as a handler of the same kind."""
    make = (
        grpc.unary_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(
        call,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _refusing(handler: Any, said: Answer, metadata: tuple[tuple[str, str], ...]) -> Any:
    async def refuse(_: Any, context: Any) -> None:
        await context.abort(said.status, said.message, (*metadata, *said.metadata))

    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(refuse)
    # Nothing is decoded for somebody who may not come in.
    make = (
        grpc.unary_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.unary_unary_rpc_method_handler
    )
    return make(refuse)
