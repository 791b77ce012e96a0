"""Make the pictures of docs/guides/dashboard.md: ``python tools/docs/dashboard_screenshots.py``.

Needs the packages of the dependency group ``browser``, and Chromium on the path.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from playwright.async_api import Browser, async_playwright

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.testing import PrivateServer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
PICTURES = ROOT / "docs" / "guides" / "pictures"
#: How long the queues are at work before pictures are made.
_WORK_S = 25


async def main() -> None:
    from tests.dashboard.browser import chromium, served  # noqa: PLC0415

    async with (
        PrivateServer() as server,
        RSMQ(server.url) as rsmq,
        async_playwright() as driver,
        served(dashboard(rsmq, environment="staging")) as site,
    ):
        await fill(rsmq)
        browser = await driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        work = asyncio.create_task(keep_busy(rsmq))
        await take(browser, site)
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await browser.close()


async def fill(rsmq: RSMQ) -> None:
    for name in ("orders", "mails", "invoices", "thumbnails", "reports"):
        await rsmq.create_queue(name)
    await rsmq.queue("invoices").send_many([{"type": "invoice", "n": n} for n in range(420)])
    await rsmq.queue("reports").send_many(
        [{"type": "report", "n": n} for n in range(12)], delay=900
    )
    mails = rsmq.queue("mails")
    await mails.send_many([{"to": f"user{n}@shop.example", "n": n} for n in range(40)])
    for n in range(40):
        reason = (f"SMTPError: 4{n % 3}1 try later", f"KeyError: 'user{n}'")[n % 4 == 0]
        for delivery in await mails.receive_many(1):
            await delivery.reject(reason)
    topic = rsmq.topic("news")
    await topic.subscribe("mail")


async def keep_busy(rsmq: RSMQ) -> None:
    rng = random.Random(7)  # noqa: S311

    async def consume(queue: Queue) -> None:
        async for message in queue:
            async with message:
                await asyncio.sleep(rng.uniform(0.05, 0.2))

    async def produce(queue: Queue) -> None:
        while True:
            await queue.send_many([{"n": rng.randrange(1000)} for _ in range(rng.randrange(12))])
            await asyncio.sleep(rng.uniform(0.2, 0.8))

    names = ("orders", "thumbnails")
    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(produce(rsmq.queue(name)))
            for _ in range(2):
                tasks.create_task(consume(rsmq.queue(name)))


async def take(browser: Browser, site: str) -> None:
    context = await browser.new_context(viewport={"width": 1200, "height": 640})
    overview, queue = await context.new_page(), await context.new_page()
    await overview.goto(site)
    await queue.goto(f"{site}/q/orders")
    await asyncio.sleep(_WORK_S)
    await overview.reload()
    await asyncio.sleep(5)
    await overview.screenshot(path=PICTURES / "dashboard-overview.png")
    await queue.screenshot(path=PICTURES / "dashboard-queue.png")
    dead = await context.new_page()
    await dead.goto(f"{site}/q/mails/dead")
    await dead.screenshot(
        path=PICTURES / "dashboard-reasons.png", clip={"x": 0, "y": 0, "width": 1200, "height": 320}
    )
    dark = await browser.new_context(
        viewport={"width": 400, "height": 640}, color_scheme="dark", device_scale_factor=1
    )
    phone = await dark.new_page()
    await phone.goto(f"{site}/q/invoices/messages?where=body.n+%3C+20")
    await asyncio.sleep(2)
    await phone.screenshot(path=PICTURES / "dashboard-phone.png")


if __name__ == "__main__":
    if shutil.which("chromium") is None:
        sys.exit("needs Chromium on the path")
    asyncio.run(main())
