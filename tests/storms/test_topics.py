"""Topics in a storm, a short one; ``python -m tests.storms.topics`` runs the long one."""

from __future__ import annotations

import pytest

from .topics import storm


@pytest.mark.timeout(180)
async def test_every_subscription_gets_every_message_exactly_once():
    figures = await storm(2000, 0, vt=600)

    assert figures["published"] == 2000
    for count in ("lost", "invented", "handled again"):
        assert not any(figures[count].values()), figures


@pytest.mark.timeout(180)
async def test_peers_that_are_killed_lose_nothing():
    figures = await storm(2000, 6)

    assert figures["published"] == 2000
    assert not any(figures["lost"].values()), figures
    assert not any(figures["invented"].values()), figures
