"""Write the tables of docs/guides/metrics.md from the instruments: ``python tools/docs/make_metrics.py``."""

from __future__ import annotations

import re
from pathlib import Path

from aiorsmq_ng.telemetry.instruments import Process, Queues, instruments

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"
#: Mark above a table -> the instruments in it.
TABLES = {"queues": Queues, "process": Process}


def table(view: type) -> str:
    """Return the table of the instruments of *view*."""
    found = list(instruments(view))
    otel = any(one.otel for one in found)
    head = "| metric | type | labels | what it is |" + (" OpenTelemetry |" if otel else "")
    rows = [head, "|---|---|---|---|" + ("---|" if otel else "")]
    for one in found:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        row = f"| `{one.name}` | {one.kind} | {labels} | {one.help.replace('|', chr(92) + '|')} |"
        rows.append(row + (f" `{one.otel}` |" if otel else ""))
    return "\n".join(rows)


def page(text: str) -> str:
    """Return the page with its tables as they should be."""
    for name, view in TABLES.items():
        mark = f"<!-- Made by tools/docs/make_metrics.py: {name} -->"
        text = re.sub(
            re.escape(mark) + r"\n\n(?:\|[^\n]*\n)*",
            lambda _, mark=mark, view=view: f"{mark}\n\n{table(view)}\n",
            text,
        )
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
