"""The command: ``python -m benchmarks``."""

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

from . import contenders, figures, table, workloads
from .arena import arena


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=0.5, help="seconds of one turn, about")
    parser.add_argument(
        "--workloads", nargs="+", metavar="NAME", default=[],
        help="names or groups: " + " ".join(
            dict.fromkeys(x for w in workloads.ALL for x in (w.group, w.name))
        ),
    )  # fmt: skip
    parser.add_argument(
        "--contenders", nargs="+", metavar="NAME", default=[],
        help=" ".join(c.name for c in contenders.ALL),
    )  # fmt: skip
    parser.add_argument("--output", type=Path, help="write the result to this file, as JSON")
    return parser.parse_args()


async def run(chosen: argparse.Namespace) -> dict[str, Any]:
    began = time.time()
    playing = [
        w
        for w in workloads.ALL
        if not chosen.workloads or {w.name, w.group} & set(chosen.workloads)
    ]
    coming = [c for c in contenders.ALL if not chosen.contenders or c.name in chosen.contenders]
    samples = []
    async with arena(coming) as one:
        for workload in playing:
            print(f"{time.time() - began:5.0f} s  {workload.title}", file=sys.stderr)
            samples += await one.play(workload, chosen.rounds, chosen.duration)
        server = await one.server.info("server")
        return {
            "machine": {
                "system": f"{platform.system()} {platform.release()} {platform.machine()}",
                "processors": _processors(),
            },
            "server": _name(server),
            "versions": {name: process.versions for name, process in one.processes.items()},
            "settings": {"rounds": chosen.rounds, "duration_s": chosen.duration},
            "seconds": round(time.time() - began),
            "failures": one.failures,
            "samples": samples,
        }


def _processors() -> str:
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    }
    return f"{os.cpu_count()} x {', '.join(models) or platform.processor()}"


def _name(server: dict[str, str]) -> str:
    if "valkey_version" in server:
        return f"Valkey {server['valkey_version']}"
    return f"Redis {server['redis_version']}"


def main() -> None:
    chosen = options()
    result = asyncio.run(run(chosen))
    print(table.markdown(result["samples"]))
    print(figures.markdown(result))
    if chosen.output:
        chosen.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
