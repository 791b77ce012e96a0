"""Many clients, many messages, other clients; each as short as it can be."""

from __future__ import annotations

import pytest

from tools.storms import herd, volume

from ..interop import drivers


async def test_all_clients_of_a_process_come_back_after_an_outage():
    figures, _ = await herd.outage(0.5, clients=40)

    assert figures["attempts"] >= 40
    assert figures["errors"] == {}


async def test_message_for_many_waiters_is_asked_for_few_times():
    figures, _ = await herd.few_for_many(0)

    assert figures["served"] == 50
    assert figures["per message"] <= 3


async def test_message_wakes_one_of_several_processes():
    figures, _ = await herd.wake_ups(processes=3, stopped=1, messages=30)

    assert figures["served"] == 30
    assert figures["scripts per message"] <= 7


async def test_backlog_stays_while_what_is_due_is_received():
    figures, _ = await volume.backlog(0, messages=20_000, samples=300)

    assert figures["left"] == 20_000
    assert figures["ratio"] > 0


@pytest.mark.node
async def test_clients_of_three_makers_share_a_queue_without_loss():
    try:
        figures, verdict = await volume.neighbours(0, messages=500)
    except drivers.NotInstalled as reason:
        pytest.skip(f"another client cannot be installed: {reason}")

    assert verdict is not None
    verdict.require()
    assert figures["acked"] == 1500
    assert figures["lost"] == figures["copies"] == figures["redelivered"] == 0
    assert all(figures["received by"].values())
