"""What a message in flight takes of the client's memory, beside the body that the caller holds.

Sends are all called at once, by a task each, with one and the same body; *peak* is how much the
process grew at most until all were answered, divided by their number. Receives lease the messages
by calls of 100 (bodies of 1 MiB: 8) and keep them: *peak* is until the last one came, *held* is
what the deliveries take at the end, before the program reads their bodies.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from aiorsmq_ng import RSMQ
from aiorsmq_ng.testing import PrivateServer

TITLE = "Memory of messages in flight"
#: Bytes of a body -> messages in flight, and messages of one receive.
SIZES = {100: (10_000, 100), 10 * 1024: (2_000, 100), 1 << 20: (48, 8)}
WAYS = ("send", "receive")
#: How long a process of the study may take.
LIMIT_S = 60


async def measure(seconds: float) -> dict[str, Any]:
    """Measure each way and size in a process of its own."""
    rows = []
    async with PrivateServer() as server, RSMQ(server.url) as rsmq:
        for way in WAYS:
            for size, (messages, batch) in SIZES.items():
                await server.command("FLUSHALL")
                queue = await rsmq.create_queue("jobs", maxsize=-1)
                if way == "receive":
                    for _ in range(messages // batch):
                        await queue.send_many(["x" * size] * batch)
                rows.append({"way": way, "size": size} | await _measured(server.url, way, size))
    return {"rows": rows}


async def _measured(url: str, way: str, size: int) -> dict[str, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, url, way, str(size),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    found: dict[str, int] = json.loads(output)
    return found


def markdown(result: dict[str, Any]) -> str:
    """Return the table."""
    heads = ("", "bytes of a body", "in flight", "peak, KiB each", "in bodies", "held, KiB each")
    lines = [f"| {' | '.join(heads)} |", "|---" + "|--:" * 5 + "|"]
    for row in result["rows"]:
        cells = (
            row["way"],
            f"{row['size']:,}".replace(",", " "),
            f"{row['messages']:,}".replace(",", " "),
            f"{row['peak'] / 1024:,.1f}".replace(",", " "),
            f"{row['peak'] / row['size']:.1f}" if row["size"] > 1000 else "",
            f"{row['held'] / 1024:,.1f}".replace(",", " ") if row["way"] == "receive" else "",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _memory(name: str) -> int:
    """Return a figure of the memory of this process in bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the system does not tell {name}")
    return int(found[1]) * 1024


def _begin() -> int:
    """Let the peak begin with what this process takes now, and return that."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


async def _fly(url: str, way: str, size: int) -> dict[str, int]:
    """Have messages in flight; return their number and what each of them took."""
    messages, batch = SIZES[size]
    body, kept = "x" * size, list[Any]()
    async with RSMQ(url) as rsmq:
        queue = rsmq.queue("jobs")
        # What the first call needs, it needs once.
        await queue.attributes()
        before = _begin()
        if way == "send":
            await asyncio.gather(*(queue.send(body) for _ in range(messages)))
        else:
            while len(kept) < messages:
                kept += await queue.receive_many(batch)
        peak, after = _memory("VmHWM") - before, _memory("VmRSS") - before
        kept.clear()
        return {"messages": messages, "peak": peak // messages, "held": after // messages}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_fly(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
