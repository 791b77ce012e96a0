"""Traces for OpenTelemetry: spans by its API. SDK and propagator are those of the application.

Names, kinds and attributes are those of the conventions for messaging, version 1.44. What these
leave open is decided in docs/guides/tracing.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, Literal

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TracerProvider,
    get_current_span,
    get_tracer,
    set_span_in_context,
)

from .._common.bounded_dict import BoundedDict
from ..errors import InvalidValue, RSMQError
from ..models import Message
from .hooks import CANCELLED, ClientCall, Process, Receive, Telemetry

#: The conventions that the names are of.
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
#: Verbs that are traced where the client makes the call; a receive is where the program asks.
_TRACED = frozenset(
    {"send", "publish", "resend", "pop", "recover"}
    | {"ack", "release", "extend", "reject", "forward", "redrive"}
)
#: Error of a publish that did nothing, because subscriptions have changed; it is made again.
_AGAIN = "topicChanged"
#: Messages whose spans are remembered until they are settled.
_OPEN = 10_000
#: What joins the parts of the name of a topic's queue.
_MARK = "__"

_Attributes = dict[str, Any]


class OpenTelemetryTraces(Telemetry):
    """Makes a span of every send, receive, handler and settlement, by the API of OpenTelemetry.

    The context of a sampled send travels in the headers of the message, by the global propagator
    (``OTEL_PROPAGATORS``), and the span of its receiver links to it. Headers that the program has
    given are never overwritten.

    Args:
        tracer_provider: the provider; by default the global one.
        parent: ``"link"``: spans of receivers link to the sender's. ``"producer"``: the span of a
            handler or block for a single message is a child of the sender's, unless another span is
            current there.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        parent: Literal["link", "producer"] = "link",
    ) -> None:
        if parent not in ("link", "producer"):
            raise InvalidValue(f"parent must be 'link' or 'producer', not {parent!r}")
        self._tracer = get_tracer("aiorsmq_ng", version("aiorsmq-ng"), tracer_provider, SCHEMA)
        self._parent = parent
        self._open: BoundedDict[tuple[str, str, str], SpanContext] = BoundedDict(_OPEN)

    def on_call(self, call: ClientCall) -> Callable[[], object] | None:
        """Trace *call*, if it is about messages; let it carry the context of its span."""
        if call.operation not in _TRACED:
            return None
        attributes = _attributes(call.operation, call.type, call.namespace, [call.queue])
        if call.type == "settle" or call.operation == "redrive":
            return self._settling(call, attributes)
        injects = call.operation in ("send", "publish")
        if injects and call.batch:
            attributes["messaging.batch.message_count"] = call.messages
        kind = SpanKind.PRODUCER if injects else SpanKind.CLIENT
        span = self._tracer.start_span(_name(attributes), kind=kind, attributes=attributes)
        own = span.get_span_context()
        if injects and (own.trace_flags.sampled or (call.has_headers and own.is_valid)):
            propagate.inject(call.headers, set_span_in_context(span))
        return partial(_end_call, span, call) if span.is_recording() else None

    def on_receive(self, receive: Receive) -> Callable[[], object] | None:
        """Trace *receive*, and link it to the senders of what it finds."""
        attributes = _attributes(receive.operation, "receive", receive.namespace, receive.queues)
        span = self._tracer.start_span(
            _name(attributes), kind=SpanKind.CLIENT, attributes=attributes
        )
        return partial(_end_receive, span, receive) if span.is_recording() else None

    @contextmanager
    def on_process(self, process: Process) -> Iterator[Span]:
        """Run the handler or block *process* inside its span."""
        batch = process.messages
        attributes = _attributes("process", "process", process.namespace, [process.queue])
        if process.handler:
            attributes["messaging.rsmq.handler"] = process.handler
        if len(batch) == 1:
            attributes["messaging.message.id"] = batch[0].id
            attributes["messaging.rsmq.receive_count"] = batch[0].rc
        else:
            attributes["messaging.batch.message_count"] = len(batch)
        senders, context = _senders(batch), None
        current = get_current_span().get_span_context().is_valid
        if self._parent == "producer" and len(batch) == len(senders) == 1 and not current:
            context = set_span_in_context(NonRecordingSpan(senders[0]))
        with self._tracer.start_as_current_span(
            _name(attributes),
            context,
            SpanKind.CONSUMER,
            attributes,
            [Link(sender) for sender in senders],
        ) as span:
            own = span.get_span_context()
            if own.is_valid:
                for message in batch:
                    self._open[process.namespace, process.queue, message.id] = own
            try:
                yield span
            except BaseException as error:
                span.set_attribute("error.type", _error_type(error))
                if not isinstance(error, Exception):
                    span.set_status(StatusCode.ERROR, _error_type(error))
                raise

    def _settling(self, call: ClientCall, attributes: _Attributes) -> Callable[[], object] | None:
        """Trace the settlement of messages: in the span of their work, if that is known."""
        keys = [(call.namespace, call.queue, id) for id in call.ids]
        works = {work.span_id: work for key in keys if (work := self._open.get(key))}
        current, context = get_current_span().get_span_context(), None
        if current.is_valid:
            works.pop(current.span_id, None)
        elif call.operation == "extend" and not works:
            return None  # renewed in the background, for a program that has no spans
        elif len(keys) == len(works) == 1:
            context = set_span_in_context(NonRecordingSpan(works.popitem()[1]))
        if call.operation != "extend":
            for key in keys:
                self._open.pop(key, None)
        _count(attributes, call.ids, batch=call.batch)
        links = [Link(work) for work in works.values()]
        span = self._tracer.start_span(
            _name(attributes), context, SpanKind.CLIENT, attributes, links
        )
        return partial(_end_call, span, call) if span.is_recording() else None


