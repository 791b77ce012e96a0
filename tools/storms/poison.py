"""Messages that kill the process of their handler, among many that do not."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from aiorsmq_ng import RSMQ
from aiorsmq_ng.testing import PrivateServer
from tests.support import poison_worker

from ..lab import Verdict, Violation

Figures = tuple[dict[str, Any], Verdict | None]


@dataclass
class Outcome:
    """What became of the messages of one run."""

    deaths: int = 0
    seconds: float = 0.0
    #: Messages whose handler ended, and dead letters with how often they were received.
    done: set[str] = field(default_factory=set)
    dead: dict[str, int] = field(default_factory=dict)
    reasons: list[str | None] = field(default_factory=list)

    @property
    def innocent(self) -> list[str]:
        """Dead letters that kill no process."""
        return [body for body in self.dead if not body.startswith("poison")]


async def run(
    url: str, ns: str, *, messages: int, poisons: int, processes: int, seed: int,
    vt: float = 1.0, work_s: float = 0.05,
) -> Outcome:  # fmt: skip
    """Let worker processes, restarted whenever they die, work off a queue with poison in it."""
    outcome = Outcome()
    bodies = [f"job {n}" for n in range(messages - poisons)] + [
        f"poison {n}" for n in range(poisons)
    ]
    random.Random(seed).shuffle(bodies)
    began = time.monotonic()
    async with RSMQ(url, ns=ns) as rsmq, AsyncExitStack() as ended:
        jobs = await rsmq.create_queue("jobs")
        done = await rsmq.create_queue("done")
        await jobs.send_many(bodies)

        async def supervise() -> None:
            while True:
                worker = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", poison_worker.__name__, url, ns, str(vt), str(work_s),
                    stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
                )  # fmt: skip
                try:
                    await worker.wait()
                    outcome.deaths += 1
                finally:
                    if worker.returncode is None:
                        worker.kill()
                        await worker.wait()

        tasks = [asyncio.create_task(supervise()) for _ in range(processes)]
        ended.push_async_callback(_end, tasks)
        while (await jobs.attributes()).msgs:
            await asyncio.sleep(0.1)
        outcome.seconds = time.monotonic() - began
        while batch := await done.pop_many(1000):
            outcome.done |= {message.text for message in batch}
        dead = rsmq.queue("jobs-dead")
        for message in await dead.peek(0, 1000):
            outcome.dead[message.text] = message.rc
            outcome.reasons.append(await dead.reason(message.id))
    return outcome


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def seeds(count: int, **how: Any) -> Figures:
    """Play *count* runs, each with another order of the messages, and add them up."""
    async with PrivateServer() as server:
        runs = [await run(server.url, f"poison{seed}", seed=seed, **how) for seed in range(count)]
    innocent = [len(outcome.innocent) for outcome in runs]
    poisons = sum(len(outcome.dead) for outcome in runs) - sum(innocent)
    figures = {
        "seeds": count,
        **{name: how[name] for name in ("messages", "poisons", "processes")},
        "max_receives": poison_worker.MAX_RECEIVES,
        "deaths of processes": sum(outcome.deaths for outcome in runs),
        "poisons put aside": poisons,
        "innocent put aside": sum(innocent),
        "handled": sum(len(outcome.done) for outcome in runs),
        "without a reason": sum(outcome.reasons.count(None) for outcome in runs),
        "s per run, median": sorted(outcome.seconds for outcome in runs)[count // 2],
    }
    wrong = [Violation("O1", f"seed {seed}: {n} innocent") for seed, n in enumerate(innocent) if n]
    if poisons != count * how["poisons"]:
        wrong.append(Violation("O1", f"{poisons} poisons were put aside"))
    if figures["handled"] != count * (how["messages"] - how["poisons"]):
        wrong.append(Violation("O1", f"{figures['handled']} messages were handled"))
    if figures["without a reason"]:
        wrong.append(Violation("O1", f"{figures['without a reason']} dead letters have no reason"))
    return figures, Verdict(wrong)
