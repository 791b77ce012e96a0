"""The long forms: ``python -m tools.storms`` plays all storms and the soak, and writes a report."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from aiorsmq_ng.embedded import find_binary
from aiorsmq_ng.testing import FaultProxy, PrivateServer
from tests.interop import drivers

from ..lab import Verdict
from . import (
    clock,
    fanout,
    faults,
    gomq,
    herd,
    hostile,
    leaving,
    losses,
    peers,
    poison,
    report,
    rights,
    topologies,
    volume,
)
from .scene import Fault, Load, Scene
from .soak import Soak

#: What a scene returns: its figures, and the verdict on it if there is one.
Figures = tuple[dict[str, Any], Verdict | None]

#: Messages published, by 4 publishers to 3 subscriptions with 2 peers each that share them.
FANOUT = 100_000
REPORTS = Path(__file__).parents[2] / "docs" / "reports"


def storms(server: PrivateServer, proxy: FaultProxy) -> dict[str, list[Fault]]:
    """Return every storm by its name."""
    kill, cut = faults.kill_connections(server.url), faults.cut(proxy)
    cancel, flush = faults.cancel(), faults.flush_scripts(server.url)
    pulses = ("half_open", "black_hole", "latency", "bandwidth", "split", "reset")
    return {
        "calm": [],
        "kill": [kill],
        "cut": [cut],
        "cancel": [cancel],
        "flush": [flush],
        "kill+cut": [kill, cut],
        "kill+cancel": [kill, cancel],
        # Faults hit for less than half of the time.
        "all together": [
            faults.kill_connections(server.url, 0.25), faults.cut(proxy, 0.7), cancel, flush,
        ],
        **{name: [faults.pulses(proxy, name)] for name in pulses},
        "pause": [faults.pause(server)],
        "kill -9, AOF always": [faults.restart(server)],
    }  # fmt: skip


async def play(name: str, seconds: float) -> dict[str, Any]:
    """Play one storm on a server of its own and return its figures."""
    persistence = "always" if name.startswith("kill -9") else "none"
    async with (
        PrivateServer(persistence=persistence) as server,
        FaultProxy(server.url) as proxy,
        Scene(proxy.url, load=Load(deadline=20)) as scene,
    ):
        await scene.play(seconds, *storms(server, proxy)[name])
        verdict = await scene.verdict()
        for violation in verdict.violations:
            print(f"  {violation}")
        ends = scene.history.of("fault over", "drained")
        return {
            "storm": name, "s": seconds, "sends/s": scene.rate, "faults": scene.faults,
            "acked": verdict.acked, "unknown": verdict.unknown,
            "delivered": verdict.delivered, "again": verdict.redelivered,
            "refused": verdict.refused, "lost": verdict.lost,
            "second copies": verdict.copies, "overlaps": verdict.overlaps,
            "drift": verdict.drift, "drained in s": ends[-1].at - ends[0].at,
            "violations": [str(v) for v in verdict.violations], "timeline": timeline(scene),
        }  # fmt: skip


def timeline(scene: Scene, step: float = 0.5) -> dict[str, Any]:
    """Return rates per step, and when faults happened, in seconds since the start."""
    result: dict[str, Any] = {}
    steps = int((scene.ended - scene.began) / step) + 1
    for name, kind in (("sends", "acked"), ("receives", "received")):
        counts = [0] * steps
        for event in scene.history.of(kind):  # type: ignore[arg-type]
            place = int((event.at - scene.began) / step)
            if 0 <= place < steps:
                counts[place] += 1
        result[name] = ([n * step for n in range(steps)], [count / step for count in counts])
    marks = sorted({round(at - scene.began, 1) for at, _ in scene.marks})
    return {**result, "marks": marks}


def scenes(seconds: float) -> dict[str, dict[str, Coroutine[Any, Any, Figures]]]:
    """Return what is played besides the storms, as the tables of the report."""
    return {
        "Sentinel failover": {
            f"{how}, {level}": topologies.sentinel_failover(seconds, how, level)  # type: ignore[arg-type]
            for how in ("kill", "pause", "partition")
            for level in ("replicated:1", "memory")
        },
        "Cluster": {
            "live migration of the slot": topologies.cluster_migration(seconds),
            "kill -9 of a master": topologies.cluster_failover(seconds),
            "pause of a master": topologies.cluster_failover(seconds, "pause"),
        },
        "Clock of the server": {
            "60 s ahead": clock.clock_forward(seconds),
            "1 h back": clock.clock_back(seconds),
            "steps of 100 ms": clock.clock_steps(seconds),
        },
        "Durability": {"kill -9 and lost replicas": losses.durability_matrix(seconds / 4)},
        "Forgetful and silent servers": {
            "restarts without persistence": losses.forgetful_restarts(seconds),
            "7 s of silence, deadline 5 s": losses.paused_receives(seconds),
        },
        "Poison": {
            "1 among 100, one worker": poison.seeds(20, messages=100, poisons=1, processes=1),
            "3 among 3 000, four processes": poison.seeds(
                20, messages=3000, poisons=3, processes=4
            ),
        },
        "Herds": {
            "300 clients, 3 s without a server": herd.outage(3),
            "100 waiters, 50 messages": herd.few_for_many(seconds),
        },
        "Ways to leave a consumer": {
            name: leaving.by_way(name, seconds / 2) for name in leaving.WAYS
        },
        "Workers with few rights, on a full server": {
            "ACL users": rights.by_acl(seconds),
            "tokens of a broker": rights.by_token(seconds),
        },
        "Wake-ups": {
            "1 process": herd.wake_ups(processes=1),
            "10 processes": herd.wake_ups(processes=10),
            "40 processes": herd.wake_ups(processes=40),
            "10 processes, 3 of them stopped": herd.wake_ups(processes=10, stopped=3),
            "50 clients of a process": herd.wake_ups(clients=50, rate=100),
            "200 clients of a process": herd.wake_ups(clients=200),
        },
        "Volume": {
            "1 000 000 messages waiting": volume.backlog(seconds),
            "three kinds of clients on one queue": volume.neighbours(seconds),
        },
        "Topics and the broker": {
            "topic, nothing killed": fanout.by_topic(FANOUT, 0),
            "topic, peers killed": fanout.by_topic(FANOUT, 60),
            "broker, nothing killed": fanout.by_broker(FANOUT, kill=False),
            "broker, peers and broker killed": fanout.by_broker(FANOUT, kill=True),
            "broker, 2 000 streams at once": fanout.many_streams(2000),
        },
        "Peers with copies of their own": {
            "one client that hops": peers.by_peers(seconds, hops=True),
            "one client that hops, through a broker": peers.by_peers(
                seconds, hops=True, broker=True
            ),
            "seven that die, return and hop": peers.by_peers(seconds, hops=False),
            "seven, through a broker": peers.by_peers(seconds, hops=False, broker=True),
        },
        "Clients of the broker": {
            "of GOMQ, nothing killed": fanout.by_gomq(FANOUT // 2, kill=False),
            "of GOMQ, peers and broker killed": fanout.by_gomq(FANOUT // 2, kill=True),
            "60 that do not read": fanout.slow(60),
        },
        "Slow clients of GOMQ": {"0.7 s of work per message": gomq.slow(60, 0.7)},
        "Hostile clients of the broker": hostile.scenes(seconds),
    }


def play_scenes(
    seconds: float, only: list[str] | None
) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """Play them all, or some tables only; return these, and what went against the rules."""
    tables: dict[str, list[dict[str, Any]]] = {}
    wrong: list[str] = []
    for title, rows in scenes(seconds).items():
        for name, scene in rows.items():
            if only and title not in only:
                scene.close()
                continue
            print(f"{title}: {name}", flush=True)
            try:
                figures, verdict = asyncio.run(_awaited(scene))
            except (clock.NoClock, drivers.NotInstalled) as reason:
                figures, verdict = {"not here": str(reason)}, None
            if verdict is not None:
                wrong += [f"{name}: {violation}" for violation in verdict.violations]
            tables.setdefault(title, []).append(
                {
                    "scene": name,
                    "figures": ", ".join(f"{k}: {_short(v)}" for k, v in figures.items()),
                }
            )
            print(f"  {tables[title][-1]['figures']}", flush=True)
    return tables, wrong


async def _awaited(scene: Coroutine[Any, Any, Figures]) -> Figures:
    return await scene


def _short(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def machine() -> str:
    """Say where this ran."""
    program = find_binary()
    return (
        f"{os.cpu_count()} shared cores, Python {platform.python_version()}, "
        f"{program.engine} {'.'.join(map(str, program.version))}"
    )


def play_tables(
    titles: list[str], folder: Path, figures: dict[str, Any], seconds: float
) -> list[str]:
    """Play some tables and put them into the report that is there; return what went wrong."""
    figures.setdefault("machine", machine())
    tables, wrong = play_scenes(min(seconds, 20), titles)
    if missing := set(titles) - set(tables):
        return [f"there is no table {title!r}" for title in sorted(missing)]
    figures["tables"] = {**figures.get("tables", {}), **tables}
    report.write(folder, figures, pictures=False)
    return wrong


def main() -> None:
    """Run what was asked for and write the report; 1 if a rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tools.storms", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="length of each storm")
    parser.add_argument("--soak", type=float, default=30, help="minutes of the soak, 0 for none")
    parser.add_argument("--only", action="append", help="play this storm only")
    parser.add_argument("--out", type=Path, default=REPORTS, help="folder of the report")
    parser.add_argument(
        "--table", action="append", metavar="TITLE",
        help="play the scenes of this table only; the rest of the report stays as it is",
    )  # fmt: skip
    options = parser.parse_args()
    kept = options.out / "fault-report.json"
    figures: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if options.table:
        wrong = play_tables(options.table, options.out, figures, options.seconds)
        raise SystemExit("\n".join(wrong) if wrong else 0)
    figures["machine"] = machine()
    played = []
    for name in options.only or storms(PrivateServer(), FaultProxy("redis://localhost")):
        print(f"storm: {name}", flush=True)
        played.append(asyncio.run(play(name, options.seconds)))
        calm = next((p["sends/s"] for p in played if p["storm"] == "calm"), played[0]["sends/s"])
        played[-1]["of calm"] = played[-1]["sends/s"] / calm
        print("  " + " | ".join(report.row(played[-1])), flush=True)
    figures["storms"] = played
    report.write(options.out, figures)
    wrong = [violation for storm in played for violation in storm["violations"]]
    if not options.only:
        figures["tables"], more = play_scenes(min(options.seconds, 20), None)
        wrong += more
        report.write(options.out, figures)
    if options.soak:
        print(f"soak: {options.soak:g} minutes", flush=True)
        figures["soak"] = asyncio.run(Soak(options.soak).run())
        report.write(options.out, figures)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
