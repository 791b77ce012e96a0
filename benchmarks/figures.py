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
    "worker64": "Worker, concurrency 64",
    "loop100": "sequential loop, prefetch 100",
    "consume": "consumer with prefetch",
}
#: A workload, and the name of a contender that plays it.
Turn = tuple[str, str]


@dataclass(frozen=True)
class Figure:
    """One figure: what is measured, against what, and what is enough."""

    workload: str
    against: str
    goal: float
    compute: Compute
    #: The turns that it is computed from; none if it is not one of turns.
    turns: tuple[Turn, ...] = ()
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


def _rate(
    what: str, against: str, goal: float, ours: str, theirs: Turn, *, looped: bool = True
) -> Figure:
    """Return the figure of the rate of our workload by that of another's turns."""

    def compute(result: dict[str, Any], loop: str) -> float | None:
        return ratio(result["samples"], "rate", (ours, loop), theirs)

    loops = LOOPS if looped else LOOPS[:1]
    turns = (*((ours, loop) for loop in loops), theirs)
    return Figure(what, against, goal, compute, turns, looped=looped)


def _deep(result: dict[str, Any], ours: str) -> float | None:
    rows = result["studies"].get("growth", {"rows": []})["rows"]
    p99 = {row["depth"]: row["receive_p99_ms"] for row in rows}
    return p99[1_000_000] / p99[1] if 1_000_000 in p99 else None


def _slowest(result: dict[str, Any], ours: str) -> float | None:
    ratios = result.get("before", {}).get("ratios", {})
    return min((row["rate"] for row in ratios.values() if row["rate"]), default=None)


def _idle(column: str) -> Compute:
    return lambda result, ours: result["studies"].get("idle", {}).get(column)


NPM, STREAMS = "npm rsmq", "Streams by redis-py"
CYCLE, LOOP = "send, receive, ack by one task", "sequential loop, prefetch 100, background settling"
MANY = "send_many(100), 4 tasks"
WORKER, WORKERS = "Worker, concurrency 64", "64 workers, one message each"
ALL = (
    _rate("one sender", "a bare EVALSHA by redis-py", 1.3, "send1", ("send1", "evalsha")),
    _rate("one sender", "a bare asyncio protocol", 0.75, "send1", ("send1", "bare-protocol")),
    _rate("one sender", NPM, 1, "send1", ("send1", "npm-rsmq")),
    _rate(CYCLE, NPM, 1, "cycle", ("cycle", "npm-rsmq")),
    _rate(CYCLE, STREAMS, 1, "cycle", ("cycle", "streams")),
    _rate(LOOP, "the limit of receive and delete", 0.5, "loop100", ("loop100", "limit")),
    _rate(WORKER, "64 bare tasks", 0.8, "worker64", ("worker64", "tasks"), looped=False),
    _rate(WORKER, "npm bullmq's worker", 4, "worker64", ("worker64", "npm-bullmq")),
    _rate(WORKER, "saq's", 12, "worker64", ("worker64", "saq")),
    _rate(WORKERS, "aiorsmq's way", 15, "drain64", ("drain64", "aiorsmq")),
    _rate(WORKERS, NPM, 1.8, "drain64", ("drain64", "npm-rsmq")),
    _rate("64 workers, 10 KiB", NPM, 1.2, "drain64_10k", ("drain64_10k", "npm-rsmq")),
    _rate("64 senders", "aiorsmq's way", 25, "send64", ("send64", "aiorsmq")),
    _rate("64 senders", NPM, 2.5, "send64", ("send64", "npm-rsmq")),
    _rate("64 senders", "the limit", 0.3, "send64", ("send64", "limit")),
    _rate("64 senders", "rmq in Go", 1, "send64", ("send64", "go-rmq")),
    *(
        _rate(
            f"64 tasks {do} 1 000 queues", "one queue", 0.5, name, (name, "one-queue"), looped=False
        )
        for do, name in (("send to", "send64_1000q"), ("take from", "receive64_1000q"))
    ),
    Figure("the slowest workload", "the commit before", 0.97, _slowest, looped=False),
    _rate("64 senders", STREAMS, 4, "send64", ("send64", "streams")),
    _rate("send_many(100)", "the limit", 0.7, "send_many100", ("send_many100", "limit")),
    _rate(MANY, "the limit", 0.7, "send_many100_4", ("send_many100_4", "limit")),
    _rate("consumer with prefetch", "the limit", 0.8, "consume", ("consume", "limit")),
    _rate("consumer with prefetch", NPM, 4, "consume", ("drain64", "npm-rsmq")),
    _rate(
        "64 senders", "calls not remembered", 0.9, "send64", ("send64", "forgetful"), looped=False
    ),
    Figure("receive at 1 000 000 waiting, p99", "at 1 waiting", 2, _deep, most=True, looped=False),
    Figure("100 idle consumers", "commands/s", 3, _idle("commands_per_s"), most=True, looped=False),
    Figure("wake-up, median", "ms", 5, _idle("wake_p50_ms"), most=True, looped=False),
)


def turns() -> dict[str, set[str]]:
    """Return the turns that figures are computed from: contenders by workload."""
    found: dict[str, set[str]] = {}
    for figure in ALL:
        for workload, contender in figure.turns:
            found.setdefault(workload, set()).add(contender)
    return found


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
