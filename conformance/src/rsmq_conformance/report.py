"""What a run found: for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import __version__
from .pictures import badge, matrix
from .run import Result, Run
from .scenarios import LEVELS


@dataclass(frozen=True)
class Score:
    """How many of how many; what a client has no verb for is not counted."""

    passed: int
    of: int

    @classmethod
    def count(cls, results: Iterable[Result]) -> Score:
        """Count results."""
        played = [result for result in results if result.outcome.state != "lacking"]
        return cls(sum(result.passed for result in played), len(played))

    @property
    def complete(self) -> bool:
        """Return True if nothing failed."""
        return self.passed == self.of

    def __str__(self) -> str:
        return f"{self.passed}/{self.of}" if self.of else "-"


def rules(results: Iterable[Result]) -> list[Result]:
    """Return the results that count: those of rules, not of advice."""
    return [result for result in results if not result.scenario.advice]


def of_level(results: Iterable[Result], level: str) -> Score:
    """Return the score of one level."""
    return Score.count(r for r in rules(results) if r.scenario.level == level)


def advice(results: Iterable[Result]) -> Score:
    """Return the score of what is only advised."""
    return Score.count(result for result in results if result.scenario.advice)


def directions(run: Run, sender: str, receiver: str) -> Score | None:
    """Return the score of all pair scenarios in which one client sends and the other receives."""
    if sender == receiver:
        return Score.count(r for r in rules(run.alone[sender]) if r.scenario.pair)
    group = run.pairs.get((sender, receiver)) or run.pairs.get((receiver, sender))
    if group is None:
        return None
    return Score.count(r for r in rules(group) if _flow(r) == (sender, receiver))


def _flow(result: Result) -> tuple[str, str]:
    """Return from which client to which the messages, or else the queue, of a scenario go."""
    cast = result.cast
    first = next(cast[role] for role in ("sender", "maker", "a", "receiver") if role in cast)
    order = [cast[role] for role in ("receiver", *cast) if role in cast]
    return first, next((title for title in order if title != first), first)


def table(run: Run) -> list[list[str]]:
    """Return head and rows: clients and their scores by level."""
    levels = [level for level in LEVELS if any(s.level == level for s in run.scenarios)]
    rows = [["client", *(f"{level} {LEVELS[level]}" for level in levels), "advice"]]
    for client in run.clients:
        results = run.alone[client.title]
        scores = [of_level(results, level) for level in levels]
        rows.append([client.title, *map(str, scores), str(advice(results))])
    return rows


def pair_table(run: Run) -> list[list[str]]:
    """Return head and rows: senders by receivers."""
    titles = [client.title for client in run.clients]
    rows = [["sends \\ receives", *titles]]
    for sender in titles:
        scores = [directions(run, sender, receiver) for receiver in titles]
        rows.append([sender, *("" if score is None else str(score) for score in scores)])
    return rows


def terminal(run: Run) -> str:
    """Return the summary for a terminal."""
    parts = [_aligned(table(run))]
    if run.pairs:
        parts.append(_aligned(pair_table(run)))
    for result in run.failures:
        kind = "advice" if result.scenario.advice else "FAILED"
        parts.append(f"{kind} {_who(result)}: {result.scenario.name}\n  {result.outcome.detail}")
    parts += not_played(run)
    return "\n\n".join(parts)


def not_played(run: Run) -> list[str]:
    """Return a line for each reason why scenarios were not played with a client alone."""
    lines = []
    for title, results in run.alone.items():
        reasons: dict[str, list[str]] = {}
        for result in results:
            if result.outcome.state == "lacking":
                reasons.setdefault(result.outcome.detail, []).append(result.scenario.name)
        for reason, names in reasons.items():
            count = f"{len(names)} of {len(results)} scenarios not played"
            lines.append(f"{title}: {count} ({reason}): {', '.join(names)}")
    return lines


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def _who(result: Result) -> str:
    titles = list(dict.fromkeys(result.cast.values()))
    if len(titles) == 1:
        return titles[0]
    return ", ".join(f"{role}: {title}" for role, title in result.cast.items())


def markdown(run: Run) -> str:
    """Return the report as Markdown."""
    kit = f"rsmq-conformance {__version__}"
    what = f"{len(run.scenarios)} scenarios of {kit} on {run.server}; {run.seconds:.0f} s."
    parts = ["# RSMQ conformance", what, _markdown_table(table(run))]
    if run.pairs:
        parts += ["## Pairs", _markdown_table(pair_table(run))]
    for client in run.clients:
        if failed := [result for result in run.alone[client.title] if result.failed]:
            parts += [f"## What {client.title} does differently", _failures(failed)]
    together = [r for group in run.pairs.values() for r in group if r.failed]
    if together:
        parts += ["## What fails in pairs only", _failures(together)]
    if lines := not_played(run):
        parts += ["## Not played", "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def _failures(results: list[Result]) -> str:
    lines = []
    for result in results:
        scenario, detail = result.scenario, result.outcome.detail.replace("|", "\\|")
        kind = "advice, " if scenario.advice else ""
        cast = f" ({_who(result)})" if len(set(result.cast.values())) > 1 else ""
        lines.append(
            f"- `{scenario.name}`{cast} ({kind}{scenario.level}): {scenario.rule}. Seen: {detail}. "
            f"So {scenario.harm}."
        )
    return "\n".join(lines)


def as_json(run: Run) -> dict[str, Any]:
    """Return the report as data."""
    return {
        "kit": __version__,
        "server": run.server,
        "seconds": round(run.seconds, 1),
        "scenarios": [
            {"name": s.name, "level": s.level, "advice": s.advice, "rule": s.rule, "harm": s.harm}
            for s in run.scenarios
        ],
        "clients": [
            {
                "name": client.hello.name,
                "version": client.hello.version,
                "language": client.hello.language,
                "command": client.command,
                "levels": {
                    level: str(of_level(run.alone[client.title], level)) for level in LEVELS
                },
                "advice": str(advice(run.alone[client.title])),
                "results": [_as_row(result) for result in run.alone[client.title]],
            }
            for client in run.clients
        ],
        "pairs": [
            {"clients": list(pair), "results": [_as_row(result, cast=True) for result in results]}
            for pair, results in run.pairs.items()
        ],
    }


def _as_row(result: Result, *, cast: bool = False) -> dict[str, Any]:
    row: dict[str, Any] = {"scenario": result.scenario.name, "state": result.outcome.state}
    if result.outcome.detail:
        row["detail"] = result.outcome.detail
    return row | ({"cast": result.cast} if cast else {})


def write(run: Run, folder: Path) -> list[Path]:
    """Write report.md, report.json, pictures and reproducers; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"report.md": markdown(run), "report.json": _dumped(as_json(run))}
    for client in run.clients:
        results = rules(run.alone[client.title])
        files[f"badge-{slug(client.title)}.svg"] = badge("RSMQ", str(Score.count(results)))
    rows = pair_table(run) if run.pairs else table(run)
    files["matrix.svg"] = matrix(rows)
    for old in folder.glob("failures/*.jsonl"):
        old.unlink()
    for result in run.failures:
        names = "--".join(map(slug, dict.fromkeys(result.cast.values())))
        letters = "".join(str(_index(result, role)) for role in result.cast)
        name = f"{names}--{result.scenario.name}{'--' + letters if '1' in letters else ''}"
        files[f"failures/{name}.jsonl"] = reproducer(result)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [folder / name for name in files]


def _index(result: Result, role: str) -> int:
    return list(dict.fromkeys(result.cast.values())).index(result.cast[role])


def reproducer(result: Result) -> str:
    """Return the file that ``rsmq-conformance replay`` plays: what to run, then what was said."""
    scenario = result.scenario
    head = {
        "rsmq-conformance": __version__,
        "scenario": scenario.name,
        "drivers": result.commands,
        "rule": scenario.rule,
        "seen": result.outcome.detail,
    }
    return "".join(json.dumps(line) + "\n" for line in (head, *result.outcome.trace))


def _dumped(data: Any) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def slug(title: str) -> str:
    """Return *title* as part of a file name."""
    return re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-")
