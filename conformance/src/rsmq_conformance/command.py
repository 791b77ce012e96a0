"""The command ``rsmq-conformance``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import __version__, report
from .driver import URL_VARIABLE, DriverLost
from .redis import RedisError
from .run import Run, play_all, play_one, started
from .scenarios import LEVELS, BadScenario, Scenario, chosen
from .server import NoServer, server_for

PASSED, FAILED, USAGE, NO_DRIVER, NO_SERVER = 0, 1, 2, 3, 4
EPILOG = f"""\
A driver is a program that owns the client under test. It reads one JSON object per line on stdin
and writes one per line on stdout; {URL_VARIABLE} names the Redis server. Give --driver twice or
more and the clients are also played in pairs: one sends, the other receives.

exit status: 0 all rules kept; 1 a rule is broken (with --strict: or an advice not followed);
2 wrong usage; 3 a driver cannot be started; 4 no Redis server

examples:
  rsmq-conformance --driver "node adapter.js"
  rsmq-conformance --driver "node adapter.js" --driver ./my-port --level L3
  rsmq-conformance --driver ./my-port --scenario fifo --scenario body-text
  rsmq-conformance replay rsmq-conformance-report/failures/my-port--fifo.jsonl
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if words[:1] == ["replay"]:
            return _replay(_replay_parser().parse_args(words[1:]))
        return _run(_parser().parse_args(words))
    except BadScenario as error:
        return _complain(error, USAGE)
    except DriverLost as error:
        return _complain(error, NO_DRIVER)
    except (NoServer, RedisError) as error:
        return _complain(error, NO_SERVER)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)


def _complain(what: object, status: int) -> int:
    sys.stderr.write(f"rsmq-conformance: {what}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "rsmq-conformance",
        description="Check clients of RSMQ, in any language, against the format and each other.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--driver", action="append", default=[], metavar="COMMAND", help="start a client so")
    add("--redis-url", metavar="URL", help="use this server; by default one is started")
    levels = ", ".join(f"{level} {what}" for level, what in LEVELS.items())
    add("--level", action="append", default=[], choices=[*LEVELS], help=f"only these: {levels}")
    add("--scenario", action="append", default=[], metavar="NAME", help="only these scenarios")
    add("--no-pairs", action="store_true", help="play every client alone only")
    add("--strict", action="store_true", help="an advice that is not followed is a failure")
    where = "rsmq-conformance-report"
    add("--out", type=Path, default=Path(where), metavar="DIR", help=f"by default {where}")
    add("--quiet", action="store_true", help="print no progress")
    add("--list", action="store_true", help="name the scenarios and end")
    add("--version", action="version", version=f"rsmq-conformance {__version__}")
    return parser


def _replay_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "rsmq-conformance replay",
        description="Play the scenario of a reproducer again and show every line that is said.",
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--redis-url", metavar="URL")
    parser.add_argument(
        "--driver", metavar="COMMAND", help="use this instead of the recorded commands"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    scenarios = chosen(options.level, options.scenario)
    if options.list:
        for scenario in scenarios:
            kind = " (advice)" if scenario.advice else ""
            _say(f"{scenario.level}  {scenario.name:24}{scenario.rule}{kind}")
        return PASSED
    if not options.driver:
        _parser().error("--driver is missing")
    run = _played(options, scenarios)
    _say(
        f"{len(scenarios)} scenarios on {run.server}, {run.seconds:.1f} s\n\n{report.terminal(run)}"
    )
    report.write(run, options.out)
    _say(f"\nreport: {options.out / 'report.md'}")
    if run.failures:
        _say(f"reproducers: rsmq-conformance replay {options.out}/failures/...")
    counted = [r for r in run.failures if options.strict or not r.scenario.advice]
    return FAILED if counted else PASSED


def _played(options: argparse.Namespace, scenarios: list[Scenario]) -> Run:
    progress = _silent if options.quiet else _progress()
    with (
        server_for(options.redis_url) as (url, server, private),
        started(options.driver, url) as clients,
    ):
        run = Run(server, clients, scenarios)
        play_all(run, url, pairs=not options.no_pairs, disturb=private, progress=progress)
    return run


def _replay(options: argparse.Namespace) -> int:
    try:
        head = json.loads(options.file.read_text(encoding="utf-8").splitlines()[0])
        (scenario,) = chosen([], [head["scenario"]])
        commands = dict(head["drivers"])
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        return _complain(f"{options.file} is no reproducer: {error}", USAGE)
    if options.driver:
        commands = dict.fromkeys(commands, options.driver)
    distinct = list(dict.fromkeys(commands.values()))
    with server_for(options.redis_url) as (url, _, _), started(distinct, url) as clients:
        by_command = dict(zip(distinct, clients, strict=True))
        cast = {role: by_command[command] for role, command in commands.items()}
        result = play_one(url, scenario, cast)
    for line in result.outcome.trace:
        _show(line)
    _say(f"\n{scenario.name}: {scenario.rule}")
    _say(f"{result.outcome.state}{': ' + result.outcome.detail if result.outcome.detail else ''}")
    return PASSED if result.passed else FAILED


def _show(line: dict[str, object]) -> None:
    if "plant" in line:
        _say(f"redis    {json.dumps(line['plant'])}")
        return
    _say(f"{line['to']:9}> {json.dumps(line['request'])}")
    _say(f"{'':9}< {json.dumps(line.get('answer', line.get('lost')))}")


def _progress() -> Callable[[str, int, int], None]:
    """Return a function that keeps one line up to date on a terminal, or writes one per client."""
    live = sys.stderr.isatty()

    def show(title: str, done: int, of: int) -> None:
        if live:
            end = "\n" if done == of else ""
            sys.stderr.write(f"\r\x1b[K{title}: {done}/{of}{end}")
            sys.stderr.flush()
        elif done == of:
            sys.stderr.write(f"{title}: {of} done\n")

    return show


def _silent(_: str, __: int, ___: int) -> None:
    """Show nothing."""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
