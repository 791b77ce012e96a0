"""The Lua scripts, one file per operation, and the loader that turns a file into a Script.

``@include name`` on a line of its own is replaced by ``_name.lua``, and comments are left out.
A script is a constant: its text never depends on data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files

_INCLUDE = re.compile(r"^ *-- @include (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script with the digest under which the server caches it."""

    name: str
    source: bytes
    sha: bytes


@cache
def load(name: str) -> Script:
    """Return the script *name*, its includes resolved and its comments left at home."""
    source = _COMMENT.sub("", _read(name)).encode()
    # The digest names the script for the server; nothing secret hangs on it.
    return Script(name, source, sha1(source, usedforsecurity=False).hexdigest().encode())


def names() -> list[str]:
    """Return the names of all scripts that can be loaded."""
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted(n[:-4] for n in found if n.endswith(".lua") and not n.startswith("_"))


def _read(name: str) -> str:
    text = files(__name__).joinpath(f"{name}.lua").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda match: _read(f"_{match[1]}"), text)
