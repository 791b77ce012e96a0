"""Which server the tests talk to."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiorsmq_ng.embedded import EmbeddedServer

_ENGINE_SOCKET = Path("/var/run/docker.sock")
_IMAGE = "redis:7"


@contextmanager
def running_server() -> Iterator[tuple[str, str]]:
    """Yield (url, what it is): the given one, a container, or else the embedded server.

    Never gives up for lack of Docker: an engine that answers is one question, an image that can
    be had is another, and the embedded server is always there.
    """
    if url := os.environ.get("RSMQ_TEST_URL"):
        yield url, "RSMQ_TEST_URL"
        return
    container = _start_container() if _engine_answers() else None
    if container is not None:
        try:
            url = f"redis://{container.get_container_host_ip()}:{container.get_exposed_port(6379)}"
            yield url, f"container {_IMAGE}"
        finally:
            container.stop()
        return
    with EmbeddedServer.ephemeral() as server:
        yield server.url, f"embedded {server.binary.engine}"


def _engine_answers() -> bool:
    """Ask the engine itself; the client may be installed where no engine runs."""
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.settimeout(2)
            engine.connect(str(_ENGINE_SOCKET))
            engine.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return b"200" in engine.recv(64)
    except OSError:
        return False


def _start_container():
    from testcontainers.community.redis import RedisContainer

    container = RedisContainer(_IMAGE)
    try:
        return container.start()
    except Exception as error:
        # No image without a network, or an engine that may not start anything.
        print(f"engine answers, but {_IMAGE} cannot be started: {error}")  # noqa: T201
        return None
