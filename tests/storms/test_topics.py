"""Topics in a storm, a short one; ``python -m tests.storms.topics`` runs the long one."""

from __future__ import annotations

import pytest

from .topics import storm

FEW = {"c0": "shared", "each": "each"}


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
