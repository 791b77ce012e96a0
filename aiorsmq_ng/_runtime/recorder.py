"""The recorder: turns what a client does into reports for its outlets (``telemetry/hooks.py``).

There is one for each client that has outlets, and none for a client without: every place that
reports asks ``if recorder is not None``. A recorder knows what operations mean; outlets do not.
Errors of an outlet never reach the program; they are logged once for each client, outlet and type.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from .._common.bounded_dict import BoundedDict
from .._common.message_headers import add_headers
from .._protocol.operation import Operation
from .._protocol.operations import messages
from .._protocol.operations.message_values import Received
from .._protocol.operations.recovery import Recovered
from ..errors import LeaseLost, RSMQError
from ..models import Message
from ..telemetry.hooks import (
    CANCELLED,
    OPERATION_TYPES,
    After,
    ClientCall,
    Handled,
    HandledOutcome,
    ObservedWorker,
    Process,
    Receive,
    Telemetry,
)

if TYPE_CHECKING:
    from .._transport.transport import Transport

M = TypeVar("M", bound=Message)

logger = logging.getLogger("aiorsmq_ng.telemetry")

#: Kinds of operations that have another name as a verb.
_VERBS = {"receive_first": "receive", "ack_many": "ack", "delete_leased": "delete"}
#: A function to call at the end, and the outlet that it is of.
_After = tuple[Telemetry, After]
#: Lost leases that are remembered, so that each is reported once.
_LOST = 10_000


class Recorder:
    """Reports what one client does; also the ``Observer`` of its transport."""

    def __init__(self, outlets: Sequence[Telemetry], transport: Transport, namespace: str) -> None:
        self.outlets = tuple(outlets)
        self._transport = transport
        self._namespace = namespace
        self._lost: BoundedDict[tuple[Any, ...], None] = BoundedDict(_LOST)
        #: What has been logged: an outlet that failed, or the recorder, and the type of the error.
        self._faults: set[tuple[int, type[Exception]]] = set()
        for outlet in self.outlets:
            self._report(outlet, outlet.on_client, self)

    @property
    def namespace(self) -> str:
        """The namespace of the client."""
        return self._namespace

    @property
    def is_open(self) -> bool:
        """True from the client's first call until it is closed."""
        return self._transport.is_started

    @property
    def is_connected(self) -> bool:
        """True if the server has answered, and still does."""
        status = self._transport.server_status
        return self.is_open and status.last_reply is not None and not status.away

    # What a transport reports.

    def begin(
        self, operation: Operation[Any]
    ) -> tuple[Operation[Any], Callable[[asyncio.Future[Any]], object]]:
        """Report that *operation* begins; return it, and what is to be called at its end."""
        call = self._report(self, _describe, operation)
        if call is None:
            return operation, lambda _: None
        afters = self._begin(Telemetry.on_call.__name__, call)
        if call.headers and call.type == "send":
            request = operation.request
            texts = add_headers(request.headers, call.headers)
            operation = Operation(operation.kind, replace(request, headers=texts))
        return operation, partial(self._end, operation, call, afters, time.perf_counter())

    def retried(self, operation: Operation[Any]) -> None:
        """Report that a call is made again."""
        keys = operation.request.keys
        verb = _verb(operation)
        for outlet in self.outlets:
            self._report(outlet, outlet.on_retry, verb, keys.namespace.name, keys.queue)

    def lease_lost(self, namespace: str, queue: str, receipt: Any) -> None:
        """Report a lost lease, once."""
        key = (namespace, queue, receipt.id, receipt.rc)
        if key not in self._lost:
            self._lost[key] = None
            for outlet in self.outlets:
                self._report(outlet, outlet.on_lease_lost, namespace, queue)

    def _end(
        self,
        operation: Operation[Any],
        call: ClientCall,
        afters: Sequence[_After],
        began: float,
        future: asyncio.Future[Any],
    ) -> None:
        call.duration = time.perf_counter() - began
        if future.cancelled():
            call.error = CANCELLED
        elif (error := future.exception()) is not None:
            call.error = code_of(error)
            if isinstance(error, LeaseLost):
                self._note_lost(operation, [error])
        else:
            self._report(self, self._read, operation, call, future.result())
        self._finish(afters)

    def _read(self, operation: Operation[Any], call: ClientCall, result: Any) -> None:
        """Complete *call* by what *operation* has returned."""
        kind = operation.kind
        if call.type == "send":
            call.ids = result
        elif call.type == "receive":
            found = result.received if isinstance(result, Recovered) else result
            call.ids = [message.id for message in found.messages]
            call.messages = len(call.ids)
            call.received = _by_queue(found, call.queue)
            if call.operation != "receive":
                call.found = [_message(message) for message in found.messages]
        elif kind is messages.ACK_MANY:
            self._note_lost(operation, result)
            call.messages = result.count(None)
        elif kind is messages.DELETE:
            call.messages = len(result)
        elif kind is messages.REDRIVE:
            call.messages = result

    def _note_lost(self, operation: Operation[Any], losses: Sequence[Any]) -> None:
        request = operation.request
        keys, receipts = request.keys, _receipts(request)
        for receipt, lost in zip(receipts, losses, strict=False):
            if lost is not None:
                self.lease_lost(keys.namespace.name, keys.queue, receipt)

    # What queues, deliveries and workers report.

    @contextmanager
    def resending(self, namespace: str, queue: str) -> Iterator[ClientCall]:
        """Report a repeated send; its caller notes the ids."""
        call = ClientCall(operation="resend", type="send", namespace=namespace, queue=queue)
        afters = self._begin(Telemetry.on_call.__name__, call)
        began = time.perf_counter()
        try:
            yield call
        except BaseException as error:
            call.error = code_of(error)
            raise
        finally:
            call.messages, call.duration = len(call.ids), time.perf_counter() - began
            self._finish(afters)

    async def receive(
        self,
        namespace: str,
        queues: Sequence[str],
        count: int,
        wait_s: float,
        receiving: Awaitable[list[M]],
    ) -> list[M]:
        """Await *receiving*, by which the program asks for messages, and report it."""
        receive = Receive(
            operation="receive", namespace=namespace, queues=queues, count=count, wait=wait_s
        )
        afters = self._begin(Telemetry.on_receive.__name__, receive)
        try:
            receive.messages = found = await receiving
        except BaseException as error:
            receive.error = code_of(error)
            raise
        finally:
            self._finish(afters)
        return found

    @contextmanager
    def processing(
        self, namespace: str, queue: str, batch: Sequence[Message], handler: str = ""
    ) -> Iterator[Process]:
        """Run a handler or a block in the contexts that the outlets give."""
        process = Process(
            namespace=namespace,
            queue=queue,
            messages=batch,
            handler=handler,
            waits=[wait for message in batch if (wait := _wait_of(message)) is not None],
        )
        began = time.perf_counter()
        with ExitStack() as contexts:
            for outlet in self.outlets:
                context = self._report(outlet, outlet.on_process, process)
                if context is not None:
                    contexts.enter_context(self._guarded(outlet, context))
            try:
                yield process
            except BaseException as error:
                process.error = type(error).__name__
                raise
            finally:
                process.duration = time.perf_counter() - began

    def handled(self, namespace: str, queue: str, outcome: HandledOutcome, count: int = 1) -> None:
        """Report what became of messages."""
        handled = Handled(namespace=namespace, queue=queue, outcome=outcome, count=count)
        for outlet in self.outlets:
            self._report(outlet, outlet.on_handled, handled)

    @contextmanager
    def working(self, worker: ObservedWorker) -> Iterator[None]:
        """Report a worker while it runs."""
        afters = self._begin(Telemetry.on_worker.__name__, worker)
        try:
            yield
        finally:
            self._finish(afters)

    def _begin(self, method: str, report: object) -> list[_After]:
        afters = []
        for outlet in self.outlets:
            after = self._report(outlet, getattr(outlet, method), report)
            if after is not None:
                afters.append((outlet, after))
        return afters

    def _finish(self, afters: Sequence[_After]) -> None:
        for outlet, after in afters:
            self._report(outlet, after)

    def _report(
        self, part: Telemetry | Recorder, report: Callable[..., Any], *values: object
    ) -> Any:
        """Call *report*, of an outlet or of the recorder; return ``None`` if it raises."""
        try:
            return report(*values)
        except Exception as error:
            self._log_fault(part, error)
            return None

    @contextmanager
    def _guarded(self, outlet: Telemetry, context: Any) -> Iterator[None]:
        """Enter and leave a context of an outlet; the program sees only its own errors."""
        if not self._report(outlet, _enter, context):
            yield
            return
        try:
            yield
        except BaseException as error:
            self._report(outlet, context.__exit__, type(error), error, error.__traceback__)
            raise
        else:
            self._report(outlet, context.__exit__, None, None, None)

    def _log_fault(self, part: Telemetry | Recorder, error: Exception) -> None:
        """Log *error*, unless this part has raised one of its type before."""
        fault = (id(part), type(error))
        if fault not in self._faults:
            self._faults.add(fault)
            logger.error(
                "telemetry: %s failed, and what it was to count or trace is missing; further "
                "errors of type %s are not logged", type(part).__name__, type(error).__name__,
                exc_info=error,
            )  # fmt: skip


