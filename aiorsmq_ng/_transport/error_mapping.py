"""Maps error replies of a server to the errors of this package."""

from __future__ import annotations

import logging
from typing import NoReturn

from redis import exceptions as driver_errors

from ..errors import (
    AccessDenied,
    NotSupported,
    RSMQError,
    ServerError,
    ServerOutOfMemory,
    Unavailable,
)
from . import tls
from .driver import NotExecuted
from .script_calls import ScriptMissing, WrongLayout

logger = logging.getLogger("aiorsmq_ng.transport")

# Transient errors: nothing ran. redis-py has classes for some of these and removes the code word
# from their text.
_TRY_LATER = (
    driver_errors.BusyLoadingError,
    driver_errors.ReadOnlyError,
    driver_errors.MasterDownError,
    driver_errors.ClusterDownError,
    driver_errors.TryAgainError,
)
_TRY_LATER_WORDS = (
    "LOADING", "BUSY", "READONLY", "MASTERDOWN", "NOREPLICAS", "MISCONF", "CLUSTERDOWN", "TRYAGAIN"
)  # fmt: skip
# Texts of servers, and of the cluster client, for keys on different nodes.
_ACROSS_SLOTS = ("CROSSSLOT", "same slot", "same key slot", "non local")
# Errors of a former primary: another server is the primary, or will be soon.
_STEPPED_DOWN = ("READONLY", "NOREPLICAS", "MISCONF")
#: Errors that a server answers with. redis-py counts some of them among those of the connection.
ANSWERS = (
    driver_errors.ResponseError,
    driver_errors.BusyLoadingError,
    driver_errors.AuthenticationError,
    driver_errors.AuthorizationError,
)
_NO_ACCESS = ("NOAUTH", "WRONGPASS")
# Errors of a server that does not have a command.
_UNKNOWN_COMMAND = ("unknown command", "unknown subcommand", "unknown redis command")


def raise_mapped(error: Exception) -> NoReturn:
    """Raise the error of this package for an error reply. Nothing was written."""
    text = str(error)
    word = text.split(" ", 1)[0]
    if isinstance(error, driver_errors.NoScriptError) or word == "NOSCRIPT":
        raise ScriptMissing from None
    if "WRONGTYPE" in text:
        raise WrongLayout("wrongType") from None
    if isinstance(error, driver_errors.OutOfMemoryError) or "OOM command not allowed" in text:
        raise ServerOutOfMemory(
            "redis is out of memory and stores nothing more; "
            "consume messages or raise its maxmemory"
        ) from None
    if (advice := _denied(error, word, text)) is not None:
        raise AccessDenied(f"redis refused access: {text.rstrip('.')}; {advice}") from None
    if isinstance(error, _TRY_LATER) or any(word in text for word in _TRY_LATER_WORDS):
        if word == "BUSY":
            logger.warning("the server is busy with a script that does not end; waiting for it")
        raise NotExecuted(text) from error
    if word in ("MOVED", "ASK") or isinstance(error, driver_errors.MovedError):
        raise NotSupported(
            "the server is part of a cluster; connect with redis+cluster:// "
            "and a namespace in braces such as '{rsmq}'"
        ) from None
    if any(words in text for words in _ACROSS_SLOTS):
        raise NotSupported(
            "a cluster keeps the keys of a queue on one node only if the namespace is in braces, "
            "such as ns='{rsmq}'"
        ) from None
    if "user_script" in text or "Lua" in text:
        raise WrongLayout("scriptFailed") from error
    # An unknown command is answered with its arguments, which may hold bodies.
    said = text.split(", with args", 1)[0]
    kind = NotSupported if any(words in text.lower() for words in _UNKNOWN_COMMAND) else ServerError
    raise kind(f"redis refused the command: {said}") from None


def has_stepped_down(error: Exception) -> bool:
    """Return True if the server became a replica, or refuses writes for lack of one or of disk."""
    text = str(error)
    return isinstance(error, driver_errors.ReadOnlyError) or any(w in text for w in _STEPPED_DOWN)


def _denied(error: Exception, word: str, text: str) -> str | None:
    """Return advice for a refused login or a missing right; ``None`` for another error."""
    if (
        isinstance(error, driver_errors.NoPermissionError)
        or word == "NOPERM"
        or "can't run this command" in text
        or "no permissions" in text.lower()
    ):
        return "the user lacks a right for this operation, see the ACL rules in guides/security.md"
    if (
        isinstance(error, driver_errors.AuthenticationError)
        or word in _NO_ACCESS
        or "invalid username-password" in text
        or "invalid password" in text
    ):
        return "check user and password"
    return None


def refused_at_connect(error: Exception) -> None:
    """Raise if the server refused the connection; redis-py reports that as an outage."""
    if isinstance(error, RSMQError):
        raise error
    if (sentence := tls.fault(error)) is not None:
        raise Unavailable(sentence) from None
    for cause in tls.chain(error):
        if isinstance(cause, driver_errors.ResponseError | driver_errors.AuthenticationError):
            raise_mapped(cause)


def describe(error: Exception) -> str:
    """Return the text of a driver's error, or the name of its class if it has none."""
    # The sentinel client lists its connections after " : ".
    return str(error).split(" : ", 1)[0].rstrip(".") or type(error).__name__
