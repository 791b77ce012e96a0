"""A connection to Redis that returns bytes as they are: all that the checker needs.

A Redis library would decode, retry and convert on its own terms, and would have to be resolved
before ``uvx rsmq-conformance`` starts. The checker has to see what is stored.
"""

from __future__ import annotations

import socket
from typing import Any
from urllib.parse import unquote, urlsplit

Reply = Any  # bytes, int, None, or a list of these


class RedisError(Exception):
    """What the server answered instead of a result, or why it cannot be reached."""


class Redis:
    """One connection; not for use by two threads at a time."""

    def __init__(self, url: str, timeout_s: float = 10) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis":
            raise RedisError(f"{parts.scheme or url!r} is not supported, use redis://host:port/db")
        where = (parts.hostname or "127.0.0.1", parts.port or 6379)
        try:
            self._socket = socket.create_connection(where, timeout_s)
        except OSError as error:
            raise RedisError(f"no server at {where[0]}:{where[1]}: {error}") from error
        self._file = self._socket.makefile("rb")
        try:
            if parts.password:
                user = [unquote(parts.username)] if parts.username else []
                self.call("AUTH", *user, unquote(parts.password))
            if parts.path.strip("/"):
                self.call("SELECT", parts.path.strip("/"))
        except RedisError:
            self.close()
            raise

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._file.close()
        self._socket.close()

    def call(self, *words: str | bytes | int | float) -> Reply:
        """Run one command and return its reply; raise ``RedisError`` if the server refuses it."""
        self.send(*words)
        return self.read()

    def send(self, *words: str | bytes | int | float) -> None:
        """Send a command without reading its reply."""
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        packed = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
        try:
            self._socket.sendall(b"*%d\r\n%s" % (len(parts), packed))
        except OSError as error:
            raise RedisError(f"connection lost: {error}") from error

    def read(self) -> Reply:
        """Return the next reply."""
        try:
            line = self._file.readline()
        except OSError as error:
            raise RedisError(f"no reply: {error}") from error
        if not line.endswith(b"\r\n"):
            raise RedisError("connection closed by the server")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RedisError(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"$":
            return self._file.read(size + 2)[:-2]
        return [self._element() for _ in range(size)]

    def _element(self) -> Reply:
        """Return an element of a list; a refusal inside a transaction is one of them."""
        try:
            return self.read()
        except RedisError as error:
            return error

    def transaction(self, *commands: tuple[str | bytes | int | float, ...]) -> list[Reply]:
        """Run commands as one, and return their replies."""
        for command in (("MULTI",), *commands, ("EXEC",)):
            self.send(*command)
        replies = [self._element() for _ in range(len(commands) + 2)]
        if isinstance(replies[-1], RedisError):
            raise replies[-1]
        return list(replies[-1])

    def now_us(self) -> int:
        """Return the time of the server in microseconds."""
        seconds, micros = self.call("TIME")
        return int(seconds) * 1_000_000 + int(micros)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that begin with *prefix*, without blocking the server."""
        found: set[str] = set()
        cursor = b"0"
        while True:
            cursor, page = self.call("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", 1000)
            found.update(key.decode(errors="replace") for key in page)
            if cursor == b"0":
                return sorted(found)
