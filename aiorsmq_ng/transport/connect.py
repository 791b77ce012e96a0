"""From a URL, or a caller's client, to a driver."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio.to_thread
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ..embedded import EmbeddedServer
from ..errors import InvalidValue
from ..options import Options
from .adapter import PoolDriver
from .base import Driver
from .cluster import ClusterDriver

SCHEMES = (
    "redis", "rediss", "unix", "redis+sentinel", "redis+cluster", "embedded", "memory"
)  # fmt: skip

#: What a caller may hand over instead of a URL.
CallerClient = Redis | RedisCluster

# One fake server per memory:// name, shared by the clients of a process while one is open.
_fakes: dict[str, tuple[Any, int]] = {}


async def connect(url: str, options: Options) -> Driver:
    """Return a driver for *url*; only ``embedded://`` starts anything yet."""
    scheme = check_url(url)
    if scheme == "embedded":
        return await _embedded(url, options)
    if scheme == "memory":
        return _memory(url)
    if scheme == "redis+sentinel":
        return _sentinel(url, options)
    if scheme == "redis+cluster":
        return _cluster(url, options)
    return _own_pool(url, options)


def adopt(client: CallerClient) -> Driver:
    """Return a driver on a caller's client.

    Its connections are shared, its retries are not.
    """
    if isinstance(client, RedisCluster):
        return ClusterDriver(client, own=False)
    return PoolDriver(client.connection_pool, keep=False)


def check_url(url: str) -> str:
    """Return the scheme of *url* if it is one that can be connected to."""
    scheme = url.split("://", 1)[0] if "://" in url else ""
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        # The URL itself may hold a password.
        raise InvalidValue(f"url scheme {scheme!r} is not known; use one of {known}")
    return scheme


def _settings(options: Options) -> dict[str, Any]:
    """Return what every connection of ours is made with, whatever the URL says.

    RESP2, because with RESP3 redis-py no longer notices an unread reply on a pooled connection;
    no retries and no socket timeout, because each call has a deadline of its own and only the
    operation knows whether it may be repeated.
    """
    return {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": options.connect_timeout,
        "health_check_interval": 15,
        "client_name": "aiorsmq-ng",
    }


def _own_pool(url: str, options: Options, **extra: Any) -> PoolDriver:
    try:
        pool = BlockingConnectionPool(
            # Two more than calls need: for the wake-up connection and its successor.
            max_connections=options.max_connections + 2,
            timeout=None,
            **{**_from_url(url), **_settings(options)},
        )
        # An option that redis-py does not know would show only at the first call.
        pool.connection_class(**pool.connection_kwargs)
    except (ValueError, TypeError):
        # The driver's words may repeat part of the URL, and so of a password.
        raise InvalidValue(
            "url cannot be read; check host, port and options, and write special characters of "
            "a password as %xx"
        ) from None
    return PoolDriver(pool, keep=True, **extra)


def _from_url(url: str) -> dict[str, Any]:
    parsed: dict[str, Any] = dict(parse_url(url))
    parsed.pop("max_connections", None)
    parsed.pop("timeout", None)
    return parsed


async def _embedded(url: str, options: Options) -> PoolDriver:
    path = unquote(url.removeprefix("embedded://"))
    if "\0" in path:
        raise InvalidValue("the folder of an embedded:// url cannot hold a NUL character")
    server = await anyio.to_thread.run_sync(
        lambda: EmbeddedServer.acquire(Path(path).expanduser() if path else None)
    )
    return _own_pool(
        server.url,
        options,
        revive=partial(anyio.to_thread.run_sync, server.ensure_running),
        closing=partial(anyio.to_thread.run_sync, server.release),
    )


def _memory(url: str) -> PoolDriver:
    try:
        import fakeredis  # noqa: PLC0415 - the extra is optional
    except ImportError:
        raise InvalidValue(
            'memory:// needs the extra "fake": pip install "aiorsmq-ng[fake]"'
        ) from None
    name = url.removeprefix("memory://")
    server, users = _fakes.get(name) or (fakeredis.FakeServer(), 0)
    _fakes[name] = (server, users + 1)
    client = fakeredis.FakeAsyncRedis(server=server, retry=Retry(NoBackoff(), 0))

    async def closing() -> None:
        await client.aclose()
        users = _fakes[name][1]
        if users > 1:
            _fakes[name] = (server, users - 1)
        else:
            del _fakes[name]

    return PoolDriver(client.connection_pool, keep=True, closing=closing)


def _sentinel(url: str, options: Options) -> PoolDriver:
    """Understand ``redis+sentinel://[user:password@]host[:port][,...]/service[/db]``."""
    parts = urlsplit(url)
    service, _, db = parts.path.lstrip("/").partition("/")
    if not service:
        raise InvalidValue("a redis+sentinel:// url names the service after the hosts: /mymaster")
    query = dict(parse_qsl(parts.query))
    if not (db or query.get("db") or "0").isdecimal():
        raise InvalidValue("a redis+sentinel:// url ends with the number of a database, or nothing")
    settings = _settings(options) | {"db": int(db or query.get("db") or 0), **_login(url)}
    guard = _settings(options) | {
        key.removeprefix("sentinel_"): value
        for key, value in query.items()
        if key in ("sentinel_username", "sentinel_password")
    }
    sentinel = Sentinel(  # type: ignore[no-untyped-call]
        _hosts(url, 26379), sentinel_kwargs=guard, **settings
    )
    client: Redis = sentinel.master_for(service)

    async def closing() -> None:
        await client.aclose()
        for node in sentinel.sentinels:
            await node.aclose()

    return PoolDriver(client.connection_pool, keep=True, closing=closing)


def _cluster(url: str, options: Options) -> ClusterDriver:
    """Understand ``redis+cluster://[user:password@]host[:port][,...]``."""
    settings = _settings(options) | _login(url)
    # A socket timeout is needed here: when it looks for the nodes, the cluster client waits for
    # one of them before it asks another.
    settings["socket_timeout"] = options.deadline / 2
    nodes = [ClusterNode(host, port) for host, port in _hosts(url, 6379)]
    return ClusterDriver(RedisCluster(startup_nodes=nodes, **settings), own=True)


def _hosts(url: str, default_port: int) -> list[tuple[str, int]]:
    location = urlsplit(url).netloc.rpartition("@")[2]
    hosts = []
    for entry in location.split(","):
        host, colon, port = entry.rpartition(":")
        if not colon or host.endswith(":") or (port and not port.isdecimal()):
            host, port = entry, ""
        hosts.append((host.strip("[]") or "localhost", int(port or default_port)))
    return hosts


def _login(url: str) -> dict[str, Any]:
    user, colon, password = urlsplit(url).netloc.rpartition("@")[0].partition(":")
    login = {"username": unquote(user), "password": unquote(password) if colon else ""}
    return {key: value for key, value in login.items() if value}
