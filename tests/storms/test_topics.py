"""Topics in short storms; ``python -m tools.storms.topics`` and ``nox -s faults`` run long ones."""

from __future__ import annotations

import pytest

from tools.storms.peers import by_peers
from tools.storms.topics import storm

FEW = {"c0": "shared", "broadcast": "broadcast"}


@pytest.mark.timeout(300)
async def test_every_subscription_gets_every_message_exactly_once():
    figures = await storm(1000, 0, vt=600, modes=FEW)

    assert figures["published"] == 1000
    for count in ("lost", "invented", "handled again"):
        assert not any(figures[count].values()), figures


@pytest.mark.timeout(300)
async def test_peers_that_are_killed_lose_nothing():
    figures = await storm(1000, 3, modes=FEW)

    assert figures["published"] == 1000
    assert not any(figures["lost"].values()), figures
    assert not any(figures["invented"].values()), figures


@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", [False, True], ids=["on Redis", "through a broker"])
@pytest.mark.parametrize("hops", [True, False], ids=["one that hops", "seven of all kinds"])
async def test_consumer_misses_nothing_whatever_its_peers_do(hops, broker):
    figures, verdict = await by_peers(2, hops=hops, broker=broker)

    assert verdict is not None
    assert not verdict.violations, figures
