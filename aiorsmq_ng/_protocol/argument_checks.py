"""What RSMQ allows: names, ids, ranges. Everything a user passes in is checked here, once."""

from __future__ import annotations

import re
from hashlib import blake2b

from .._common.durations import Seconds as Seconds  # noqa: PLC0414 - users of limits need it
from .._common.durations import in_seconds
from .._common.queue_defaults import DEAD_SUFFIX, DEFAULT_MAXSIZE, dead_letter_queue
from .._common.queue_defaults import MAX_SECONDS as MAX_SECONDS  # noqa: PLC0414 - users of limits need it
from ..errors import InvalidValue

MIN_MAXSIZE, MAX_MAXSIZE, UNLIMITED = 1024, DEFAULT_MAXSIZE, -1
#: Messages one call may carry; a script that handles more would stall other clients.
MAX_COUNT = 100_000

_DIGEST = re.compile(r"digest:([0-9a-f]{32})")
_MAX_NAME = 160
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,160}")
# PyRSMQ accepts dots, spaces and letters of any alphabet, but no colon, which separates keys.
_FOREIGN_NAME = re.compile(r"[^:\x00-\x1f\x7f]{1,160}")
# 32 characters by rule; old Rust clients wrote 28 to 31. Attributes (vt, ...) are far shorter, so
# an id can never name one.
_ID = re.compile(r"[a-zA-Z0-9:]{20,64}")
_NAMESPACE = re.compile(r"[^:\s\x00-\x1f\x7f]{1,160}")
_NESTED_NAMESPACE = re.compile(r"[^\s\x00-\x1f\x7f]{1,160}")


def check_namespace(ns: object, *, nested: bool = False) -> str:
    """Return *ns* if keys built with it cannot reach into another namespace's queues."""
    if not isinstance(ns, str) or not (_NESTED_NAMESPACE if nested else _NAMESPACE).fullmatch(ns):
        hint = "" if nested else " (Options(nested_ns=True) allows a colon)"
        raise InvalidValue(
            f"namespace {ns!r} is not allowed: 1 to 160 characters, no spaces or colons{hint}",
            code="invalidFormat",
        )
    return ns


def check_name(name: object, *, foreign: bool = False) -> str:
    """Return *name* if it can name a queue."""
    if name is None or name == "":
        raise InvalidValue("no queue name given", code="missingParameter")
    pattern = _FOREIGN_NAME if foreign else _NAME
    if not isinstance(name, str) or not pattern.fullmatch(name):
        raise InvalidValue(
            f"queue name {name!r} is not allowed: 1 to 160 letters, digits, '-' or '_'",
            code="invalidFormat",
        )
    if name == "QUEUES":
        raise InvalidValue(
            "queue name 'QUEUES' is reserved: RSMQ keeps the list of queues under it",
            code="invalidFormat",
        )
    return name


def check_room_for_dead_letters(queue: str, dead_letter: str) -> None:
    """Raise ``InvalidValue`` if the name of *queue* is too long for one with ``-dead`` after it."""
    if len(dead_letter) > _MAX_NAME and dead_letter == dead_letter_queue(queue):
        raise InvalidValue(
            f"queue {queue!r} has no default dead-letter queue: with {DEAD_SUFFIX!r} its name is "
            f"longer than {_MAX_NAME} characters; pass dead_letter= to name another",
            code="invalidFormat",
        )


def check_id(id: object) -> str:
    """Return *id* if it can name a message and nothing else in a queue's hash.

    The scripts have the same rule: ``is_id`` of ``_is_id.lua``.
    """
    if id is None or id == "":
        raise InvalidValue("no message id given", code="missingParameter")
    if not isinstance(id, str) or not _ID.fullmatch(id) or id.endswith((":rc", ":fr", ":meta")):
        raise InvalidValue(
            f"message id {id!r} is not allowed: RSMQ ids have 32 letters and digits",
            code="invalidFormat",
        )
    return id


def seconds_to_ms(what: str, value: Seconds) -> int:
    """Return a per-call duration in whole milliseconds; fractions of a second are allowed."""
    if type(value) is int and 0 <= value <= MAX_SECONDS:
        return value * 1000
    seconds = in_seconds(what, value)
    if not 0 <= seconds <= MAX_SECONDS:
        raise InvalidValue(f"{what} must be between 0 and {MAX_SECONDS} seconds, not {value!r}")
    return round(seconds * 1000)


def optional_ms(what: str, value: Seconds | None) -> int:
    """Return milliseconds, or -1 for ``None``, which scripts read as the queue's stored value."""
    return -1 if value is None else seconds_to_ms(what, value)


def renewable_ms(what: str, value: Seconds | None) -> int:
    """Return the milliseconds of a lease that can be renewed, or -1 for ``None``."""
    if (milliseconds := optional_ms(what, value)) == 0:
        raise InvalidValue(f"{what} must be more than 0: such a lease is over when it begins")
    return milliseconds


def whole_seconds(what: str, value: Seconds) -> int:
    """Return a duration in whole seconds, to be stored: other clients fail on stored fractions."""
    milliseconds = seconds_to_ms(what, value)
    if milliseconds % 1000 or (isinstance(value, float) and not value.is_integer()):
        raise InvalidValue(
            f"{what} is stored in whole seconds, not {value!r}; pass fractions per call instead"
        )
    return milliseconds // 1000


def check_maxsize(value: object) -> int:
    """Return *value* if it is a size limit that RSMQ allows."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int)
        or not (MIN_MAXSIZE <= value <= MAX_MAXSIZE or value == UNLIMITED)
    ):
        raise InvalidValue(
            f"maxsize must be between {MIN_MAXSIZE} and {MAX_MAXSIZE} bytes, "
            f"or {UNLIMITED} for no limit, not {value!r}"
        )
    return value


def check_count(value: object, what: str = "count") -> int:
    """Return *value* if it is a number of messages that one call may carry."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise InvalidValue(f"{what} must be between 1 and {MAX_COUNT}, not {value!r}")
    return value


def digest(key: object) -> str:
    """Return the digest of a dedup key, for the name of a Redis key: fixed length, not readable.

    ``digest:`` and a digest stand for the key that it was made of; clients of a broker send that.
    """
    if not isinstance(key, str) or not key:
        raise InvalidValue(f"dedup_key must be a text of at least one character, not {key!r}")
    if made := _DIGEST.fullmatch(key):
        return made[1]
    # A lone surrogate is not valid text, but it can be a key.
    return blake2b(key.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def check_start(value: object) -> int:
    """Return *value* if it is a position in a queue; negative ones count from the end."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"start must be a whole number, not {value!r}")
    return value
