"""Two checkouts in one run: ``ours``, and the package of an earlier revision as ``before``.

Both run today's driver, which uses public names only, on the interpreter and the dependencies of
the harness, with the event loop of asyncio, and take turns on one server. The rounds are divided
into heats, and each heat has new processes: the layout of a process in memory alone makes some
percent of difference, which no number of rounds with the same processes would remove. The study
of idle consumers is run by each checkout for itself, both at the same time: they are idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from . import contenders, workloads
from .contenders import Contender
from .intervals import interval
from .table import grouped, medians, ratio, ratios

ROOT = Path(__file__).resolve().parents[1]
NAME = "before"
#: A workload at this share of the rate of before is not slower.
ENOUGH = 0.97
#: Rounds of a run, seconds of one turn, and into how many heats the rounds are divided.
ROUNDS, TURN_S, HEATS = 18, 0.1, 3
#: How long a study may take.
STUDY_LIMIT_S = 300
_STUDY = """
import asyncio, json, sys
from benchmarks.studies import {name} as study
json.dump(asyncio.run(study.measure({seconds})), sys.stdout)
"""


class UnknownRevision(Exception):
    """Git cannot check out the revision; the text is what git says."""


@dataclass(frozen=True)
class Checkout:
    """A revision of this repository in a folder of its own."""

    revision: str
    commit: str
    folder: Path

    @property
    def contender(self) -> Contender:
        """The contender that runs the package of this checkout."""
        found = next(c for c in contenders.ALL if c.name == NAME)
        return replace(found, checkout=self.folder)

    def study(self, name: str, seconds: float) -> dict[str, Any]:
        """Return what a study of this checkout measures with the package of this checkout."""
        done = subprocess.run(
            [sys.executable, "-c", _STUDY.format(name=name, seconds=seconds)],
            check=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE,
            timeout=STUDY_LIMIT_S,
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@contextmanager
def checked_out(revision: str, repository: Path = ROOT) -> Iterator[Checkout]:
    """Check out a revision as a worktree in a temporary folder; remove it at the end."""
    commit = _git(repository, "rev-parse", "--verify", f"{revision}^{{commit}}")
    with tempfile.TemporaryDirectory(prefix="aiorsmq-ng-") as place:
        folder = Path(place).resolve() / "before"
        _git(repository, "worktree", "add", "--detach", str(folder), commit)
        try:
            yield Checkout(revision, commit, folder)
        finally:
            _git(repository, "worktree", "remove", "--force", str(folder))


def here(repository: Path = ROOT) -> str:
    """Return the commit of ``ours``, marked if files differ from it."""
    changed = _git(repository, "status", "--porcelain", "--untracked-files=no")
    return _git(repository, "rev-parse", "HEAD") + (" with changes" if changed else "")


def heats(rounds: int) -> list[range]:
    """Divide rounds, which are counted from 1 on, into heats of about the same length."""
    ends = [rounds * heat // HEATS for heat in range(HEATS + 1)]
    return [range(a + 1, b + 1) for a, b in pairwise(ends) if a < b]


def compared(samples: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return workload -> ours divided by before: rate, and processor time of client and server.

    ``rate`` is the median over the rounds of the ratio within the round. The true median lies
    between ``low`` and ``high`` with a probability of 95 %.
    """
    samples = list(samples)
    found = {}
    for workload in dict.fromkeys(sample["workload"] for sample in samples):
        ours, before = (workload, "ours"), (workload, NAME)
        if rounds := ratios(samples, "rate", ours, before):
            low, high = interval(rounds)
            found[workload] = {
                "rate": _rounded(ratio(samples, "rate", ours, before)),
                "low": _rounded(low),
                "high": _rounded(high),
                "client_us": _rounded(ratio(samples, "client_us", ours, before)),
                "server_us": _rounded(ratio(samples, "server_us", ours, before)),
                "rounds": len(rounds),
            }
    return found


def verdict(row: dict[str, Any]) -> str:
    """Return ``ok`` or ``below`` if the whole interval is on that side of what is enough."""
    if row["low"] >= ENOUGH:
        return "ok"
    return "below" if row["high"] < ENOUGH else "undecided"


def markdown(result: dict[str, Any]) -> str:
    """Return the table of the ratios; nothing if the run had no revision before."""
    about = result.get("before")
    if not about:
        return ""
    titles = {workload.name: workload.title for workload in workloads.ALL}
    rates = medians(result["samples"])
    ours, start, end = about["ours"], *about["load"]
    heads = ["workload", "", "ours/s", "before/s", "ours / before", "interval (rounds)"]
    heads += ["client us", "server us", f"at least {ENOUGH:g}"]
    lines = [
        f"Before: {about['revision']} ({about['commit'][:12]}). Ours: {ours[:12]}{ours[40:]}.",
        f"Load average {start:.1f} at the start, {end:.1f} at the end. Every ratio is that of ours",
        "to before, the median over the rounds; *us* is processor time per message. The interval",
        "holds the true median with a probability of 95 %: *ok* or *below* if all of it is on one",
        f"side of {ENOUGH:g}, else *undecided*.",
        "",
        f"| {' | '.join(heads)} |",
        "|---|---" + "|--:" * 6 + "|---|",
    ]
    for name, row in about["ratios"].items():
        cells = [
            name,
            titles.get(name, ""),
            grouped(rates[name]["ours"]["rate"]),
            grouped(rates[name][NAME]["rate"]),
            f"{row['rate']:.3f}",
            f"{row['low']:.2f} to {row['high']:.2f} ({row['rounds']})",
            *("" if row[c] is None else f"{row[c]:.2f}" for c in ("client_us", "server_us")),
            verdict(row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    if both := _idle(result):
        lines += ["", "| 100 idle consumers | ours | before |", "|---|--:|--:|"]
        for column, title in (("commands_per_s", "commands/s"), ("wake_p50_ms", "wake-up, p50 ms")):
            lines.append(f"| {title} | {both[0][column]:.2f} | {both[1][column]:.2f} |")
    return "\n".join(lines) + "\n"


def section(result: dict[str, Any]) -> str:
    """Return the ratios as a section of the report; nothing if there are none."""
    text = markdown(result)
    return f"## Beside the revision before\n\n{text}\n" if text else ""


def _idle(result: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    ours, before = result["studies"].get("idle"), result["before"].get("idle")
    return (ours, before) if ours and before else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *words], check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise UnknownRevision(done.stderr.strip())
    return done.stdout.strip()
