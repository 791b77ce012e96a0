"""Tables on pages of the documentation, between two marks; ``--write`` puts a new one there."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def where(load: float) -> str:
    """Say where and when something was measured, and how busy the machine was before it began."""
    return (
        f"Measured on {time.strftime('%Y-%m-%d', time.gmtime())} with {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, and a load of {load:.1f} by other work when it began."
    )


def put(page: str, script: str, lines: list[str]) -> None:
    """Replace what *script* has put on a page of the documentation."""
    path = DOCS / page
    path.write_text(replaced(path.read_text(), script, lines))


def replaced(text: str, script: str, lines: list[str]) -> str:
    """Return *text* with *lines* between the marks of *script*."""
    begin, end = f"<!-- by {script} -->\n", "<!-- end -->\n"
    found = re.subn(
        f"({re.escape(begin)}).*?({re.escape(end)})",
        lambda marks: marks[1] + "\n" + "\n".join(lines) + "\n\n" + marks[2],
        text,
        flags=re.DOTALL,
    )
    if found[1] != 1:
        raise ValueError(f"the page has the marks of {script} {found[1]} times, and not once")
    return found[0]
