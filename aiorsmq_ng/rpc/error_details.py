"""Errors on their way from a broker to its client: a code, a text, and details as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import errors
from ..errors import InvalidValue, RSMQError, ServerError

#: Names in the trailing metadata of a call: code and details of its error, and which broker
#: process answered.
CODE, DETAILS, BROKER = "rsmq-code", "rsmq-details", "rsmq-broker"
#: Details that are longer, as JSON, are left out: metadata has little room.
_LONGEST_DETAILS = 2048

#: Errors of the library, by their codes.
_KINDS: Mapping[str, type[RSMQError]] = {
    kind.code: kind
    for kind in map(vars(errors).__getitem__, errors.__all__)
    if issubclass(kind, RSMQError)
} | dict.fromkeys(InvalidValue.CODES, InvalidValue)


def write_details(details: Mapping[str, Any] | None) -> str:
    """Return the fields of an error as JSON; empty if it has none, or too many for metadata."""
    text = json.dumps(details, default=str) if details else ""
    return text if len(text) <= _LONGEST_DETAILS else ""


def read_details(text: str) -> dict[str, Any]:
    """Return the fields that ``write_details`` wrote; none if they cannot be read."""
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def rebuild(code: str, text: str, details: Mapping[str, Any]) -> RSMQError:
    """Return the error that the broker met; ``ServerError`` for a code that is not known here."""
    kind = _KINDS.get(code, ServerError)
    error: RSMQError = kind.__new__(kind, text)
    error.__dict__.update({n: tuple(v) if isinstance(v, list) else v for n, v in details.items()})
    if error.code != code:
        error.code = code
    return error
