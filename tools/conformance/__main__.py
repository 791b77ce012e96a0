"""Play all known clients, alone and in pairs, and write the report: ``nox -s conformance``.

``--page`` makes the page from the data of the last run. Ends with status 1 if a client cannot be
installed, or if our own client breaks a rule.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rsmq_conformance import report
from rsmq_conformance.run import Run, play_all, started
from rsmq_conformance.scenarios import load
from rsmq_conformance.server import server_for

from . import page
from .installation import NotInstalled
from .ports import PORTS, ours


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser("tools.conformance", description=__doc__)
    parser.add_argument("--page", action="store_true", help="no run, only the page")
    parser.add_argument("--out", type=Path, help="also the whole report, with reproducers")
    options = parser.parse_args()
    if options.page:
        page.write(json.loads(page.DATA.read_text(encoding="utf-8")))
        return 0
    commands, missing = _installed()
    with server_for(None) as (url, server, private), started(commands, url) as clients:
        run = Run(server, clients, load())
        play_all(run, url, pairs=True, disturb=private, progress=_progress)
    sys.stdout.write(report.terminal(run) + "\n")
    if options.out:
        report.write(run, options.out)
    ours_fails = [result for result in run.alone[clients[0].title] if result.failed]
    if missing or ours_fails:
        sys.stderr.write("\n".join([*missing, *(r.outcome.detail for r in ours_fails)]) + "\n")
        return 1
    data = report.as_json(run) | {"date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    for client in data["clients"]:
        del client["command"]  # a path of this machine
    for pair in data["pairs"]:
        pair["played"] = len(pair["results"])
        pair["results"] = [row for row in pair["results"] if row["state"] == "failed"]
    page.write(data | {"directions": report.pair_table(run)})
    return 0


def _installed() -> tuple[list[str], list[str]]:
    """Return the commands of all drivers, ours first, and what could not be installed."""
    commands, missing = [ours()], []
    with ThreadPoolExecutor() as pool:
        waiting = {name: pool.submit(install) for name, install in PORTS.items()}
        for name, installing in waiting.items():
            try:
                commands.append(installing.result())
            except NotInstalled as reason:
                missing.append(f"{name} cannot be installed: {reason}")
    return commands, missing


def _progress(title: str, done: int, of: int) -> None:
    if done == of:
        sys.stderr.write(f"{title}: {of} played\n")


if __name__ == "__main__":
    sys.exit(main())
