"""What redis-py has no public name for, or names differently from version to version."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from typing import Any, cast

import redis
from redis.asyncio.cluster import ClusterNode, NodesManager
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.exceptions import MovedError

from ..errors import InvalidValue

_TLS = frozenset(inspect.signature(SSLConnection.__init__).parameters)


def tls_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a TLS connection that checks the name in the certificate.

    Before 6.0 redis-py did not do so unless it was asked to.
    """
    if missing := sorted(name for name in settings if name not in _TLS):
        raise InvalidValue(
            f"redis-py {redis.__version__} does not know the option {missing[0]} of the url; "
            "install a newer one: pip install -U redis"
        )
    return {"ssl_check_hostname": settings.get("ssl_cert_reqs") != "none"} | dict(settings)


def transport_of(connection: AbstractConnection) -> asyncio.Transport:
    """Return the transport below a connection that is open."""
    writer: Any = connection._writer  # noqa: SLF001
    return cast(asyncio.Transport, writer.transport)


def error_parser(connection: AbstractConnection) -> Callable[[str], Exception]:
    """Return the function that makes redis-py's exception of an error reply."""
    parser: Any = connection._parser  # noqa: SLF001
    return cast(Callable[[str], Exception], parser.parse_error)


async def has_unread(connection: AbstractConnection) -> bool:
    """Return True if an idle connection has ended, or holds something that no call asked for."""
    if hasattr(connection, "can_read"):
        return await connection.can_read()
    stream: Any = getattr(connection, "_reader", None)
    if isinstance(stream, asyncio.StreamReader):
        # What redis-py had before 8.0 gives up before it has looked.
        return bool(stream.exception() or stream.at_eof() or stream._buffer)  # type: ignore[attr-defined]  # noqa: SLF001
    return bool(await connection.can_read_destructive())


def is_at_rest(connection: AbstractConnection) -> bool:
    """Return True if the stream of a connection is open, and holds nothing that no call asked for.

    Without waiting; if in doubt, False.
    """
    stream: Any = getattr(connection, "_reader", None)
    return (
        isinstance(stream, asyncio.StreamReader)
        and stream.exception() is None
        and not stream._buffer  # type: ignore[attr-defined]  # noqa: SLF001
        and not stream.at_eof()
    )


def should_reconnect(connection: AbstractConnection) -> bool:
    """Return True if redis-py marked the connection as outdated."""
    marked: Any = getattr(connection, "should_reconnect", None)
    return bool(marked is not None and marked())


def release(node: ClusterNode, connection: Any) -> None:
    """Put a connection back among the free ones of its node."""
    if hasattr(node, "release"):
        node.release(connection)
    else:
        node._free.append(connection)  # noqa: SLF001 - it had no public name before 7.1


async def follow(nodes: NodesManager, moved: MovedError) -> None:
    """Note that a slot has moved to another node."""
    if hasattr(nodes, "move_slot"):
        await nodes.move_slot(moved)
    else:
        # The next look-up of a node reads it.
        vars_of: Any = nodes
        vars_of._moved_exception = moved  # noqa: SLF001


async def ask_for_nodes(nodes: NodesManager, last: ClusterNode) -> None:
    """Read the layout of the cluster again; *last* is asked only if no other node answers."""
    if "last_failed_node_name" in inspect.signature(nodes.initialize).parameters:
        await nodes.initialize(last_failed_node_name=last.name)
        return
    known: Any = nodes.startup_nodes
    if last.name in known:
        known[last.name] = known.pop(last.name)
    await nodes.initialize()
