"""The JVM is killed at every point where it hurts; nothing is missing, nothing is doubled."""

import pytest

from .conftest import Bench
from .support import run_driver

COUNT = 3000
#: Query, and the point at which its next run is killed. Every run goes on from the checkpoint.
POINTS = [
    ("leased", "claim_half"),
    ("leased", "claim_done"),
    ("leased", "planned"),
    ("leased", "read_half"),
    ("leased", "before_ack"),
    ("leased", "ack_half"),
    ("moved", "claim_half"),
    ("moved", "read_half"),
    ("moved", "before_ack"),
    ("copied", "stage_half"),
    ("copied", "before_commit"),
    ("copied", "commit_half"),
    ("copied", "after_commit"),
]


@pytest.mark.timeout(1800)
def test_killed_drivers_lose_nothing_and_double_nothing(server_url, ns, tmp_path):
    benches = {name: Bench(server_url, ns, name) for name in ("leased", "moved", "copied", "out")}
    for name in ("leased", "moved", "copied"):
        benches[name].fill_numbers(COUNT)

    for number, (query, point) in enumerate(POINTS):
        folder = tmp_path / f"{number}"
        died = run_driver("crash", benches[query], tmp_path, queries=[query], point=point)
        assert died.returncode != 0, f"{query} did not reach {point}"
        assert (tmp_path / point).exists(), died.stderr[-3000:]
        (tmp_path / point).rename(folder)
    final = run_driver(
        "crash", benches["out"], tmp_path, queries=["leased", "moved", "copied"], point="none"
    )
    assert final.returncode == 0, final.stderr[-3000:]

    everything = list(range(COUNT))
    for name in ("leased", "moved"):
        rows = (tmp_path / f"{name}.rows").read_text().split()
        assert sorted(map(int, rows)) == everything, name
    assert sorted(map(int, benches["out"].bodies())) == everything
    for name in ("leased", "moved", "copied"):
        assert benches[name].size == 0
        assert benches[name].side_keys() == ["group", "ledger"]
        assert benches[name].redis.hlen(benches[name].keys.hash) == 7
    # Rows of attempts that were killed wait for their end; nobody will move them.
    (staged,) = {
        0 < benches["out"].redis.ttl(key) <= 86400
        for key in benches["out"].redis.keys(f"{ns}:out:ng:staged:*")
    }
    assert staged
