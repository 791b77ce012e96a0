"""The report, ``docs/reports/performance.md``, made from the result of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from . import contenders, figures, revisions, table
from .studies import growth, idle, memory, queues, safety

STUDIES = {"idle": idle, "growth": growth, "queues": queues, "memory": memory, "safety": safety}

#: The report with gaps for what was measured.
TEXT = Path(__file__).with_name("report.md")


def write(result: dict[str, Any], folder: Path) -> None:
    """Write the result, and the report made from it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "performance.json").write_text(dump(result))
    (folder / "performance.md").write_text(markdown(result))


def dump(result: dict[str, Any]) -> str:
    """Return the result as JSON, one line per turn."""
    rest = json.dumps({k: v for k, v in result.items() if k != "samples"}, indent=1)
    turns = ",\n  ".join(map(json.dumps, result["samples"]))
    return f'{rest[:-2]},\n "samples": [\n  {turns}\n ]\n}}\n'


def markdown(result: dict[str, Any]) -> str:
    """Return the report."""
    return TEXT.read_text().format(
        before=revisions.section(result),
        figures=figures.markdown(result),
        bounds=figures.bounds(result),
        date=result["date"],
        server=result["server"],
        machine=result["machine"],
        duration=result["settings"]["duration_s"],
        rounds=result["settings"]["rounds"],
        seconds=result["seconds"],
        circumstances=circumstances(result),
        rates=table.markdown(result["samples"]),
        studies=studies_markdown(result),
        versions=_versions(result["versions"]),
    )


def studies_markdown(result: dict[str, Any]) -> str:
    """Return the tables of the studies."""
    parts = []
    for name, found in result["studies"].items():
        study = STUDIES[name]
        parts.append(f"## {study.TITLE}\n\n{study.__doc__}\n\n{study.markdown(found)}")
        if name == "growth":
            parts.append("![Growth](pictures/performance-growth.svg)\n")
    return "\n".join(parts)


def circumstances(result: dict[str, Any]) -> str:
    """Return the load of the machine, what was missing, and what failed, as items of a list."""
    missing, failures = result.get("missing", {}), result["failures"]
    lines = [f"- {_load(result)}{_foreign(result['samples'])}"]
    if missing:
        lines.append(f"- Missing on this machine: {_named(missing)}.")
    lines.append(f"- These failed: {_named(failures)}." if failures else "- No contender failed.")
    return "\n".join(lines) + "\n"


def _named(reasons: dict[str, str]) -> str:
    return "; ".join(f"{name} ({why})" for name, why in reasons.items())


def _load(result: dict[str, Any]) -> str:
    if "load" not in result:
        return ""
    start, end = result["load"]
    return (
        f"The load average of the machine was {start:.1f} before the run began, and {end:.1f}, its "
        "own work included, when it ended. "
    )


def _foreign(samples: list[dict[str, Any]]) -> str:
    shares = sorted(sample["foreign"] for sample in samples)
    if not shares:
        return ""
    middle, high = shares[len(shares) // 2], shares[len(shares) * 9 // 10]
    return (
        f"Other processes kept {middle:.2f} processors busy in the median turn, and more than "
        f"{high:.2f} in every tenth."
    )


def _versions(versions: dict[str, dict[str, str]]) -> str:
    labels = {contender.name: contender.label for contender in contenders.ALL}
    lines = ["| | runs on |", "|---|---|"]
    for name, parts in versions.items():
        told = ", ".join(f"{part} {version}" for part, version in parts.items())
        lines.append(f"| {labels[name]} | {told} |")
    return "\n".join(lines) + "\n"
