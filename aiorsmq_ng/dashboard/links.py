"""Relative links: pages work under any prefix, also one that a proxy removes."""

from __future__ import annotations

from urllib.parse import quote, unquote

from starlette.requests import HTTPConnection
from starlette.types import Scope


def segment(name: str) -> str:
    """Return *name* as one segment of a path.

    Servers decode a path once, so what is not plain is encoded twice: a slash stays in its segment.
    Segments of dots alone, which browsers resolve, are encoded as well.
    """
    plain = quote(name, safe="") if name.strip(".") else name.replace(".", "%2E")
    return quote(plain, safe="")


def name_of(segment: str) -> str:
    """Return the name that a segment, decoded once, was made of."""
    return unquote(segment)


def own_path(scope: Scope) -> str:
    """Return the path below the dashboard's own root."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(root) else path


def to_root(connection: HTTPConnection) -> str:
    """Return the relative link from a page to the dashboard's root: ``./``, ``../`` and so on."""
    return "../" * (own_path(connection.scope).count("/") - 1) or "./"
