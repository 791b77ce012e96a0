"""The JVM is killed at every point where it hurts; nothing is missing, nothing is doubled."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from .conftest import Bench
from .support import run_driver

COUNT = 3000
#: Per query the points at which its runs are killed. Every next run goes on from the checkpoint.
POINTS = {
    "leased": ("claim_half", "claim_done", "planned", "read_half", "before_ack", "ack_half"),
    "copied": ("stage_half", "before_commit", "commit_half", "after_commit"),
    "moved": ("claim_half", "read_half", "before_ack"),
}


def kill_again_and_again(query, bench, folder):
    """Kill the query at each of its points, then let it come to its end."""
    folder.mkdir()
    for point in POINTS[query]:
        died = run_driver("crash", bench, folder, query=query, point=point)
        assert died.returncode != 0, f"{query} did not reach {point}"
        assert (folder / point).exists(), died.stderr[-3000:]
    final = run_driver("crash", bench, folder, query=query, point="none")
    assert final.returncode == 0, final.stderr[-3000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_drivers_lose_nothing_and_double_nothing(server_url, ns, tmp_path):
    benches = {name: Bench(server_url, ns, name) for name in POINTS}
    out = Bench(server_url, ns, "out")
    for bench in benches.values():
        bench.fill_numbers(COUNT)

    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(kill_again_and_again, POINTS, benches.values(), map(tmp_path.joinpath, POINTS))
        )

    everything = list(range(COUNT))
    for name in ("leased", "moved"):
        rows = (tmp_path / name / "rows").read_text().split()
        assert sorted(map(int, rows)) == everything, name
    assert sorted(map(int, out.bodies())) == everything
    for bench in benches.values():
        assert bench.size == 0
        assert bench.side_keys() == ["group", "ledger"]
        assert bench.redis.hlen(bench.keys.hash) == 7
    # Rows of attempts that were killed wait for the end of their life; nobody will send them.
    staged = out.redis.keys(f"{ns}:out:ng:staged:*")
    assert staged
    assert all(0 < out.redis.ttl(key) <= 86400 for key in staged)
