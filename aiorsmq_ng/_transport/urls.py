"""Parses and checks URLs, without I/O. Parts of a URL may be secret: no error repeats them."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..errors import InvalidValue
from ..options import Options
from .security_overrides import (
    how_to_allow_insecure_tls,
    how_to_allow_plain_password,
    insecure_tls,
    plain_password,
)

Settings = dict[str, Any]

DEFAULT_URL = "redis://localhost:6379"
SCHEMES = (
    "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster",
    "rediss+cluster", "embedded", "memory", "grpc", "grpcs", "grpc+unix",
)  # fmt: skip
_DEFAULT_PORT = {"sentinel": 26379, "broker": 10001}
_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]:]*))(?::([0-9]{1,5})?)?")
_UNREADABLE = (
    "url cannot be read; check host, port and options, and write special characters of a "
    "password as %xx"
)
#: Options of redis-py that a URL cannot change; they are ignored.
_FIXED = frozenset({
    "client_name", "decode_responses", "encoding", "encoding_errors", "health_check_interval",
    "legacy_responses", "lib_name", "lib_version", "max_connections", "protocol", "retry_on_error",
    "retry_on_timeout", "socket_connect_timeout", "socket_keepalive", "socket_read_size",
    "socket_timeout", "timeout",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """Where a URL leads, and how."""

    scheme: str
    #: server, unix, sentinel, cluster, embedded, memory or broker.
    kind: str
    hosts: tuple[tuple[str, int], ...] = ()
    #: Socket, folder or name.
    path: str = ""
    #: Name of the service that sentinels watch.
    service: str = ""
    db: int = 0
    #: User and password, as the driver names them; a broker's token.
    login: Settings = field(default_factory=dict, repr=False)
    #: TLS settings, as the driver names them; ``None`` without TLS.
    tls: Settings | None = field(default=None, repr=False)
    #: The same two for the sentinels themselves.
    sentinel_login: Settings = field(default_factory=dict, repr=False)
    sentinel_tls: Settings | None = field(default=None, repr=False)

    def exposes_password_to(self, host: str) -> bool:
        """Return True if the password would cross a network in clear text on its way to *host*."""
        return "password" in self.login and self.tls is None and not is_loopback(host)


def url_or_default(url: str | None) -> str:
    """Return *url*, or the one that the environment names, or the server of this machine."""
    return url or os.environ.get("RSMQ_URL") or os.environ.get("REDIS_URL") or DEFAULT_URL


def read(url: str, options: Options, *, password: str | None = None) -> Address:
    """Parse *url*; ``InvalidValue`` if it is malformed or not safe.

    *password*, if given, takes the place of the one in the URL, under the same rules.
    """
    scheme = url.split("://", 1)[0] if "://" in url else ""
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        # The URL itself may hold a password.
        raise InvalidValue(f"url scheme {scheme!r} is not known; use one of {known}")
    if scheme in ("embedded", "memory"):
        path = unquote(url.split("://", 1)[1])
        if "\0" in path:
            raise InvalidValue("the folder of an embedded:// url cannot hold a NUL character")
        return Address(scheme, scheme, path=path)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidValue(_UNREADABLE) from None
    if parts.fragment:
        raise InvalidValue(_UNREADABLE)
    if scheme.startswith("grpc"):
        return _broker(scheme, parts)
    address = _unix(parts) if scheme == "unix" else _network(scheme, parts)
    if password is not None:
        address = replace(address, login=address.login | {"password": password})
    _refuse_weak_tls(address, options)
    _refuse_plain_password(address, options)
    return address


def is_loopback(host: str) -> bool:
    """Return True if *host* is ``localhost`` or a loopback address.

    ``localhost.`` and ``x.localhost`` may be resolved by a name server, so they do not count.
    """
    if host.lower() == "localhost":
        return True
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(number, "ipv4_mapped", None) or number).is_loopback


def _unix(parts: SplitResult) -> Address:
    query = _query(parts)
    _only_known(query, {"db", "username", "password"}, "unix://")
    return Address(
        "unix",
        "unix",
        path=unquote(parts.path),
        db=_db(query.get("db")),
        login=_login(parts, query),
    )


def _broker(scheme: str, parts: SplitResult) -> Address:
    if "@" in parts.netloc:
        raise InvalidValue(
            f"a {scheme}:// url has no user and password; give the token by token= or RSMQ_TOKEN"
        )
    hosts: tuple[tuple[str, int], ...] = ()
    path = unquote(parts.path)
    if scheme == "grpc+unix":
        if parts.netloc or not path.strip("/") or "\0" in path:
            raise InvalidValue(f"a {scheme}:// url names a socket, and no host: {scheme}:///path")
    else:
        hosts = _hosts(parts.netloc, _DEFAULT_PORT["broker"])
        if len(hosts) > 1 or path.strip("/"):
            raise InvalidValue(f"a {scheme}:// url has one host, and no path")
    query = dict(parse_qsl(parts.query))
    secure = scheme == "grpcs"
    _only_known(query, set(_BROKER_TLS) if secure else set(), f"{scheme}://")
    if ("ssl_certfile" in query) != ("ssl_keyfile" in query):
        raise InvalidValue("ssl_certfile and ssl_keyfile of the url belong together")
    return Address(
        scheme, "broker", hosts, path if not hosts else "", tls=Settings(query) if secure else None
    )


def _network(scheme: str, parts: SplitResult) -> Address:
    secure, kind = scheme.startswith("rediss"), scheme.partition("+")[2] or "server"
    query = _query(parts)
    allowed = set(_TLS) if secure else set()
    if kind == "sentinel":
        allowed |= {"db", "sentinel_username", "sentinel_password"}
        allowed |= {f"sentinel_{name}" for name in _TLS} if secure else set()
    elif kind == "server":
        allowed |= {"db", "username", "password"}
    else:
        # redis-py's cluster client does not take these.
        allowed -= {"ssl_ca_path", "ssl_password"}
    _only_known(query, allowed, f"{scheme}://")
    hosts = _hosts(parts.netloc.rpartition("@")[2], _DEFAULT_PORT.get(kind, 6379))
    if kind == "server" and len(hosts) > 1:
        raise InvalidValue(
            f"a {scheme}:// url has one host; see redis+sentinel://, redis+cluster://"
        )
    service, db = _path(kind, scheme, unquote(parts.path), query)
    tls = _tls(query, "") if secure else None
    return Address(
        scheme,
        kind,
        hosts,
        service=service,
        db=db,
        login=_login(parts, query),
        tls=tls,
        sentinel_login={
            name: query[f"sentinel_{name}"]
            for name in ("username", "password")
            if query.get(f"sentinel_{name}")
        },
        sentinel_tls=None if tls is None else tls | _tls(query, "sentinel_"),
    )


def _query(parts: SplitResult) -> dict[str, str]:
    query = dict(parse_qsl(parts.query))
    return {name: value for name, value in query.items() if name not in _FIXED}


def _only_known(query: Mapping[str, str], known: set[str], form: str) -> None:
    if set(query) <= known:
        return
    secure = "grpcs" if form.startswith("grpc") else "rediss"
    if any(name.startswith(("ssl_", "sentinel_ssl_")) for name in query) and not known & set(_TLS):
        raise InvalidValue(f"a {form} url has no TLS and takes no ssl_ options; use {secure}")
    # An unknown option may be part of a password, so it is not shown.
    listed = ", ".join(sorted(known)) or "none"
    raise InvalidValue(f"url has an option that a {form} url does not take; it takes: {listed}")


def _hosts(netloc: str, default_port: int) -> tuple[tuple[str, int], ...]:
    hosts = []
    for entry in netloc.split(","):
        try:
            bare = str(ipaddress.IPv6Address(entry))  # without brackets, so without a port
        except ValueError:
            match = _HOST.fullmatch(entry)
            if match is None or int(match[3] or 1) not in range(1, 65536):
                raise InvalidValue(_UNREADABLE) from None
            host = unquote(match[1] or match[2] or "localhost")
            hosts.append((host, int(match[3] or default_port)))
        else:
            hosts.append((bare, default_port))
    return tuple(hosts)


def _login(parts: SplitResult, query: Mapping[str, str]) -> Settings:
    user, colon, password = parts.netloc.rpartition("@")[0].partition(":")
    login = {
        "username": unquote(user) or query.get("username"),
        "password": (unquote(password) if colon else "") or query.get("password"),
    }
    return {name: value for name, value in login.items() if value}


def _path(kind: str, scheme: str, path: str, query: Mapping[str, str]) -> tuple[str, int]:
    """Return the service and the database that a URL names."""
    if kind != "sentinel":
        return "", _db(query.get("db") or path.strip("/"))
    service, _, db = path.lstrip("/").partition("/")
    if not service:
        raise InvalidValue(f"a {scheme}:// url names the service after the hosts: /mymaster")
    return service, _db(query.get("db") or db)


def _db(text: str | None) -> int:
    if not (text or "0").isdecimal():
        raise InvalidValue("the database in a url is a number, such as /0 or ?db=0")
    return int(text or 0)


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError
    return _FLAGS[text.lower()]


def _requirement(text: str) -> str:
    if text not in ("required", "optional", "none"):
        raise ValueError
    return text


def _verify_flags(text: str) -> list[ssl.VerifyFlags]:
    names = text.strip("[]").split(",")
    flags = {flag.name: flag for flag in ssl.VerifyFlags}
    return [flags[name.strip()] for name in names if name.strip()]


_FLAGS: dict[str, bool] = {
    "1": True, "t": True, "true": True, "y": True, "yes": True,
    "0": False, "f": False, "false": False, "n": False, "no": False,
}  # fmt: skip
_TLS: dict[str, Callable[[str], Any]] = {
    "ssl_ca_certs": str,
    "ssl_ca_data": str,
    "ssl_ca_path": str,
    "ssl_certfile": str,
    "ssl_cert_reqs": _requirement,
    "ssl_check_hostname": _flag,
    "ssl_ciphers": str,
    "ssl_exclude_verify_flags": _verify_flags,
    "ssl_include_verify_flags": _verify_flags,
    "ssl_keyfile": str,
    "ssl_min_version": lambda text: ssl.TLSVersion(int(text)),
    "ssl_password": str,
}
#: TLS options of a broker's URL.
_BROKER_TLS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
#: Options that weaken the check of a certificate. Ciphers do: some need no certificate.
_WEAK: dict[str, Callable[[Any], bool]] = {
    "ssl_cert_reqs": lambda value: value != "required",
    "ssl_check_hostname": lambda value: not value,
    "ssl_ciphers": lambda _: True,
    "ssl_exclude_verify_flags": bool,
    "ssl_min_version": lambda value: value < ssl.TLSVersion.TLSv1_2,
}


def _tls(query: Mapping[str, str], prefix: str) -> Settings:
    settings = {}
    for name, convert in _TLS.items():
        if (text := query.get(prefix + name)) is not None:
            try:
                settings[name] = convert(text)
            except (KeyError, ValueError):
                raise InvalidValue(
                    f"the option {prefix}{name} of the url has an invalid value"
                ) from None
    return settings


def _refuse_weak_tls(address: Address, options: Options) -> None:
    for settings in (address.tls, address.sentinel_tls):
        for name, is_weak in _WEAK.items():
            weak = settings and name in settings and is_weak(settings[name])
            if weak and not insecure_tls(options):
                raise InvalidValue(
                    f"the option {name} of the url weakens the check of the server's certificate; "
                    "name its CA by ssl_ca_certs instead, or allow it by "
                    f"{how_to_allow_insecure_tls(options)}"
                )


def _refuse_plain_password(address: Address, options: Options) -> None:
    secret = address.login.get("password") or address.sentinel_login.get("password")
    if secret and address.tls is None and address.kind != "unix":
        if all(is_loopback(host) for host, _ in address.hosts) or plain_password(options):
            return
        raise InvalidValue(
            f"a {address.scheme}:// url with a password to another machine would send it in clear "
            f"text; use {address.scheme.replace('redis', 'rediss', 1)}://, "
            f"or allow it by {how_to_allow_plain_password(options)}"
        )
