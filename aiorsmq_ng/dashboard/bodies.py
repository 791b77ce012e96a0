"""Bodies as text for people: readable, harmless, exact.

A body is shown as text only. Control characters and those that change the direction of writing are
written as their numbers, so that a body cannot look like something else.
"""

from __future__ import annotations

import json
import re
import unicodedata

#: Bytes of a body that a page shows; the rest can be downloaded.
SHOWN_BYTES = 65_536
#: Bytes in the hexadecimal view.
HEX_BYTES = 4096
PREVIEW = 120

_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_DEEPEST = 200


def visible(text: str) -> str:
    """Return *text* with control and direction characters as numbers; new lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or _shown(c) else f"\\u{{{ord(c):x}}}" for c in text)


def one_line(text: str, most: int = PREVIEW) -> str:
    """Return the beginning of *text* on one line."""
    line = visible(text[: most + 1]).replace("\n", " ").replace("\t", " ")
    return line if len(text) <= most else line[:most] + "…"


def preview(body: bytes) -> str:
    """Return the beginning of a body on one line; bytes that are no text in hexadecimal."""
    try:
        text = body[: 4 * PREVIEW].decode()
    except UnicodeDecodeError as error:
        # A character that was cut at the end is no fault.
        if len(body) <= 4 * PREVIEW or error.start < 4 * PREVIEW - 4:
            return "0x" + body[: PREVIEW // 2].hex() + ("…" if len(body) > PREVIEW // 2 else "")
        text = body[: error.start].decode()
    return one_line(text)


def as_text(body: bytes) -> str | None:
    """Return a body as text; ``None`` if it is not UTF-8."""
    try:
        return visible(body.decode())
    except UnicodeDecodeError:
        return None


def pretty(body: bytes) -> str | None:
    """Return a JSON body with indentation; ``None`` if it is not JSON, or nested very deeply.

    Its words stay as they are: numbers keep every digit, and repeated keys stay.
    """
    try:
        text = body.decode()
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth, empty = 0, False
    for word in _WORD.findall(text):
        if word in "]}":
            depth -= 1
            parts.append(word if empty else _line(depth) + word)
            empty = False
            continue
        if empty:
            parts.append(_line(depth))
        empty = word in "[{"
        depth += empty
        if depth > _DEEPEST:
            return None
        parts.append(": " if word == ":" else word)
        if word == ",":
            parts.append(_line(depth))
    return visible("".join(parts))


def hexadecimal(body: bytes) -> str:
    """Return the first bytes as rows of offset, hexadecimal digits and ASCII."""
    rows = []
    for at in range(0, min(len(body), HEX_BYTES), 16):
        row = body[at : at + 16]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {plain}")
    return "\n".join(rows)


def _line(depth: int) -> str:
    return "\n" + "  " * depth


def _shown(character: str) -> bool:
    # Not controls, formats (which include the direction marks), surrogates and unassigned ones.
    return unicodedata.category(character)[0] != "C" and character not in "\u2028\u2029"
