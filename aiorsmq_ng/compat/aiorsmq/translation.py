"""Translates this library's names, ids and errors to those that users of aiorsmq expect."""

from __future__ import annotations

import re

from redis import exceptions as driver_errors

from aiorsmq_ng import (
    AccessDenied,
    ClientClosed,
    InvalidValue,
    MessageTooLong,
    NoAttributeSupplied,
    NotSupported,
    QueueCorrupt,
    QueueExists,
    QueueNotFound,
    RSMQError,
    ServerError,
    ServerOutOfMemory,
    Unavailable,
    WrongContext,
)

from . import exceptions

# aiorsmq does not wrap the errors of redis-py, so its users catch those when Redis fails.
# The first matching class is used.
_TABLE: tuple[tuple[type[RSMQError], type[Exception]], ...] = (
    (QueueExists, exceptions.QueueExistsException),
    (QueueNotFound, exceptions.QueueNotFoundException),
    (MessageTooLong, exceptions.InvalidValueException),
    (InvalidValue, exceptions.InvalidValueException),
    (NoAttributeSupplied, exceptions.NoAttributesSpecified),
    (QueueCorrupt, driver_errors.ResponseError),
    (ServerOutOfMemory, driver_errors.OutOfMemoryError),
    (AccessDenied, driver_errors.AuthenticationError),
    (NotSupported, driver_errors.ResponseError),
    (Unavailable, driver_errors.ConnectionError),
    (ClientClosed, driver_errors.ConnectionError),
    (WrongContext, driver_errors.ConnectionError),
    (RSMQError, exceptions.AIORSMQException),
)


#: Our name of aiorsmq's argument ``max_size``; in quotes it would be a user's word.
_MAXSIZE = re.compile(r"(?<!['\w])maxsize(?!['\w])")


class translated_errors:  # noqa: N801 - reads as a statement
    """Raise aiorsmq's error instead of ours, with ours as its cause."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, RSMQError):
            raise translate(error) from error


def translate(error: RSMQError) -> Exception:
    """Return the error that a user of aiorsmq expects in place of *error*."""
    if type(error) is ServerError:  # an error reply that this library does not map
        return driver_errors.ResponseError(str(error))
    theirs = next(theirs for ours, theirs in _TABLE if isinstance(error, ours))
    return theirs(_sentence(error))


def _sentence(error: RSMQError) -> str:
    if isinstance(error, QueueExists):
        # The original text recommends an argument that aiorsmq does not have.
        return f"queue {error.queue!r} exists already in namespace {error.ns!r}"
    return _MAXSIZE.sub("max_size", str(error))


def returned_text(text: str, *, decoded: bool) -> str:
    """Return a name or id for a user whose Redis client has ``decode_responses=decoded``."""
    return text if decoded else _DecodedText(text)


class _DecodedText(str):
    """A name or id as returned by a client without ``decode_responses``.

    aiorsmq returns ``bytes`` there but accepts only ``str``, so existing programs call ``decode``
    on them. They keep working.
    """

    __slots__ = ()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return str(self)
