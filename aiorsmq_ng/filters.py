"""The language of filters: a condition on one message, validated before it is used.

It is the subset of Python's expressions that compares values. It cannot call, assign or import,
so a filter can only evaluate to true or false.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from .errors import InvalidValue
from .models import Message

#: Names that a filter may use, and their values.
NAMES: dict[str, Callable[[Message], Any]] = {
    "id": lambda message: message.id,
    "rc": lambda message: message.rc,
    "fr": lambda message: message.fr,
    "sent": lambda message: message.sent,
    "size": lambda message: len(message.body),
    "text": lambda message: message.body.decode(errors="backslashreplace"),
    "body": lambda message: _json(message.body),
}
_WORDS = {"true": True, "false": False, "null": None}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, container: value in container,
    ast.NotIn: lambda value, container: value not in container,
}

Value = Callable[[Any], Any]
_REASON = "reason"


class Filter:
    """A condition on a message."""

    def __init__(self, tree: ast.expr) -> None:
        #: Reasons of rejection by message id; the caller fills it in if the filter uses them.
        self.reasons: dict[str, str | None] = {}
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        self.needs_reasons = _REASON in names
        self._value = _build(tree, {**NAMES, _REASON: lambda m: self.reasons.get(m.id)})

    def __call__(self, message: Message) -> bool:
        """Return True if the message matches."""
        return bool(self._value(message))


def compile_filter(text: str) -> Filter:
    """Compile the condition *text* to a predicate on a message; ``InvalidValue`` if it is none.

    Args:
        text: such as ``body.type == 'invoice' and rc > 3``.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidValue(f"{_shortened(text)!r} is not a valid filter; {_HINT}") from None
    return Filter(tree.body)


#: Characters of a filter that an error repeats.
_REPEATED = 200


def _shortened(text: str) -> str:
    return text if len(text) <= _REPEATED else text[:_REPEATED] + "..."


_HINT = "write it like: body.type == 'invoice' and rc > 3"


def _build(node: ast.expr, names: Mapping[str, Value]) -> Value:
    def build(part: ast.expr) -> Value:
        return _build(part, names)

    match node:
        case ast.Constant(value=value) if isinstance(value, str | int | float | None):
            return lambda _: value
        case ast.Name(id=name) if name in _WORDS:
            return lambda _: _WORDS[name]
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Name(id=name):
            known = ", ".join(names)
            raise InvalidValue(f"unknown name {_shortened(name)!r} in a filter; use one of {known}")
        case ast.Attribute(value=inner, attr=key):
            return _get(build(inner), lambda _: key)
        case ast.Subscript(value=inner, slice=key):
            return _get(build(inner), build(key))
        case ast.List(elts=items) | ast.Tuple(elts=items):
            built = [build(item) for item in items]
            return lambda message: [item(message) for item in built]
        case _:
            return _build_logic(node, build)


def _build_logic(node: ast.expr, build: Callable[[ast.expr], Value]) -> Value:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            parts = [build(value) for value in values]
            return lambda message: all(part(message) for part in parts)
        case ast.BoolOp(values=values):
            parts = [build(value) for value in values]
            return lambda message: any(part(message) for part in parts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = build(operand)
            return lambda message: not inner(message)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return lambda _: -number
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(
            type(op) in _COMPARE for op in ops
        ):
            sides = [build(side) for side in (left, *rights)]
            return _compare(sides, [_COMPARE[type(op)] for op in ops])
    raise InvalidValue(f"a filter cannot contain {_shortened(ast.unparse(node))!r}; {_HINT}")


def _compare(values: list[Value], tests: list[Callable[[Any, Any], bool]]) -> Value:
    def holds(message: Message) -> bool:
        found = [value(message) for value in values]
        try:
            return all(test(a, b) for test, a, b in zip(tests, found, found[1:], strict=False))
        except TypeError:
            return False  # text and numbers cannot be ordered
        except RecursionError:
            return False  # nested too deeply to compare

    return holds


def _get(value: Value, key: Value) -> Value:
    """Return the value at a key or an index; None if there is none."""

    def get(message: Message) -> Any:
        try:
            return value(message)[key(message)]
        except (KeyError, IndexError, TypeError):
            return None

    return get


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None  # not JSON, or nested too deeply to parse
