"""A server whose clock jumps."""

from __future__ import annotations

import pytest

from tools.storms import clock


async def require(figures_of, seconds):
    try:
        figures, verdict = await figures_of(seconds)
    except clock.NoClock as reason:
        pytest.skip(str(reason))
    assert verdict is not None
    verdict.require()
    return figures


async def test_worker_that_hears_nothing_stops_before_its_lease_ends_by_its_own_clock():
    figures = await require(clock.clock_forward, 0)

    assert figures == {"jumps": 1, "handlers cancelled": 1, "late acks refused": 1}


async def test_messages_hidden_by_a_clock_that_went_back_are_shown_by_the_doctor():
    figures = await require(clock.clock_back, 0)

    assert figures == {"jumps": 1, "hidden": 20, "shown again": 20}


async def test_small_steps_of_the_clock_are_not_noticed_by_any_caller():
    figures = await require(clock.clock_steps, 2)

    assert figures["steps"] > 5
    assert figures["acked"] > 50
    assert figures["lost"] == figures["overlaps"] == figures["redelivered"] == 0
