"""The benchmarks themselves: what is computed from turns, who is named when a peer fails."""

import json
from pathlib import Path

import pytest

from benchmarks import figures, pages, report, table
from benchmarks.arena import arena
from benchmarks.contenders import Contender
from benchmarks.workloads import Workload

DOCS = Path(__file__).parents[2] / "docs"

ECHO = """
from talk import Peer, serve

class Echo(Peer):
    async def send(self, body):
        pass

serve(Echo())
"""


def turn(contender, number, rate, workload="send64"):
    return {
        "workload": workload, "contender": contender, "round": number, "rate": rate,
        "p50_ms": 1.0, "p99_ms": 2.0, "client_us": 3.0, "server_us": 4.0, "foreign": 0.0,
    }  # fmt: skip


def test_ratio_is_the_median_of_the_rounds_and_a_round_without_both_does_not_count():
    turns = [turn("ours", n, rate) for n, rate in enumerate((10, 100, 30, 7))]
    turns += [turn("limit", n, rate) for n, rate in enumerate((20, 100, 10))]

    # By round: 0.5, 1 and 3. The ratio of the medians would be 20 / 20.
    assert table.ratio(turns, "rate", ("send64", "ours"), ("send64", "limit")) == 1
    assert table.ratio(turns[4:], "rate", ("send64", "ours"), ("send64", "limit")) is None


def test_figures_say_what_is_reached_missed_and_not_measured():
    turns = [turn("ours", 1, 50), turn("uvloop", 1, 100), turn("limit", 1, 200)]
    lines = figures.markdown({"samples": turns, "studies": {}}).splitlines()

    assert "| 64 senders | the limit | at least 0.3 | 0.25 | no | 0.50 | yes |" in lines
    assert "| 64 senders | npm rsmq | at least 2.5 | not measured |  | not measured |  |" in lines


def test_figures_that_must_be_low_are_met_by_less():
    idle = {"commands_per_s": 1.7, "wake_p50_ms": 6.0}
    lines = figures.markdown({"samples": [], "studies": {"idle": idle}}).splitlines()

    assert "| 100 idle consumers | commands/s | at most 3 | 1.70 | yes |  |  |" in lines
    assert "| wake-up, median | ms | at most 5 | 6.00 | no |  |  |" in lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise RuntimeError('no luck')", "RuntimeError: no luck"),
        (ECHO.replace("pass", "raise ValueError('bad day')"), "ValueError: bad day"),
    ],
    ids=["at the start", "in its turn"],
)
async def test_contender_that_fails_is_named_and_the_others_go_on(tmp_path, text, said):
    (tmp_path / "good.py").write_text(ECHO)
    (tmp_path / "bad.py").write_text(text)
    folder = Path(report.__file__).parent / "drivers"
    for name in ("good.py", "bad.py"):
        path = tmp_path / name
        path.write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n{path.read_text()}")
    entrants = [Contender(n, n, str(tmp_path / f"{n}.py"), ("send",)) for n in ("bad", "good")]

    async with arena(entrants) as one:
        turns = await one.play(Workload("send1", "one sender", "send"), rounds=2, duration_s=0.01)

    assert [(t["contender"], t["round"]) for t in turns] == [("good", 1), ("good", 2)]
    assert all(t["messages"] > 0 and t["rate"] > 0 for t in turns)
    assert len(one.failures) == 1
    assert said in "".join(one.failures.values())


def test_result_is_kept_whole(tmp_path):
    result = {"studies": {}, "failures": {}, "samples": [turn("ours", 1, 50)]}

    assert json.loads(report.dump(result)) == result


def test_the_report_is_that_of_the_kept_result():
    """``python -m benchmarks --from docs/reports/performance.json`` writes it anew."""
    kept = json.loads((DOCS / "reports" / "performance.json").read_text())

    assert report.markdown(kept) == (DOCS / "reports" / "performance.md").read_text()


@pytest.mark.parametrize(
    ("page", "script"),
    [
        ("reports/topics.md", "benchmarks/topics.py"),
        ("reports/grpc.md", "benchmarks/grpc_broker.py"),
    ],
)
def test_a_page_has_one_place_for_its_table_and_the_rest_of_it_stays(page, script):
    text = (DOCS / page).read_text()
    once = pages.replaced(text, script, ["| new |"])

    assert "\n\n| new |\n\n<!-- end -->" in once
    assert pages.replaced(once, script, ["| new |"]) == once
    before, after = text.split(f"<!-- by {script} -->")
    assert once.startswith(before)
    assert once.endswith(after.partition("<!-- end -->")[2])
