"""Deterministic simulation: clients, a server in memory and a bad network, all from one seed."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng._transport.call import Call
from aiorsmq_ng._transport.driver import Driver, Heard, Listener, ListWaiter, NotExecuted, ReplyLost
from aiorsmq_ng.client import RSMQ
from aiorsmq_ng.errors import Unavailable
from aiorsmq_ng.options import Options

from .checker import Verdict
from .history import History
from .virtual_loop import VirtualLoop, run_virtually

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Probabilities of the faults of a call, drawn for every call."""

    #: No connection: the command is not written.
    refused: float = 0.03
    #: Written, and lost on its way.
    lost_request: float = 0.03
    #: Executed, and the reply lost on its way.
    lost_reply: float = 0.04
    #: Executed, and the reply comes after up to ``slow_s``.
    slow_reply: float = 0.04
    #: Executed after up to ``slow_s``, even if its caller no longer waits.
    late_request: float = 0.02
    #: A wake-up that does not arrive.
    lost_wake_up: float = 0.1
    slow_s: float = 4.0
    #: The ordinary time for one way.
    latency_s: float = 0.004


@dataclass(slots=True)
class Outcome:
    """What a simulation came to. The same seed gives the same trace."""

    seed: int
    #: One line per call of a client: when, who, what, and what went wrong.
    trace: list[str]
    verdict: Verdict
    history: History
    #: Seconds that passed in the simulation.
    virtual_s: float

    @property
    def digest(self) -> str:
        """A short name of the trace, to compare runs by."""
        return hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]

    def require(self) -> None:
        """Raise ``AssertionError`` with the seed and all that is wrong, if anything is."""
        if not self.verdict.ok:
            raise AssertionError(f"seed {self.seed}:\n{self.verdict}")

    def __repr__(self) -> str:
        state = "ok" if self.verdict.ok else "violated"
        return f"<Outcome of seed {self.seed}: {state}, {len(self.trace)} calls, {self.digest}>"


#: What is simulated: it uses the clients of a world and returns a verdict, if it has one.
Scenario = Callable[["World"], Awaitable[Verdict | None]]


def simulate(scenario: Scenario, seed: int, *, faults: Faults | None = None) -> Outcome:
    """Run *scenario* in a world that *seed* decides about, and return what came of it.

    Time is virtual and the server is ``memory://``. The order of tasks, every fault and all chance
    inside the library come from the seed. A plain function: do not call it from a coroutine.
    """
    rng = random.Random(seed)  # noqa: S311 - it shall be predictable
    world: World | None = None

    async def main(loop: VirtualLoop) -> tuple[World, Verdict]:
        nonlocal world
        world = World(seed, rng, loop, faults or Faults())
        try:
            return world, await scenario(world) or Verdict()
        finally:
            await world.aclose()

    world, verdict = run_virtually(main, rng, seed)
    return Outcome(seed, world.trace, verdict, world.history, world.elapsed_s)


class World:
    """Where a scenario takes place: it hands out clients, lets them crash and ends the faults."""

    def __init__(self, seed: int, rng: random.Random, loop: VirtualLoop, faults: Faults) -> None:
        #: The one source of chance.
        self.rng = rng
        self.faults = faults
        self.trace: list[str] = []
        #: For the checks; its clock is the virtual one.
        self.history = History(clock=loop.time)
        #: True while calls may fail.
        self.stormy = True
        self._loop = loop
        self._began = loop.time()
        self._url = f"memory://simulation-{seed}"
        self._clients: list[SimulatedClient] = []
        self._late: set[asyncio.Task[Any]] = set()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the simulation began."""
        return self._loop.time() - self._began

    async def client(
        self, name: str, *, reliable: bool = False, options: Options | None = None
    ) -> SimulatedClient:
        """Return an open client; one that is *reliable* has a network without faults."""
        client = SimulatedClient(self, name, self._url, reliable, options)
        self._clients.append(client)
        while True:
            try:
                await client.open()
                return client
            except Unavailable:
                if not self.stormy:
                    raise

    async def crash(self, client: SimulatedClient) -> None:
        """End *client* as a killed process ends: nothing it does from now on reaches the server.

        Its tasks are cancelled, and whatever they do to clean up is in vain.
        """
        self.note(client.name, "crash", "")
        client.dead = True
        await client.end()

    def calm(self) -> None:
        """End all faults: from now on every call arrives, and is answered in time."""
        self.stormy = False
        self.history.fault_over()

    def draw(self) -> str:
        """Draw what goes wrong with a call; usually nothing."""
        if not self.stormy:
            return ""
        faults, at = self.faults, self.rng.random()
        for kind in ("refused", "lost_request", "lost_reply", "slow_reply", "late_request"):
            at -= getattr(faults, kind)
            if at < 0:
                return kind
        return ""

    async def travel(self, slow: bool = False) -> None:
        """Let the time pass that one way takes."""
        most = self.faults.slow_s if slow else self.faults.latency_s
        await asyncio.sleep(self.rng.uniform(most / 10, most))

    def note(self, who: str, what: str, wrong: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.elapsed_s:.6f} {who} {what} {wrong}".rstrip())

    def begin_late(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work*, which goes on whatever happens to its client."""
        task = self._loop.create_task(work)
        self._late.add(task)
        task.add_done_callback(_seen)
        return task

    async def settled(self) -> None:
        """Wait until no request is on its way that its client may have given up."""
        while late := [task for task in self._late if not task.done()]:
            await asyncio.wait(late)

    async def end_all(self, *but: SimulatedClient) -> None:
        """Cancel the tasks of all clients but these, and close them."""
        for client in self._clients:
            if client not in but:
                await client.end()

    async def aclose(self) -> None:
        """Close all clients."""
        self.stormy = False
        await self.settled()
        await self.end_all()


