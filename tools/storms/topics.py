"""Publishers, subscriptions with peers that share them, and peers killed at random.

``python -m tools.storms.topics [messages] [kills]`` runs the long one, first without kills.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiorsmq_ng import RSMQ, Topic
from aiorsmq_ng.testing import PrivateServer

from . import topic_peer
from .topic_peer import PATIENT

PUBLISHERS, SUBSCRIPTIONS, PEERS = 4, 3, 2
#: Shared ones, and one of which each peer has copies of its own.
MODES = {**{f"c{number}": "shared" for number in range(SUBSCRIPTIONS)}, "broadcast": "broadcast"}


class Peers:
    """Processes that read the subscriptions; a dead one is started again, under a new name."""

    def __init__(self, url: str, folder: Path, vt: int, modes: dict[str, str]) -> None:
        self._url = url
        self._modes = modes
        self._vt = vt
        self._folder = folder
        self._started = 0
        self._processes: list[tuple[str, Path, Process]] = []

    async def start(self) -> None:
        """Start all of them."""
        for consumer in self._modes:
            for _ in range(PEERS):
                await self._start(consumer)

    async def kill(self, rng: random.Random) -> None:
        """Kill one that has begun to work, without warning, and start another in its place."""
        while not (busy := [p for p in self._processes if p[1].exists()]):
            await asyncio.sleep(0.01)
        chosen = rng.choice(busy)
        self._processes.remove(chosen)
        consumer, _, victim = chosen
        victim.send_signal(signal.SIGKILL)
        await victim.wait()
        await self._start(consumer)

    async def stop(self) -> None:
        """Let all of them end by themselves."""
        for *_, process in self._processes:
            if process.returncode is None:
                process.terminate()
        codes = [await process.wait() for *_, process in self._processes]
        # One that had not come far enough to hear of it ends by the signal itself.
        assert set(codes) <= {0, -signal.SIGTERM}, codes

    def seen(self, consumer: str) -> Counter[str]:
        """Return what the peers of a consumer have written down, and how often."""
        found: Counter[str] = Counter()
        for file in self._folder.glob(f"{consumer}.*"):
            found.update(file.read_text().splitlines())
        return found

    async def _start(self, consumer: str) -> None:
        self._started += 1
        peer = f"peer-{self._started}"
        file = self._folder / f"{consumer}.{peer}"
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", topic_peer.__name__, self._url),
            *(consumer, self._modes[consumer], str(self._vt), peer, str(file)),
        )
        self._processes.append((consumer, file, process))


async def storm(
    messages: int, kills: int, *, vt: int = 2, modes: dict[str, str] = MODES
) -> dict[str, Any]:
    """Publish *messages*, kill *kills* peers meanwhile, and count what every subscription saw."""
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateServer() as server, RSMQ(server.url, options=PATIENT) as rsmq:
            topic = rsmq.topic("storm")
            for consumer, mode in modes.items():
                if mode == "shared":
                    await topic.subscribe(consumer, vt=vt)
            peers = Peers(server.url, Path(folder), vt, modes)
            await peers.start()
            await _subscribed(topic, len(modes) - 1 + PEERS)
            began = time.monotonic()
            async with _publishing(server.url, messages) as publishing:
                for _ in range(kills):
                    await asyncio.sleep(rng.uniform(0.02, 0.3))
                    await peers.kill(rng)
                published = await publishing
            took = time.monotonic() - began
            await _drained(topic)
            whole = time.monotonic() - began
            await peers.stop()
        seen = {consumer: peers.seen(consumer) for consumer in modes}
    # Every peer with copies of its own handles all; only what one handles twice is a repetition.
    copies = {
        c: sum(counts.values()) - len(counts) for c, counts in seen.items() if modes[c] == "shared"
    }
    return {
        "published": len(published),
        "kills": kills,
        "lost": {c: len(published - set(counts)) for c, counts in seen.items()},
        "invented": {c: len(set(counts) - published) for c, counts in seen.items()},
        "handled again": copies,
        "published per s": round(len(published) / took),
        "copies handled per s": round(
            sum(sum(counts.values()) for counts in seen.values()) / whole
        ),
        "seconds": round(whole, 1),
    }


@asynccontextmanager
async def _publishing(url: str, messages: int) -> AsyncIterator[asyncio.Future[set[str]]]:
    async def one(number: int, count: int) -> set[str]:
        bodies = [f"{number}-{i}" for i in range(count)]
        async with RSMQ(url, options=PATIENT) as rsmq:
            topic = rsmq.topic("storm")
            for at in range(0, count, 20):
                page = bodies[at : at + 20]
                if at % 40:
                    await topic.publish_many(page)
                else:
                    await asyncio.gather(*map(topic.publish, page))
        return set(bodies)

    tasks = [one(number, messages // PUBLISHERS) for number in range(PUBLISHERS)]
    gathered = asyncio.ensure_future(asyncio.gather(*tasks))
    together: asyncio.Future[set[str]] = asyncio.ensure_future(_union(gathered))
    try:
        yield together
    finally:
        await together


async def _union(parts: asyncio.Future[list[set[str]]]) -> set[str]:
    return set[str]().union(*await parts)


async def _subscribed(topic: Topic, count: int) -> None:
    """Wait until the peers with copies of their own are there."""
    async with asyncio.timeout(60):
        while len((await topic.describe()).subscriptions) < count:
            await asyncio.sleep(0.05)


async def _drained(topic: Topic) -> None:
    """Wait until every subscription is empty; what peers left that are gone is not waited for."""
    async with asyncio.timeout(600):
        while True:
            found = (await topic.describe()).subscriptions
            if not any(s.attributes and s.attributes.msgs for s in found if s.state == "on"):
                return
            await asyncio.sleep(0.1)


async def main(messages: int, kills: int) -> None:
    """Run both storms and print what came of them."""
    for some in (0, kills):
        # Without kills no lease may run out, or a slow machine would look like a fault.
        print(  # noqa: T201 - this is a program
            json.dumps(await storm(messages, some, vt=2 if some else 600)), flush=True
        )


if __name__ == "__main__":
    asyncio.run(main(*map(int, [*sys.argv[1:], "100000", "60"][:2])))
