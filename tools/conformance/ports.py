"""The known clients of RSMQ at pinned versions, each in an environment of its own."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .installation import CACHE, NotInstalled, installation, run

ADAPTERS = Path(__file__).parents[2] / "conformance" / "adapters"
NODE_RSMQ, NODE_WORKER = "rsmq@0.12.4", "rsmq-worker@0.5.2"
PYRSMQ = ("PyRSMQ==0.6.1",)
#: aioredis 2 imports distutils, which setuptools brings since Python 3.12.
AIORSMQ = ("aiorsmq==0.1.2", "aioredis==2.0.1", "setuptools<81")
GO_RSMQ = "github.com/semihbkgr/go-rsmq@v1.3.1"
GO_REDIS = "github.com/go-redis/redis@v6.15.9+incompatible"
#: A mute registry leads to a reason, not to a run without end; compilers need their time.
DOWNLOAD_LIMIT_S, BUILD_LIMIT_S = 240.0, 900.0


def ours() -> str:
    """Return the command of the driver of this library."""
    return shlex.join([sys.executable, str(ADAPTERS / "aiorsmq_ng_driver.py")])


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotInstalled(f"{name} is not on the PATH")
    return found


def _node(adapter: str) -> str:
    node, npm = _program("node"), _program("npm")
    folder = CACHE / "conformance-node"
    with installation(folder, f"{NODE_RSMQ} {NODE_WORKER}", folder / "node_modules") as needed:
        if needed:
            (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            # Without --prefix npm walks up to the nearest folder that looks like a package.
            quiet = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock")
            wanted = (NODE_RSMQ, NODE_WORKER)
            run(npm, "install", *quiet, "--prefix", folder, *wanted, limit_s=DOWNLOAD_LIMIT_S)
    path = f"NODE_PATH={folder / 'node_modules'}"
    return shlex.join(["env", path, node, str(ADAPTERS / adapter)])


def node_rsmq() -> str:
    """Install npm rsmq and return the command of its driver."""
    return _node("node_rsmq.js")


def node_rsmq_worker() -> str:
    """Install rsmq-worker, on top of npm rsmq, and return the command of its driver."""
    return _node("node_rsmq_worker.js")


def _python(name: str, wanted: tuple[str, ...], adapter: str) -> str:
    folder = CACHE / f"conformance-{name}"
    python = folder / "bin" / "python"
    with installation(folder, " ".join(wanted), python) as needed:
        if needed:
            run(sys.executable, "-m", "venv", "--clear", folder, limit_s=DOWNLOAD_LIMIT_S)
            install = (python, "-m", "pip", "install", "--quiet", "--no-input")
            run(*install, *wanted, limit_s=DOWNLOAD_LIMIT_S)
    return shlex.join([str(python), "-I", str(ADAPTERS / adapter)])


def pyrsmq() -> str:
    """Install PyRSMQ and return the command of its driver."""
    return _python("pyrsmq", PYRSMQ, "pyrsmq_driver.py")


def aiorsmq() -> str:
    """Install aiorsmq on aioredis and return the command of its driver."""
    return _python("aiorsmq", AIORSMQ, "aiorsmq_driver.py")


def rsmq_async() -> str:
    """Build the driver of the crate rsmq_async, whose version its Cargo.toml has."""
    cargo, source = _program("cargo"), ADAPTERS / "rust"
    folder = CACHE / "conformance-rust"
    built = folder / "target" / "debug" / "rsmq-async-driver"
    with installation(folder, _digest(source), built) as needed:
        if needed:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            run(cargo, "fetch", "--quiet", limit_s=DOWNLOAD_LIMIT_S, cwd=folder)
            run(cargo, "build", "--quiet", limit_s=BUILD_LIMIT_S, cwd=folder)
    return shlex.quote(str(built))


def go_rsmq() -> str:
    """Build the driver of the Go module go-rsmq."""
    go, source = _program("go"), ADAPTERS / "go"
    folder = CACHE / "conformance-go"
    built = folder / "driver"
    with installation(folder, f"{GO_RSMQ} {GO_REDIS} {_digest(source)}", built) as needed:
        if needed:
            shutil.copytree(source, folder, dirs_exist_ok=True)
            env = {**os.environ, "GOWORK": "off"}
            (folder / "go.mod").write_text("module driver\n\ngo 1.20\n", encoding="utf-8")
            wanted = ("get", GO_RSMQ, GO_REDIS)
            run(go, *wanted, limit_s=DOWNLOAD_LIMIT_S, cwd=folder, env=env)
            run(go, "build", "-o", built, ".", limit_s=BUILD_LIMIT_S, cwd=folder, env=env)
    return shlex.quote(str(built))


def _digest(folder: Path) -> str:
    """Return a digest of the sources, so that a changed driver is built again."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


#: Name of a client -> what installs it and returns the command of its driver.
PORTS: dict[str, Callable[[], str]] = {
    "npm rsmq": node_rsmq,
    "rsmq-worker": node_rsmq_worker,
    "PyRSMQ": pyrsmq,
    "aiorsmq": aiorsmq,
    "rsmq_async": rsmq_async,
    "go-rsmq": go_rsmq,
}
