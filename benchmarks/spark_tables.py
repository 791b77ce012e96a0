"""The tables of docs/reports/spark.md, made from what ``benchmarks.spark`` measured."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
WORKS = ("write", "read", "drain", "move")
DRAINS = ("drain", "move")
NAMES = {"write": "write", "read": "read", "drain": "drain, lease", "move": "drain, move"}
#: Spark's rate divided by that of redis-py (of a Lua pop, for the drains), at least.
GOALS = {"write": 1.2, "read": 0.8, "drain": 0.5, "move": 0.5}
#: Microseconds of the server per drained message, and milliseconds of 99 of 100 PINGs, at most.
SERVER_US, PING_MS = 6, 20
#: What Spark calls the steps of a batch, and what happens in them.
STEPS = {
    "latestOffset": "asking the source for messages: claim, acknowledge",
    "addBatch": "tasks: read, decode, hand on",
    "queryPlanning": "planning",
    "walCommit": "writing the offsets down",
    "commitOffsets": "writing down that the batch is done",
}
#: Numbers of servers for which the page calculates what is needed.
SCALES = (1, 2, 4, 10, 100)


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
    for name, make in MAKERS.items():
        if text := make(known):
            begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
            before, _, rest = page.partition(begin)
            page = before + begin + "\n" + text + "\n" + end + rest.partition(end)[2]
    return page


def pages(known: dict[str, Any]) -> str:
    """Return all tables."""
    return "\n".join(filter(None, (make(known) for make in MAKERS.values())))


def comparisons(known: dict[str, Any]) -> str:
    """Return how the two sides compare, for each size of messages."""
    return "\n".join(map(comparison, known.get("compared", ())))


def comparison(result: dict[str, Any]) -> str:
    """Return how the two sides compare, and where Spark's time goes."""
    about = (
        f"### {result['messages']:,} messages of {result['size']} bytes\n\n"
        f"{result['date']}, {_times(result['rounds'])}, `{result['master']}`, {result['server']} "
        f"on the same machine\n({result['machine']}), "
        f"{'with' if result['aof'] else 'without'} an append-only file. "
        f"Other programs kept {_foreign(result):.1f} processors busy."
    )
    shares = (
        "Microseconds of processor time per message, after start-up, and how busy the server was\n"
        f"while Spark worked (1.0: always; it has one thread). The goal for a drain is at most "
        f"{SERVER_US} us\nof the server."
    )
    waits = (
        "Milliseconds that a PING of another client took meanwhile; 99 of 100 shall take at most "
        f"{PING_MS} ms:"
    )
    memory = "Memory at most, in MB. The driver is the Java process here, with a heap of 1 GB:"
    parts = (
        *(_ratios(result), iter([shares]), _costs(result), iter([waits]), _waits(result)),
        *(iter([memory]), _memory(result), _steps(result)),
    )
    return about + "\n\n" + "\n\n".join("\n".join(part) for part in parts) + "\n"


def servers(known: dict[str, Any]) -> str:
    """Return how a drain of four queues grows with the servers on which they lie."""
    rows = known.get("servers", ())
    head = (
        "| servers | messages/s | server, us | Python, us | of it the driver's | Java, us "
        "| processors busy |"
    )
    lines = [head, "|--:|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        us = _after_start(row["spark"], row["few"], row["messages"] - row["few_messages"])
        busy = sum(us[part] for part in ("server", "python", "java")) / us["wall"]
        parts = ("server", "python", "source", "java")
        shown = " | ".join(f"{us[part]:.1f}" for part in parts)
        lines.append(f"| {row['servers']} | {1e6 / us['wall']:,.0f} | {shown} | {busy:.1f} |")
    return "\n".join([*lines, ""]) if rows else ""


def scale(known: dict[str, Any]) -> str:
    """Return the arithmetic of more servers than a machine has, from what was measured."""
    if not known.get("servers") or not known.get("compared"):
        return ""
    short = known["compared"][0]
    cost = {
        part: _after_start_median(short, "drain", part)
        for part in ("server", "python", "java", "source")
    }
    of_tasks = cost["python"] - cost["source"] + cost["java"]
    costs = (
        f"Per message of {short['size']} bytes, from the lease drain above: "
        f"{cost['server']:.1f} us of its server,\n{of_tasks:.1f} us of processors for tasks and "
        f"Java, and {cost['source']:.1f} us of the one process in which the driver\nclaims and "
        "acknowledges."
    )
    head = "| servers | messages/s that they can give | processors for tasks | queries at least |"
    lines = [costs, "", head, "|--:|--:|--:|--:|"]
    for count in SCALES:
        rate = count / cost["server"]
        lines.append(
            f"| {count} | {1e6 * rate:,.0f} | {-(-rate * of_tasks // 1):.0f} "
            f"| {-(-rate * cost['source'] // 1):.0f} |"
        )
    return "\n".join([*lines, ""])


MAKERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "compared": comparisons,
    "servers": servers,
    "scale": scale,
}


