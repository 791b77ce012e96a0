"""The log of services: text, or objects of JSON with the fields of each record."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

import click

#: What every record has; the rest are fields of its own.
_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime"})

log_format_option = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Write the log as text, or as one object of JSON per line with the fields of each record.",
)


class JsonFormatter(logging.Formatter):
    """Formats a record as an object of JSON on one line: time, level, logger, message, fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of ASCII."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found: dict[str, Any] = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _USUAL:
                found.setdefault(name, value)
        if record.exc_info:
            found["traceback"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)
