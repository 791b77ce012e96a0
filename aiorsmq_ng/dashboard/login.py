"""Login with a token of the token file, and logout."""

from __future__ import annotations

import logging

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..broker.tokens import Refused
from .access import Door, refuse
from .sessions import COOKIE, SESSION_S

logger = logging.getLogger("aiorsmq_ng.dashboard")


class Given(Struct, forbid_unknown_fields=True):
    """A token."""

    token: str


def log_in(door: Door, request: Request, given: Given) -> Response:
    """Begin a session for the caller with this token."""
    address = request.client.host if request.client else "local"
    if door.sessions.must_wait(address):
        return refuse(429, "too many failed logins; wait a minute")
    if door.tokens is None:
        return refuse(404, "there is nothing to log in to")
    try:
        caller = door.tokens.caller([("authorization", f"Bearer {given.token}")])
    except Refused:
        door.sessions.failed(address)
        logger.warning("a login from %s failed", address)
        return refuse(401, "this token is not known")
    logger.info("%r has logged in from %s", caller.identity, address)
    response = JSONResponse({"identity": caller.identity})
    response.set_cookie(
        COOKIE,
        door.sessions.begin(caller),
        max_age=SESSION_S,
        path=_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


def log_out(door: Door, request: Request) -> Response:
    """End the session."""
    door.sessions.end(request.cookies.get(COOKIE, ""))
    response = JSONResponse({})
    response.delete_cookie(COOKIE, path=_path(request), httponly=True, samesite="strict")
    return response


def _path(request: Request) -> str:
    # Behind a proxy that removes a prefix, the prefix is not known here.
    return str(request.scope.get("root_path", "")) or "/"
