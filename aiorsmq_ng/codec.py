"""How values become bodies and bodies become values.

Errors say what is wrong and where, never what stands there: bodies may be private. They are raised
outside of ``except``, because the error they stand for may hold the whole body.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import types
import typing
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Protocol

import msgspec
import msgspec.inspect

from .errors import InvalidValue

#: First bytes of a compressed body. No text starts like this: 0xF8 does not occur in UTF-8.
COMPRESSED = b"\xf8zlib\x01"
# Where msgspec quotes the body: a value that is none of an enum's, a field that a type lacks.
_QUOTED = re.compile(r"(value|unknown field) (['\"`]).*\2", re.DOTALL)


#: Return the body as the type that was asked for, or raise ``InvalidValue``.
Reader = Callable[[bytes], Any]

#: How many findings about one body an error names.
_FINDINGS = 5
#: What JSON holds.
_PLAIN = (dict, list, str, int, float, bool, type(None))


class Codec(Protocol):
    """Turns values that are neither ``str`` nor ``bytes`` into bodies, and back."""

    def encode(self, value: Any) -> bytes:
        """Return the body for *value*.

        Args:
            value: any value that is neither ``str`` nor bytes.
        """
        ...

    def decode(self, body: bytes, type: Any) -> Any:
        """Return the value of *type* that *body* holds.

        Args:
            body: the stored bytes.
            type: the type of the result.
        """
        ...


def name_of(kind: Any) -> str:
    """Return the plain name of a class, and anything else that describes a type in full."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _plain(value: Any) -> Any:
    """Return what msgspec does not know as something that it does: a ``Sent`` is a text."""
    if isinstance(value, str):
        return str(value)
    # A model of pydantic, which need not be installed for this. By alias, as it is read.
    if dump := getattr(value, "model_dump", None):
        return dump(mode="json", by_alias=True, round_trip=True)
    raise TypeError(f"encoding objects of type {type(value).__name__} is not supported")


class JSONCodec:
    """JSON as every other RSMQ client reads it."""

    def encode(self, value: Any) -> bytes:
        """Return *value* as JSON: dataclasses, models, datetimes, UUIDs and enums, too.

        JSON has no NaN and no infinity: they become ``null``.
        """
        return msgspec.json.encode(value, enc_hook=_plain)

    def decode(self, body: bytes, type: Any = Any) -> Any:
        """Return the value that *body* holds, checked against *type*."""
        return _decode(partial(msgspec.json.decode, type=type), body, type)

    def check(self, type: Any) -> None:
        """Raise ``InvalidValue`` if no body could ever be decoded as *type*."""
        try:
            msgspec.json.Decoder(type)
            stranger = _stranger(msgspec.inspect.type_info(type), set())
        except (TypeError, ValueError, NameError) as error:
            raise InvalidValue(f"bodies cannot be read as {type!r}: {error}") from None
        if stranger is not None:
            raise InvalidValue(
                f"bodies cannot be read as {stranger!r}; use a dataclass, a TypedDict, a "
                "msgspec.Struct or a pydantic model, or a codec that knows it"
            )

    def __repr__(self) -> str:
        return "JSON"


def _decode(decode: Callable[[bytes], Any], body: bytes, wanted: Any) -> Any:
    """Return what *decode*, of msgspec, makes of *body*; ``InvalidValue`` if it cannot."""
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        text = _QUOTED.sub(lambda match: match[1], str(error))
        fault = f"body does not fit {name_of(wanted)}: {text}"
    except UnicodeDecodeError as error:
        fault = f"body is not JSON: {error.reason} at byte {error.start}"
    except msgspec.DecodeError as error:
        fault = f"body is not JSON: {error}"
    except RecursionError:
        fault = "body is not JSON that can be read: it is nested too deeply"
    except (ValueError, OverflowError):
        fault = "body is not JSON that can be read: a value is out of bounds"
    raise InvalidValue(fault)


