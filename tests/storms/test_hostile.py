"""Hostile clients of the broker: the honest one goes on, and the broker stays small."""

from __future__ import annotations

import pytest

from tools.storms import hostile


@pytest.mark.parametrize(
    ("attack", "most_mb"),
    [
        # 800 half-sent messages of 4 MiB: all of them refused, none received.
        ("requests half sent, no token", 100),
        # With a token: half of 128 MiB are received, and copied once.
        ("requests half sent", 350),
        # Half of 128 MiB of replies, in three forms.
        ("200 Receives not read", 600),
    ],
)
async def test_honest_client_goes_on_and_the_broker_stays_small(attack, most_mb):
    figures, _ = await hostile.beside(attack, 3.0)

    assert figures["failed"] == 0
    assert figures["honest calls"] > 0
    assert figures["at most"] - figures["broker MB before"] < most_mb
