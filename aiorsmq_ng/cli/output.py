"""Output: records on stdout, messages on stderr, never a raw control character on a terminal."""

from __future__ import annotations

import csv
import io
import json
import logging
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

import aiorsmq_ng

from .flag_names import in_flags
from .global_options import current_settings

Record = dict[str, Any]
#: Columns of a message.
MESSAGE_COLUMNS = ("id", "message", "rc", "ts")

#: First characters of a cell that a spreadsheet may parse as a formula.
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")  # the last four are full-width signs
_CSV_END = "\r\n"
#: Columns that hold an epoch time, and its units per second.
_TIMES = {"ts": 1000, "fr": 1000, "sent": 1000, "delivered": 1000, "created": 1, "modified": 1}
#: Maximum width of a table cell; the other formats have the whole value.
_CELL = 60


def emit(value: object) -> None:
    """Print *value* as one line of JSON on stdout."""
    click.echo(as_json(value))


def write(text: str) -> None:
    """Print *text* unchanged; the caller has escaped control characters for a terminal."""
    # With colour: click would otherwise strip escape sequences from bodies in a CSV.
    click.echo(text, nl=False, color=True)


def complain(sentence: str) -> None:
    """Print *sentence* on stderr, with the prefix and escapes of all messages."""
    click.echo(printable(f"rsmqctl: {in_flags(sentence)}"), err=True)


def show_record(record: Record) -> None:
    """Print one record in the format of ``-o``; by default as a JSON object."""
    match current_settings().output:
        case "table":
            width = max(map(len, record))
            for name, value in record.items():
                click.echo(f"{name:<{width}}  {printable(_readable(name, value))}".rstrip())
        case "csv":
            write("".join(Rows(record).csv([record])))
        case _:
            emit(record)


def show_rows(rows: Iterable[Record], columns: Sequence[str]) -> None:
    """Print records in the format of ``-o``; by default as a JSON list."""
    text = as_text(rows, columns)
    write("".join((text.head, *text.rows, text.tail)))


def show_names(names: Sequence[str], column: str) -> None:
    """Print names in the format of ``-o``; by default as a JSON list of strings."""
    match current_settings().output:
        case "table" | "csv":
            show_rows(({column: name} for name in names), [column])
        case "ndjson":
            for name in names:
                emit(name)
        case _:
            emit(names)


class Text(NamedTuple):
    """Formatted records: the text before them, each of them, the text after."""

    head: str
    rows: list[str]
    tail: str


def as_text(rows: Iterable[Record], columns: Sequence[str]) -> Text:
    """Format records as ``-o`` says; by default as a JSON list."""
    shown = Rows(columns)
    match current_settings().output:
        case "table":
            head, *lines = shown.table(list(rows))
            return Text(head, lines, "")
        case "csv":
            head, *lines = shown.csv(rows)
            return Text(head, lines, "")
        case "ndjson":
            return Text("", [f"{as_json(row)}\n" for row in rows], "")
        case _:
            items = [as_json(row) for row in rows]
            return Text("[", [*items[:1], *(f", {item}" for item in items[1:])], "]\n")


class Rows:
    """Formats records as lines of columns, each with its line break."""

    def __init__(self, columns: Iterable[str]) -> None:
        self.columns = list(columns)

    def table(self, rows: Sequence[Record], *, header: bool = True) -> list[str]:
        """Return aligned columns; numbers are right-aligned."""
        cells = [
            [printable(_readable(c, row.get(c)))[:_CELL] for c in self.columns] for row in rows
        ]
        numeric = [
            bool(rows) and all(isinstance(row.get(c), int | float | None) for row in rows)
            for c in self.columns
        ]
        if header:
            cells.insert(0, [c.upper() for c in self.columns])
        widths = [max((_width(row[i]) for row in cells), default=0) for i in range(len(numeric))]
        lines = []
        for row in cells:
            padded = (
                " " * (width - _width(cell)) + cell
                if right
                else cell + " " * (width - _width(cell))
                for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            lines.append("  ".join(padded).rstrip() + "\n")
        return lines

    def csv(self, rows: Iterable[Record], *, header: bool = True) -> list[str]:
        """Return comma-separated values; text that looks like a formula gets a quote before it."""
        lines = [_csv_line(self.columns)] if header else []
        return lines + [_csv_line([_csv_cell(row.get(c)) for c in self.columns]) for row in rows]


def _csv_line(cells: Sequence[Any]) -> str:
    line = io.StringIO()
    # Python 3.11 quotes a line break only if it is part of the line terminator.
    csv.writer(line, lineterminator=_CSV_END).writerow(cells)
    text = line.getvalue().removesuffix(_CSV_END)
    return f"{printable(text) if sys.stdout.isatty() else text}\n"


def _csv_cell(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    text = _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _readable(column: str, value: object) -> str:
    """Format a value for a table: epoch times as dates in UTC."""
    per_second = _TIMES.get(column)
    if per_second is None or not isinstance(value, int | float):
        return _text(value)
    if not value:
        return ""  # 0: the event has not happened yet
    try:
        found = datetime.fromtimestamp(value / per_second, UTC)
    except (ValueError, OverflowError, OSError):
        return _text(value)
    precise = found.isoformat(timespec="seconds" if per_second == 1 else "milliseconds")
    return precise.replace("+00:00", "Z")


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _width(text: str) -> int:
    return len(text) + sum(unicodedata.east_asian_width(c) in "WF" for c in text)


def as_json(value: object) -> str:
    """Return *value* as one line of JSON, in characters that stdout can encode."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    return printable(json.dumps(value, ensure_ascii=not unicode))


def printable(text: str) -> str:
    """Return *text* with control characters as JSON escapes.

    In a JSON document such characters occur in strings only, so its value does not change.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def harmless(text: str) -> str:
    """As ``printable``, but line breaks and tabs are kept."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


class HarmlessFormatter(logging.Formatter):
    """Log formatter that escapes control characters: errors may quote messages."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without control characters."""
        return harmless(super().format(record))


def show_sent(id: str) -> None:
    """Print the id of a sent message; report on stderr if it is a duplicate."""
    click.echo(id)
    if getattr(id, "duplicate", False):
        complain(f"nothing was stored: duplicate of {id}, which was sent with this key")


def message_record(message: aiorsmq_ng.Message) -> Record:
    r"""Return a message as a record; bytes that are not UTF-8 appear as ``\xff``."""
    record: Record = {
        "id": message.id,
        "message": message.body.decode(errors="backslashreplace"),
        "rc": message.rc,
        "ts": message.fr,
    }
    if headers := message.headers:
        record["headers"] = dict(headers)
    return record


def columns_of(found: Iterable[aiorsmq_ng.Message], columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns for messages: also one of headers if a message has some."""
    return (*columns, "headers") if any(message.headers for message in found) else columns


def attributes_record(attributes: aiorsmq_ng.QueueAttributes) -> Record:
    """Return a queue as a record: RSMQ's nine attributes, then the three states."""
    names = (
        "vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified",
        "msgs", "hiddenmsgs", "ready", "delayed", "leased", "oldest_age",
    )  # fmt: skip
    return {name: getattr(attributes, name) for name in names}


def without_secrets(url: str) -> str:
    """Return *url* without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
