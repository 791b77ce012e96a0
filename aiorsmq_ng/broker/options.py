"""Settings of a broker: addresses, TLS, limits."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field, fields

from aiorsmq_ng import InvalidValue

from .._common.durations import Duration
from .._common.listening import cannot_listen

#: GOMQ's port, on this machine only.
DEFAULT_LISTEN = "127.0.0.1:10001"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a broker.

    Durations are given in seconds or as a ``timedelta``, and read as seconds.
    """

    #: One request, in bytes. gRPC clients accept replies of up to 4 MiB by default, so a larger
    #: limit is useful only to clients that raise theirs.
    message_bytes: int = 4 * 1024 * 1024
    #: Messages, ids or receipts in one request.
    batch: int = 1000
    #: Calls in flight that do not wait for messages.
    calls: int = 1000
    #: Streams, and calls that wait for messages.
    streams: int = 4000
    #: Calls and streams of one connection.
    connection_streams: int = 1000
    #: Total bytes of requests being received or processed; at least four of the largest.
    receiving_bytes: int = 128 * 1024 * 1024
    #: How long one request may take to arrive.
    arrival: Duration = Duration(20.0)
    #: Bodies in one reply, in bytes; at least those of one request.
    reply_bytes: int = 8 * 1024 * 1024
    #: Total bytes of replies that clients have not read; at least four of the largest.
    unread_bytes: int = 128 * 1024 * 1024
    #: Calls of the health service in flight; they need no token.
    probes: int = 200
    #: The longest wait of one call.
    wait: Duration = Duration(60.0)
    #: Unsettled messages of one Consume stream.
    unsettled: int = 1000
    #: Subscriptions of one topic: every publish makes a copy for each. Those that begin at the same
    #: moment may exceed it.
    subscriptions: int = 1000

    def __post_init__(self) -> None:
        for one in fields(self):
            if not getattr(self, one.name) > 0:
                raise InvalidValue(f"the limit {one.name} must be more than 0")

    @property
    def largest_reply(self) -> int:
        """Bytes of bodies in one reply. Every message that can be sent can also be received."""
        return max(self.reply_bytes, self.message_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The server's certificate and key, and the authority that must have signed clients'."""

    #: The server's certificate chain, PEM.
    certificate: bytes
    #: Its private key, PEM.
    key: bytes = field(repr=False)
    #: If set, clients need a certificate signed by it.
    client_ca: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class BrokerOptions:
    """Settings of a broker: addresses, TLS, receipts, limits, shutdown."""

    #: ``host:port`` (0: any free port) or ``unix:/path``.
    listen: tuple[str, ...] = (DEFAULT_LISTEN,)
    #: Certificate and key; ``None`` for clear text.
    tls: Tls | None = None
    #: True allows addresses beyond this machine without TLS or tokens.
    insecure: bool = False
    #: Limits for requests and replies.
    limits: Limits = Limits()
    #: Key that signs receipts. None: a random key, so receipts are valid only in this process.
    #: Brokers with the same key accept each other's receipts.
    receipt_key: bytes | None = field(default=None, repr=False)
    #: True if gRPC reflection describes the interface to callers that may use it.
    reflection: bool = False
    #: How long a stop waits for messages to be settled and for calls to end; seconds, or a
    #: ``timedelta``.
    grace: Duration = Duration(10.0, or_0=True)

    def __post_init__(self) -> None:
        if not self.listen:
            raise InvalidValue("a broker needs an address to listen on")
        if self.receipt_key is not None and len(self.receipt_key) < 16:
            raise InvalidValue("the key for receipts has less than 16 bytes")

    def check(self, *, tokens: bool) -> None:
        """Raise ``InvalidValue`` if unauthenticated callers could connect from other machines.

        *tokens* is True if the broker has tokens.
        """
        if self.insecure:
            return
        for address in self.listen:
            if not is_local(address) and not (self.tls and tokens):
                missing = "a certificate" if tokens else "tokens" if self.tls else "both"
                raise InvalidValue(
                    f"listening on {address!r}, beyond this machine, needs TLS and tokens, and "
                    f"{missing} {'are' if missing != 'a certificate' else 'is'} missing; "
                    "--insecure allows it without them"
                )


def check_free(address: str) -> None:
    """Raise ``InvalidValue`` if the system does not allow listening on *address*."""
    try:
        if address.startswith("unix:"):
            with socket.socket(socket.AF_UNIX) as trial:
                trial.bind(address.removeprefix("unix:").removeprefix("//"))
            return
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, int(port)), family=family).close()
    except OSError as error:
        raise cannot_listen(address, error) from error


def is_local(address: str) -> bool:
    """Return True if only this machine can reach *address*."""
    if address.startswith("unix:") and address != "unix:":
        return True
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535 or not host:
        raise InvalidValue(f"address {address!r} is not of the form host:port or unix:/path")
    host = host.removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
