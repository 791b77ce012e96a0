"""However a consumer is left, under live traffic, nothing stays leased."""

from __future__ import annotations

import pytest

from . import leaving


@pytest.mark.parametrize("way", leaving.WAYS)
async def test_nothing_stays_leased_after_a_consumer_was_left(server_url, ns, way):
    figures = await leaving.leave(server_url, ns, way, rounds=40)

    assert figures["handed out"] > 40
    assert (figures["still leased"], figures["still renewed"]) == (0, 0)
