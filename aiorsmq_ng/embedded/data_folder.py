"""Data folders of embedded servers: default location, checks, and the socket path."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import Unavailable
from .binary import read_record

_log = logging.getLogger(__name__)

# sun_path has 108 bytes on Linux and 104 on macOS, both with a closing NUL.
_SOCKET_PATH_BYTES = 103

#: Names of the files in a data folder, with their file types.
_FILES = {
    **dict.fromkeys(("gate.lock", "users.lock", "server.lock", "watch.lock"), stat.S_IFREG),
    **dict.fromkeys(("server.json", "server.json.new", "server.pid", "keep"), stat.S_IFREG),
    **dict.fromkeys(("server.log", "server.log.old", "appendonly.aof"), stat.S_IFREG),
    "server.sock": stat.S_IFSOCK,
    "appendonlydir": stat.S_IFDIR,
}


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Raise ``Unavailable`` with a sentence about *folder* instead of an ``OSError``."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"data folder {str(folder)!r} cannot be used: {error}; choose a folder on a local "
            f"disk that you may write to, for example with AIORSMQ_DATA_DIR"
        ) from error


def default_folder() -> Path:
    """Return the data folder that is used if the caller names none.

    It is ``AIORSMQ_DATA_DIR``, or ``aiorsmq-ng/default`` in ``XDG_STATE_HOME`` (``~/.local/state``
    if unset), or, with a logged warning, a temporary folder where neither can be written.
    """
    if named := os.environ.get("AIORSMQ_DATA_DIR"):
        return Path(named).expanduser()
    home = os.environ.get("HOME", "")
    state = Path(os.environ.get("XDG_STATE_HOME") or Path(home, ".local", "state"))
    if state.is_absolute():
        folder = state / "aiorsmq-ng" / "default"
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        if os.access(existing, os.W_OK | os.X_OK):
            return folder
    folder = private_folder(tempfile.gettempdir()) / "default"
    _log.warning("keeping data in %s until a reboot; set AIORSMQ_DATA_DIR to keep it", folder)
    return folder


def private_folder(parent: str) -> Path:
    """Create a private folder of this user in *parent*, a directory that every user can write."""
    folder = Path(parent, f"aiorsmq-{os.getuid()}")
    with explained(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError("it is not a private folder of this user")
    return folder


def resolve(folder: Path | None) -> Path:
    """Return the absolute path of *folder*, or of the default one."""
    return (default_folder() if folder is None else Path(folder).expanduser()).resolve()


def check_owner(folder: Path) -> None:
    """Refuse a folder of another user, who could change its files; this applies to root, too."""
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise Unavailable(
            f"data folder {str(folder)!r} belongs to user {owner}, and this process is user "
            f"{os.geteuid()}; choose a folder of your own"
        )
    _check_files(folder)


def _check_files(folder: Path) -> None:
    """Refuse links and other file types in place of our files: they would be written to."""
    for name, kind in _FILES.items():
        try:
            found = stat.S_IFMT((folder / name).lstat().st_mode)
        except FileNotFoundError:
            continue
        if found != kind:
            raise Unavailable(
                f"data folder {str(folder)!r} has a link, or a file of another kind, called "
                f"{name!r}; remove it, or choose another folder"
            )


def prepare(folder: Path) -> None:
    """Make *folder* private and ready, or refuse one that holds something else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_owner(folder)
    foreign = {entry.name for entry in folder.iterdir()} - {"gate.lock", "lost+found"}
    # users.lock is created before every other file in our folders, so it is checked last.
    if foreign and read_record(folder) is None and not (folder / "users.lock").exists():
        raise Unavailable(
            f"folder {str(folder)!r} holds other files ({min(foreign)!r}) and no data of "
            f"aiorsmq-ng; choose a new or empty folder"
        )
    folder.chmod(0o700)
    _check_files(folder)  # again: until the chmod other users may have had access


def socket_path(folder: Path) -> Path:
    """Return the address of the server of *folder*, short enough for a unix socket."""
    path = folder / "server.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
        return path
    # Not in XDG_RUNTIME_DIR or TMPDIR: processes with different environments must agree.
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
    return private_folder("/tmp") / f"{digest}.sock"  # noqa: S108 - checked to be private
