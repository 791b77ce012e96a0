"""A run: every client alone, every pair of clients, all scenarios."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations

from .driver import Driver, DriverLost, Hello
from .player import Outcome, Play
from .scenarios import AT_ONCE, Scenario

#: Scenarios that are played at the same time, in namespaces of their own: some wait for a time.
AT_A_TIME = 16


@dataclass
class Client:
    """A client under test: two processes of it, for scenarios in which two work at once."""

    command: str
    hello: Hello
    processes: tuple[Driver, Driver]

    @property
    def title(self) -> str:
        """Name and version."""
        return self.hello.title


#: A scenario and the client in each of its roles.
Cast = tuple[Scenario, dict[str, Client]]


@dataclass
class Result:
    """What came of one scenario with one cast."""

    scenario: Scenario
    #: Title of the client in each role.
    cast: dict[str, str]
    commands: dict[str, str]
    outcome: Outcome

    @property
    def passed(self) -> bool:
        """Return True if all went as expected."""
        return self.outcome.state == "passed"

    @property
    def failed(self) -> bool:
        """Return True if something was not as expected."""
        return self.outcome.state == "failed"


@dataclass
class Run:
    """All results."""

    server: str
    clients: list[Client]
    scenarios: list[Scenario]
    #: Title of a client -> its results alone.
    alone: dict[str, list[Result]] = field(default_factory=dict)
    #: Titles of two clients -> their results together.
    pairs: dict[tuple[str, str], list[Result]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def failures(self) -> list[Result]:
        """All results that failed, advice too."""
        groups = [*self.alone.values(), *self.pairs.values()]
        return [result for group in groups for result in group if result.failed]


@contextmanager
def started(commands: Sequence[str], url: str) -> Iterator[list[Client]]:
    """Start the clients and let them introduce themselves; raise ``DriverLost`` if one cannot."""
    drivers = [(Driver(command, url), Driver(command, url)) for command in commands]
    try:
        said = [(one.hello(), two.hello())[0] for one, two in drivers]
        clients = [
            Client(command, hello, pair)
            for command, hello, pair in zip(commands, said, drivers, strict=True)
        ]
        yield _distinct(clients)
    finally:
        for driver in (driver for pair in drivers for driver in pair):
            driver.close()


def _distinct(clients: list[Client]) -> list[Client]:
    """Give a number to clients that have the same name and version."""
    seen: dict[str, int] = {}
    for client in clients:
        seen[client.title] = seen.get(client.title, 0) + 1
        if (count := seen[client.title]) > 1:
            hello = client.hello
            name = f"{hello.name} ({count})"
            client.hello = Hello(name, hello.version, hello.language, hello.verbs, hello.options)
    return clients


def play_all(
    run: Run, url: str, *, pairs: bool, disturb: bool, progress: Callable[[str, int, int], None]
) -> None:
    """Play everything; *progress* hears what is played, how much of it is done, and of how much."""
    begun = time.monotonic()
    for client in run.clients:
        casts = alone(run.scenarios, client)
        run.alone[client.title] = play(url, casts, disturb, client.title, progress)
    for one, two in combinations(run.clients, 2) if pairs else ():
        title = f"{one.title} with {two.title}"
        casts = together(run.scenarios, one, two)
        run.pairs[one.title, two.title] = play(url, casts, disturb, title, progress)
    run.seconds = time.monotonic() - begun


def alone(scenarios: list[Scenario], client: Client) -> list[Cast]:
    """Return every scenario with one client in all roles."""
    return [(scenario, dict.fromkeys(scenario.roles, client)) for scenario in scenarios]


def together(scenarios: list[Scenario], one: Client, two: Client) -> list[Cast]:
    """Return the scenarios for pairs, in every distribution of their roles over two clients."""
    return [
        (scenario, {role: (one, two)[at] for role, at in cast.items()})
        for scenario in scenarios
        if scenario.pair
        for cast in scenario.casts()
    ]


def play(
    url: str,
    casts: list[Cast],
    disturb: bool,
    title: str,
    progress: Callable[[str, int, int], None],
) -> list[Result]:
    """Play scenarios beside each other; then, one by one, those that disturb the server."""
    results: dict[int, Result] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        calm = [at for at, (scenario, _) in enumerate(casts) if not scenario.disturbs]
        waiting = {pool.submit(play_one, url, *casts[at]): at for at in calm}
        for done in as_completed(waiting):
            results[waiting[done]] = done.result()
            progress(title, len(results), len(casts))
    for at, (scenario, cast) in enumerate(casts):
        if scenario.disturbs:
            results[at] = play_one(url, scenario, cast) if disturb else _left_out(scenario, cast)
            for client in cast.values():
                for process in client.processes:
                    _restart(process)
            progress(title, len(results), len(casts))
    return [results[at] for at in sorted(results)]


def play_one(url: str, scenario: Scenario, cast: dict[str, Client]) -> Result:
    """Play a scenario with a client in each role."""
    titles = {role: client.title for role, client in cast.items()}
    commands = {role: client.command for role, client in cast.items()}
    lacking = {
        client.title: missing
        for client in cast.values()
        if (missing := client.hello.lacks(_needs(scenario, cast, client)))
    }
    if lacking:
        text = "; ".join(f"{title} has no {', '.join(what)}" for title, what in lacking.items())
        return Result(scenario, titles, commands, Outcome("lacking", text))
    processes = {role: _process(role, client) for role, client in cast.items()}
    return Result(scenario, titles, commands, Play(url, scenario, processes).run())


def _process(role: str, client: Client) -> Driver:
    """Return the second process for the second of two that work at the same time."""
    return client.processes[AT_ONCE.index(role) if role in AT_ONCE else 0]


def _needs(scenario: Scenario, cast: dict[str, Client], client: Client) -> set[str]:
    """Return the verbs and options that *client* needs for its roles."""
    needed = set()
    for call in scenario.calls:
        # What follows another call of a race is made by the same client.
        if "role" not in call or cast[call["role"]] is client:
            needed.add(call["verb"])
            needed |= {"realtime"} if call.get("realtime") else set()
    return needed


def _restart(process: Driver) -> None:
    """Start a process again now, because a scenario may be in a hurry later."""
    process.close()
    try:
        process.hello()
    except DriverLost:
        return  # the next call that needs it reports why


def _left_out(scenario: Scenario, cast: dict[str, Client]) -> Result:
    text = "changes the server for all its users, so it is played on a server of its own only"
    titles = {role: client.title for role, client in cast.items()}
    return Result(scenario, titles, {}, Outcome("lacking", text))
