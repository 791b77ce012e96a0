"""Write docs/decisions/README.md from the records: ``python tools/docs/make_decisions.py``."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"
HEAD = re.compile(r"# (\d{4}): (.+)\n\nStatus: ([^.]+)\. Date: (\d{4}-\d\d-\d\d)\.")

INTRODUCTION = """\
# Decisions

<!-- Made by tools/docs/make_decisions.py from the records; run `nox -s docs` after adding one. -->

One record per decision that a reader would ask about: context, decision, consequences. The line below the title has
the status (accepted, changed in part, superseded), the date, and links to records that it changes or that changed it.
Files and classes have the names of today.

| record | decision | status | date |
|---|---|---|---|
"""


def page() -> str:
    """Return the index of the records."""
    rows = []
    for record in sorted(FOLDER.glob("[0-9]*.md")):
        head = HEAD.match(record.read_text())
        if head is None:
            raise ValueError(f"{record.name} must begin with a title and a line of status and date")
        number, title, status, date = head.groups()
        rows.append(f"| [{number}]({record.name}) | {title} | {status} | {date} |\n")
    return INTRODUCTION + "".join(rows)


if __name__ == "__main__":
    (FOLDER / "README.md").write_text(page())
