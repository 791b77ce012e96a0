"""From samples to a table: medians over the rounds, and ratios of medians."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

from . import contenders, workloads

COLUMNS = ("rate", "p50_ms", "p99_ms", "client_us", "server_us", "foreign")


def medians(samples: Iterable[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return workload -> contender -> column -> median over the rounds."""
    gathered: dict[str, dict[str, dict[str, list[float]]]] = {}
    for sample in samples:
        turns = gathered.setdefault(sample["workload"], {}).setdefault(sample["contender"], {})
        for column in COLUMNS:
            if sample[column] is not None:
                turns.setdefault(column, []).append(sample[column])
        turns.setdefault("rounds", []).append(sample["round"])
    return {
        workload: {
            contender: {
                column: len(values) if column == "rounds" else statistics.median(values)
                for column, values in columns.items()
            }
            for contender, columns in by_contender.items()
        }
        for workload, by_contender in gathered.items()
    }


def ratio(
    samples: Iterable[dict[str, Any]], column: str, one: tuple[str, str], other: tuple[str, str]
) -> float | None:
    """Return how *one* compares with *other*, each a workload and a contender.

    The median over the rounds of the ratio within the round, because turns of one round are near
    each other in time, and what disturbs one often disturbs the other.
    """
    found = ratios(samples, column, one, other)
    return statistics.median(found) if found else None


def ratios(
    samples: Iterable[dict[str, Any]], column: str, one: tuple[str, str], other: tuple[str, str]
) -> list[float]:
    """Return the ratio of *one* to *other* within each round that has both.

    If a contender has several turns in a round, their mean counts.
    """
    found: dict[tuple[str, str], dict[int, list[float]]] = {one: {}, other: {}}
    for sample in samples:
        key = (sample["workload"], sample["contender"])
        if key in found:
            found[key].setdefault(sample["round"], []).append(sample[column])
    rounds = sorted(found[one].keys() & found[other].keys())
    means = [(fmean(found[one][n]), fmean(found[other][n])) for n in rounds]
    return [ours / theirs for ours, theirs in means if theirs]


def grouped(number: float) -> str:
    """Return a whole number with its thousands set apart."""
    return f"{number:,.0f}".replace(",", " ")


def markdown(samples: Sequence[dict[str, Any]]) -> str:
    """Return one table per workload."""
    labels = {contender.name: contender.label for contender in contenders.ALL}
    titles = {workload.name: workload.title for workload in workloads.ALL}
    sizes = {workload.name: workload.size for workload in workloads.ALL}
    parts = []
    for name, by_contender in medians(samples).items():
        lines = [
            f"### {titles[name][0].upper()}{titles[name][1:]}",
            "",
            "| | messages/s | ours / theirs | p50 ms | p99 ms | client us | server us | rounds |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
        ]
        for contender in (name for name in labels if name in by_contender):
            row = by_contender[contender]
            compared = ratio(samples, "rate", (name, "ours"), (name, contender))
            cells = [
                labels[contender],
                grouped(row["rate"])
                + (f" ({row['rate'] * sizes[name] / 1e6:.0f} MB/s)" if sizes[name] > 1000 else ""),
                "" if compared is None else f"{compared:.2f}",
                *(f"{row[c]:.2f}" if c in row else "" for c in ("p50_ms", "p99_ms")),
                *(f"{row[c]:.1f}" for c in ("client_us", "server_us")),
                f"{row['rounds']:.0f}",
            ]
            lines.append("| " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