def _stranger(info: Any, seen: set[int]) -> Any:
    """Return a class in *info* that no value in JSON is an instance of, and msgspec cannot make."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        if _is_model(info.cls):
            return None
        return None if any(issubclass(kind, info.cls) for kind in _PLAIN) else info.cls
    if isinstance(info, msgspec.inspect.Field) and not info.required:
        return None  # a body may do without it
    parts = info if isinstance(info, tuple) else getattr(info, "__struct_fields__", ())
    for part in parts:
        value = part if isinstance(info, tuple) else getattr(info, part)
        if isinstance(value, tuple | msgspec.Struct):
            found = _stranger(value, seen)
            if found is not None:
                return found
    return None


JSON = JSONCodec()


class Compressed:
    """Makes the bodies of another codec smaller, by zlib; reads plain ones as well.

    A body that gains nothing, or is shorter than ``min_size``, stays as it is, so other RSMQ
    clients can read those. A compressed one is opened up to ``max_size`` bytes and refused
    beyond, however small it came: a few kilobytes can pretend to be gigabytes.

    Args:
        codec: the codec whose bodies are compressed; JSON by default.
        level: zlib's level, 1 to 9.
        min_size: shorter bodies stay as they are.
        max_size: a body is opened up to this many bytes.
    """

    def __init__(
        self,
        codec: Codec = JSON,
        *,
        level: int = 6,
        min_size: int = 512,
        max_size: int = 16 * 1024 * 1024,
    ) -> None:
        if level not in range(10):
            raise InvalidValue(f"level must be between 0 and 9, not {level!r}")
        if min_size < 0 or max_size < 1:
            raise InvalidValue("min_size must be at least 0 bytes, and max_size at least 1")
        self._codec = codec
        self._level = level
        self._min_size = min_size
        self._max_size = max_size

    def encode(self, value: Any) -> bytes:
        """Return the body for *value*, compressed if that makes it smaller.

        Args:
            value: any value that is neither ``str`` nor bytes.
        """
        body = self._codec.encode(value)
        if len(body) > self._max_size:
            raise InvalidValue(
                f"body of {len(body)} bytes exceeds the max_size of {self._max_size} bytes"
            )
        must = body.startswith(COMPRESSED)
        if len(body) < self._min_size and not must:
            return body
        packed = COMPRESSED + zlib.compress(body, self._level)
        return packed if must or len(packed) < len(body) else body

    def decode(self, body: bytes, type: Any = Any) -> Any:
        """Return the value of *type* that *body* holds; ``InvalidValue`` if it cannot be opened.

        Args:
            body: the stored bytes.
            type: the type of the result.
        """
        return self._codec.decode(self.open(body), type)

    def check(self, type: Any) -> None:
        """Raise ``InvalidValue`` if the other codec knows that no body could ever be *type*.

        Args:
            type: the type to check.
        """
        if check := getattr(self._codec, "check", None):
            check(type)

    def open(self, body: bytes) -> bytes:
        """Return what a compressed body holds, and a plain one as it is.

        Args:
            body: the stored bytes.
        """
        if not body.startswith(COMPRESSED):
            return body
        packed, opened = zlib.decompressobj(), b""
        with suppress(zlib.error):
            opened = packed.decompress(memoryview(body)[len(COMPRESSED) :], self._max_size + 1)
        if len(opened) > self._max_size:
            raise InvalidValue(
                f"compressed body holds more than the max_size of {self._max_size} bytes"
            )
        if not packed.eof or packed.unused_data:
            raise InvalidValue("compressed body is damaged")
        return opened

    def json(self, body: bytes) -> bytes:
        """Return the value that *body* holds as JSON.

        Args:
            body: the stored bytes.
        """
        return _to_json(self._codec)(self.open(body))

    def __repr__(self) -> str:
        return f"Compressed({self._codec!r}, max_size={self._max_size})"


def to_body(value: object, codec: Codec) -> bytes:
    """Return the bytes that go on the wire: text and bytes as they are, the rest by *codec*."""
    try:
        if isinstance(value, str):
            return value.encode()
        if type(value) is bytes:
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return codec.encode(value)
    except InvalidValue:
        raise
    except UnicodeEncodeError as error:
        fault = f"{error.reason} at character {error.start}"
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        fault = str(error)
    raise InvalidValue(
        f"body of type {type(value).__name__} cannot be sent: {fault}", code="messageNotString"
    )


def from_body(body: bytes, wanted: Any, codec: Codec) -> Any:
    """Return *body* as *wanted*: text and bytes as they are, the rest by *codec*.

    ``InvalidValue`` if the body does not fit, or no body could ever fit.
    """
    try:
        read = _known_reader(wanted, codec)
    except TypeError:  # a type or a codec that cannot be a key
        read = reader(wanted, codec)
    return read(body)


def reader(wanted: Any, codec: Codec) -> Reader:
    """Return what reads bodies as *wanted*; ``InvalidValue`` if no body could ever fit."""
    if (stored := _stored_as(wanted)) != {_BY_CODEC}:
        return _raw_reader(wanted, stored)
    # pydantic's models know best how to read themselves; it need not be installed for this.
    if _is_model(wanted):
        return _validating(wanted.model_validate_json, wanted, codec)
    if holds_model(wanted, set()):
        return _model_reader(wanted, codec)
    # A codec of the user's own may know any type.
    if check := getattr(codec, "check", None):
        check(wanted)
    return lambda body: codec.decode(body, wanted)


_known_reader: Callable[[Any, Any], Reader] = lru_cache(maxsize=256)(reader)


#: How ``send`` stores a value: text and bytes as they are, anything else by the codec.
_BY_CODEC = None


def _stored_as(wanted: Any) -> set[type | None]:
    """Return how values of *wanted* are stored: ``str``, ``bytes``, or by the codec."""
    origin = typing.get_origin(wanted)
    if origin is typing.Annotated:
        return _stored_as(typing.get_args(wanted)[0])
    if origin is typing.Literal:
        return {str if isinstance(word, str) else _BY_CODEC for word in typing.get_args(wanted)}
    if origin in (typing.Union, types.UnionType):
        return set().union(*map(_stored_as, typing.get_args(wanted)))
    # A NewType, or an alias by the statement ``type``.
    for alias in ("__supertype__", "__value__"):
        if hasattr(wanted, alias):
            return _stored_as(getattr(wanted, alias))
    if isinstance(wanted, type) and issubclass(wanted, str):
        return {str}
    return {bytes} if _is_bytes(wanted) else {_BY_CODEC}


def _raw_reader(wanted: Any, stored: set[type | None]) -> Reader:
    """Return what reads text or bytes as *wanted*, which both are stored as they are."""
    if wanted is str:
        return _text
    if stored == {bytes}:
        return wanted if isinstance(wanted, type) else bytes
    if stored == {str}:
        JSON.check(wanted)
        return lambda body: _decode(
            lambda text: msgspec.convert(_text(text), type=wanted), body, wanted
        )
    raise InvalidValue(
        f"bodies cannot be read as {wanted}: text and bytes are stored as they are, so it is "
        "ambiguous; use str or bytes alone, or a dataclass that holds the value"
    )


def _text(body: bytes) -> str:
    # Errors are raised outside of ``except``: those of decoders may hold the body.
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 text: {error.reason}"
    raise InvalidValue(f"body {fault}")


def _model_reader(wanted: Any, codec: Codec) -> Reader:
    """Return what reads a type that holds models of pydantic.

    msgspec wrote what is around the models, so it reads structs, dataclasses and bytes there.
    """
    if not _holds(wanted, _is_of_msgspec, set()):
        return _validating(_adapter(wanted).validate_json, wanted, codec)
    known: set[str] = set()
    _add_names(wanted, known, set())

    def read_model(kind: Any, value: Any) -> Any:
        if not _is_model(kind):
            raise TypeError(f"a value of type {name_of(kind)} cannot be read")
        try:
            return kind.model_validate_json(msgspec.json.encode(value))
        except ValueError as error:
            fault = _faults(error, known)
        raise ValueError(fault)

    try:
        decode = msgspec.json.Decoder(wanted, dec_hook=read_model).decode
    except TypeError:  # a union of models, which only pydantic distinguishes
        return _validating(_adapter(wanted).validate_json, wanted, codec)
    JSON.check(wanted)
    to_json = _to_json(codec)
    return lambda body: _decode(decode, to_json(body), wanted)


def _validating(validate: Callable[[bytes], Any], wanted: Any, codec: Codec) -> Reader:
    known: set[str] = set()
    _add_names(wanted, known, set())
    to_json = _to_json(codec)

    def read(body: bytes) -> Any:
        try:
            return validate(to_json(body))
        except ValueError as error:
            fault = _faults(error, known)
        raise InvalidValue(f"body does not fit {name_of(wanted)}: {fault}")

    return read


def _to_json(codec: Codec) -> Callable[[bytes], bytes]:
    """Return what turns a body of *codec* into JSON, for pydantic to read."""
    if isinstance(codec, JSONCodec):
        return bytes
    if isinstance(codec, Compressed):
        return codec.json
    return lambda body: JSON.encode(codec.decode(body, Any))


#: For a union that neither msgspec nor pydantic can read.
_MIXED = (
    "it is a union with a model of pydantic and a class that pydantic does not know; use models, "
    "or use a msgspec.Struct for each with a tag"
)


def _adapter(wanted: Any) -> Any:
    """Return pydantic's way to read a union that holds one of its models."""
    if _holds(wanted, _is_bytes, set()):
        raise InvalidValue(
            f"bodies cannot be read as {wanted}: it has bytes beside a union of models, which "
            "pydantic and msgspec write differently; put the bytes into a model"
        )
    try:
        pydantic = importlib.import_module("pydantic")
    except ImportError:
        raise InvalidValue(f"bodies of type {wanted} need pydantic, which is not here") from None
    try:
        return pydantic.TypeAdapter(wanted)
    except pydantic.errors.PydanticUserError as error:
        kind = getattr(error, "code", None)
        fault = _MIXED if kind == "schema-for-unknown-type" else str(error).splitlines()[0]
    raise InvalidValue(f"bodies cannot be read as {wanted}: {fault}")


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_validate_json")


def holds_model(hint: Any, seen: set[type]) -> bool:
    """Return True if a model of pydantic is part of *hint*: in a list, a union, a dataclass, ..."""
    return _holds(hint, _is_model, seen)


def _is_bytes(kind: Any) -> bool:
    return kind in (bytes, bytearray, memoryview)


def _is_of_msgspec(kind: Any) -> bool:
    return _is_bytes(kind) or (isinstance(kind, type) and _has_fields(kind))


def _holds(hint: Any, found: Callable[[Any], bool], seen: set[type]) -> bool:
    """Return True if *hint*, or a part of it, is *found*; parts of models are not looked at."""
    if found(hint):
        return True
    parts = list(typing.get_args(hint))
    if isinstance(hint, type) and hint not in seen and _has_fields(hint):
        seen.add(hint)
        try:
            parts += typing.get_type_hints(hint).values()
        except Exception:  # the codec says what is wrong with it
            return False
    return any(_holds(part, found, seen) for part in parts)


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
