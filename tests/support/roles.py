"""The documented roles, and a worker that does everything a worker may come to do."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from aiorsmq_ng import RSMQ, Delivery, Retry, Worker

_PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "security.md").read_text()
#: The users of docs/guides/security.md, and what makes each of them.
ACL_RULES = {
    match[1]: match[2].split() for match in re.finditer(r"ACL SETUSER (\w+) ([^`]+?)\n```", _PAGE)
}


async def serve(worker: Worker, owner: RSMQ) -> None:
    """Run a worker through all that can become of a message, until none is left."""
    jobs = owner.queue("jobs")
    tried: set[int] = set()

    @worker.handler("jobs", retry=Retry(3, base=0.01, cap=0.02))
    async def handle(body: int, message: Delivery) -> None:
        if body == 1 and body not in tried:
            tried.add(body)
            raise RuntimeError("try again")
        if body == 2:
            raise RuntimeError("never")
        if body == 3:
            await message.reject("by itself")
        if body == 4 and body not in tried:
            tried.add(body)
            await message.release()

    running = asyncio.create_task(worker.run(signals=False))
    async with asyncio.timeout(60):
        while (await jobs.attributes()).msgs and not running.done():
            await asyncio.sleep(0.02)
    worker.stop()
    await running


#: Which of them end in the dead letters, and how many are done.
BURIED, DONE = {"2", "3", "9", "not a number"}, 3


async def prepare(owner: RSMQ) -> None:
    """Fill the queue for ``serve``; the last message has killed three holders already."""
    jobs = owner.queue("jobs")
    poison = await jobs.send("9")
    for _ in range(3):
        received = await jobs.receive(vt=0)
        assert received is not None
        assert received.id == poison
    await jobs.send_many(["0", "1", "2", "3", "4", "not a number"])


async def begin(worker: Worker) -> None:
    """Start a worker, and stop it before it takes anything."""

    @worker.handler("jobs")
    async def handle(body: str) -> None: ...

    @worker.on_start
    async def stop() -> None:
        worker.stop()

    await worker.run(signals=False)
