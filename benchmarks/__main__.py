"""Measure aiorsmq-ng beside its peers and the limit, on servers of its own.

A complete run (no workloads or contenders chosen) writes performance.json, performance.md
and pictures in docs/reports; any other only prints, unless a folder is named.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

from . import contenders, figures, plots, report, table, workloads
from .arena import arena

REPORTS = Path(__file__).resolve().parents[1] / "docs" / "reports"


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = dict.fromkeys(word for w in workloads.ALL for word in (w.group, w.name))
    every = [contender.name for contender in contenders.ALL]
    add = parser.add_argument
    add("--rounds", type=int, default=7)
    add("--duration", type=float, default=0.2, help="seconds of one turn, about")
    add(
        "--workloads", nargs="+", metavar="NAME", choices=[*known, *report.STUDIES], default=[],
        help=f"names or groups of workloads ({' '.join(known)}), studies "
        f"({' '.join(report.STUDIES)}); default: all",
    )  # fmt: skip
    add(
        "--contenders", nargs="+", metavar="NAME", choices=every, default=[],
        help=f"who takes part: {' '.join(every)}; default: all",
    )  # fmt: skip
    add("--output", type=Path, metavar="FOLDER", help="write the result and the report there")
    add("--from", type=Path, dest="kept", metavar="FILE", help="report on a kept result instead")
    return parser.parse_args()


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    began = time.time()

    def wanted(*names: str) -> bool:
        return not chosen.workloads or bool(set(names) & set(chosen.workloads))

    def tell(what: str) -> None:
        print(f"{time.time() - began:5.0f} s  {what}", file=sys.stderr)

    coming = [c for c in contenders.ALL if not chosen.contenders or c.name in chosen.contenders]
    playing = [w for w in workloads.ALL if wanted(w.name, w.group)]
    samples, studies = [], {}
    async with arena(coming if playing else []) as one:
        for workload in playing:
            tell(workload.title)
            samples += await one.play(workload, chosen.rounds, chosen.duration)
        server = await one.server.info("server")
    for name, study in report.STUDIES.items():
        if wanted(name):
            tell(study.TITLE)
            studies[name] = await study.measure(chosen.duration)
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "machine": machine(),
        "server": server_name(server),
        "versions": {name: process.versions for name, process in one.processes.items()},
        "settings": {"rounds": chosen.rounds, "duration_s": chosen.duration},
        "seconds": round(time.time() - began),
        "failures": one.failures,
        "studies": studies,
        "samples": samples,
    }


def machine() -> str:
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    } or {platform.processor()}
    return f"{os.cpu_count()} x {', '.join(models)}, {platform.system()} {platform.machine()}"


def server_name(info: dict[str, str]) -> str:
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info['redis_version']}"


def main() -> None:
    chosen = options()
    result = json.loads(chosen.kept.read_text()) if chosen.kept else asyncio.run(run(chosen))
    folder = chosen.output
    if folder is None and not (chosen.workloads or chosen.contenders):
        folder = REPORTS
    if folder is not None:
        report.write(result, folder)
        plots.draw(result, folder / "pictures")
    print(table.markdown(result["samples"]))
    print(report.studies_markdown(result))
    print(figures.markdown(result))


if __name__ == "__main__":
    main()
