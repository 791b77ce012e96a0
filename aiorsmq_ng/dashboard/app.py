"""The dashboard as an ASGI application."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from aiorsmq_ng import RSMQ, InvalidValue, RSMQError

from ..broker.tokens import ADMIN, PRODUCER, Refused, Tokens
from . import formatting, openapi
from .access import Authenticate, Door, Guard, refuse
from .audit import AuditLog
from .error_to_status import NotThere, error_status
from .links import own_path, segment, to_root
from .live_sampler import LiveSampler
from .login import Given, log_in, log_out
from .openapi import API
from .redaction import Redact
from .request_context import Board, Visit
from .routes import ACTS, LOOKS, Act, Look
from .streaming_responses import LINES, Stream, line

if TYPE_CHECKING:
    from ..queue_metrics import QueueMetrics

logger = logging.getLogger("aiorsmq_ng.dashboard")

T = TypeVar("T")

_FOLDER = Path(__file__).parent
#: Seconds that a page waits for the server.
_PAGE_S = 8.0
_KNOWN = (RSMQError, NotThere, Refused, TimeoutError)


def dashboard(
    rsmq: RSMQ,
    *,
    tokens: Tokens | None = None,
    auth: Authenticate | None = None,
    read_only: bool = False,
    allowed_hosts: Sequence[str] = (),
    redact: Redact | None = None,
    environment: str = "",
) -> Starlette:
    """Return the dashboard of a client's queues, to be mounted or served.

    Without *tokens* and *auth* it serves requests of its own machine only, and these may do
    everything. It uses the client, which has to be open, and costs the server nothing while no page
    is open.

    Args:
        rsmq: the client; it is not closed.
        tokens: tokens of the broker's token file (``Tokens.read``), for logins and as bearer
            tokens.
        auth: a function of the request that returns a ``Caller``, or ``None`` to refuse; may be a
            coroutine function. For applications that know their users.
        read_only: leave out all routes that write.
        allowed_hosts: host names by which it may be reached, with port or without; by default any
            with a login, and without one those of this machine.
        redact: a function of queue name and body that returns what may be shown of the body, and
            ``None`` to hide it.
        environment: a word that every page shows, such as ``production``.
    """
    door = Door(tokens, auth, allowed_hosts)
    sampler = LiveSampler(rsmq)
    board = Board(rsmq, sampler, AuditLog(), door, redact, read_only, environment)
    return _Application(board).build()


def close(app: Starlette) -> None:
    """End the streams of a dashboard, so that its server can stop."""
    app.state.board.sampler.close()


class _Application:
    """Answers requests: runs handlers, and writes what they return as a page or as JSON."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._queue_metrics: QueueMetrics | None = None
        static = _FOLDER / "static"
        digest = hashlib.sha256()
        for file in sorted(path for path in static.rglob("*") if path.is_file()):
            digest.update(file.read_bytes())
        #: Part of the address of static files, which may be kept for ever.
        self._version = digest.hexdigest()[:12]
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(formatting.FILTERS, segment=segment)
        self._document = openapi.document(read_only=board.read_only)

    def build(self) -> Starlette:
        routes: list[BaseRoute] = [
            Mount(f"/static/{self._version}", _Static(directory=_FOLDER / "static")),
            Route(f"{API}/openapi.json", self._openapi),
            Route("/metrics", self._metrics),
        ]
        for look in LOOKS:
            routes.append(Route(API + look.api, self._answering(look)))
            if look.page is not None:
                routes.append(Route(look.page, self._showing(look)))
        if not self._board.read_only:
            routes += [Route(API + act.api, self._doing(act), methods=[act.method]) for act in ACTS]
        if self._board.door.tokens is not None:
            routes += [
                Route("/login", self._login_page, methods=["GET"]),
                Route("/login", self._log_in, methods=["POST"]),
                Route("/logout", self._log_out, methods=["POST"]),
            ]
        app = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, door=self._board.door, error_page=self._error_page)],
            exception_handlers={HTTPException: self._missing},
        )
        # With a slash at the end, relative links would lead elsewhere.
        app.router.redirect_slashes = False
        app.state.board = self._board
        return app

    def _showing(self, look: Look) -> Callable[[Request], Awaitable[Response]]:
        async def show(request: Request) -> Response:
            visit = Visit(self._board, request)
            try:
                found = await _within(look.handler(visit))
            except _KNOWN as error:
                return self._failed(request, error)
            return self._page(request, look.template, view=found)

        return show

    def _answering(self, look: Look) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                found = await _within(look.handler(Visit(self._board, request)))
            except _KNOWN as error:
                return refuse(error_status(error), _sentence(error))
            return found if isinstance(found, Response) else _json(found)

        return answer

    def _doing(self, act: Act) -> Callable[[Request], Awaitable[Response]]:
        async def do(request: Request) -> Response:
            try:
                found = await act.handler(Visit(self._board, request))
                if not isinstance(found, AsyncGenerator):
                    return _json(found)
                if LINES in request.headers.get("accept", ""):
                    return Stream(_lines(found), LINES)
                last = None
                async with aclosing(found):
                    async for last in found:  # noqa: B007 - the last one is the result
                        pass
                return _json(last)
            except _KNOWN as error:
                return refuse(error_status(error), _sentence(error))

        return do

    async def _openapi(self, request: Request) -> Response:
        return JSONResponse(self._document)

    async def _metrics(self, request: Request) -> Response:
        """Answer a scraper with the metrics of the queues that it may see."""
        if self._queue_metrics is None:
            try:
                from ..queue_metrics import QueueMetrics  # noqa: PLC0415 - it needs an extra
            except InvalidValue as error:
                return refuse(501, str(error))
            self._queue_metrics = QueueMetrics(self._board.rsmq)
        caller = request.state.caller
        accept = request.headers.get("accept", "")
        body, content_type = await self._queue_metrics.page(accept, caller.sees_queue)
        return Response(body, headers={"content-type": content_type})

    async def _login_page(self, request: Request) -> Response:
        return self._page(request, "login.html")

    async def _log_in(self, request: Request) -> Response:
        try:
            given = msgspec.json.decode(await request.body(), type=Given)
        except msgspec.DecodeError:
            return refuse(400, "a login needs a token")
        return log_in(self._board.door, request, given)

    async def _log_out(self, request: Request) -> Response:
        return log_out(self._board.door, request)

    async def _missing(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)  # noqa: S101 - by its registration
        if own_path(request.scope).startswith(API) or request.method != "GET":
            return refuse(error.status_code, str(error.detail))
        if not hasattr(request.state, "caller"):
            return refuse(error.status_code, str(error.detail))
        return self._failed(request, NotThere("there is no such page"))

    def _failed(self, request: Request, error: Exception) -> Response:
        return self._error_page(request, error_status(error), _sentence(error))

    def _error_page(self, request: Request, status: int, reason: str) -> Response:
        page = self._page(request, "error.html", status=status, sentence=reason)
        page.status_code = status
        if status == 503:
            page.headers["refresh"] = "5"
        return page

    def _page(self, request: Request, template: str, **values: Any) -> HTMLResponse:
        caller = getattr(request.state, "caller", None)
        root = to_root(request)
        may = {
            "write": not self._board.read_only and caller is not None,
            "send": not self._board.read_only and caller is not None and caller.has(PRODUCER),
            "look": caller is not None and caller.has(ADMIN),
        }
        may["act"] = may["write"] and may["look"]
        text = self._templates.get_template(template).render(
            root=root,
            static=f"{root}static/{self._version}/",
            path=own_path(request.scope),
            may=may,
            caller=caller,
            login=self._board.door.tokens is not None,
            read_only=self._board.read_only,
            environment=self._board.environment,
            ns=self._board.rsmq.ns,
            **values,
        )
        return HTMLResponse(text)


class _Static(StaticFiles):
    """Files that may be kept for ever: their address changes with their content."""

    def file_response(self, *args: Any, **how: Any) -> Response:
        response = super().file_response(*args, **how)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


async def _within(work: Awaitable[T]) -> T:
    async with asyncio.timeout(_PAGE_S):
        return await work


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")


async def _lines(steps: AsyncGenerator[Any, None]) -> AsyncGenerator[bytes, None]:
    """Yield steps as lines; an error is the last line."""
    async with aclosing(steps):
        try:
            async for step in steps:
                yield line(step)
        except _KNOWN as error:
            yield line({"error": _sentence(error)})


def _sentence(error: Exception) -> str:
    return str(error) or "the server does not answer"
