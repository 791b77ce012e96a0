"""RabbitMQ by aio-pika, on a server of its own.

Needs the program ``rabbitmq-server``. The queue is durable and its messages are transient, so they
stay in memory as those in Redis do. Sends wait for the confirmation of the server.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractRobustConnection
from talk import Countdown, Job, Peer, serve

#: Debian's program on the path changes the user; this one is what it starts.
DEBIAN = "/usr/lib/rabbitmq/bin/rabbitmq-server"
#: How long the server may take to start.
START_S = 50
#: How often its epmd is asked to end.
EPMD_TRIES = 30
QUEUE = "jobs"


class Server:
    """A RabbitMQ on the loopback interface that ends with this process."""

    def __init__(self, program: str, folder: Path) -> None:
        port, peers = _free_port(), _free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/"
        self._epmd = {"ERL_EPMD_ADDRESS": "127.0.0.1", "ERL_EPMD_PORT": str(_free_port())}
        self._output = folder / "output"
        (folder / "rabbitmq.conf").write_text("loopback_users = none\n")
        (folder / "enabled_plugins").write_text("[].\n")
        # With a port that is given it needs no epmd. It starts one in any case: one of its own.
        alone = f"-start_epmd false -erl_epmd_port {peers} "
        alone += "-kernel inet_dist_use_interface {127,0,0,1}"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [program],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={
                    **os.environ,
                    **self._epmd,
                    "HOME": str(folder),
                    "RABBITMQ_NODENAME": f"bench{os.getpid()}@localhost",
                    "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                    "RABBITMQ_NODE_PORT": str(port),
                    "RABBITMQ_DIST_PORT": str(peers),
                    "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                    "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                    "RABBITMQ_LOG_BASE": str(folder / "log"),
                    "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
                    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": alone,
                },
            )

    async def connect(self) -> AbstractRobustConnection:
        """Connect as soon as it accepts connections."""
        async with asyncio.timeout(START_S):
            while True:
                if self._process.poll() is not None:
                    text = self._output.read_text(errors="replace").split("\n")
                    said = " ".join(line.strip() for line in text if "rror" in line)
                    raise RuntimeError(f"rabbitmq-server ended: {said[:300]}")
                with suppress(OSError, aio_pika.exceptions.AMQPError):
                    return await aio_pika.connect_robust(self.url)
                await asyncio.sleep(0.2)

    def cpu_s(self) -> float:
        """Return the seconds of processor time of all its processes."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # The name, in brackets, may hold anything.
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid:  # its session
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """End it at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if epmd := shutil.which("epmd"):
            env = {**os.environ, **self._epmd}
            for _ in range(EPMD_TRIES):
                # It refuses as long as it has not seen the end of the node.
                done = subprocess.run([epmd, "-kill"], env=env, capture_output=True, check=False)
                if b"living nodes" not in done.stdout + done.stderr:
                    return
                time.sleep(0.1)


class RabbitMQ(Peer):
    """One channel that sends, and one that consumes."""

    packages = ("aio-pika",)

    def __init__(self, server: Server) -> None:
        self._server = server

    async def open(self, url: str) -> None:
        """Connect to the server of its own."""
        self.connection = await self._server.connect()
        self.channel = await self.connection.channel()
        self.exchange = self.channel.default_exchange
        self.consuming = await self.connection.channel()
        self.queue = await self.consuming.declare_queue(QUEUE, durable=True)
        self.count = Countdown()

    async def reset(self) -> None:
        """Empty the queue."""
        await self.queue.purge()

    async def send(self, body: str) -> None:
        """Publish one message; the server confirms it."""
        await self.exchange.publish(aio_pika.Message(body.encode()), QUEUE)

    async def loop(self, job: Job, times: list[float]) -> None:
        """Iterate over the queue, each message in a block that acknowledges it."""
        await self.consuming.set_qos(prefetch_count=job.batch)
        left = job.messages
        async with self.queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    left -= 1
                if not left:
                    break

    async def work(self, job: Job, times: list[float]) -> None:
        """Consume with a callback, ``job.tasks`` messages at a time."""

        async def handle(message: AbstractIncomingMessage) -> None:
            async with message.process():
                pass
            self.count.done()

        await self.consuming.set_qos(prefetch_count=job.tasks)
        self.count.begin(job.messages)
        tag = await self.queue.consume(handle)
        await self.count.over.wait()
        await self.queue.cancel(tag)

    def server_s(self) -> float:
        """Return the seconds of processor time of RabbitMQ."""
        return self._server.cpu_s()


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _end(*_: object) -> None:
    raise SystemExit("Error: it was ended")


signal.signal(signal.SIGTERM, _end)
with tempfile.TemporaryDirectory(prefix="rsmq-bench-") as place:
    found = DEBIAN if Path(DEBIAN).exists() else shutil.which("rabbitmq-server")
    assert found is not None
    server = Server(found, Path(place))
    try:
        serve(RabbitMQ(server))
    finally:
        server.stop()
