"""What users see: JSON on stdout, sentences on stderr, never a raw control character."""

from __future__ import annotations

import json
import sys
from urllib.parse import urlsplit

import click

from aiorsmq_ng import Message, QueueAttributes


def emit(value: object) -> None:
    """Print *value* as one line of JSON on stdout."""
    click.echo(as_json(value))


def complain(sentence: str) -> None:
    """Print a sentence on stderr."""
    click.echo(printable(f"rsmqctl: {sentence}"), err=True)


def as_json(value: object) -> str:
    """Return *value* as one line of JSON, in letters that stdout can show."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return printable(json.dumps(value, ensure_ascii=not unicode))


def printable(text: str) -> str:
    """Return *text* with every character that could steer a terminal as a JSON escape.

    Inside a JSON document such characters stand in strings only, so it stays the same document.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def message_record(message: Message) -> dict[str, object]:
    r"""Return a message as it is printed; bytes that are not UTF-8 appear as ``\xff``."""
    return {
        "id": message.id,
        "message": message.body.decode(errors="backslashreplace"),
        "rc": message.rc,
        "ts": message.fr,
    }


def attributes_record(attributes: QueueAttributes) -> dict[str, object]:
    """Return a queue as it is printed: RSMQ's nine attributes, then the three states."""
    names = (
        "vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified",
        "msgs", "hiddenmsgs", "ready", "delayed", "leased", "oldest_age",
    )  # fmt: skip
    return {name: getattr(attributes, name) for name in names}


def without_secrets(url: str) -> str:
    """Return *url* without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