#: Return the recorder of a client; ``None`` without telemetry. For other modules of this package.
recorder_of: Callable[[Any], Recorder | None] = attrgetter("_recorder")


def code_of(error: BaseException) -> str:
    """Return the code of an error of this library, or the name of the class of another."""
    if isinstance(error, RSMQError):
        return error.code
    return CANCELLED if isinstance(error, asyncio.CancelledError) else type(error).__name__


def _enter(context: Any) -> bool:
    context.__enter__()
    return True


def _describe(operation: Operation[Any]) -> ClientCall:
    request, verb = operation.request, _verb(operation)
    keys = request.keys
    call = ClientCall(
        operation=verb,
        type=OPERATION_TYPES.get(verb, ""),
        namespace=keys.namespace.name,
        queue=keys.queue,
    )
    if call.type == "send":
        call.messages, call.has_headers = len(request.bodies), bool(request.headers)
        call.batch = call.messages != 1
    elif call.type == "settle":
        call.ids = [receipt.id for receipt in _receipts(request)]
        call.messages = len(call.ids)
        call.batch = operation.kind is messages.ACK_MANY
    elif verb in ("pop", "recover"):
        call.batch = request.count != 1
    elif operation.kind is messages.DELETE:
        call.ids, call.messages = request.ids, len(request.ids)
    return call


def _verb(operation: Operation[Any]) -> str:
    name = operation.kind.name
    if operation.kind is messages.VISIBILITY:
        request = operation.request
        if request.receipt is None:
            return "change_visibility"
        return "release" if request.how or not request.vt_ms else "extend"
    return _VERBS.get(name, name)


def _receipts(request: Any) -> Sequence[Any]:
    if isinstance(request, messages.AckManyRequest):
        return request.receipts
    return [request.receipt]


def _message(found: Any) -> Message:
    if isinstance(found, Message):
        return found
    return Message(found.id, found.body, found.rc, found.fr, found.headers)


def _by_queue(found: Received | messages.Popped, queue: str) -> Mapping[str, int]:
    """Count received messages by queue: a receive may find those of several."""
    if not found.messages:
        return {}
    if isinstance(found, Received):
        return Counter(message.keys.queue for message in found.messages)
    return {queue: len(found.messages)}


def _wait_of(message: Message) -> float | None:
    """Return the seconds from the send of a message to now; ``None`` if that says nothing.

    By the clocks of two machines: never less than 0. Of a later delivery it would be the time of
    the earlier ones, too.
    """
    sent = message.sent if message.rc == 1 else None
    return None if sent is None else max(0.0, time.time() - sent / 1000)
