"""A dashboard of the test's own client, and a client of HTTP that talks to it in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from aiorsmq_ng import RSMQ
from aiorsmq_ng.dashboard import dashboard

#: What the pages send with every write.
WRITE = {"x-rsmq-dashboard": "1", "sec-fetch-site": "same-origin"}

Visitor = Callable[..., httpx.AsyncClient]


@pytest.fixture
async def visitor(rsmq: RSMQ) -> AsyncIterator[Visitor]:
    """Return clients of dashboards with the given options."""
    opened: list[httpx.AsyncClient] = []

    def visit(app=None, *, address="127.0.0.1", base="http://localhost", **options):
        app = app or dashboard(rsmq, **options)
        transport = httpx.ASGITransport(app, client=(address, 4711))
        opened.append(httpx.AsyncClient(transport=transport, base_url=base))
        return opened[-1]

    yield visit
    for client in opened:
        await client.aclose()


@pytest.fixture
def web(visitor: Visitor) -> httpx.AsyncClient:
    """A client of an open dashboard."""
    return visitor()


@pytest.fixture
def act(web: httpx.AsyncClient):
    """Post an action of a queue; return the reply."""

    async def act(action: str, value: object, *, queue: str = "jobs", method: str = "POST"):
        path = f"/api/v1/queues/{queue}" + (f"/{action}" if action else "")
        return await web.request(method, path, json=value, headers=WRITE)

    return act
