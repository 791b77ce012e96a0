"""Installs other packages into folders of their own, once, by their own package managers."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

#: Kept between runs and out of git; remove it to install again.
CACHE = Path(__file__).parents[2] / ".interop"


class NotInstalled(Exception):
    """A foreign client cannot be had here; the text says why."""


@contextmanager
def installation(folder: Path, what: str, witness: Path) -> Iterator[bool]:
    """Yield whether *what* has to be installed into *folder*; one run at a time may do it."""
    folder.parent.mkdir(exist_ok=True)
    stamp = folder / "installed"
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True)
        done = stamp.is_file() and stamp.read_text(encoding="utf-8") == what and witness.exists()
        yield not done
        # Written last, so that an installation that was broken off is repeated.
        if not done:
            stamp.write_text(what, encoding="utf-8")


def run(
    *command: str | Path,
    limit_s: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a package manager; raise ``NotInstalled`` with its reason if it fails."""
    try:
        subprocess.run(  # noqa: S603 - the package managers of this machine
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=limit_s,
            cwd=cwd,
            env=env,
        )
    except subprocess.CalledProcessError as error:
        # The first lines name the cause, the others what could be done about it.
        causes = [line for line in error.output.splitlines() if "error" in line.lower()]
        said = " / ".join(causes[:2]) or error.output[-200:]
        raise NotInstalled(
            f"{Path(command[0]).name} ended with {error.returncode}: {said}"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from None
