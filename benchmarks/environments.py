"""Environments of the peers' own: nothing that a peer needs comes near the package's own.

They are kept in ``.bench`` beside the package; remove the folder to make them again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".bench"
#: How long an installation may take, and a compiler for all that a program needs.
LIMIT_S, BUILD_LIMIT_S = 180, 600


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
    node, npm = _tool("node"), _tool("npm")
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


def go_program(source: Path) -> str:
    """Return the program of a Go module, built with what its ``go.sum`` names if need be."""
    go = _tool("go")
    folder, stamp = CACHE / source.name, _digest(source)
    program = folder / "program"
    if not _is_there(folder, [stamp]):
        folder.mkdir(parents=True, exist_ok=True)
        _run(
            go, "build", "-o", str(program), ".",
            cwd=source, more={"GOWORK": "off"}, limit_s=BUILD_LIMIT_S,
        )  # fmt: skip
        _sign(folder, [stamp])
    return str(program)


def rust_program(source: Path, name: str) -> str:
    """Return the program of a Rust package, built for release if need be."""
    cargo, rustc = _tool("cargo"), _tool("rustc")
    folder, stamp = CACHE / source.name, _digest(source)
    if not _is_there(folder, [stamp]):
        shutil.copytree(source, folder, dirs_exist_ok=True)
        told = subprocess.run([rustc, "--version"], capture_output=True, text=True, check=False)
        more = {"RUSTC_VERSION": " ".join(told.stdout.split()[1:2])}
        _run(cargo, "build", "--release", "--quiet", cwd=folder, more=more, limit_s=BUILD_LIMIT_S)
        _sign(folder, [stamp])
    return str(folder / "target" / "release" / name)


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is not on the PATH")
    return found


def _digest(folder: Path) -> str:
    """Return a digest of the sources, so that a changed program is built again."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _is_there(folder: Path, packages: Sequence[str]) -> bool:
    stamp = folder / "installed"
    return stamp.is_file() and stamp.read_text() == " ".join(packages)


def _sign(folder: Path, packages: Sequence[str]) -> None:
    # Last, so that an interrupted installation is repeated.
    (folder / "installed").write_text(" ".join(packages))


def _run(
    *command: str,
    cwd: Path | None = None,
    more: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> None:
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            cwd=cwd,
            env={**os.environ, **(more or {})},
        )
    except subprocess.CalledProcessError as error:
        causes = [line for line in error.output.splitlines() if "error" in line.lower()]
        said = " / ".join(causes[:2]) or error.output[-200:]
        raise NotInstalled(f"{Path(command[0]).name} {command[1]} failed: {said}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(str(error)) from None
