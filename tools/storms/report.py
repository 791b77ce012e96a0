"""The report: a page of tables and two pictures, from the figures of long runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COLUMNS = (
    "storm", "s", "sends/s", "of calm", "faults", "acked", "unknown", "delivered", "again",
    "refused", "lost", "second copies", "overlaps", "drift", "drained in s",
)  # fmt: skip
#: What is to be known before a table is read.
NOTES = {
    "Sentinel failover": (
        "One replica, which takes over after 2 s of silence. *copies*: second copies of a message "
        "that consumers saw. "
        "*gap*: the longest time without a confirmed send. At `replicated:1` that includes the "
        "time without any replica: a master that was stopped or cut off is made one by the "
        "sentinels some ten seconds after it speaks again. *left unknown*, *below their level*: "
        "sends of clients that were cut off with the old master and got `DurabilityUnmet`. At "
        "`memory` such sends can be lost, and are only counted. *refused*: acks that were made "
        "again after the failover, when the message was gone."
    ),
    "Workers with few rights, on a full server": (
        "Eight senders that never pause keep the server out of memory, three workers drain it; "
        "each second one of these is killed and another one started. Senders and workers have the "
        "least rights that the documentation names. *wrongly put aside*: messages among the dead "
        "letters that should have been handled."
    ),
    "Peers with copies of their own": (
        "Peers of one consumer of a topic, which may be silent for half a second: one client that "
        "takes a new name for each look; and with it six that are silent now and then for up to a "
        "second, and then come back, die or unsubscribe. *lost*: messages that reached none of "
        "them. *most of one*: how often one message was delivered: at most once for each peer that "
        "there was, those that had died a moment ago among them. "
        "*queues left*: of dead peers, a while after the last message."
    ),
    "Wake-ups": (
        "Messages are sent one by one to clients that wait. A message needs four scripts: send, "
        "receive, ack, and the receive with which its consumer waits again. What comes on top is "
        "clients that look from time to time (*when idle*), and one that makes sure, a tenth of a "
        "second later, that the called one has come."
    ),
    "Poison": (
        "Messages that kill the process of their handler, `max_receives` 3; workers with all "
        "defaults that a supervisor starts again, leases of 1 s, 50 ms of work per message. The "
        "seeds differ in the order of the messages. *innocent put aside*: dead letters that kill "
        "no process."
    ),
}
_COLOURS = {"sends": "#1f77b4", "receives": "#2ca02c", "faults": "#d62728", "memory": "#9467bd"}


def write(folder: Path, figures: dict[str, Any], *, pictures: bool = True) -> None:
    """Write the page, its pictures unless they are to stay, and the figures they are made of."""
    drawn = folder / "pictures"
    drawn.mkdir(exist_ok=True)
    figures = _rounded(figures)  # so that the page made again of what is kept is the same
    (folder / "fault-report.json").write_text(json.dumps(figures) + "\n")
    if pictures and figures.get("storms"):
        draw_storms(figures["storms"], drawn / "storms.svg")
    if pictures and figures.get("soak"):
        draw_soak(figures["soak"], drawn / "soak.svg")
    (folder / "fault-report.md").write_text("\n".join(page(figures)) + "\n")


def page(figures: dict[str, Any]) -> Iterable[str]:
    """Yield the lines of the page."""
    yield "# Fault report"
    yield ""
    yield (
        "Written by `nox -s faults`; the words are explained in "
        "[guarantees](../explanation/guarantees.md)."
    )
    yield f"Run on {figures['machine']}."
    yield ""
    if storms := figures.get("storms"):
        yield "## Storms"
        yield ""
        yield (
            "Four producers and sixteen consumers on one queue, leases of 60 s, one storm after "
            "the other. *of calm*: sends per second as a part of those without faults, in the same "
            "run. *unknown*: sends whose caller was cancelled. *again*: deliveries that were not "
            "the first. *refused*: settlements by a holder whose message was settled already. A "
            "stranded message would keep the queue from being drained before its lease ends."
        )
        yield ""
        yield from table(COLUMNS, [row(storm) for storm in storms])
        yield ""
        yield "![Sends, receives and faults over time](pictures/storms.svg)"
        yield ""
    for title, rows in figures.get("tables", {}).items():
        yield f"## {title}"
        yield ""
        if title in NOTES:
            yield NOTES[title]
            yield ""
        yield from table(tuple(rows[0]), [[_text(v) for v in r.values()] for r in rows])
        yield ""
    if soak := figures.get("soak"):
        yield "## Soak"
        yield ""
        plain = {k: v for k, v in soak.items() if k not in ("marks", "seconds", "census")}
        yield from table(("figure", "value"), [[k, _text(v)] for k, v in plain.items()])
        yield ""
        yield "![Load, faults and memory over time](pictures/soak.svg)"
        yield ""
    if mutants := figures.get("mutants"):
        yield "## Mechanisms taken out"
        yield ""
        yield "Each mechanism was taken out alone; the tests named must go red, and did."
        yield ""
        yield from table(tuple(mutants[0]), [[_text(v) for v in r.values()] for r in mutants])


def row(storm: dict[str, Any]) -> list[str]:
    """Return one storm as a line of the table."""
    faults = ", ".join(f"{count} {kind}" for kind, count in storm["faults"].items()) or "none"
    numbers = [storm[c] for c in COLUMNS[5:]]
    return [
        storm["storm"], f"{storm['s']:.0f}", f"{storm['sends/s']:.0f}",
        f"{storm['of calm']:.0%}", faults, *map(_text, numbers),
    ]  # fmt: skip


def table(head: tuple[str, ...], rows: list[list[str]]) -> Iterable[str]:
    """Yield a table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for cells in rows:
        yield "| " + " | ".join(cells) + " |"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return [_rounded(part) for part in value] if isinstance(value, list | tuple) else value


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, dict):
        return ", ".join(f"{v} {k}" for k, v in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def draw_storms(storms: list[dict[str, Any]], path: Path) -> None:
    """Draw sends, receives and faults of every storm, one below the other."""
    plt = _pyplot()
    figure, axes = plt.subplots(len(storms), 1, figsize=(9, 1.35 * len(storms)), squeeze=False)
    for axis, storm in zip(axes[:, 0], storms, strict=True):
        for name in ("sends", "receives"):
            at, rate = storm["timeline"][name]
            axis.plot(at, rate, color=_COLOURS[name], linewidth=1, label=f"{name}/s")
        marks = storm["timeline"]["marks"]
        top = max([1, *storm["timeline"]["sends"][1], *storm["timeline"]["receives"][1]])
        axis.plot(marks, [top * 1.12] * len(marks), "|", color=_COLOURS["faults"], label="faults")
        axis.set_ylim(0, top * 1.3)
        axis.set_ylabel(storm["storm"], rotation=0, ha="right", va="center", fontsize=8)
        axis.tick_params(labelsize=7)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    axes[0, 0].legend(
        loc="upper right", ncols=3, fontsize=7, frameon=False, bbox_to_anchor=(1, 1.7)
    )
    axes[-1, 0].set_xlabel("seconds", fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def draw_soak(soak: dict[str, Any], path: Path) -> None:
    """Draw the load, the faults and the memory of the soak."""
    plt = _pyplot()
    figure, (load, memory) = plt.subplots(2, 1, figsize=(9, 4.5), sharex=True)
    for column, name in ((1, "sends"), (2, "receives")):
        points = soak["seconds"]
        pairs = list(zip(points[:-5], points[5:], strict=True))
        at = [b[0] / 60 for _, b in pairs]
        rate = [(b[column] - a[column]) / (b[0] - a[0]) for a, b in pairs]
        load.plot(at, rate, color=_COLOURS[name], linewidth=0.8, label=f"{name}/s")
    for minute, kind in soak["marks"]:
        load.axvline(minute, color=_COLOURS["faults"], linewidth=0.6, alpha=0.6)
        load.text(minute, load.get_ylim()[1], kind, rotation=90, fontsize=5, va="bottom")
    load.set_ylim(bottom=0)
    load.legend(loc="lower right", fontsize=7, frameon=False)
    minutes = [r[0] for r in soak["census"]]
    memory.plot(
        minutes, [r[1] for r in soak["census"]], color=_COLOURS["memory"], label="client, MB"
    )
    memory.plot(minutes, [r[4] for r in soak["census"]], color="#8c564b", label="server, MB")
    memory.set_ylim(bottom=0)
    memory.set_xlabel("minutes")
    memory.legend(loc="lower right", fontsize=7, frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "storms"  # the same figures give the same picture
    from matplotlib import pyplot

    return pyplot
