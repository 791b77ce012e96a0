"""gRPC interceptor: authenticates callers, checks roles and limits, maps errors to statuses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from aiorsmq_ng import RSMQError

from ..rpc.error_details import BROKER
from .caller_limits import MAX_BYTES, Admission, RefusalLog, Rule
from .error_to_status import BrokerError, ErrorStatus, error_status
from .memory_budget import CALL_BUDGET, CallBudget
from .tokens import (
    ADMIN,
    ANONYMOUS,
    CALLER,
    CONSUMER,
    PRODUCER,
    UNIDENTIFIED,
    Caller,
    Refused,
    Tokens,
)

logger = logging.getLogger("aiorsmq_ng.broker")

Handler = Callable[[Any, Any], Awaitable[Any]]

QUEUES, TOPICS = "/aiorsmq.v1.Queues/", "/aiorsmq.v1.Topics/"
#: Health checks need no token: they reveal nothing else about the broker.
_HEALTH = "/grpc.health.v1.Health/"
#: Pause before a fallback response, because its client asks again at once.
_PAUSE_S = 0.5

_ANY, _P, _C, _A = (PRODUCER, CONSUMER), (PRODUCER,), (CONSUMER,), (ADMIN,)

#: Rules for the methods of the broker's own services. A method without a rule is refused.
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
}  # fmt: skip
#: The rule of health checks.
PROBE = Rule(_ANY, waits=True, settles=True)


class BrokerInterceptor(grpc.aio.ServerInterceptor):
    """Admits calls, and turns errors into statuses.

    Every handler is registered as request-streaming, and reads its one request when there is room
    for it. (gRPC receives the whole request of a unary handler before it calls the handler.)
    *rules* are those of additional services, by the full name of the method.
    """

    def __init__(
        self,
        tokens: Tokens,
        admission: Admission,
        broker_id: str,
        rules: Mapping[str, Rule] | None = None,
    ) -> None:
        self._tokens = tokens
        self._admission = admission
        self._refusals = RefusalLog(time.monotonic)
        self._metadata = ((BROKER, broker_id),)
        self._rules = RULES | dict(rules or {})
        #: Services with rules: each method of theirs needs one.
        self._ruled = tuple({method.rpartition("/")[0] + "/" for method in self._rules})

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Return the handler of a call, or one that refuses it."""
        method = handler_call_details.method
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        metadata = handler_call_details.invocation_metadata or ()
        caller, rule = ANONYMOUS, PROBE
        try:
            if not method.startswith(_HEALTH):
                rule = self._rules.get(method, Rule(_ANY, waits=True))
                if rule.token_of is not None and self._needs_token(metadata):
                    return self._identifying(handler, method, rule)
                caller = self._tokens.caller(metadata)
                if method not in self._rules and method.startswith(self._ruled):
                    raise Refused(f"method {method} is not offered", known=True)
                caller.need(*rule.roles, what=method.rpartition("/")[2])
        except Refused as refusal:
            identity = caller.identity if refusal.known else ""
            self._refusals.log(identity, logging.INFO, "refused a call of %s: %s", method, refusal)
            return self._refusing(error_status(refusal))
        if handler.request_streaming:
            return self._streaming(handler, rule, caller)
        inner: Handler = handler.unary_stream or handler.unary_unary

        async def call(_: Any, context: Any) -> Any:
            CALLER.set(caller)
            return await self._call(method, rule, inner, context)

        return _reading(call, handler)

    def _needs_token(self, metadata: Any) -> bool:
        """Return True if there are tokens, and *metadata* has none."""
        return len(self._tokens) > 0 and all(key.lower() != "authorization" for key, _ in metadata)

    def _identifying(self, handler: Any, method: str, rule: Rule) -> Any:
        """Return the handler of a call whose request has the token of its caller.

        Until the token is known, the call is counted as a probe.
        """
        inner: Handler = handler.unary_stream or handler.unary_unary

        async def identified(request: Any, context: Any) -> Any:
            assert rule.token_of is not None  # noqa: S101 - by its caller
            token = rule.token_of(request)
            given = () if token is None else (("authorization", f"Bearer {token}"),)
            caller = self._tokens.caller(given)
            caller.need(*rule.roles, what=method.rpartition("/")[2])
            CALLER.set(caller)
            CALL_BUDGET.get().leave()  # a probe no more
            self._enter(rule, context)
            return await inner(request, context)

        async def call(_: Any, context: Any) -> Any:
            CALLER.set(UNIDENTIFIED)
            return await self._call(method, PROBE, identified, context)

        return _reading(call, handler)

    async def _call(self, method: str, rule: Rule, inner: Handler, context: Any) -> Any:
        try:
            try:
                budget = self._enter(rule, context)
                request = await self._admission.request(budget, context)
                if rule.large:
                    await self._admission.reply(budget, MAX_BYTES)
            except BrokerError as full:
                if rule.fallback_response is None:
                    raise
                self._log_refusal(logging.WARNING, "%s got an empty response: %s", method, full)
                await asyncio.sleep(_PAUSE_S)
                return rule.fallback_response()
            result = await inner(request, context)
            if result is not None:
                budget.replies(len(result) if isinstance(result, bytes) else result.ByteSize())
            context.set_trailing_metadata(self._metadata)
        except (grpc.RpcError, grpc.aio.AbortError):
            raise
        except grpc.aio.InternalError:
            logger.info("a client of %s disconnected before its response was written", method)
            return None
        except Exception as error:
            status = self._status(method, error)
        else:
            return result
        await context.abort(status.status, status.message, (*self._metadata, *status.metadata))
        return None

    def _status(self, method: str, error: Exception) -> ErrorStatus:
        """Return the status that a client gets for an error. Log what operators should see."""
        match error:
            case Refused():
                self._log_refusal(logging.INFO, "refused a call of %s: %s", method, error)
            case DecodeError():
                return error_status(BrokerError("invalidValue", "the request cannot be decoded"))
            case RSMQError():
                pass
            case _:
                # The request is not logged: it may contain a body.
                logger.error("%s failed in an unexpected way; please report it", method,
                             exc_info=error)  # fmt: skip
        return error_status(error)

    def _log_refusal(self, level: int, text: str, method: str, why: Exception) -> None:
        self._refusals.log(CALLER.get().identity, level, text, method, why)

    def _enter(self, rule: Rule, context: Any) -> CallBudget:
        """Admit a call, and count what it takes until its reply is written."""
        if rule is PROBE:
            # All connections from one machine count as one caller.
            budget = self._admission.probe(context.peer().rpartition(":")[0])
        else:
            budget = self._admission.enter(rule, CALLER.get().identity)
        context.add_done_callback(budget.leave)
        CALL_BUDGET.set(budget)
        return budget

    def _streaming(self, handler: Any, rule: Rule, caller: Caller) -> Any:
        """Admit a call whose handler reads its own stream; one request of it is counted."""

        async def call(requests: Any, context: Any) -> Any:
            CALLER.set(caller)
            try:
                budget = self._enter(rule, context)
                await self._admission.expect(budget)
            except BrokerError as full:
                status = error_status(full)
                await context.abort(status.status, status.message, status.metadata)
            async for reply in handler.stream_stream(requests, context):
                yield reply

        return grpc.stream_stream_rpc_method_handler(
            call,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _refusing(self, status: ErrorStatus) -> Any:
        """Return a handler that refuses the call without reading its request."""

        async def refuse(_: Any, context: Any) -> None:
            await context.abort(status.status, status.message, (*self._metadata, *status.metadata))

        return grpc.stream_stream_rpc_method_handler(refuse)


def _reading(call: Handler, handler: Any) -> Any:
    """Return a handler that reads its one request itself, by *call*."""
    make = (
        grpc.stream_stream_rpc_method_handler
        if handler.response_streaming
        else grpc.stream_unary_rpc_method_handler
    )
    return make(
        call,
        request_deserializer=handler.request_deserializer,
        response_serializer=_as_bytes,
    )


def _as_bytes(response: Any) -> bytes:
    """Return a response as bytes, which that of a call with a request id already is."""
    found: bytes = response if isinstance(response, bytes) else response.SerializeToString()
    return found
