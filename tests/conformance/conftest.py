"""Fixtures of the conformance tests: a server for the kit, which speaks TCP only."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rsmq_conformance.driver import OPTIONS, VERBS, Hello
from rsmq_conformance.player import Outcome
from rsmq_conformance.redis import Redis, RedisError
from rsmq_conformance.reference import Reference, Refused
from rsmq_conformance.run import Client, play_one
from rsmq_conformance.scenarios import Scenario, load
from rsmq_conformance.server import server_for

SCENARIOS = {scenario.name: scenario for scenario in load()}


@pytest.fixture(scope="session")
def kit_url() -> Iterator[str]:
    """Address of a server of the kit's own."""
    with server_for(None) as (url, _, _):
        yield url


class InProcess:
    """A client in this process instead of one of its own; otherwise like a driver."""

    def __init__(self, kind: type[Reference], url: str) -> None:
        self._kind, self._url, self._turn = kind, url, threading.Lock()
        self._redis: Redis | None = None

    def call(self, verb, ns, args, *, realtime=False):
        request = {"verb": verb, "ns": ns, "args": args}
        with self._turn:
            self._redis = self._redis or Redis(self._url)
            client = self._kind(self._redis, ns, realtime)
            try:
                return request, {"ok": getattr(client, verb)(**args)}
            except Refused as refusal:
                return request, {"error": refusal.code}
            except (RedisError, TypeError, ValueError) as error:
                return request, {"error": type(error).__name__}

    def hello(self) -> Hello:
        return Hello(self._kind.__name__, "", "Python", VERBS, OPTIONS)

    def close(self) -> None:
        if self._redis:
            self._redis.close()


def played(
    url: str, wanted: list[tuple[type[Reference], Scenario]]
) -> dict[tuple[str, str], Outcome]:
    """Play scenarios with clients of this process, many at a time, and return what came of them."""
    clients = {}
    for kind, _ in wanted:
        if kind not in clients:
            processes = InProcess(kind, url), InProcess(kind, url)
            clients[kind] = Client("", processes[0].hello(), processes)

    def play(kind: type[Reference], scenario: Scenario) -> Outcome:
        return play_one(url, scenario, dict.fromkeys(scenario.roles, clients[kind])).outcome

    calm = [each for each in wanted if not each[1].disturbs]
    others = [each for each in wanted if each[1].disturbs]
    try:
        with ThreadPoolExecutor(16) as pool:
            done = list(pool.map(lambda each: play(*each), calm))
        done += [play(*each) for each in others]
        names = [(kind.__name__, scenario.name) for kind, scenario in calm + others]
        return dict(zip(names, done, strict=True))
    finally:
        for client in clients.values():
            for process in client.processes:
                process.close()
