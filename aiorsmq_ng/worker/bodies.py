"""Bodies: from a handler's annotation to what reads a message; what can never fit is refused."""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Callable
from typing import Any

from ..codec import Codec, Compressed, name_of
from ..errors import InvalidValue
from ..models import Message

#: Return the body of a message as the type that was asked for, or raise ``InvalidValue``.
Reader = Callable[[Message], Any]

#: How many findings about one body are told.
_FINDINGS = 5


def reader(wanted: Any, codec: Codec) -> Reader:
    """Return what reads bodies as *wanted*; ``InvalidValue`` if no body could ever fit."""
    if wanted is bytes:
        return lambda message: message.body
    if wanted is str:
        return _text
    # pydantic's models know best how to read themselves; it need not be installed for this.
    if validate := getattr(wanted, "model_validate_json", None):
        return _validating(validate, wanted, codec)
    if _holds_model(wanted, set()):
        return _validating(_adapted(wanted), wanted, codec)
    # A codec of the user's own may know any type.
    if check := getattr(codec, "check", None):
        check(wanted)
    return lambda message: codec.decode(message.body, wanted)


def _text(message: Message) -> str:
    # Errors are raised outside of ``except``: those of decoders may hold the body.
    try:
        return message.text
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 text: {error.reason}"
    raise InvalidValue(f"body {fault}")


def _validating(validate: Callable[[bytes], Any], wanted: Any, codec: Codec) -> Reader:
    known: set[str] = set()
    _add_names(wanted, known, set())

    def read(message: Message) -> Any:
        body = codec.open(message.body) if isinstance(codec, Compressed) else message.body
        try:
            return validate(body)
        except ValueError as error:
            fault = _faults(error, known)
        raise InvalidValue(f"body does not fit {name_of(wanted)}: {fault}")

    return read


def _adapted(wanted: Any) -> Callable[[bytes], Any]:
    """Return pydantic's way to read a type that holds one of its models."""
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        raise InvalidValue(f"bodies of type {wanted} need pydantic, which is not here") from None
    try:
        validate: Callable[[bytes], Any] = pydantic.TypeAdapter(wanted).validate_json
    except pydantic.errors.PydanticUserError as error:
        fault = str(error).splitlines()[0]
    else:
        return validate
    raise InvalidValue(f"bodies cannot be read as {wanted} by pydantic: {fault}")


def _holds_model(hint: Any, seen: set[type]) -> bool:
    """Return True if a model of pydantic is part of *hint*: in a list, a union, a dataclass, ..."""
    if hasattr(hint, "model_validate_json"):
        return True
    parts = list(typing.get_args(hint))
    if isinstance(hint, type) and hint not in seen and _has_fields(hint):
        seen.add(hint)
        try:
            parts += typing.get_type_hints(hint).values()
        except Exception:  # the codec says what is wrong with it
            return False
    return any(_holds_model(part, seen) for part in parts)


def _has_fields(kind: type) -> bool:
    # Of msgspec's structs, of attrs, of typed dictionaries (from any module), of named tuples.
    marks = ("__struct_fields__", "__attrs_attrs__", "__required_keys__", "_fields")
    return dataclasses.is_dataclass(kind) or any(hasattr(kind, mark) for mark in marks)


def _add_names(hint: Any, known: set[str], seen: set[type]) -> None:
    """Add the names of the fields and classes in *hint*: what may stand in an error."""
    for part in typing.get_args(hint):
        _add_names(part, known, seen)
    if not isinstance(hint, type) or hint in seen:
        return
    seen.add(hint)
    known.add(hint.__name__)
    fields = getattr(hint, "model_fields", {})
    for field in fields.values():
        aliases = (getattr(field, "alias", None), getattr(field, "validation_alias", None))
        known.update(alias for alias in aliases if isinstance(alias, str))
    if fields or _has_fields(hint):
        try:
            parts = typing.get_type_hints(hint)
        except Exception:  # a name that stands for nothing here; pydantic may know better
            parts = dict.fromkeys(fields)
        known.update(parts)
        for part in parts.values():
            _add_names(part, known, seen)


def _faults(error: ValueError, known: set[str]) -> str:
    """Return pydantic's findings, and where, without what stands there: keys are of the body."""
    entries = error.errors() if callable(getattr(error, "errors", None)) else []  # type: ignore[attr-defined]
    found = []
    for entry in entries[:_FINDINGS]:
        steps = (str(p) if isinstance(p, int) or p in known else "*" for p in entry["loc"])
        found.append(": ".join(filter(None, [".".join(steps), entry["type"]])))
    if len(entries) > _FINDINGS:
        found.append(f"{len(entries) - _FINDINGS} more")
    return ", ".join(found) or type(error).__name__
