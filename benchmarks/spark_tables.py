"""The tables of docs/reports/spark.md, made from what ``benchmarks.spark`` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
WORKS = ("write", "read", "drain", "move")
#: Spark's rate divided by that of redis-py (of a Lua pop, for the drains), at least.
GOALS = {"write": 1.2, "read": 0.8, "drain": 0.5, "move": 0.5}
#: What Spark calls the steps of a batch, and what happens in them.
STEPS = {
    "latestOffset": "asking the source for messages: claim, acknowledge",
    "addBatch": "tasks: read, decode, hand on",
    "queryPlanning": "planning",
    "walCommit": "writing the offsets down",
    "commitOffsets": "writing down that the batch is done",
}


def keep(found: dict[str, Any]) -> None:
    """Write down what was measured, beside what was measured before, and the tables of it."""
    kept = DOCS / "reports" / "spark.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    known |= found
    kept.write_text(json.dumps(known, indent=1) + "\n")
    page = DOCS / "reports" / "spark.md"
    page.write_text(filled(page.read_text(), known))


def filled(page: str, known: dict[str, Any]) -> str:
    """Return *page* with new tables between its marks."""
    makers: dict[str, Callable[[Any], str]] = {"compared": comparisons, "growth": growth}
    for name, make in makers.items():
        if name in known:
            begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
            before, _, rest = page.partition(begin)
            page = before + begin + "\n" + make(known[name]) + "\n" + end + rest.partition(end)[2]
    return page


def comparisons(results: list[dict[str, Any]]) -> str:
    """Tell how the two sides compare, for each size of messages."""
    return "\n".join(map(comparison, results))


def comparison(result: dict[str, Any]) -> str:
    """Tell how the two sides compare, and where Spark's time goes."""
    about = (
        f"Measured on {result['date']}: {result['messages']:,} messages of {result['size']} bytes, "
        f"{_times(result['rounds'])}, `{result['master']}`,\n{result['server']} on the same "
        f"machine ({result['machine']}), {'with' if result['aof'] else 'without'} an append-only "
        f"file.\nOther programs kept {_foreign(result):.1f} processors busy meanwhile."
    )
    shares = (
        "Microseconds of processor time per message, after start-up, and how busy the server was\n"
        "while Spark worked (1.0: always; it has one thread):"
    )
    waits = "Milliseconds that a PING of another client took meanwhile:"
    parts = (
        *(_ratios(result), iter([shares]), _costs(result)),
        *(iter([waits]), _waits(result), _steps(result)),
    )
    return about + "\n\n" + "\n\n".join("\n".join(part) for part in parts) + "\n"


def growth(rows: list[dict[str, Any]]) -> str:
    """Tell how time and memory grow; start-up is included."""
    head = (
        "| messages | write, us each | read, us each | drain, us each | with move | Java at most "
        "| a Python process at most |"
    )
    lines = [head, "|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        done = [work for work in WORKS if work in row]
        each = [f"{1e6 * row[work]['wall'] / row['messages']:.1f}" for work in done]
        each += [""] * (len(WORKS) - len(done))
        memory = (max(row[work][f"{part}_mb"] for work in done) for part in ("java", "python"))
        cells = [f"{row['messages']:,}", *each, *(f"{mb:.0f} MB" for mb in memory)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def _ratios(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | redis-py, messages/s | Spark, messages/s | start-up | ratio after it | goal | |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    count, few = result["messages"], result["few"]
    for work, sides in result["works"].items():
        plain, spark, start = (_median(sides[side], "wall") for side in ("plain", "spark", "few"))
        ratio = statistics.median(
            (one["wall"] / count) / ((two["wall"] - begin["wall"]) / (count - few))
            for one, two, begin in zip(sides["plain"], sides["spark"], sides["few"], strict=True)
        )
        reached = "yes" if ratio >= GOALS[work] else "no"
        yield (
            f"| {work} | {count / plain:,.0f} | {count / spark:,.0f} | {start:.1f} s "
            f"| {ratio:.2f} | {GOALS[work]} | {reached} |"
        )


def _costs(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | redis-py: server | client | Spark: server | Python | Java | server busy |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    count, few = result["messages"], result["few"]
    for work, sides in result["works"].items():
        cells = [_median(sides["plain"], part) / count for part in ("server", "client")]
        after = {
            part: _median(sides["spark"], part) - _median(sides["few"], part)
            for part in ("server", "python", "java", "wall")
        }
        cells += [after[part] / (count - few) for part in ("server", "python", "java")]
        shown = " | ".join(f"{1e6 * cell:.1f}" for cell in cells)
        yield f"| {work} | {shown} | {after['server'] / after['wall']:.2f} |"


def _waits(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | redis-py: p99 | longest | Spark: p50 | p99 | longest |"
    yield "|---|--:|--:|--:|--:|--:|"
    for work, sides in result["works"].items():
        cells = []
        for side, places in (("plain", (1, 2)), ("spark", (0, 1, 2))):
            runs = [run["ping"] for run in sides[side] if run.get("ping")]
            cells += [statistics.median(run[n] for run in runs) if runs else 0 for n in places]
        yield f"| {work} | " + " | ".join(f"{cell:.1f}" for cell in cells) + " |"


def _steps(result: dict[str, Any]) -> Iterator[str]:
    runs = result["steps"]
    total = sum(run.get("triggerExecution", 0) for run in runs) or 1
    yield "| of a drain's time | |"
    yield "|--:|---|"
    for step, meaning in STEPS.items():
        yield f"| {sum(run.get(step, 0) for run in runs) / total:.0%} | {meaning} |"


def _foreign(result: dict[str, Any]) -> float:
    runs = [run for sides in result["works"].values() for side in sides.values() for run in side]
    return float(max(0.0, sum(r["foreign"] for r in runs) / sum(r["wall"] for r in runs)))


def _median(runs: list[dict[str, float]], part: str) -> float:
    return statistics.median(run[part] for run in runs)


def _times(rounds: int) -> str:
    return "one round" if rounds == 1 else f"median of {rounds} rounds"


if __name__ == "__main__":
    keep({})
