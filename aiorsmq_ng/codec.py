"""How values become bodies and bodies become values.

Errors say what is wrong and where, never what stands there: bodies may be private. They are raised
outside of ``except``, because the error they stand for may hold the whole body.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress
from typing import Any, Protocol

import msgspec
import msgspec.inspect

from .errors import InvalidValue

#: First bytes of a compressed body. No text starts like this: 0xF8 does not occur in UTF-8.
COMPRESSED = b"\xf8zlib\x01"
# Where msgspec quotes the body: a value that is none of an enum's, a field that a type lacks.
_QUOTED = re.compile(r"(value|unknown field) (['\"`]).*\2", re.DOTALL)


#: What JSON holds.
_PLAIN = (dict, list, str, int, float, bool, type(None))


class Codec(Protocol):
    """Turns values that are neither ``str`` nor ``bytes`` into bodies, and back."""

    def encode(self, value: Any) -> bytes:
        """Return the body for *value*."""
        ...

    def decode(self, body: bytes, type: Any) -> Any:
        """Return the value of *type* that *body* holds."""
        ...


def name_of(kind: Any) -> str:
    """Return the plain name of a class, and anything else that describes a type in full."""
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _plain(value: Any) -> Any:
    """Return what msgspec does not know as something that it does: a ``Sent`` is a text."""
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "model_dump_json"):
        raise TypeError(
            f"{type(value).__name__} is a model of pydantic; send what its model_dump_json() "
            "returns, or model_dump(mode='json') as a part of something else"
        )
    raise TypeError(f"encoding objects of type {type(value).__name__} is not supported")


class JSONCodec:
    """JSON as every other RSMQ client reads it."""

    def encode(self, value: Any) -> bytes:
        """Return *value* as JSON; dataclasses, datetimes, UUIDs and enums are understood."""
        return msgspec.json.encode(value, enc_hook=_plain)

    def decode(self, body: bytes, type: Any = Any) -> Any:
        """Return the value that *body* holds, checked against *type*."""
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.ValidationError as error:
            told = _QUOTED.sub(lambda match: match[1], str(error))
            fault = f"body does not fit {name_of(type)}: {told}"
        except UnicodeDecodeError as error:
            fault = f"body is not JSON: {error.reason} at byte {error.start}"
        except msgspec.DecodeError as error:
            fault = f"body is not JSON: {error}"
        except RecursionError:
            fault = "body is not JSON that can be read: it is nested too deeply"
        except (ValueError, OverflowError):
            fault = "body is not JSON that can be read: a value is out of bounds"
        raise InvalidValue(fault)

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


def _stranger(info: Any, seen: set[int]) -> Any:
    """Return a class in *info* that no value in JSON is an instance of, and msgspec cannot make."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
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
        """Return the body for *value*, compressed if that makes it smaller."""
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
        """Return the value of *type* that *body* holds; ``InvalidValue`` if it cannot be opened."""
        return self._codec.decode(self.open(body), type)

    def check(self, type: Any) -> None:
        """Raise ``InvalidValue`` if the other codec knows that no body could ever be *type*."""
        if check := getattr(self._codec, "check", None):
            check(type)

    def open(self, body: bytes) -> bytes:
        """Return what a compressed body holds, and a plain one as it is."""
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
