"""Opens the driver for a URL, or for a client of redis-py that the caller provides."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import anyio.to_thread
from redis import exceptions as driver_errors
from redis.asyncio import BlockingConnectionPool, Connection, Redis, RedisCluster, Sentinel
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from ..embedded import EmbeddedServer
from ..errors import InvalidValue, Unavailable
from ..options import Options
from . import tls
from .cluster_driver import ClusterDriver
from .driver import Driver
from .redis_driver import HEALTH_S, PoolDriver
from .redis_versions import tls_settings
from .security_overrides import how_to_allow_plain_password, plain_password
from .transport import Transport
from .urls import Address, is_loopback, read

#: Clients that a caller may pass instead of a URL.
CallerClient = Redis | RedisCluster

# One fake server per memory:// name, shared by the clients of a process while one is open.
_fakes: dict[str, tuple[Any, int]] = {}


def make_transport(
    open_driver: Callable[[], Awaitable[Driver]], options: Options, address: Address | None = None
) -> Transport:
    """Return a transport that opens its driver, and checks the server, with its first operation.

    *address* is that of the server, if it is known. It decides the name of the server in errors.
    """
    return Transport(
        open_driver,
        deadline_s=options.deadline,
        connections=options.max_connections,
        check=lambda driver: driver.check(options),
        peer="the broker" if address is not None and address.kind == "broker" else "redis",
    )


async def connect(
    address: Address | str, options: Options, namespaces: tuple[str, ...] = ()
) -> Driver:
    """Return a driver for an address or a URL; only ``embedded://`` starts anything yet.

    *namespaces* are those of the client; a broker serves one.
    """
    if isinstance(address, str):
        address = read(address, options)
    for settings in (address.tls, address.sentinel_tls):
        if settings:
            # Every connection reads the files; errors in them are raised here, once.
            tls.client_context(settings)
    if address.kind == "broker":
        return _broker(address, namespaces, options)
    if address.kind == "embedded":
        return await _embedded(address.path, options)
    if address.kind == "memory":
        return _memory(address.path)
    if address.kind == "sentinel":
        return _sentinel(address, options)
    if address.kind == "cluster":
        return _cluster(address, options)
    return _own_pool(address, options)


def adopt(client: CallerClient) -> Driver:
    """Return a driver on a caller's client.

    The driver uses its connections, but not its retries.
    """
    if isinstance(client, RedisCluster):
        return ClusterDriver(client, own=False)
    return PoolDriver(client.connection_pool, keep=False)


def is_cluster(client: CallerClient | None, address: Address | None) -> bool:
    """Return True if a caller's client, or an address, leads to a cluster."""
    return isinstance(client, RedisCluster) or (address is not None and address.kind == "cluster")


def _settings(options: Options) -> dict[str, Any]:
    """Return the settings of all connections; a URL does not change them.

    RESP2, because with RESP3 redis-py no longer notices an unread reply on a pooled connection;
    no retries and no socket timeout, because each call has a deadline of its own and only the
    operation knows if it may be repeated.
    """
    return {
        "protocol": 2,
        "decode_responses": False,
        "retry": Retry(NoBackoff(), 0),
        "socket_timeout": None,
        "socket_connect_timeout": options.connect_timeout,
        "health_check_interval": HEALTH_S,
        "client_name": "aiorsmq-ng",
    }


def _own_pool(address: Address, options: Options, **extra: Any) -> PoolDriver:
    settings: dict[str, Any] = _settings(options) | address.login
    settings["db"] = address.db
    if address.kind == "unix":
        settings |= {"connection_class": UnixDomainSocketConnection, "path": address.path}
    else:
        host, port = address.hosts[0]
        settings |= {"connection_class": Connection, "host": host, "port": port}
        if address.tls is not None:
            settings |= {"connection_class": SSLConnection} | tls_settings(address.tls)
    pool = BlockingConnectionPool(
        # Two more than calls need: for the wake-up connection and its successor.
        max_connections=options.max_connections + 2,
        timeout=None,
        **settings,
    )
    return PoolDriver(pool, keep=True, direct=options.max_connections, **extra)


async def _embedded(path: str, options: Options) -> PoolDriver:
    server = await anyio.to_thread.run_sync(
        lambda: EmbeddedServer.acquire(Path(path).expanduser() if path else None)
    )
    return _own_pool(
        read(server.url, options),
        options,
        revive=partial(anyio.to_thread.run_sync, server.ensure_running),
        closing=partial(anyio.to_thread.run_sync, server.release),
        check=server.check_folder,
    )


