"""The figures to reach, computed from a run: each is a ratio within it, or a plain number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .table import grouped, medians, ratio

#: Compute a figure from a result, for ``ours`` or ``uvloop``; none if the result does not have it.
Compute = Callable[[dict[str, Any], str], float | None]
LOOPS = ("ours", "uvloop")
#: Workloads whose bounds are reported.
BOUNDED = {
    "send64": "64 senders",
    "send_many100": "send_many(100)",
    "send_many100_4": "send_many(100), 4 tasks",
    "drain64": "64 workers, one message each",
    "consume": "consumer with prefetch",
}


@dataclass(frozen=True)
class Figure:
    """One figure: what is measured, against what, and what is enough."""

    workload: str
    against: str
    goal: float
    compute: Compute
    #: True if less is better.
    most: bool = False
    #: True if the event loop matters to it.
    looped: bool = True

    def met(self, reached: float) -> bool:
        """Return True if the value reaches the goal."""
        return reached <= self.goal if self.most else reached >= self.goal

    @property
    def wanted(self) -> str:
        """The goal in words."""
        return f"{'at most' if self.most else 'at least'} {self.goal:g}"


def _rate(workload: str, peer: str, theirs: str | None = None) -> Compute:
    return lambda result, ours: ratio(
        result["samples"], "rate", (workload, ours), (theirs or workload, peer)
    )


def _lone(result: dict[str, Any], ours: str) -> float | None:
    return ratio(result["samples"], "p50_ms", ("send1", "evalsha"), ("send1", ours))


def _deep(result: dict[str, Any], ours: str) -> float | None:
    rows = result["studies"].get("growth", {"rows": []})["rows"]
    p99 = {row["depth"]: row["receive_p99_ms"] for row in rows}
    return p99[1_000_000] / p99[1] if 1_000_000 in p99 else None


def _idle(column: str) -> Compute:
    return lambda result, ours: result["studies"].get("idle", {}).get(column)


ALL = (
    Figure("64 senders", "aiorsmq's way", 25, _rate("send64", "aiorsmq")),
    Figure("64 senders", "npm rsmq", 2.5, _rate("send64", "npm-rsmq")),
    Figure("64 senders", "Streams by redis-py", 4, _rate("send64", "streams")),
    Figure("64 senders", "the limit", 0.3, _rate("send64", "limit")),
    Figure("one sender, p50", "a bare EVALSHA by redis-py", 0.9, _lone),
    Figure("send_many(100)", "the limit", 0.7, _rate("send_many100", "limit")),
    Figure("send_many(100), 4 tasks", "the limit", 0.7, _rate("send_many100_4", "limit")),
    Figure("64 workers, one message each", "aiorsmq's way", 15, _rate("drain64", "aiorsmq")),
    Figure("64 workers, one message each", "npm rsmq", 1.8, _rate("drain64", "npm-rsmq")),
    Figure("consumer with prefetch", "the limit", 0.8, _rate("consume", "limit")),
    Figure("consumer with prefetch", "npm rsmq", 4, _rate("consume", "npm-rsmq", "drain64")),
    Figure("64 senders", "calls not remembered", 0.9, _rate("send64", "forgetful"), looped=False),
    Figure("receive at 1 000 000 waiting, p99", "at 1 waiting", 2, _deep, most=True, looped=False),
    Figure("100 idle consumers", "commands/s", 3, _idle("commands_per_s"), most=True, looped=False),
    Figure("wake-up, median", "ms", 5, _idle("wake_p50_ms"), most=True, looped=False),
)


def reached(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every figure with what the run reached, by event loop; none where it is missing."""
    return [
        {"figure": figure}
        | {loop: figure.compute(result, loop) for loop in LOOPS[: 2 if figure.looped else 1]}
        for figure in ALL
    ]


def markdown(result: dict[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [
        "| workload | against | goal | asyncio | | uvloop | |",
        "|---|---|---|--:|---|--:|---|",
    ]
    for row in reached(result):
        figure = row["figure"]
        cells = [figure.workload, figure.against, figure.wanted]
        for loop in LOOPS:
            value = row.get(loop)
            if loop not in row:
                cells += ("", "")
            elif value is None:
                cells += ("not measured", "")
            else:
                cells += (f"{value:.2f}", "yes" if figure.met(value) else "no")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def bounds(result: dict[str, Any]) -> str:
    """Return a table of what the processor time of client and server alone would allow."""
    found = medians(result["samples"])
    lines = [
        "| workload | messages/s | client alone could | server alone could | limit alone could |",
        "|---|--:|--:|--:|--:|",
    ]
    for name, title in BOUNDED.items():
        limit = found.get(name, {}).get("limit")
        for loop in LOOPS:
            if row := found.get(name, {}).get(loop):
                cells = [
                    title + (", uvloop" if loop == "uvloop" else ""),
                    *(grouped(x) for x in (row["rate"], 1e6 / row["client_us"])),
                    grouped(1e6 / row["server_us"]),
                    grouped(1e6 / limit["server_us"]) if limit else "",
                ]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
