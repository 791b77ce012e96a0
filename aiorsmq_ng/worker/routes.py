"""Routes: which handler serves a queue, and what it wants to be called with."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from ..codec import Codec, Compressed
from ..delivery import Delivery
from ..errors import InvalidValue
from ..models import Message
from ..queue import Queue
from ..retry import Retry

Handler = Callable[..., Awaitable[Any]]
#: What a middleware calls to go on.
Next = Callable[[], Awaitable[Any]]
#: Wraps the handling of one message (or of a batch, given its first message).
Middleware = Callable[[Delivery, Next], Awaitable[Any]]
#: Called when the worker starts or stops.
Hook = Callable[[], Awaitable[Any]]
#: Called with a message and what its handling raised.
FailureHook = Callable[[Delivery, BaseException], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One queue with its handler and the rules for its messages."""

    queue: str
    handler: Handler
    retry: Retry
    dead_letter: str | None
    timeout: float | None
    vt: float | None
    weight: int = 1
    #: Batches: messages per call, and how long to wait for them after the first.
    size: int = 0
    wait: float = 0.0

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValue(f"timeout must be more than 0 seconds, not {self.timeout!r}")
        if self.weight < 1:
            raise InvalidValue(f"weight must be at least 1, not {self.weight!r}")
        if not inspect.iscoroutinefunction(self.handler):
            raise InvalidValue(f"handler {_name(self.handler)} must be an async function")
        wanted = parameters(self.handler)
        if self.size and wanted != [Delivery]:
            raise InvalidValue(
                f"batch handler {self.name} must take one argument: a list of deliveries"
            )
        if self.dead_letter == self.queue:
            raise InvalidValue(f"queue {self.queue!r} cannot be its own dead-letter queue")

    @property
    def name(self) -> str:
        """Name of the handler, for logs."""
        return _name(self.handler)

    def arguments(self, delivery: Delivery, codec: Codec) -> list[Any]:
        """Return what the handler is called with; ``InvalidValue`` if the body does not fit."""
        return [
            delivery if wanted is Delivery else decode(delivery, wanted, codec)
            for wanted in parameters(self.handler)
        ]


@dataclass(frozen=True, slots=True)
class Served:
    """A route together with the queue handle it receives from."""

    route: Route
    queue: Queue


@cache
def parameters(handler: Handler) -> list[Any]:
    """Return what each parameter of *handler* wants: ``Delivery``, or a type for the body."""
    try:
        hints = get_type_hints(handler)
    except Exception as error:
        raise InvalidValue(f"annotations of {_name(handler)} cannot be read: {error}") from error
    wanted: list[Any] = []
    for parameter in inspect.signature(handler).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        hint = hints.get(parameter.name, Delivery if not wanted else Any)
        if typing.get_origin(hint) is list and _is_message(typing.get_args(hint)[0]):
            hint = Delivery
        wanted.append(Delivery if _is_message(hint) else hint)
    if len(wanted) not in (1, 2) or (len(wanted) == 2 and Delivery not in wanted):
        raise InvalidValue(
            f"handler {_name(handler)} must take the body, the delivery, or both, "
            f"not {len(wanted)} arguments"
        )
    return wanted


def decode(message: Message, wanted: Any, codec: Codec) -> Any:
    """Return the body of *message* as the type *wanted*."""
    if wanted is bytes:
        return message.body
    # Errors are raised outside of ``except``: those of decoders may hold the body.
    if wanted is str:
        try:
            return message.text
        except UnicodeDecodeError as error:
            fault = f"is not UTF-8 text: {error.reason}"
        raise InvalidValue(f"body {fault}")
    # pydantic's models know best how to read themselves; it need not be installed for this.
    if validate := getattr(wanted, "model_validate_json", None):
        body = codec.open(message.body) if isinstance(codec, Compressed) else message.body
        try:
            return validate(body)
        except ValueError as error:
            fault = _faults(error, wanted)
        raise InvalidValue(f"body does not fit {_name(wanted)}: {fault}")
    return codec.decode(message.body, wanted)


def _faults(error: ValueError, model: Any) -> str:
    """Return pydantic's findings without what they quote from the body."""
    fields, found = getattr(model, "model_fields", {}), []
    for entry in error.errors() if callable(getattr(error, "errors", None)) else []:  # type: ignore[attr-defined]
        known = [str(part) for part in entry["loc"][:1] if part in fields]
        found.append(" ".join([*known, entry["type"]]))
    return ", ".join(found) or type(error).__name__


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Message)


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", thing))
