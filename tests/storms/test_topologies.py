"""Failovers and migrations under load, each as short as it can be."""

from __future__ import annotations

from tools.lab import Verdict
from tools.storms import topologies


def require_all_known(verdict: Verdict | None) -> None:
    assert verdict is not None
    verdict.require()
    assert verdict.acked > 20
    assert verdict.lost == verdict.copies == verdict.unknown == verdict.failed == 0


async def test_replicated_messages_survive_the_death_of_the_master():
    figures, verdict = await topologies.sentinel_failover(0)

    require_all_known(verdict)
    assert figures["faults"] == {"kill": 1}


async def test_migration_of_the_slot_is_not_noticed_by_any_caller():
    figures, verdict = await topologies.cluster_migration(1)

    require_all_known(verdict)
    assert figures["faults"]["moved"] >= 2
    assert verdict.redelivered == 0


async def test_replicated_messages_survive_the_death_of_a_cluster_node():
    figures, verdict = await topologies.cluster_failover(0)

    require_all_known(verdict)
    assert figures["faults"] == {"kill": 1}
