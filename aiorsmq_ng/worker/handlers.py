"""Handlers: the function that serves a queue, the arguments it takes, and its rules."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from ..codec import Codec, Reader, reader
from ..delivery import Delivery
from ..errors import InvalidValue
from ..models import DeadLetter, Message
from ..queue import Queue
from ..rmq import RmqQueue

#: Handles a message: takes the body, the ``Delivery``, or both.
Handler = Callable[..., Awaitable[Any]]
#: Called by a middleware to continue with the next one, or the handler.
Next = Callable[[], Awaitable[Any]]
#: Wraps the handling of one message (or of a batch, given its first message).
Middleware = Callable[[Delivery, Next], Awaitable[Any]]
#: Called when the worker starts or stops.
Hook = Callable[[], Awaitable[Any]]
#: Called with a message that was moved to its dead-letter queue, its queue and the reason. The
#: message has no lease: it is a ``Message``, no ``Delivery``.
DeadLetterHook = Callable[[DeadLetter], Awaitable[Any]]
#: Called with a message and the error of its handler.
FailureHook = Callable[[Delivery, Exception], Awaitable[Any]]

#: Decorators return the function they are given, with its own type.
H = TypeVar("H", bound=Handler)
M = TypeVar("M", bound=Middleware)
K = TypeVar("K", bound=Hook)
F = TypeVar("F", bound=FailureHook)
D = TypeVar("D", bound=DeadLetterHook)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredHandler:
    """A handler as it was registered, and the rules for its messages."""

    function: Handler
    #: The decoder of each argument of the function; ``None`` for the delivery itself.
    readers: tuple[Reader | None, ...]
    timeout: float | None
    weight: int = 1
    #: Batches: messages per call, and seconds to wait for them after the first.
    size: int = 0
    wait: float = 0.0

    def __post_init__(self) -> None:
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidValue(f"timeout must be more than 0 seconds, not {self.timeout!r}")
        if self.weight < 1:
            raise InvalidValue(f"weight must be at least 1, not {self.weight!r}")
        if self.size and self.readers != (None,):
            raise InvalidValue(
                f"batch handler {self.name} must take one argument: a list of deliveries"
            )

    @property
    def name(self) -> str:
        """Name of the function, for logs."""
        return _name(self.function)

    def arguments(self, delivery: Delivery) -> list[Any]:
        """Return the arguments for *delivery*; ``InvalidValue`` if its body does not decode."""
        return [delivery if read is None else read(delivery.body) for read in self.readers]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHandler(RegisteredHandler):
    """A handler of a queue of RSMQ.

    The lease, the retry policy and the dead-letter queue are those of the queue handle.
    """

    queue: Queue

    @property
    def ns(self) -> str:
        """The namespace of its queue."""
        return self.queue.ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RmqHandler(RegisteredHandler):
    """A handler of a queue of rmq; what fails goes to its push queue, or is rejected."""

    queue: RmqQueue

    @property
    def ns(self) -> str:
        """Empty: rmq has no namespaces."""
        return ""


def readers(handler: Handler, codec: Codec) -> tuple[Reader | None, ...]:
    """Return the decoder of each argument of *handler*, ``None`` for the delivery.

    Raises ``InvalidValue`` if it cannot be a handler, or has an annotation that no body can match.
    """
    found: list[Reader | None] = []
    for wanted in _wanted(handler):
        try:
            found.append(None if wanted is Delivery else reader(wanted, codec))
        except InvalidValue as error:
            raise InvalidValue(f"handler {_name(handler)} cannot be called: {error}") from error
    return tuple(found)


def check_queue_name(queue: object) -> None:
    """Raise ``InvalidValue`` if a decorator was given no name of a queue."""
    if callable(queue):
        raise InvalidValue(
            f'handler {_name(queue)} has no queue; write @worker.handler("jobs") above it'
        )
    if not isinstance(queue, str | RmqQueue):
        raise InvalidValue(f"queue of a handler must be a name, not {queue!r}; or an RmqQueue")


def check_coroutine_function(what: str, function: Callable[..., Any], *, arguments: int) -> None:
    """Raise ``InvalidValue`` unless *function* is async and takes *arguments* arguments."""
    if not inspect.iscoroutinefunction(_called(function)):
        raise InvalidValue(f"{what} {_name(function)} must be an async function")
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError as error:
        number = f"{arguments or 'no'} argument{'s' * (arguments != 1)}"
        raise InvalidValue(f"{what} {_name(function)} must take {number}: {error}") from error


def _called(function: Any) -> Any:
    """Return the function behind a partial, or behind an object with ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type):
        function = getattr(function, "__call__", None)  # noqa: B004 - an object that can be called
    return function


def _wanted(handler: Handler) -> list[Any]:
    """Return the type of each parameter of *handler*: ``Delivery``, or a type for the body."""
    function = _called(handler)
    if not inspect.iscoroutinefunction(function):
        raise InvalidValue(f"handler {_name(handler)} must be an async function")
    try:
        hints = get_type_hints(function)
    except Exception as error:
        advice = (
            "; define it at the top level of its module" if isinstance(error, NameError) else ""
        )
        raise InvalidValue(
            f"annotations of {_name(handler)} cannot be read: {error}{advice}"
        ) from error
    wanted: list[Any] = []
    names: list[str] = []
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
        names.append(parameter.name)
    if len(wanted) not in (1, 2) or (len(wanted) == 2 and Delivery not in wanted):
        what = "bodies" if len(wanted) == 2 else "arguments"
        raise InvalidValue(
            f"handler {_name(handler)} must take the body, the delivery, or both, not "
            f"{len(wanted)} {what} ({', '.join(names)}); write "
            "async def handler(body: dict, message: Delivery)"
        )
    return wanted


def _is_message(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Message)


def _name(thing: Any) -> str:
    return str(getattr(thing, "__qualname__", thing))
