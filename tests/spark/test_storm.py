"""Kills on a cluster while two queries run; ``python -m tools.storms.spark_cluster`` is longer."""

import argparse
import asyncio

import pytest

from tools.storms.spark_cluster import Trial


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_and_moves_on_a_cluster_lose_and_double_nothing(tmp_path):
    arguments = argparse.Namespace(faults=6, rate=100, consumers=2, lease_ms=600_000, down_s=0)

    figures = asyncio.run(Trial(arguments, 7, tmp_path).run())

    assert sum(figures["faults"].values()) == 6
    assert (figures["missing"], figures["doubled"], figures["foreign"]) == (0, 0, 0)
    assert (figures["wrong queue"], figures["side keys left"]) == (0, [])
    assert figures["in files"] + figures["copied"] + figures["with consumers"] >= figures["sent"]
