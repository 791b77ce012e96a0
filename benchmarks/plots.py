"""Pictures of a run, drawn from its result alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams |= {
    "svg.hashsalt": "benchmarks",  # the same figures give the same picture
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
from matplotlib import pyplot  # noqa: E402 - it reads the settings above

from . import contenders  # noqa: E402
from .table import grouped, medians  # noqa: E402

LABELS = {contender.name: contender.label for contender in contenders.ALL}
OURS, LIMIT, PEER = "#1f77b4", "#7f7f7f", "#c7c7c7"
CLIENT, SERVER = "#5b9bd5", "#f4a460"
Medians = dict[str, dict[str, dict[str, float]]]


#: Contenders that show what one part costs; they are in the tables, and not in the pictures.
OPTIONAL = ("forgetful", "metrics")


def draw(result: dict[str, Any], folder: Path) -> None:
    """Draw all that the result has figures for."""
    found = medians(result["samples"])
    folder.mkdir(parents=True, exist_ok=True)
    if {"send64", "drain64", "consume"} <= found.keys():
        _rates(found, folder / "performance-rates.svg")
        _cost(found, folder / "performance-cost.svg")
    _batches(found, folder / "performance-batches.svg")
    if "growth" in result["studies"]:
        _growth(result["studies"]["growth"]["rows"], folder / "performance-growth.svg")


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    pyplot.close(figure)


def _short(number: float) -> str:
    for unit, word in ((1e6, " M"), (1e3, " k")):
        if number >= unit:
            return f"{number / unit:g}{word}"
    return f"{number:g}"


def _colour(name: str) -> str:
    return OURS if name in ("ours", "uvloop") else LIMIT if name == "limit" else PEER


def _rates(found: Medians, path: Path) -> None:
    """Draw messages per second: of 64 senders, and of 64 workers with the consumers beside."""
    senders = {LABELS[name]: (name, row["rate"]) for name, row in found["send64"].items()}
    workers = {LABELS[name]: (name, row["rate"]) for name, row in found["drain64"].items()}
    for name, row in found["consume"].items():
        more = {"limit": "", "streams": ", COUNT 256"}.get(name, ", prefetch")
        workers[LABELS[name] + more] = (name, row["rate"])
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.4))
    titles = ("64 concurrent senders", "receive and acknowledge: 64 workers, or prefetch")
    for axis, title, bars in zip(axes, titles, (senders, workers), strict=True):
        shown = [(label, *bar) for label, bar in bars.items() if bar[0] not in OPTIONAL]
        labels, names, rates = zip(*sorted(shown, key=lambda row: row[2]), strict=True)
        axis.barh(labels, rates, color=[_colour(name) for name in names])
        for at, rate in enumerate(rates):
            axis.text(rate, at, f" {grouped(rate)}", va="center", fontsize=8)
        axis.set_xlim(0, max(rates) * 1.18)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("messages per second")
        axis.xaxis.set_major_formatter(lambda value, _: _short(value))
        axis.tick_params(axis="y", length=0)
    _save(figure, path)


def _cost(found: Medians, path: Path) -> None:
    """Draw processor time per message, of the client and of the server."""
    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.0))
    for axis, workload, title in zip(
        axes, ("send64", "drain64"), ("send, 64 tasks", "receive and acknowledge, 64 workers"),
        strict=True,
    ):  # fmt: skip
        rows = [(n, row) for n, row in found[workload].items() if n not in OPTIONAL]
        rows.sort(key=lambda row: -row[1]["client_us"] - row[1]["server_us"])
        labels = [LABELS[name] for name, _ in rows]
        client = [row["client_us"] for _, row in rows]
        server = [row["server_us"] for _, row in rows]
        axis.barh(labels, client, color=CLIENT, label="client")
        axis.barh(labels, server, left=client, color=SERVER, label="server")
        for at, (one, other) in enumerate(zip(client, server, strict=True)):
            axis.text(one + other, at, f" {one:.0f} + {other:.0f}", va="center", fontsize=8)
        axis.set_xlim(0, max(map(sum, zip(client, server, strict=True))) * 1.2)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("microseconds of processor time per message")
        axis.tick_params(axis="y", length=0)
    axes[0].legend(frameon=False, loc="upper right")
    _save(figure, path)


def _batches(found: Medians, path: Path) -> None:
    """Draw sends by batches of growing size, beside the limit."""
    sizes = (10, 100, 1000)
    figure, axis = pyplot.subplots(figsize=(6.5, 3.4))
    for name, style in (("limit", "--"), ("uvloop", "-"), ("ours", "-"), ("streams", "-")):
        points = [(size, found.get(f"send_many{size}", {}).get(name)) for size in sizes]
        there = [(size, row["rate"]) for size, row in points if row]
        if there:
            width = 1.2 if name == "uvloop" else 2
            axis.plot(*zip(*there, strict=True), style, marker="o", color=_colour(name), lw=width)
            axis.annotate(
                LABELS[name], there[-1], xytext=(6, 0), textcoords="offset points", va="center"
            )
    axis.set_xscale("log")
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()
    axis.set_xlim(8, 6000)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("messages per call of one sender")
    axis.set_ylabel("messages per second")
    axis.yaxis.set_major_formatter(lambda value, _: _short(value))
    _save(figure, path)


def _growth(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw times of single calls by the number of waiting messages."""
    figure, axis = pyplot.subplots(figsize=(6.5, 3.4))
    depths = [row["depth"] for row in rows]
    for name, colour in (("send", "#1f77b4"), ("receive", "#d95f02"), ("ack", "#7570b3")):
        for percent, style in ((50, "-"), (99, ":")):
            axis.plot(
                depths, [row[f"{name}_p{percent}_ms"] for row in rows], style, marker="o", ms=3,
                color=colour, label=f"{name}, p{percent}",
            )  # fmt: skip
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xticks(depths, [_short(depth) for depth in depths])
    axis.minorticks_off()
    axis.set_xlabel("messages waiting in the queue")
    axis.set_ylabel("milliseconds per call")
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.2))
    _save(figure, path)
