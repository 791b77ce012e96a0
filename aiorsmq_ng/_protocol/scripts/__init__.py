"""The Lua scripts, one file per operation, and the loader that turns a file into a Script.

The folders are areas: ``queue``, ``topic``, ``spark``, ``rmq``, ``doctor``, ``testing``. A script
is loaded by its name alone, so names are unique across folders. A file whose name begins with an
underscore is a part: it defines functions and constants, and nothing else. Parts that several areas
use are in ``shared``.

``-- @include name`` on a line of its own stands for ``_name.lua``. The loader puts the text of a
part in place of its first include, removes further includes of it, and removes all comments. A part
may include parts; a part that includes itself, also through another part, is an error. The text of
a script is a constant: it never depends on data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r"^-- @include (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script with the digest under which the server caches it."""

    name: str
    source: bytes
    sha: bytes


@cache
def load(name: str) -> Script:
    """Return the script *name*, with its parts included and without comments."""
    source = _COMMENT.sub("", _expand(name, set(), ())).encode()
    # The server caches scripts by this digest; it protects nothing.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


def names() -> list[str]:
    """Return the names of all scripts that can be loaded."""
    return sorted(name for name in _files() if not name.startswith("_"))


def _expand(name: str, included: set[str], path: tuple[str, ...]) -> str:
    """Return the text of *name* with the parts that are not *included* yet; *path* leads to it."""
    if name in path:
        raise RuntimeError(f"circular include of Lua parts: {' -> '.join((*path, name))}")

    def part(match: re.Match[str]) -> str:
        wanted = f"_{match[1]}"
        if wanted in included:
            return ""
        text = _expand(wanted, included, (*path, name))
        included.add(wanted)
        return text

    return _INCLUDE.sub(part, _read(name))


def _read(name: str) -> str:
    return _files()[name].read_text(encoding="utf-8")


@cache
def _files() -> dict[str, Traversable]:
    """Return the file of every script and part by its name."""
    found: dict[str, Traversable] = {}
    for folder in files(__name__).iterdir():
        if not folder.is_dir():
            continue
        for file in folder.iterdir():
            name, dot, ending = file.name.partition(".")
            if dot and ending == "lua" and found.setdefault(name, file) is not file:
                raise RuntimeError(f"two Lua files are called {file.name}")
    return found
