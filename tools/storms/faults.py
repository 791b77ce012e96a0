"""Faults that go on until they are cancelled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import RedisError

from aiorsmq_ng.testing import FaultProxy, PrivateServer

from .scene import Fault, Scene


def kill_connections(admin_url: str, every_s: float = 0.05) -> Fault:
    """Have the server cut every connection but ours, again and again."""

    async def fault(scene: Scene) -> None:
        async with Redis.from_url(admin_url) as admin:
            while True:
                await asyncio.sleep(every_s)
                with suppress(RedisError):
                    # TYPE normal leaves out subscribers; they are next.
                    killed = await admin.client_kill_filter(_type="normal", skipme=True)
                    killed += await admin.client_kill_filter(_type="pubsub", skipme=True)
                    scene.mark("kill", killed)

    return fault


def cut(proxy: FaultProxy, every_s: float = 0.3) -> Fault:
    """Cut every connection in the network."""

    async def fault(scene: Scene) -> None:
        while True:
            await asyncio.sleep(every_s)
            scene.mark("cut", len(proxy.connections))
            await proxy.cut()

    return fault


def cancel(every_s: float = 0.003) -> Fault:
    """Cancel calls at random; every fourth one twice."""

    async def fault(scene: Scene) -> None:
        while True:
            await asyncio.sleep(every_s)
            if calls := list(scene.calls):
                task = scene.chance.choice(calls)
                task.cancel()
                scene.mark("cancel")
                if scene.chance.random() < 0.25:
                    await asyncio.sleep(0)
                    task.cancel()

    return fault


def flush_scripts(admin_url: str, every_s: float = 0.2) -> Fault:
    """Make the server forget all scripts."""

    async def fault(scene: Scene) -> None:
        # Another fault cuts our connection again and again. The pause that redis-py would make
        # before its next try is as long as a short storm.
        retry = Retry(ConstantBackoff(0.005), 50)
        async with Redis.from_url(admin_url, retry=retry) as admin:
            while True:
                await asyncio.sleep(every_s)
                with suppress(RedisError):
                    await admin.script_flush()
                    scene.mark("flush")

    return fault


def pause(server: PrivateServer, least_s: float = 0.2, most_s: float = 2.5) -> Fault:
    """Stop the server's process for a while (SIGSTOP), again and again."""

    async def fault(scene: Scene) -> None:
        try:
            while True:
                await asyncio.sleep(scene.chance.uniform(0.2, 1.0))
                server.pause()
                scene.mark("pause")
                await asyncio.sleep(scene.chance.uniform(least_s, most_s))
                server.resume()
        finally:
            server.resume()

    return fault


def restart(server: PrivateServer, every_s: float = 1.5) -> Fault:
    """Kill the server (SIGKILL) and start it again on its files."""

    async def fault(scene: Scene) -> None:
        while True:
            await asyncio.sleep(every_s)
            scene.mark("restart")
            await asyncio.shield(asyncio.ensure_future(_restart(server)))

    return fault


async def _restart(server: PrivateServer) -> None:
    server.kill()
    await server.restart()


def pulses(proxy: FaultProxy, kind: str, on_s: float = 0.4, off_s: float = 0.8) -> Fault:
    """Switch a fault of the network on and off: half_open, black_hole, latency, bandwidth, ..."""

    async def fault(scene: Scene) -> None:
        try:
            while True:
                await asyncio.sleep(off_s)
                scene.mark(kind)
                _switch_on(proxy, kind, scene)
                await asyncio.sleep(on_s)
                await proxy.resume()
                if kind in ("half_open", "black_hole"):
                    # What was swallowed never comes; a real peer would be noticed dead at last.
                    await proxy.cut()
        finally:
            await proxy.resume()
            await proxy.cut()

    return fault


def _switch_on(proxy: FaultProxy, kind: str, scene: Scene) -> None:
    if kind == "half_open":
        proxy.half_open()
    elif kind == "black_hole":
        proxy.black_hole()
    elif kind == "latency":
        proxy.latency = 0.03
    elif kind == "bandwidth":
        proxy.bandwidth = 50_000
    elif kind == "split":
        proxy.split = True
    else:
        proxy.reset_after = scene.chance.randint(100, 5000)