class SimulatedClient(RSMQ):
    """A client behind a network that the world decides about."""

    def __init__(
        self, world: World, name: str, url: str, reliable: bool, options: Options | None
    ) -> None:
        super().__init__(url, ns="simulation", options=options)
        self.world = world
        self.name = name
        self.reliable = reliable
        #: True once it crashed.
        self.dead = False
        self._own_tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run *work* in a task that ends with this client."""
        task = asyncio.get_running_loop().create_task(work)
        self._own_tasks.append(task)
        return task

    async def end(self) -> None:
        """Cancel its tasks and close it."""
        for task in self._own_tasks:
            task.cancel()
        await asyncio.gather(*self._own_tasks, return_exceptions=True)
        await self.aclose()

    async def _connect(self) -> Driver:
        return _BadNetwork(await super()._connect(), self)


class _BadNetwork:
    """A driver whose calls meet the faults of the world."""

    def __init__(self, driver: Driver, client: SimulatedClient) -> None:
        self._driver = driver
        self._client = client
        self._world = client.world
        self._late: list[asyncio.Task[Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    @property
    def calls_per_connection(self) -> int:
        """How many calls it pays to make at a time, for each connection."""
        return self._driver.calls_per_connection

    @property
    def immediate(self) -> None:
        """No call is made at once: each travels."""
        return

    async def run(self, call: Call) -> list[Any]:
        """Make an attempt of *call*, unless something goes wrong."""
        attempt = _Attempt(call)

        def written() -> None:
            call.written = True

        def work() -> Awaitable[list[Any]]:
            return self._driver.run(cast(Call, attempt))

        return await self._pass(call.kind.name, work, written)

    async def ping(self) -> None:
        """Ask for a sign of life, unless something goes wrong."""
        await self._pass("ping", self._driver.ping)

    async def check(self, options: Options) -> Durability:
        """Ask what the server is like, unless something goes wrong."""
        try:
            return await self._pass("check", lambda: self._driver.check(options))
        except ReplyLost as error:
            raise NotExecuted(str(error)) from error

    async def setting(self, name: str) -> str | None:
        """Ask for a setting of the server; no fault concerns that."""
        return await self._driver.setting(name)

    async def forget(self, records: Sequence[str]) -> None:
        """Remove records of calls, unless something goes wrong."""
        await self._pass("forget", lambda: self._driver.forget(records))

    async def _pass(
        self, name: str, work: Callable[[], Awaitable[T]], written: Callable[[], object] = bool
    ) -> T:
        world, client = self._world, self._client
        fault = "" if client.reliable else world.draw()
        world.note(client.name, name, fault)
        if fault == "refused":
            raise NotExecuted("connection refused")
        written()
        await self._travel()
        if fault == "lost_request":
            raise ReplyLost("the request was lost")
        if fault == "late_request":
            return await self._pass_late(name, work)
        result = await work()
        await self._travel(slow=fault == "slow_reply")
        if fault == "lost_reply":
            raise ReplyLost("the reply was lost")
        return result

    def listener(self) -> Listener:
        """Return a listener that misses things."""
        return _BadListener(self._driver.listener(), self._client)

    def list_waiter(self) -> ListWaiter:
        """Return that of the driver; nothing in this world waits for lists."""
        return self._driver.list_waiter()

    async def aclose(self) -> None:
        """Close the driver, when nothing is on its way any more."""
        while late := [task for task in self._late if not task.done()]:
            await asyncio.wait(late)
        await self._driver.aclose()

    async def _travel(self, slow: bool = False) -> None:
        await self._world.travel(slow)
        await _unless_dead(self._client)

    async def _pass_late(self, name: str, work: Callable[[], Awaitable[T]]) -> T:
        async def later() -> T:
            await self._world.travel(slow=True)
            # It left before the client crashed, if it did.
            self._world.note(self._client.name, name, "arrives late")
            return await work()

        task = self._world.begin_late(later())
        self._late.append(task)
        result = await asyncio.shield(task)
        await _unless_dead(self._client)
        return result


class _Attempt:
    """One attempt of a call: it stays what it is, whatever the client does with the call meanwhile.

    All attempts of a call share what the driver has encoded.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.number = call.number
        self.attempt = call.attempt
        self.in_doubt = call.in_doubt
        self.recall = call.recall
        self.written = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    @property
    def encoded(self) -> Any:
        """What the driver has encoded."""
        return self._call.encoded

    @encoded.setter
    def encoded(self, value: Any) -> None:
        self._call.encoded = value


class _BadListener:
    """A listener that misses some of what is published."""

    def __init__(self, listener: Listener, client: SimulatedClient) -> None:
        self._listener = listener
        self._client = client

    async def subscribe(self, *channels: str) -> None:
        """Add channels."""
        await _unless_dead(self._client)
        await self._listener.subscribe(*channels)

    async def unsubscribe(self, *channels: str) -> None:
        """Drop channels."""
        await _unless_dead(self._client)
        await self._listener.unsubscribe(*channels)

    async def next_heard(self) -> Heard | None:
        """Wait for a publication, and perhaps miss it."""
        heard = await self._listener.next_heard()
        await _unless_dead(self._client)
        world = self._client.world
        if world.stormy and world.rng.random() < world.faults.lost_wake_up:
            return None
        return heard

    async def aclose(self) -> None:
        """Give the connection back."""
        await self._listener.aclose()


async def _unless_dead(client: SimulatedClient) -> None:
    """Go on, but never for a client that crashed."""
    if client.dead:
        await asyncio.get_running_loop().create_future()


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
