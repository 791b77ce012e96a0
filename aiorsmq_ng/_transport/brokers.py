"""The way to a broker: the token that opens it, and the driver, which needs an extra."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import cast

from ..errors import InvalidValue
from ..options import Options
from .allowances import ALLOW_PLAIN_PASSWORD, plain_password
from .driver import Driver
from .urls import Address, is_loopback


def with_token(address: Address | None, token: str | None, options: Options) -> Address | None:
    """Return *address* with the token for a broker; ``InvalidValue`` if that is not safe.

    Without one, that in ``RSMQ_TOKEN`` is taken, if the address is a broker's.
    """
    if address is None or address.kind != "broker":
        if token is not None:
            raise InvalidValue("a token is for a broker; use a grpc:// or grpcs:// url")
        return address
    token = token if token is not None else os.environ.get("RSMQ_TOKEN", "")
    if not token:
        return address
    if not (token.isascii() and token.isprintable()) or token != token.strip():
        raise InvalidValue("a token has printable ASCII characters and no space at its ends")
    host, _ = address.hosts[0]
    if address.tls is None and not is_loopback(host) and not plain_password(options):
        raise InvalidValue(
            "a grpc:// url to another machine would send the token in clear text; use grpcs://, "
            f"or allow it by {ALLOW_PLAIN_PASSWORD}"
        )
    return replace(address, login={"token": token})


def connect_broker(address: Address, namespaces: tuple[str, ...], options: Options) -> Driver:
    """Return a driver for a broker; nothing is connected yet."""
    if len(namespaces) != 1:
        raise InvalidValue(
            f"a broker serves one namespace, not {len(namespaces)}; open a client for each"
        )
    try:
        remote = import_module("aiorsmq_ng._broker_client")
    except ImportError as error:
        if error.name and error.name.partition(".")[0] not in ("grpc", "google"):
            raise
        raise InvalidValue(
            f'{address.scheme}:// needs the extra "grpc": pip install "aiorsmq-ng[grpc]"'
        ) from None
    return cast(Driver, remote.open_driver(address, namespaces[0], options))
