"""TLS settings of a client, and its permanent errors in plain sentences."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Unavailable

# OpenSSL's codes for a valid certificate of another name or address.
_OTHER_HOST = (62, 64)
# OpenSSL's reasons of alerts by which a server refuses a client. A lost connection has others.
_REFUSED_US = (
    "CERTIFICATE",
    "UNKNOWN_CA",
    "ACCESS_DENIED",
    "HANDSHAKE_FAILURE",
    "PROTOCOL_VERSION",
)
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def client_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context with the files that a URL names for TLS.

    Raises ``Unavailable`` if they cannot be used. It trusts no CA but the one that the URL names.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        cafile, capath, cadata = (settings.get(f"ssl_ca_{x}") for x in ("certs", "path", "data"))
        if cafile or capath or cadata:
            context.load_verify_locations(cafile=cafile, capath=capath, cadata=cadata)
        if certificate := settings.get("ssl_certfile"):
            # Never ask at the terminal for the password of a key.
            password = settings.get("ssl_password", "")
            context.load_cert_chain(certificate, settings.get("ssl_keyfile"), password)
        if "ssl_ciphers" in settings:
            context.set_ciphers(settings["ssl_ciphers"])
        return context
    except (OSError, ValueError, TypeError) as error:
        what = error.strerror if isinstance(error, OSError) and error.strerror else "wrong format"
        raise Unavailable(
            f"a certificate or key that the url names for TLS cannot be used: {what}; "
            "check ssl_ca_certs, ssl_certfile and ssl_keyfile"
        ) from None


def fault(error: BaseException) -> str | None:
    """Return what is wrong with a certificate, or that TLS is missing; ``None`` for others."""
    for cause in chain(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            if cause.verify_code in _OTHER_HOST:
                what, remedy = "is for another host", "use a name that is in it"
            else:
                what, remedy = "is not trusted", "name its CA in the url by ssl_ca_certs"
            said = cause.verify_message.rstrip(".")
            return f"the server's certificate {what}: {said}; {remedy}"
        if isinstance(cause, ssl.SSLError):
            reason = cause.reason or ""
            if reason in _NO_TLS:
                return "the server does not speak TLS at this port; use the port where it does"
            if "ALERT" in reason and any(word in reason for word in _REFUSED_US):
                words = reason.lower().replace("_", " ")
                return (
                    f"the server refused the TLS connection ({words}); it may want a certificate "
                    "by ssl_certfile and ssl_keyfile"
                )
    return None


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield *error* and its causes, the nearest first."""
    for _ in range(8):
        if error is None:
            return
        yield error
        error = error.__cause__ or error.__context__
