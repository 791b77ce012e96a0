"""A real browser for tests of the dashboard, and servers for it to visit.

Playwright drives the Chromium of the system: ``RSMQ_CHROMIUM``, else one that is on the path. Every
page of a test is watched: an error of a script, a message on the console or a violation of the
content security policy fails the test.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from importlib import resources

import uvicorn
from starlette.applications import Starlette

#: Programs that Playwright can drive.
_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the path of the browser; None if there is none."""
    given = os.environ.get("RSMQ_CHROMIUM")
    return given or next(filter(None, map(shutil.which, _PROGRAMS)), None)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self):
        yield


@asynccontextmanager
async def served(app) -> AsyncIterator[str]:
    """Serve an application on a port of this machine; yield its address without a slash."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            app, log_config=None, ws="none", lifespan="off", timeout_graceful_shutdown=1
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        for board in _boards(app):
            board.sampler.close()
        server.should_exit = True
        await serving


def _boards(app):
    """Yield what the dashboards in an application share."""
    app = getattr(app, "app", app)
    if isinstance(app, Starlette):
        if hasattr(app.state, "board"):
            yield app.state.board
        for route in app.routes:
            if hasattr(route, "app"):
                yield from _boards(route.app)


class StrippingProxy:
    """Removes a prefix from the path and hands requests on, as a proxy that tells nothing of it."""

    def __init__(self, app, prefix: str) -> None:
        self.app = app
        self._prefix = prefix

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(self._prefix)
            scope = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        await self.app(scope, receive, send)


def axe_source() -> str:
    """Return the program that examines pages for what keeps people out."""
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text()
