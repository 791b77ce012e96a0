"""Measure aiorsmq-ng beside its peers and the limit, on servers of its own.

A complete run (no workloads, contenders, goals or revision chosen) writes performance.json,
performance.md and pictures in docs/reports; any other only prints, unless a folder is named. With
--goals only the turns are played that the figures to reach are computed from. With --before REV the
package of that revision takes part as contender "before", and the ratios to it come last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import contenders, figures, report, revisions, table, workloads
from .arena import Sample, arena
from .contenders import Contender
from .revisions import Checkout

REPORTS = Path(__file__).resolve().parents[1] / "docs" / "reports"


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = dict.fromkeys(word for w in workloads.ALL for word in (w.group, w.name))
    every = [contender.name for contender in contenders.ALL]
    add = parser.add_argument
    add("--rounds", type=int, help=f"default: 7, or {revisions.ROUNDS} with --before")
    add(
        "--duration", type=float,
        help=f"seconds of one turn, about; default: 0.2, or {revisions.TURN_S} with --before",
    )  # fmt: skip
    add(
        "--workloads", nargs="+", metavar="NAME", choices=[*known, *report.STUDIES], default=[],
        help=f"names or groups of workloads ({' '.join(known)}), studies "
        f"({' '.join(report.STUDIES)}); default: all",
    )  # fmt: skip
    add(
        "--contenders", nargs="+", metavar="NAME", choices=every, default=[],
        help=f"who takes part: {' '.join(every)}; default: all",
    )  # fmt: skip
    add(
        "--goals", action="store_true",
        help="only the turns that the figures to reach need, and no studies that are not named",
    )  # fmt: skip
    add(
        "--before", metavar="REV",
        help="a revision of git that takes part as contender before; of the studies, "
        "only idle runs unless others are named",
    )  # fmt: skip
    add("--output", type=Path, metavar="FOLDER", help="write the result and the report there")
    add("--from", type=Path, dest="kept", metavar="FILE", help="report on a kept result instead")
    given = parser.parse_args(arguments)
    if revisions.NAME in given.contenders and not given.before:
        parser.error("the contender before needs --before REV")
    if given.before and given.contenders and not {"ours", "before"} <= {*given.contenders}:
        parser.error("--before compares the contenders ours and before: name both, or none")
    if given.before and given.goals:
        parser.error("--goals compares with peers, and --before with a revision: choose one")
    rounds, duration = (revisions.ROUNDS, revisions.TURN_S) if given.before else (7, 0.2)
    given.rounds = given.rounds or rounds
    given.duration = given.duration or duration
    return given


async def run(chosen: argparse.Namespace, before: Checkout | None = None) -> dict[str, Any]:
    began, load = time.time(), os.getloadavg()[0]

    def tell(what: str) -> None:
        print(f"{time.time() - began:5.0f} s  {what}", file=sys.stderr)

    needed = figures.turns() if chosen.goals else {}
    named = chosen.contenders or sorted(set[str]().union(*needed.values()))
    coming = entrants(named, before)
    playing = [
        w
        for w in workloads.ALL
        if wanted(chosen, w.name, w.group) and (not chosen.goals or w.name in needed)
    ]
    samples: list[Sample] = []
    missing: dict[str, str] = {}
    failures: dict[str, str] = {}
    for rounds in revisions.heats(chosen.rounds) if before else [range(1, chosen.rounds + 1)]:
        async with arena(coming if playing else [], pairs=before is not None) as one:
            for workload in playing:
                tell(workload.title)
                samples += await one.play(
                    workload,
                    len(rounds),
                    chosen.duration,
                    first=rounds.start,
                    only=needed.get(workload.name, ()),
                )
            server = await one.server.info("server")
        missing |= one.missing
        failures |= one.failures
    studies, idle_before = await study_all(chosen, before, failures, tell)
    result = {
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "machine": machine(),
        "server": server_name(server),
        "versions": {name: process.versions for name, process in one.processes.items()},
        "settings": {"rounds": chosen.rounds, "duration_s": chosen.duration},
        "seconds": round(time.time() - began),
        "load": [load, os.getloadavg()[0]],
        "missing": missing,
        "failures": failures,
        "studies": studies,
        "samples": samples,
    }
    if before is not None:
        result["before"] = {
            "revision": before.revision,
            "commit": before.commit,
            "ours": revisions.here(),
            "ratios": revisions.compared(samples),
        }
        if idle_before is not None:
            result["before"]["idle"] = idle_before
        result["before"]["load"] = result["load"]
        result["seconds"] = round(time.time() - began)
    return result


def wanted(chosen: argparse.Namespace, *names: str) -> bool:
    """Return True if something of these names, or everything, was chosen."""
    return not chosen.workloads or bool(set(names) & set(chosen.workloads))


async def study_all(
    chosen: argparse.Namespace,
    before: Checkout | None,
    failures: dict[str, str],
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what the studies found, and the one of idle consumers for the revision before."""
    studies: dict[str, Any] = {}
    idle_before: asyncio.Task[dict[str, Any]] | None = None
    for name, study in report.STUDIES.items():
        usual = not chosen.goals and (before is None or name == "idle")
        if not wanted(chosen, name) or not (usual or chosen.workloads):
            continue
        tell(study.TITLE)
        if before is not None and name == "idle":
            idle_before = asyncio.create_task(
                asyncio.to_thread(before.study, name, chosen.duration)
            )
        try:
            studies[name] = await study.measure(chosen.duration)
        except Exception as error:
            # The results of minutes must not be lost with it.
            failures[f"study {name}"] = f"{type(error).__name__}: {error}"
            tell(failures[f"study {name}"])
    return studies, await idle_before if idle_before else None


def entrants(names: Sequence[str], before: Checkout | None) -> list[Contender]:
    """Return the contenders of these names, or all; the one of before only if it is there."""
    chosen = [c for c in contenders.ALL if not names or c.name in names]
    return [
        before.contender if c.name == revisions.NAME and before else c
        for c in chosen
        if c.name != revisions.NAME or before
    ]


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


def measured(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the result of a run, with the revision before checked out meanwhile."""
    if not chosen.before:
        return asyncio.run(run(chosen))
    try:
        with revisions.checked_out(chosen.before) as before:
            return asyncio.run(run(chosen, before))
    except revisions.UnknownRevision as error:
        raise SystemExit(f"--before {chosen.before}: {error}") from None


def main() -> None:
    chosen = options()
    result = json.loads(chosen.kept.read_text()) if chosen.kept else measured(chosen)
    folder = chosen.output
    selected = chosen.workloads or chosen.contenders or chosen.before or chosen.goals
    if folder is None and not selected:
        folder = REPORTS
    if folder is not None:
        report.write(result, folder)
        from . import plots  # noqa: PLC0415 - what only prints needs no matplotlib

        plots.draw(result, folder / "pictures")
    print(report.circumstances(result))
    print(table.markdown(result["samples"]))
    print(report.studies_markdown(result))
    print(figures.markdown(result))
    print(revisions.markdown(result), end="")


if __name__ == "__main__":
    main()
