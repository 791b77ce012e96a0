"""Environments of the peers' own: nothing that a peer needs comes near the package's own.

They are kept in ``.bench`` beside the package; remove the folder to make them again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".bench"
#: How long an installation may take.
LIMIT_S = 180


class NotInstalled(Exception):
    """A peer cannot be had here; the text says why."""


def python_with(name: str, packages: Sequence[str]) -> str:
    """Return the interpreter of an environment that has *packages*, made if need be."""
    folder = CACHE / name
    python = folder / "bin" / "python"
    if not _is_there(folder, packages):
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--no-input", *packages)
        _sign(folder, packages)
    return str(python)


def node_with(name: str, packages: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return Node, and the variable by which it finds *packages*, installed if need be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("node and npm are not both on the PATH")
    folder = CACHE / name
    if not _is_there(folder, packages):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text('{"private": true}\n')
        # Without --prefix npm walks up to the nearest folder that looks like a package.
        quiet = ("--no-audit", "--no-fund", "--no-save")
        _run(npm, "install", *quiet, "--prefix", str(folder), *packages)
        _sign(folder, packages)
    return node, {"NODE_PATH": str(folder / "node_modules")}


def _is_there(folder: Path, packages: Sequence[str]) -> bool:
    stamp = folder / "installed"
    return stamp.is_file() and stamp.read_text() == " ".join(packages)


def _sign(folder: Path, packages: Sequence[str]) -> None:
    # Last, so that an interrupted installation is repeated.
    (folder / "installed").write_text(" ".join(packages))


def _run(*command: str) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.CalledProcessError as error:
        causes = [line for line in error.output.splitlines() if "error" in line.lower()]
        said = " / ".join(causes[:2]) or error.output[-200:]
        raise NotInstalled(f"{Path(command[0]).name} {command[1]} failed: {said}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from None
