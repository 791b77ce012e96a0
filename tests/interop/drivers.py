"""Installs the foreign clients and speaks with the processes that own them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.conformance.installation import CACHE, NotInstalled, installation, run

HERE = Path(__file__).parent
NODE_RSMQ, PYRSMQ = "rsmq@0.12.4", "PyRSMQ==0.6.1"
#: Less than the time limit of a test, so that a mute registry leads to a reason, not to a crash.
INSTALL_LIMIT_S = 50


class Refused(Exception):
    """What a client answers instead of a result, under its own name for it."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Driver:
    """A process that owns a foreign client and answers one line of JSON per line."""

    def __init__(self, command: Sequence[str | Path], url: str, extra: Mapping[str, str]) -> None:
        self._command = command
        self._turn = threading.Lock()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env={**os.environ, **extra, "RSMQ_INTEROP_URL": url},
        )

    def ask(self, request: Mapping[str, Any]) -> Any:
        """Return the result of one call, or raise ``Refused``."""
        talk_in, talk_out = self._process.stdin, self._process.stdout
        assert talk_in
        assert talk_out
        with self._turn:
            talk_in.write(json.dumps(request) + "\n")
            talk_in.flush()
            line = talk_out.readline()
        if not line:
            raise RuntimeError(f"{self._command} ended with {self._process.wait(10)}")
        answer = json.loads(line)
        if "err" in answer:
            raise Refused(answer["err"], answer["msg"])
        return answer["ok"]

    def close(self) -> None:
        """End the process: it leaves when its input ends."""
        try:
            with self._process:
                self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise


@contextmanager
def node_driver(url: str) -> Iterator[Driver]:
    """Run the npm package, installed if need be."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotInstalled("node and npm are not both on the PATH")
    folder = CACHE / "node"
    with installation(folder, NODE_RSMQ, folder / "node_modules" / "rsmq") as needed:
        if needed:
            (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            # Without --prefix npm walks up to the nearest folder that looks like a package.
            install = ("install", "--no-audit", "--no-fund", "--no-save", "--prefix", folder)
            run(npm, *install, NODE_RSMQ, limit_s=INSTALL_LIMIT_S)
    extra = {"NODE_PATH": str(folder / "node_modules")}
    yield from _running([node, HERE / "node_driver.js"], url, extra)


@contextmanager
def pyrsmq_driver(url: str) -> Iterator[Driver]:
    """Run PyRSMQ; its own environment, because it brings a top-level package ``tests`` along."""
    folder = CACHE / "pyrsmq"
    python = folder / "bin" / "python"
    with installation(folder, PYRSMQ, python) as needed:
        if needed:
            run(sys.executable, "-m", "venv", "--clear", folder, limit_s=INSTALL_LIMIT_S)
            install = (python, "-m", "pip", "install", "--quiet", "--no-input")
            run(*install, PYRSMQ, limit_s=INSTALL_LIMIT_S)
    yield from _running([python, "-I", HERE / "pyrsmq_driver.py"], url, {})


def _running(command: Sequence[str | Path], url: str, extra: Mapping[str, str]) -> Iterator[Driver]:
    driver = Driver(command, url, extra)
    try:
        yield driver
    finally:
        driver.close()
