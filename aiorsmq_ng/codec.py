"""How values become bodies and bodies become values."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from .errors import InvalidValue


class Codec(Protocol):
    """Turns values that are neither ``str`` nor ``bytes`` into bodies, and back."""

    def encode(self, value: Any) -> bytes:
        """Return the body for *value*."""
        ...

    def decode(self, body: bytes, type: Any) -> Any:
        """Return the value of *type* that *body* holds."""
        ...


class JSONCodec:
    """JSON as every other RSMQ client reads it."""

    def encode(self, value: Any) -> bytes:
        """Return *value* as JSON; dataclasses, datetimes, UUIDs and enums are understood."""
        return msgspec.json.encode(value)

    def decode(self, body: bytes, type: Any = Any) -> Any:
        """Return the value that *body* holds, checked against *type*."""
        try:
            return msgspec.json.decode(body, type=type)
        except msgspec.ValidationError as error:
            raise InvalidValue(f"body does not fit {type!r}: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidValue(f"body is not JSON: {error}") from None


JSON = JSONCodec()


def to_body(value: object, codec: Codec) -> bytes:
    """Return the bytes that go on the wire: text and bytes as they are, the rest by *codec*."""
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return codec.encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InvalidValue(
            f"body of type {type(value).__name__} cannot be sent: {error}", code="messageNotString"
        ) from None
