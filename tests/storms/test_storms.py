"""Storms of faults over a queue at work: nothing lost, nothing doubled, nothing stranded.

Each is a few seconds long here; ``python -m tools.storms`` has the long ones.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from aiorsmq_ng.testing import FaultProxy, PrivateServer
from tools.lab import ResourceSnapshot, Verdict
from tools.storms import faults
from tools.storms.scene import Fault, Load, Scene

SECONDS = 3.0
#: Sends that a storm is to see, however slow the machine is.
SENDS = 100


@pytest.fixture
async def storm():
    """Play a scene on a server of its own, behind a proxy, and return (scene, verdict)."""
    async with AsyncExitStack() as stack:

        async def play(make, *, persistence="none", load=None, seconds=SECONDS):
            server = await stack.enter_async_context(PrivateServer(persistence=persistence))
            proxy = await stack.enter_async_context(FaultProxy(server.url))
            scene = await stack.enter_async_context(Scene(proxy.url, load=load or Load()))
            made = make(server, proxy)
            async with asyncio.timeout(seconds + 100):
                await scene.play(seconds, *([made] if callable(made) else made), least=SENDS)
            return scene, await scene.verdict()

        yield play


def require_all_known(scene: Scene, verdict: Verdict) -> None:
    """No caller was cancelled, so each must have got the outcome of its call."""
    verdict.require()
    assert scene.marks, "no fault happened"
    assert verdict.acked >= SENDS
    assert verdict.unknown == verdict.failed == 0
    assert (verdict.lost, verdict.copies, verdict.overlaps, verdict.drift) == (0, 0, 0, 0)


async def test_killed_connections_are_not_noticed_by_any_caller(storm):
    scene, verdict = await storm(lambda server, _: faults.kill_connections(server.url))

    require_all_known(scene, verdict)
    assert verdict.redelivered == 0


async def test_network_cuts_are_not_noticed_by_any_caller(storm):
    require_all_known(*await storm(lambda _, proxy: faults.cut(proxy, 0.2)))


async def test_forgotten_scripts_are_not_noticed_by_any_caller(storm):
    scene, verdict = await storm(lambda server, _: faults.flush_scripts(server.url))

    require_all_known(scene, verdict)
    assert verdict.redelivered == 0


@pytest.mark.parametrize("kind", ["half_open", "black_hole", "split", "reset"])
async def test_bad_network_is_not_noticed_by_any_caller(storm, kind):
    load = Load(deadline=20)

    require_all_known(*await storm(lambda _, proxy: faults.pulses(proxy, kind), load=load))


async def test_paused_server_doubles_nothing(storm):
    require_all_known(*await storm(lambda server, _: faults.pause(server, 0.2, 1.0)))


async def test_killed_server_that_syncs_every_write_loses_nothing(storm):
    scene, verdict = await storm(
        lambda server, _: faults.restart(server, 1.0), persistence="always", load=Load(deadline=30)
    )

    require_all_known(scene, verdict)
    assert scene.faults["restart"] >= 2


async def test_cancelled_calls_destroy_nothing_and_leak_nothing(storm):
    async def counted(scene: Scene) -> None:
        scene.before = await ResourceSnapshot.take(scene.rsmq)  # type: ignore[attr-defined]
        await faults.cancel()(scene)

    scene, verdict = await storm(lambda *_: counted)

    verdict.require()
    assert scene.faults["cancel"] > 50
    assert (verdict.lost, verdict.copies, verdict.overlaps, verdict.drift) == (0, 0, 0, 0)
    after = await ResourceSnapshot.take(scene.rsmq)
    assert after.connections <= 2 * scene.options.max_connections


async def test_all_faults_together_lose_nothing(storm):
    def everything(server: PrivateServer, proxy: FaultProxy) -> list[Fault]:
        return [
            faults.kill_connections(server.url, 0.1),
            faults.cut(proxy),
            faults.cancel(0.01),
            faults.flush_scripts(server.url),
        ]

    scene, verdict = await storm(everything)

    verdict.require()
    assert set(scene.faults) == {"kill", "cut", "cancel", "flush"}
    assert (verdict.lost, verdict.copies, verdict.overlaps, verdict.drift) == (0, 0, 0, 0)
