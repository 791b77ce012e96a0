"""Small clusters and sentinels on loopback, from the same server program as everything else."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from redis.asyncio import Redis

from aiorsmq_ng.embedded import find_binary


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, low enough for a cluster's second port."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@contextmanager
def server(folder: Path, port: int, *words: str):
    """Run one server until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [find_binary().path, *words, "--port", str(port), "--bind", "127.0.0.1"]
    command += ["--dir", str(folder), "--save", "", "--appendonly", "no"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def answers(port: int) -> Redis:
    """Return a client once the server on *port* answers."""
    client = Redis(host="127.0.0.1", port=port)
    for _ in range(200):
        try:
            await client.ping()
            return client
        except Exception:
            await asyncio.sleep(0.05)
    raise AssertionError(f"server on port {port} does not answer")


@asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[list[int]]:
    """Run a cluster of three masters and yield their ports."""
    ports = free_ports(6)
    nodes, buses = ports[:3], ports[3:]
    words = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"]
    with ExitStack() as stack:
        for port, bus in zip(nodes, buses, strict=True):
            stack.enter_context(
                server(folder / str(port), port, *words, "--cluster-port", str(bus))
            )
        clients = [await answers(port) for port in nodes]
        bounds = [(0, 5460), (5461, 10922), (10923, 16383)]
        for i, client in enumerate(clients):
            await client.execute_command("CLUSTER", "ADDSLOTSRANGE", *bounds[i])
            await client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for port, bus in zip(nodes[1:], buses[1:], strict=True):
            await clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
        for client in clients:
            for _ in range(400):
                info = await client.cluster("INFO")
                if info["cluster_state"] == "ok" and info["cluster_known_nodes"] == "3":
                    break
                await asyncio.sleep(0.05)
            await client.aclose()
        yield nodes


@asynccontextmanager
async def sentinel(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """Run a master with one sentinel that watches it, and yield (master, sentinel) ports."""
    master, watch = free_ports(2)
    with server(folder / "master", master):
        await (await answers(master)).aclose()
        with sentinel_server(folder, watch, master):
            await (await answers(watch)).aclose()
            yield master, watch


@contextmanager
def sentinel_server(folder: Path, port: int, master: int):
    """Run a sentinel that watches the server on port *master*."""
    settings = folder / "sentinel.conf"
    settings.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor mymaster 127.0.0.1 {master} 1\n"
    )
    with (folder / "sentinel.log").open("wb") as log:
        process = subprocess.Popen(
            [find_binary().path, str(settings), "--sentinel"], stdout=log, stderr=log
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
