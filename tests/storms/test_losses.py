"""What is lost with a server, and what is not; each as short as it can be."""

from __future__ import annotations

from tools.storms import losses


async def test_what_was_confirmed_at_a_level_is_kept_at_that_level():
    table, verdict = await losses.durability_matrix(0.1, at_once=True)

    assert verdict is not None
    verdict.require()
    assert len(table) == len(losses.ROWS)
    assert all(row["acked"] for row in table.values())
    # The rows without a promise show that the fault is a fault.
    assert table["no AOF, kill -9, 'memory'"]["lost"]
    assert table["cut off from its replica, killed, 'memory'"]["lost"]


async def test_server_that_forgets_everything_is_used_again():
    figures, verdict = await losses.forgetful_restarts(0)

    assert verdict is not None
    verdict.require()
    assert figures["went on after"] == figures["restarts"] == 1


async def test_receives_that_a_paused_server_makes_too_late_are_given_back():
    figures, verdict = await losses.paused_receives(0, pause_s=2, deadline_s=1.5)

    assert verdict is not None
    verdict.require()
    assert figures["totalrecv"] > 0
    assert figures["hidden without a holder"] == 0