def _memory(name: str) -> PoolDriver:
    try:
        import fakeredis  # noqa: PLC0415 - the extra is optional
    except ImportError:
        raise InvalidValue(
            'memory:// needs the extra "fake": pip install "aiorsmq-ng[fake]"'
        ) from None
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


class GuardedSentinel(Sentinel):
    """Finds the primary, or raises the cause; sends no password to other hosts in clear text."""

    def __init__(self, address: Address, options: Options) -> None:
        settings = _settings(options)
        super().__init__(  # type: ignore[no-untyped-call]
            address.hosts,
            sentinel_kwargs=settings | address.sentinel_login | _with_tls(address.sentinel_tls),
            **settings | {"db": address.db} | address.login | _with_tls(address.tls),
        )
        self._guard = partial(_guard, address, options)

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return host and port of the primary, from the first sentinel that knows it."""
        refusal: Exception | None = None
        for at, node in enumerate(self.sentinels):
            try:
                masters: Any = await node.sentinel_masters()
            except (driver_errors.ConnectionError, driver_errors.TimeoutError) as error:
                if refusal is None or tls.fault(error):
                    refusal = error
                continue
            state = masters.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels[0], self.sentinels[at] = node, self.sentinels[0]
                return self._guard((state["ip"], state["port"]))
        raise driver_errors.ConnectionError(f"no master found for {service_name!r}") from refusal


def _sentinel(address: Address, options: Options) -> PoolDriver:
    sentinel = GuardedSentinel(address, options)
    client: Redis = sentinel.master_for(address.service)

    async def closing() -> None:
        await client.aclose()
        for node in sentinel.sentinels:
            await node.aclose()

    return PoolDriver(
        client.connection_pool, keep=True, direct=options.max_connections, closing=closing
    )


def _cluster(address: Address, options: Options) -> ClusterDriver:
    settings = _settings(options) | address.login | _with_tls(address.tls)
    # With a socket timeout, because the cluster client asks one node after the other for the slots.
    settings["socket_timeout"] = options.deadline / 2
    nodes = [ClusterNode(host, port) for host, port in address.hosts]
    guard = partial(_guard, address, options)
    client = RedisCluster(startup_nodes=nodes, address_remap=guard, **settings)
    return ClusterDriver(client, own=True, guard=guard)


def _with_tls(settings: dict[str, Any] | None) -> dict[str, Any]:
    return {} if settings is None else {"ssl": True} | tls_settings(settings)


def _guard(address: Address, options: Options, found: tuple[str, int]) -> tuple[str, int]:
    """Return *found*, host and port; ``Unavailable`` if it would get a password in clear text."""
    if address.exposes_password_to(found[0]) and not plain_password(options):
        raise Unavailable(
            f"the password would be sent to {found[0]} in clear text; "
            f"use rediss+{address.kind}://, or allow it by {how_to_allow_plain_password(options)}"
        )
    return found


def with_token(address: Address | None, token: str | None, options: Options) -> Address | None:
    """Return *address* with the token for a broker; ``InvalidValue`` if that is not safe.

    Without *token*, a broker's address gets the one in ``RSMQ_TOKEN``.
    """
    if address is None or address.kind != "broker":
        if token is not None:
            raise InvalidValue(
                "a token is for a broker; use a grpc://, grpcs:// or grpc+unix:// url"
            )
        return address
    token = token if token is not None else os.environ.get("RSMQ_TOKEN", "")
    if not token:
        return address
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise InvalidValue("a token has printable ASCII characters and no space at its ends")
    local = all(is_loopback(host) for host, _ in address.hosts)  # a socket has none
    if address.tls is None and not local and not plain_password(options):
        raise InvalidValue(
            "a grpc:// url to another machine would send the token in clear text; use grpcs://, "
            f"or allow it by {how_to_allow_plain_password(options)}"
        )
    return replace(address, login={"token": token})


def _broker(address: Address, namespaces: tuple[str, ...], options: Options) -> Driver:
    """Return a driver for a broker; nothing is connected yet."""
    if len(namespaces) != 1:
        raise InvalidValue(
            f"a broker serves one namespace, not {len(namespaces)}; open a client for each"
        )
    try:
        remote = import_module("aiorsmq_ng._broker_client.driver")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] not in ("grpc", "google"):
            raise
        raise InvalidValue(
            f'{address.scheme}:// needs the extra "grpc": pip install "aiorsmq-ng[grpc]"'
        ) from None
    channel = remote.BrokerChannel(address, namespaces[0], options)
    return cast(Driver, remote.BrokerDriver(channel))
