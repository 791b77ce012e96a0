"""Find the connected clients: gRPC reports calls, not connections."""

from __future__ import annotations

import ipaddress
import os
import socket


def endpoint(host: str, port: int) -> str:
    """Return an address as GOMQ writes it: ``127.0.0.1:5467``, ``[::1]:5467``."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"{host}:{port}"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return f"[{address}]:{port}"
        address = address.ipv4_mapped
    return f"{address}:{port}"


def connected() -> set[str]:
    """Return the remote addresses of all TCP connections of this process.

    gRPC's keep-alive pings close the connection of a client that died without closing it.
    """
    found = set()
    for name in os.listdir("/dev/fd"):
        try:
            link = socket.socket(fileno=int(name))
        except OSError:
            continue  # not a socket, or closed in the meantime
        try:
            if link.family in (socket.AF_INET, socket.AF_INET6):
                found.add(endpoint(*link.getpeername()[:2]))
        except OSError:
            pass  # a listening socket
        finally:
            link.detach()  # gRPC closes it
    return found
