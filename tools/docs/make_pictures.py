"""Draw ``rsmqctl top`` with example numbers: ``python tools/docs/make_pictures.py``."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

from rich.console import Console

from aiorsmq_ng import QueueAttributes, QueueStats
from aiorsmq_ng.cli.top.screen import View, picture
from aiorsmq_ng.sampling import Sampler

PICTURE = Path(__file__).parents[2] / "docs" / "reference" / "pictures" / "top.svg"
SIZE = (104, 11)

#: Queue -> ready at a look, leased, delayed, age of the oldest (s), sent and delivered per look,
#: dead.
QUEUES = {
    "emails": (lambda n: 2, 2, 900, 0.4, 12, 12, 0),
    "invoices": (lambda n: 40 + 30 * math.sin(n / 3), 8, 0, 12.0, 31, 32, 3),
    "invoices-dead": (lambda n: 3, 0, 0, 4021.0, 0, 0, 0),
    "orders": (lambda n: 120 + 300 * math.exp(-((n - 16) ** 2) / 30), 48, 6, 9.0, 310, 314, 0),
    "thumbnails": (lambda n: 40 * n, 64, 0, 81.0, 105, 65, 0),
    "webhooks": (lambda n: 0, 0, 0, None, 0, 0, 0),
}  # fmt: skip


def draw() -> str:
    """Return the picture as SVG."""
    sampler = Sampler()
    for look in range(30):
        sampler.take({name: stats(name, look) for name in QUEUES}, float(look))
    view = View("redis://localhost:6379 ns=rsmq", "ready", backwards=True)
    console = Console(
        record=True, width=SIZE[0], file=io.StringIO(), force_terminal=True,
        color_system="truecolor", legacy_windows=False,
    )  # fmt: skip
    console.print(picture(view, sampler.traces, "02:14:07", SIZE))
    svg = console.export_svg(title="rsmqctl top", unique_id="top")
    # The reader's own fonts will do; nothing is fetched from elsewhere.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace")


def stats(name: str, look: int) -> QueueStats:
    """Return what one look at a queue finds."""
    depth, leased, delayed, oldest, sent, delivered, dead = QUEUES[name]
    ready = round(depth(look))
    msgs = ready + leased + delayed
    attributes = QueueAttributes(
        vt=30, delay=0, maxsize=65536, totalrecv=delivered * look, totalsent=sent * look,
        created=0, modified=0, msgs=msgs, hiddenmsgs=leased + delayed, ready=ready,
        delayed=delayed, leased=leased, exact=True, oldest_age=oldest if ready else None,
    )  # fmt: skip
    return QueueStats(attributes, dead=dead, consumers=())


if __name__ == "__main__":
    PICTURE.write_text(draw())
