"""What is refused unless it is allowed: by an option, or by the environment of a deployment.

One image runs in places with TLS and in places without it, and only the environment differs there.
"""

from __future__ import annotations

import logging
import os

from ..options import Options

logger = logging.getLogger("aiorsmq_ng.transport")

PLAIN_PASSWORD, INSECURE_TLS = "RSMQ_PLAIN_PASSWORD", "RSMQ_INSECURE_TLS"

#: Variables that were warned about; once in a process is enough.
_warned: set[str] = set()


def plain_password(options: Options) -> bool:
    """Return True if a password or token may leave this machine in clear text.

    Ask only when one is about to: what the environment allows is logged as a warning.
    """
    return options.plain_password or _environment(
        PLAIN_PASSWORD,
        "a password or token goes to another machine in clear text, and others on the way can "
        "read it",
    )


def insecure_tls(options: Options) -> bool:
    """Return True if a URL may weaken the check of a certificate; ask only when it does."""
    return options.insecure_tls or _environment(
        INSECURE_TLS,
        "the server's certificate is not fully checked, and others on the way can pose as it",
    )


def how_to_allow_plain_password(options: Options) -> str:
    """Return the ways to allow it, for the error that refuses it."""
    return _ways(PLAIN_PASSWORD, options.how_to_allow("plain_password"))


def how_to_allow_insecure_tls(options: Options) -> str:
    """Return the ways to allow it, for the error that refuses it."""
    return _ways(INSECURE_TLS, options.how_to_allow("insecure_tls"))


def _ways(variable: str, setting: str) -> str:
    return " or ".join(filter(None, (f"{variable}=1 in the environment", setting)))


def _environment(variable: str, consequence: str) -> bool:
    if os.environ.get(variable) != "1":
        return False
    if variable not in _warned:
        _warned.add(variable)
        logger.warning("%s=1: %s", variable, consequence)
    return True
