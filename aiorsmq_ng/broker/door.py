"""The door: every call passes here. Who is it, may they, is there room, what came of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from aiorsmq_ng import RSMQError

from ..rpc.routeguide_pb2 import RecordSet
from .budget import VISIT, Visit
from .room import MAX_BYTES, Refusals, Room, Rule
from .status import Answer, BrokerError, answer
from .tokens import ADMIN, ANYBODY, CALLER, CONSUMER, PRODUCER, Caller, Refused, Tokens

logger = logging.getLogger("aiorsmq_ng.broker")

Handler = Callable[[Any, Any], Awaitable[Any]]

QUEUES, TOPICS, GOMQ = "/aiorsmq.v1.Queues/", "/aiorsmq.v1.Topics/", "/routeguide.RouteGuide/"
#: Whoever asks whether the broker is well need not be known; it tells nothing else.
_OPEN = "/grpc.health.v1.Health/"
#: Before what stands for an answer is given, or its client would come again at once.
_PAUSE_S = 0.5


_ANY, _P, _C, _A = (PRODUCER, CONSUMER), (PRODUCER,), (CONSUMER,), (ADMIN,)

#: Every method of ours. One that is not listed is refused, so that none is forgotten.
RULES = {
    **{f"{QUEUES}{name}": Rule(_A) for name in (
        "CreateQueue", "DeleteQueue", "SetAttributes", "Purge", "Redrive", "DeleteMessages",
        "ChangeVisibility",
    )},
    **{f"{QUEUES}{name}": Rule(_A, large=True) for name in ("Peek", "ListPending", "Scan")},
    **{f"{QUEUES}{name}": Rule(_ANY) for name in ("GetInfo", "GetAttributes")},
    **{f"{QUEUES}{name}": Rule(_ANY, large=True) for name in ("ListQueues", "GetStats")},
    **{f"{QUEUES}{name}": Rule(_C, settles=True) for name in (
        "Ack", "Extend", "Release", "Reject", "Forward", "Announce",
    )},
    f"{QUEUES}GetReason": Rule(_C),
    **{f"{QUEUES}{name}": Rule(_C, large=True) for name in ("Pop", "Recover")},
    **{f"{QUEUES}{name}": Rule(_C, waits=True) for name in ("Receive", "Consume", "Watch")},
    f"{QUEUES}Send": Rule(_P),
    f"{TOPICS}ListTopics": Rule(_ANY, large=True),
    f"{TOPICS}DescribeTopic": Rule(_ANY, large=True),
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
#: What a call of the health service is: of anybody.
PROBE = Rule(_ANY, waits=True, settles=True)


class Door(grpc.aio.ServerInterceptor):
    """Lets calls in that may come in, and turns errors into statuses.

    Every handler takes a stream of requests, and reads the one that is to come when there is
    room for it: gRPC receives the request of any other handler whole before it calls it.
    """

    def __init__(self, tokens: Tokens, room: Room, broker: str) -> None:
        self._tokens = tokens
        self._room = room
        self._refusals = Refusals(time.monotonic)
        self._metadata = (("rsmq-broker", broker),)

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Return the handler of a call, or one that refuses it."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        caller, rule = ANYBODY, PROBE
        try:
            if not method.startswith(_OPEN):
                caller = self._tokens.caller(handler_call_details.invocation_metadata or ())
                rule = RULES.get(method, Rule(_ANY, waits=True))
                if method not in RULES and method.startswith((QUEUES, TOPICS, GOMQ)):
                    raise Refused(f"method {method} is not offered", known=True)
                caller.need(*rule.roles)
        except Refused as refusal:
            who = caller.identity if refusal.known else ""
            self._refusals.tell(who, logging.INFO, "refused a call of %s: %s", method, refusal)
            return self._refusing(answer(refusal))
        if handler.request_streaming:
            return self._streaming(handler, rule, caller)
        inner: Handler = handler.unary_stream or handler.unary_unary

        async def call(_: Any, context: Any) -> Any:
            CALLER.set(caller)
            return await self._call(method, rule, inner, context)

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return make(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    async def _call(self, method: str, rule: Rule, inner: Handler, context: Any) -> Any:
        try:
            try:
                visit = self._enter(rule, context)
                request = await self._room.request(visit, context)
                if rule.large:
                    await self._room.reply(visit, MAX_BYTES)
            except BrokerError as full:
                if rule.instead is None:
                    raise
                self._tell(logging.WARNING, "%s was answered with nothing: %s", method, full)
                await asyncio.sleep(_PAUSE_S)
                return rule.instead()
            result = await inner(request, context)
            if result is not None:
                visit.replies(result.ByteSize())
            context.set_trailing_metadata(self._metadata)
        except (grpc.RpcError, grpc.aio.AbortError):
            raise
        except grpc.aio.InternalError:
            logger.info("a client of %s went away while it was written to", method)
            return None
        except Exception as error:
            said = self._said(method, error)
        else:
            return result
        await context.abort(said.status, said.message, (*self._metadata, *said.metadata))
        return None

    def _said(self, method: str, error: Exception) -> Answer:
        """Return the status that a client gets for an error, and log it if it should be known."""
        match error:
            case Refused():
                self._tell(logging.INFO, "refused a call of %s: %s", method, error)
            case DecodeError():
                return answer(BrokerError("invalidValue", "the request cannot be decoded"))
            case RSMQError():
                pass
            case _:
                # The request is not shown: it may hold a body.
                logger.error("%s failed in an unexpected way; please report it", method,
                             exc_info=error)  # fmt: skip
        return answer(error)

    def _tell(self, level: int, text: str, method: str, why: Exception) -> None:
        self._refusals.tell(CALLER.get().identity, level, text, method, why)

    def _enter(self, rule: Rule, context: Any) -> Visit:
        """Let a call in until its reply is written: what it takes is counted for so long."""
        if rule is PROBE:
            # All connections of a machine count as one.
            visit = self._room.probe(context.peer().rpartition(":")[0])
        else:
            visit = self._room.enter(rule, CALLER.get().identity)
        context.add_done_callback(visit.leave)
        VISIT.set(visit)
        return visit

    def _streaming(self, handler: Any, rule: Rule, caller: Caller) -> Any:
        """Count a call whose handler reads a stream by itself: room for one request is its."""

        async def call(requests: Any, context: Any) -> Any:
            CALLER.set(caller)
            try:
                visit = self._enter(rule, context)
                await self._room.expect(visit)
            except BrokerError as full:
                said = answer(full)
                await context.abort(said.status, said.message, said.metadata)
            async for reply in handler.stream_stream(requests, context):
                yield reply

        return grpc.stream_stream_rpc_method_handler(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refusing(self, said: Answer) -> Any:
        """Return a handler that refuses, and reads nothing of somebody who may not come in."""

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(said.status, said.message, (*self._metadata, *said.metadata))

        return grpc.stream_stream_rpc_method_handler(refuse)
