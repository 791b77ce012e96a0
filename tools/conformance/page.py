"""Makes docs/reports/conformance.md and its pictures from docs/reports/conformance.json."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rsmq_conformance.pictures import matrix

REPORTS = Path(__file__).parents[2] / "docs" / "reports"
DATA, PAGE = REPORTS / "conformance.json", REPORTS / "conformance.md"
LEVELS, PAIRS = (REPORTS / "pictures" / f"conformance-{name}.svg" for name in ("levels", "pairs"))
#: What a reader should know about a client, or about how it was driven.
NOTES = {
    "npm rsmq": "The measure of the rules. What it misses is advice.",
    "rsmq-worker": (
        "On top of npm rsmq 0.12.4. It has no pop, no change of visibility and no queue commands. By default it sends with a "
        "delay of 1 s; the driver sets `defaultDelay` to 0. It completes a queue that is there in part. A deletion that finds nothing is not reported."
    ),
    "PyRSMQ": "Times of queues come from the local clock, which no scenario can see on one machine.",
    "aiorsmq": (
        "On aioredis 2.0.1, which cannot be imported on Python 3.11 and later; the driver lends it a class during the import."
    ),
    "rsmq_async": (
        "The last version with RSMQ's format. It stores `vt` and `delay` in milliseconds, so a queue that it creates hides "
        "messages 1000 times too long for all others, and a queue of others hides them 1000 times too short for it. Give "
        "every call its own `vt` and `delay` where it shares a queue."
    ),
    "go-rsmq": "A queue or message with a field that it does not expect ends the whole program (a panic).",
}
HEAD = """\
# Conformance of RSMQ clients

<!-- Made by `nox -s conformance` from conformance.json. -->

{scenarios} scenarios of [rsmq-conformance](../guides/conformance.md) on {server}, {date}. Every client alone, and every pair of
clients with the roles of sender, receiver and deleter in every distribution. A rule is what npm rsmq 0.12.4 does; *advice* is
what it does not do, either. Scenarios that need a verb or an option that a client does not have are not counted.

## Alone

![Scenarios passed by each client, by level](pictures/conformance-levels.svg)

{alone}

## In pairs

The row sends (or makes the queue), the column receives; the third role is played by both in turn.

![Scenarios passed by each pair of clients](pictures/conformance-pairs.svg)

{pairs}

Which scenarios fail in a pair, in any distribution of the roles, although the rule may be kept by each of the two alone:

{together}

## What each client does differently
"""
TAIL = """\
## Clients that are missing

No client in Java or PHP was played. `com.oblac:jrsmq`, before that `com.wedeploy:jrsmq`, was published to a repository that is
closed, and is not on Maven Central; PHP packages come from Packagist, which the machine of this run cannot reach. A driver for
either is some fifty lines:
[guide](../guides/conformance.md).
"""


def title(client: dict[str, Any]) -> str:
    """Return name and version of a client."""
    return f"{client['name']} {client['version']}".strip()


def levels(data: dict[str, Any]) -> list[list[str]]:
    """Return the table of clients and levels."""
    names = {"L1": "L1 wire", "L2": "L2 semantics", "L3": "L3 concurrency", "L4": "L4 leftovers"}
    rows = [["client", "language", *names.values(), "advice"]]
    for client in data["clients"]:
        scores = [client["levels"][level] for level in names]
        rows.append([title(client), client["language"], *scores, client["advice"]])
    return rows


def table(rows: list[list[str]]) -> str:
    """Return rows as Markdown."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def together(data: dict[str, Any]) -> str:
    """Return the table of what fails in pairs."""
    rows = [["pair", "scenarios"]]
    for pair in data["pairs"]:
        failed = [r["scenario"] for r in pair["results"] if r["state"] == "failed"]
        if failed:
            names = ", ".join(f"`{name}`" for name in dict.fromkeys(failed))
            rows.append([" and ".join(pair["clients"]), names])
    return table(rows)


def differences(data: dict[str, Any]) -> str:
    """Return a section for every client: what it does differently, and what users notice."""
    scenarios = {scenario["name"]: scenario for scenario in data["scenarios"]}
    parts = []
    for client in data["clients"]:
        parts += [
            f"### {title(client)}",
            *([NOTES[client["name"]]] if client["name"] in NOTES else []),
        ]
        failed = [result for result in client["results"] if result["state"] == "failed"]
        rows = [["scenario", "rule", "seen", "so"]]
        for result in failed:
            scenario = scenarios[result["scenario"]]
            kind = " (advice)" if scenario["advice"] else ""
            cells = (scenario["rule"], seen(result["detail"]), scenario["harm"])
            rows.append([f"`{scenario['name']}`{kind}", *(c.replace("|", "\\|") for c in cells)])
        parts.append(table(rows) if failed else "Keeps every rule and follows every advice.")
    return "\n\n".join(parts)


def seen(detail: str) -> str:
    """Return what was seen without what differs from run to run: steps, ids and times."""
    text = re.sub(r"^step \d+( \(\w+\))?: ", "", detail)
    text = re.sub(r"\b[0-9a-z]{10}[0-9A-Za-z]{22}\b", "id", text)
    text = re.sub(r"expected (\d{10,}) to \d+ \((the time[^)]*)\)", r"expected \2", text)
    text = re.sub(r'got "?\d{10,}"?, which is (\S+)', r"got a number that differs by \1", text)
    return re.sub(r"\s+", " ", text)


def write(data: dict[str, Any]) -> None:
    """Write the page, its pictures and its data."""
    DATA.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(data), encoding="utf-8")
    for path, rows in pictures(data).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(matrix(rows), encoding="utf-8")


def pictures(data: dict[str, Any]) -> dict[Path, list[list[str]]]:
    """Return the tables that are drawn."""
    short = [[row[0], *row[2:]] for row in levels(data)]
    return {LEVELS: short, PAIRS: data["directions"]}


def page(data: dict[str, Any]) -> str:
    """Return the page."""
    head = HEAD.format(
        scenarios=len(data["scenarios"]),
        server=data["server"].split(",")[0],
        date=data["date"],
        alone=table(levels(data)),
        pairs=table(data["directions"]),
        together=together(data),
    )
    return f"{head}\n{differences(data)}\n\n{TAIL}"