def _ratios(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | redis-py, messages/s | Spark, messages/s | start-up | ratio after it | goal | |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    count, few = result["messages"], result["few"]
    for work, sides in result["works"].items():
        plain, spark, start = (_median(sides[side], "wall") for side in ("plain", "spark", "few"))
        ratios = [
            (one["wall"] / count) / ((two["wall"] - begin["wall"]) / (count - few))
            for one, two, begin in zip(sides["plain"], sides["spark"], sides["few"], strict=True)
        ]
        ratio = statistics.median(ratios)
        shown = f"{ratio:.2f}"
        if len(ratios) > 1:
            shown += f" ({min(ratios):.2f} to {max(ratios):.2f})"
        yield (
            f"| {NAMES[work]} | {count / plain:,.0f} | {count / spark:,.0f} | {start:.1f} s "
            f"| {shown} | {GOALS[work]} | {_reached(ratio >= GOALS[work])} |"
        )


def _costs(result: dict[str, Any]) -> Iterator[str]:
    head = "| work | redis-py: server | client | Spark: server | Python | Java | server busy "
    yield head + "| goal |"
    yield "|---|--:|--:|--:|--:|--:|--:|---|"
    for work, sides in result["works"].items():
        cells = [
            1e6 * _median(sides["plain"], p) / result["messages"] for p in ("server", "client")
        ]
        us = {p: _after_start_median(result, work, p) for p in ("server", "python", "java", "wall")}
        cells += [us[part] for part in ("server", "python", "java")]
        shown = " | ".join(f"{cell:.1f}" for cell in cells)
        goal = _reached(us["server"] <= SERVER_US) if work in DRAINS else ""
        yield f"| {NAMES[work]} | {shown} | {us['server'] / us['wall']:.2f} | {goal} |"


def _waits(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | redis-py: p99 | longest | Spark: p50 | p99 | longest | goal |"
    yield "|---|--:|--:|--:|--:|--:|---|"
    for work, sides in result["works"].items():
        cells = []
        for side, places in (("plain", (1, 2)), ("spark", (0, 1, 2))):
            runs = [run["ping"] for run in sides[side] if run.get("ping")]
            cells += [statistics.median(run[n] for run in runs) if runs else 0 for n in places]
        shown = " | ".join(f"{cell:.1f}" for cell in cells)
        yield f"| {NAMES[work]} | {shown} | {_reached(cells[3] <= PING_MS)} |"


def _memory(result: dict[str, Any]) -> Iterator[str]:
    yield "| work | Java | a Python process |"
    yield "|---|--:|--:|"
    for work, sides in result["works"].items():
        most = (max(run[f"{part}_mb"] for run in sides["spark"]) for part in ("java", "python"))
        yield f"| {NAMES[work]} | " + " | ".join(f"{mb:.0f}" for mb in most) + " |"


def _steps(result: dict[str, Any]) -> Iterator[str]:
    yield "| of a drain's time | lease | move |"
    yield "|---|--:|--:|"
    for step, meaning in STEPS.items():
        shares = []
        for work in DRAINS:
            runs = result["steps"][work]
            total = sum(run.get("triggerExecution", 0) for run in runs) or 1
            shares.append(f"{sum(run.get(step, 0) for run in runs) / total:.0%}")
        yield f"| {meaning} | " + " | ".join(shares) + " |"


def _after_start(spent: dict[str, float], few: dict[str, float], count: int) -> dict[str, float]:
    """Return the microseconds per message of each part, those of start-up left out."""
    parts = ("wall", "server", "python", "java", "source")
    return {part: 1e6 * (spent[part] - few[part]) / count for part in parts}


def _after_start_median(result: dict[str, Any], work: str, part: str) -> float:
    sides, count = result["works"][work], result["messages"] - result["few"]
    runs = zip(sides["spark"], sides["few"], strict=True)
    return statistics.median(_after_start(spent, few, count)[part] for spent, few in runs)


def _foreign(result: dict[str, Any]) -> float:
    runs = [run for sides in result["works"].values() for side in sides.values() for run in side]
    return float(max(0.0, sum(r["foreign"] for r in runs) / sum(r["wall"] for r in runs)))


def _median(runs: Iterable[dict[str, float]], part: str) -> float:
    return statistics.median(run[part] for run in runs)


def _reached(reached: bool) -> str:
    return "yes" if reached else "no"


def _times(rounds: int) -> str:
    return "one round" if rounds == 1 else f"median of {rounds} rounds"


if __name__ == "__main__":
    keep({})
