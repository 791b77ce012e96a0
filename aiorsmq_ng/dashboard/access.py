"""The door of the dashboard: hosts, callers, requests of other sites, and security headers."""

from __future__ import annotations

import inspect
import ipaddress
import logging
from asyncio import sleep
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..broker.tokens import ANONYMOUS, Caller, Refused, Tokens
from .links import own_path, to_root
from .sessions import COOKIE, Failures, Sessions

logger = logging.getLogger("aiorsmq_ng.dashboard")

#: Returns who sends a request, or ``None``; may be a coroutine function.
Authenticate = Callable[[Request], Awaitable[Caller | None] | Caller | None]
#: Makes the page that says why a request failed, by its status and the reason.
ErrorPage = Callable[[Request, int, str], Response]

#: Header of every write by the pages: other sites cannot add it without asking first.
WRITE_HEADER = "x-rsmq-dashboard"
#: Seconds by which the reply to a wrong bearer token is late, if there were several.
WRONG_TOKEN_S = 1.0
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_READS = ("GET", "HEAD")
#: Paths that need no login: the login page and what it looks like.
_OPEN = ("/login", "/static/")
#: Paths of programs, which are refused with a sentence and not led to the login.
_NO_PAGES = ("/api/", "/metrics")
_OWN_MACHINE = "without a login the dashboard serves its own machine only: give it tokens or auth"

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


class Door:
    """Decides who a request comes from.

    With *tokens*: a bearer token, or the session of a login. With *authenticate*: what that
    returns. With neither: every user of this machine may do everything, and others nothing.
    """

    def __init__(
        self, tokens: Tokens | None, authenticate: Authenticate | None, hosts: Sequence[str]
    ) -> None:
        self.tokens = tokens
        self.sessions = Sessions()
        self._wrong_tokens = Failures()
        self._authenticate = authenticate
        self.open = tokens is None and authenticate is None
        #: Whether a token opens it.
        self.logs_in = tokens is not None and authenticate is None
        self._hosts = frozenset((*hosts, *LOOPBACK)) if self.open or hosts else None

    def allows_host(self, host: str) -> bool:
        """Return True if a request may name *host*; foreign names could lead here by their DNS."""
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return self._hosts is None or host in self._hosts or name in self._hosts

    async def caller(self, request: Request) -> Caller | None:
        """Return who sends *request*; ``None`` if that is not known."""
        if self._authenticate is not None:
            found = self._authenticate(request)
            return await found if inspect.isawaitable(found) else found
        if self.tokens is None:
            return ANONYMOUS if _is_local(request) else None
        given = request.headers.getlist("authorization")
        if given:
            try:
                return self.tokens.caller([("authorization", value) for value in given])
            except Refused:
                await self._wrong_token(request)
                return None
        return self.sessions.caller(request.cookies.get(COOKIE, ""))

    async def _wrong_token(self, request: Request) -> None:
        """Count a wrong bearer token; after some of an address, each reply to it is late.

        Right tokens from there are not held up: many callers may come through one proxy.
        """
        address = request.client.host if request.client else "local"
        self._wrong_tokens.failed(address)
        if self._wrong_tokens.must_wait(address):
            await sleep(WRONG_TOKEN_S)
        else:
            logger.warning("a request from %s had a token that is not known", address)


class Guard:
    """Middleware: admits requests by the door, and puts security headers on every reply."""

    def __init__(self, app: ASGIApp, door: Door, error_page: ErrorPage) -> None:
        self._app = app
        self._door = door
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or hand it on with its caller."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        refusal = await self._refusal(request)
        await (refusal or self._app)(scope, receive, guarded)

    async def _refusal(self, request: Request) -> Response | None:
        if not self._door.allows_host(request.headers.get("host", "")):
            return refuse(400, "this host name is not allowed here")
        if request.method not in _READS and (wrong := foreign_write(request.headers)):
            return refuse(*wrong)
        path = own_path(request.scope)
        if path.startswith(_OPEN):
            return None
        caller = await self._door.caller(request)
        if caller is None:
            return self._unknown(request, path)
        request.state.caller = caller
        return None

    def _unknown(self, request: Request, path: str) -> Response:
        is_page = request.method == "GET" and not path.startswith(_NO_PAGES)
        if self._door.logs_in:
            if is_page:
                return RedirectResponse(to_root(request) + "login", status_code=303)
            return refuse(401, "log in, or send 'authorization: Bearer <token>'")
        status, reason = 401, "not allowed by the application"
        if self._door.open:
            status, reason = 403, _OWN_MACHINE
        return self._error_page(request, status, reason) if is_page else refuse(status, reason)


def foreign_write(headers: Headers) -> tuple[int, str] | None:
    """Return status and reason to refuse a write that may come from another site.

    A page of another site can make a browser send a request, with cookies. It cannot choose the
    content type, add a header or a bearer token, or hide where the request comes from.
    """
    if not headers.get("content-type", "").startswith("application/json"):
        return 415, "a write needs 'content-type: application/json'"
    if headers.get("authorization", "").lower().startswith("bearer "):
        return None
    if WRITE_HEADER not in headers:
        return 403, f"a write needs the header {WRITE_HEADER}, or a bearer token"
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return None if site == "same-origin" else (403, "writes of other sites are refused")
    # Browsers leave the header out for plain http to other hosts than their own machine.
    if origin is None or urlsplit(origin).netloc != headers.get("host"):
        return 403, "a write needs an origin that is this host"
    return None


def refuse(status: int, reason: str) -> Response:
    """Return the reply to a request that is not admitted."""
    return JSONResponse({"error": reason}, status)


def _is_local(connection: HTTPConnection) -> bool:
    """Return True if a request comes from this machine, and not through a proxy on it."""
    if connection.client is None:
        return True  # a Unix socket
    forwarded = ("forwarded", "x-forwarded-for", "x-real-ip")
    if any(name in connection.headers for name in forwarded):
        return False
    try:
        return ipaddress.ip_address(connection.client.host).is_loopback
    except ValueError:
        return False