def _attributes(verb: str, type: str, namespace: str, queues: Sequence[str]) -> _Attributes:
    """Return what is known of an operation when it begins: samplers decide by it."""
    # Queues of rmq have no namespace.
    found: _Attributes = {
        "messaging.system": "rsmq" if namespace else "rmq",
        "messaging.operation.name": verb,
    }
    if namespace:
        found["messaging.rsmq.namespace"] = namespace
    if type:
        found["messaging.operation.type"] = type
    if len(queues) != 1:
        return found
    queue = queues[0]
    topic, *parts = queue.split(_MARK)
    if parts == [""]:
        queue = topic  # the topic itself
    elif len(parts) in (1, 2):
        found["messaging.destination.subscription.name"] = parts[0].removesuffix("-dead")
    if len(parts) == 2:
        found["messaging.destination.template"] = _MARK.join((topic, parts[0], "{peer}"))
    found["messaging.destination.name"] = queue
    return found


def _name(attributes: _Attributes) -> str:
    """Return the name of a span: the verb, and where to, without what is different each time."""
    name = attributes.get("messaging.destination.name", "")
    place = attributes.get("messaging.destination.template", name)
    return f"{attributes['messaging.operation.name']} {place}".rstrip()


def _count(attributes: _Attributes, ids: Sequence[str], *, batch: bool) -> None:
    """Add the id of a single message, or the number of those of a batch."""
    if not batch and len(ids) == 1:
        attributes["messaging.message.id"] = str(ids[0])
    else:
        attributes["messaging.batch.message_count"] = len(ids)


def _end_call(span: Span, call: ClientCall) -> None:
    found: _Attributes = {}
    if call.error == _AGAIN:
        return  # not ended, so never exported: the publish that follows has the span
    if call.error is not None:
        _fail(span, call.error)
    elif call.operation == "redrive":
        found["messaging.batch.message_count"] = call.messages
    elif call.type in ("send", "receive"):
        _count(found, call.ids, batch=call.batch)
    elif call.batch:
        found["messaging.batch.message_count"] = call.messages
    span.set_attributes(found)
    for sender in _senders(call.found):
        span.add_link(sender)
    span.end()


def _end_receive(span: Span, receive: Receive) -> None:
    found: _Attributes = {}
    if receive.error is not None and receive.error != CANCELLED:
        _fail(span, receive.error)
    elif receive.count > 1:
        found["messaging.batch.message_count"] = len(receive.messages)
    else:
        for message in receive.messages:
            found["messaging.message.id"] = message.id
            found["messaging.rsmq.receive_count"] = message.rc
    span.set_attributes(found)
    for sender in _senders(receive.messages):
        span.add_link(sender)
    span.end()


def _fail(span: Span, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, code)


def _error_type(error: BaseException) -> str:
    return error.code if isinstance(error, RSMQError) else type(error).__qualname__


def _senders(messages: Iterable[Message]) -> list[SpanContext]:
    """Return the contexts in which messages were sent, each once."""
    found: dict[tuple[int, int], SpanContext] = {}
    for message in messages:
        if headers := message.headers:
            sender = _extract(headers)
            if sender.is_valid:
                found[sender.trace_id, sender.span_id] = sender
    return list(found.values())


def _extract(headers: Mapping[str, Any]) -> SpanContext:
    # Those of rmq have several values, and names in another case.
    if any(isinstance(value, list) for value in headers.values()):
        headers = {name.lower(): value for name, value in headers.items()}
    return get_current_span(propagate.extract(headers, Context())).get_span_context()
