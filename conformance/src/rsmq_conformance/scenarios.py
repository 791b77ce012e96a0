"""The scenarios, read from their files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import product
from typing import Any

from .driver import VERBS

LEVELS = {"L1": "wire", "L2": "semantics", "L3": "concurrency", "L4": "leftovers"}
#: Processes of two clients that work at the same time; the other roles take turns.
AT_ONCE = ("a", "b")


class BadScenario(Exception):
    """A file of scenarios has an error."""


@dataclass(frozen=True)
class Scenario:
    """One rule of the format, and the steps that show whether a client keeps it."""

    name: str
    level: str
    #: The rule, as a sentence.
    rule: str
    #: What users of a client notice that does not keep it.
    harm: str
    steps: tuple[dict[str, Any], ...]
    #: npm rsmq 0.12.4 does not keep it, either: it counts for no level.
    advice: bool = False
    #: Played by pairs of clients too.
    pair: bool = False
    #: Changes the server for all its users, so it is played alone and on a server of its own.
    disturbs: bool = False

    @classmethod
    def of(cls, data: dict[str, Any]) -> Scenario:
        """Read a scenario; raise ``BadScenario`` if something is missing or unknown."""
        try:
            scenario = cls(**{**data, "steps": tuple(data["steps"])})
        except (KeyError, TypeError) as error:
            raise BadScenario(f"{data.get('name', '?')}: {error}") from error
        if scenario.level not in LEVELS:
            raise BadScenario(f"{scenario.name}: no level {scenario.level!r}")
        if unknown := {call["verb"] for call in scenario.calls} - set(VERBS):
            raise BadScenario(f"{scenario.name}: unknown verbs {sorted(unknown)}")
        return scenario

    @cached_property
    def calls(self) -> list[dict[str, Any]]:
        """The steps in which a client is called."""
        found = [step for step in self.steps if "verb" in step]
        for track in (track for step in self.steps for track in step.get("race", ())):
            found += [track, *([track["then"]] if "then" in track else [])]
        return found

    @property
    def needs(self) -> set[str]:
        """Verbs and options that a client must have."""
        options = {"realtime"} if any(call.get("realtime") for call in self.calls) else set()
        return {call["verb"] for call in self.calls} | options

    @property
    def roles(self) -> list[str]:
        """The roles in it, in order of appearance."""
        return list(dict.fromkeys(call["role"] for call in self.calls if "role" in call))

    def casts(self) -> list[dict[str, int]]:
        """Return every way to give the roles to two clients, 0 and 1, that employs both."""
        roles = self.roles
        ways = product((0, 1), repeat=len(roles))
        return [dict(zip(roles, way, strict=True)) for way in ways if len(set(way)) == 2]


def load() -> list[Scenario]:
    """Return all scenarios, by level."""
    folder = resources.files(__package__) / "scenarios"
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".json"))
    found = [
        Scenario.of(data)
        for file in files
        for data in json.loads((folder / file).read_text(encoding="utf-8"))
    ]
    names = [scenario.name for scenario in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise BadScenario(f"names are used twice: {sorted(twice)}")
    return found


def chosen(levels: list[str], names: list[str]) -> list[Scenario]:
    """Return the scenarios of *levels*, or those with *names*; raise ``BadScenario`` for none."""
    found = load()
    if unknown := set(names) - {scenario.name for scenario in found}:
        raise BadScenario(f"no scenario {', '.join(sorted(unknown))}; --list names them")
    if names:
        return [scenario for scenario in found if scenario.name in names]
    return [scenario for scenario in found if not levels or scenario.level in levels]
