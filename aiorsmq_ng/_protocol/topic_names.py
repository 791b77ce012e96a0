"""Names of a topic's queues, made of the names of topic, consumer and peer.

A part may be any text. Letters, digits and hyphens stay as they are, every other byte becomes ``_``
and two hexadecimal digits, and parts are joined by ``__``, which no part contains. So different
parts never make the same name, and the name of the topic can be read in all of them.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from .._common.queue_defaults import DEAD_SUFFIX
from ..errors import InvalidValue
from .shards import TOPIC_MARK

#: Characters of one part: three of them, what joins them and ``-dead`` fit into a queue's name.
PART_LENGTH = 48
#: Bytes of the digest that ends a part which is cut; 96 bits.
_DIGEST_BYTES = 12
_MAX_TEXT = 1000

_ODD = re.compile(rb"[^a-zA-Z0-9-]")
_CUT = re.compile(rf"_h[0-9a-f]{{{2 * _DIGEST_BYTES}}}$")
_ESCAPE = re.compile(rb"_([0-9a-f]{2})")


def check_part(what: str, text: object) -> str:
    """Return *text* if it can be the name of a topic, a consumer or a peer."""
    if text is None or text == "":
        raise InvalidValue(f"no {what} name given", code="missingParameter")
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise InvalidValue(
            f"{what} name {text!r} is not allowed: a text of 1 to {_MAX_TEXT} characters",
            code="invalidFormat",
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue(
            f"{what} name {text!r} cannot be encoded as UTF-8: it has a lone surrogate",
            code="invalidFormat",
        ) from None
    return text


def escape(text: str) -> str:
    """Return *text* in the characters that queue names allow. The mapping is injective."""
    raw = _ODD.sub(lambda match: b"_%02x" % match[0][0], text.encode())
    if raw.endswith(DEAD_SUFFIX.encode()):
        # So that a consumer's queue is never the dead-letter queue of another consumer.
        raw = raw[: -len(DEAD_SUFFIX)] + b"_2d" + raw[1 - len(DEAD_SUFFIX) :]
    return raw.decode()


def unescape(part: str) -> str:
    """Return the text that *part* was made of."""
    raw = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), part.encode())
    return raw.decode(errors="backslashreplace")


def queue_name(topic: str, *rest: str) -> str:
    """Return the queue's name for a topic, for one of its consumers, or for a consumer's peer."""
    return TOPIC_MARK.join(map(_part, (topic, *rest))) if rest else _part(topic) + TOPIC_MARK


def read_queue_name(queue: str) -> tuple[str, ...] | None:
    """Return topic, consumer and peer from the name of a topic's queue, or of its dead letters.

    The result has only the topic for its own queue. It is empty if a part was cut, and ``None`` if
    this is not the name of a topic's queue.
    """
    while queue.endswith(DEAD_SUFFIX):  # which no part ends with
        queue = queue.removesuffix(DEAD_SUFFIX)
    parts = queue.split(TOPIC_MARK)
    if len(parts) not in (2, 3):
        return None
    if any(_CUT.search(part) for part in parts):
        return ()
    return tuple(map(unescape, parts if parts[1:] != [""] else parts[:1]))


def _part(text: str) -> str:
    part = escape(text)
    if len(part) <= PART_LENGTH:
        return part
    # "_h" is not an escape sequence, so a cut part never equals an uncut one.
    digest = "_h" + blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    start = part[: PART_LENGTH - len(digest)]
    return re.sub(r"_[0-9a-f]?$", "", start) + digest
