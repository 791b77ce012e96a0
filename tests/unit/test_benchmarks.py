"""The benchmarks themselves: what is computed from turns, which peer is named when one fails."""

import importlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import aiorsmq_ng
from benchmarks import (
    contenders,
    figures,
    intervals,
    pages,
    report,
    revisions,
    rmq,
    table,
    workloads,
)
from benchmarks.__main__ import entrants, options
from benchmarks.arena import arena
from benchmarks.contenders import Contender
from benchmarks.revisions import Checkout
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


async def test_contender_whose_program_is_not_there_is_missing_and_does_not_fail():
    rabbit = Contender("rabbit", "Rabbit", "rabbit.py", ("send",), program="no-such-program")

    async with arena([rabbit]) as one:
        assert one.missing == {"rabbit": "no-such-program is not on the PATH"}
        assert one.failures == {}


async def test_contender_that_died_is_started_again_for_the_next_workload(tmp_path):
    folder = Path(report.__file__).parent / "drivers"
    dies = ECHO.replace("pass", "len(body) == 7 and exit('Error: seven')")
    (tmp_path / "dies.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n{dies}")
    seven = Workload("seven", "of 7 bytes", "send", size=7)
    eight = Workload("eight", "of 8 bytes", "send", size=8)

    async with arena([Contender("dies", "dies", str(tmp_path / "dies.py"), ("send",))]) as one:
        assert await one.play(seven, rounds=2, duration_s=0.001) == []
        turns = await one.play(eight, rounds=2, duration_s=0.001)

    assert [turn["round"] for turn in turns] == [1, 2]
    assert list(one.failures) == ["dies, seven"]


async def test_server_of_a_contenders_own_is_measured_by_the_contender(tmp_path):
    folder = Path(report.__file__).parent / "drivers"
    text = ECHO.replace("serve(", "SERVER\nserve(")
    # A round that warms up, and one that counts.
    text = text.replace("SERVER", "Echo.server_s = lambda self, s=iter((1, 1, 5, 8)): next(s)")
    (tmp_path / "own.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n{text}")

    async with arena([Contender("own", "own", str(tmp_path / "own.py"), ("send",))]) as one:
        (turn,) = await one.play(Workload("one", "one", "send"), rounds=1, duration_s=0.001)

    assert turn["server_us"] == pytest.approx(3e6 / turn["messages"], abs=0.01)


async def test_every_kind_of_job_is_done_by_the_contenders_that_need_no_installation():
    names = ("tasks", "awaited", "one-queue", "limit", "bare-protocol", "evalsha", "forgetful")
    entered = [c for c in contenders.ALL if c.name in (*names, "streams")]
    small = [
        replace(w, tasks=min(w.tasks, 4), batch=min(w.batch, 10), queues=min(w.queues, 4))
        for w in workloads.ALL
        if w.size == 100
    ]
    played = set()

    async with arena(entered) as one:
        for workload in small:
            by = [c for c in entered if c.plays(workload)]
            fresh = {c.name for c in by if (c.name, workload.kind) not in played}
            if fresh:
                turns = await one.play(workload, rounds=1, duration_s=0.001, only=fresh)
                played |= {(turn["contender"], workload.kind) for turn in turns}

    assert one.failures == {}
    assert {name for name, _ in played} == {*names, "streams"}


def test_figures_are_computed_from_turns_that_are_played():
    known = {contender.name: contender for contender in contenders.ALL}
    played = {workload.name: workload for workload in workloads.ALL}

    for workload, names in figures.turns().items():
        for name in names:
            assert known[name].plays(played[workload]), (workload, name)
    assert figures.turns()["worker64"] == {"ours", "uvloop", "tasks", "npm-bullmq", "saq"}


def test_slowest_workload_beside_the_commit_before_is_a_figure():
    about = {"ratios": {"send1": {"rate": 1.2}, "cycle": {"rate": 0.9}, "wake100": {"rate": None}}}
    lines = figures.markdown({"samples": [], "studies": {}, "before": about}).splitlines()

    assert "| the slowest workload | the commit before | at least 0.97 | 0.90 | no |  |  |" in lines


def test_report_says_how_busy_the_machine_was_and_what_was_missing():
    result = {
        "samples": [turn("ours", 1, 50) | {"foreign": 0.25}], "load": [0.125, 2.5],
        "missing": {"go-rmq": "go is not on the PATH"}, "failures": {"saq, send1": "bad day"},
    }  # fmt: skip
    text = report.circumstances(result)

    assert "was 0.1 before the run began, and 2.5, its own work included" in text
    assert "kept 0.25 processors busy in the median turn" in text
    assert "- Missing on this machine: go-rmq (go is not on the PATH).\n" in text
    assert "- These failed: saq, send1 (bad day).\n" in text


def test_result_is_kept_whole(tmp_path):
    result = {"studies": {}, "failures": {}, "samples": [turn("ours", 1, 50)]}

    assert json.loads(report.dump(result)) == result


def test_the_report_is_that_of_the_kept_result():
    """``python -m benchmarks --from docs/reports/performance.json`` writes it again."""
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


@pytest.fixture
def grpc_broker(monkeypatch):
    """The script, which finds its neighbours by the folder that it is started from."""
    monkeypatch.syspath_prepend(str(Path(report.__file__).parent))
    return importlib.import_module("grpc_broker")


async def test_ways_to_the_broker_take_turns_within_every_round(grpc_broker):
    played = []

    async def play(step, way, warm_up):
        played.append((way, warm_up))
        return grpc_broker.Turn(1.0 if played.count((way, False)) % 2 else 3.0, 1.0, 2.0, [1.0])

    ways = {name: name for name in grpc_broker.WAYS}
    turns = await grpc_broker.take_turns(ways, grpc_broker.STEPS[:1], play, rounds=2)

    warm_up = [(way, True) for way in ("direct", "stub", "client")]
    first = [(way, False) for way in ("stub", "client", "direct")]
    second = [(way, False) for way in ("client", "direct", "stub")]
    assert played == [*warm_up, *first, *first[::-1], *second, *second[::-1]]
    # As much work at 1/s as at 3/s is 1.5/s.
    both = grpc_broker.Turn(1.5, 1.0, 2.0, [1.0, 1.0])
    assert turns == {grpc_broker.STEPS[0].name: {way: [both, both] for way in ways}}


@pytest.mark.timeout(300)  # ten seconds of processor time
async def test_every_step_runs_directly_by_a_stub_and_by_our_client(grpc_broker):
    turns, lone = await grpc_broker.measure(rounds=1, messages=1)

    assert list(turns) == [step.name for step in grpc_broker.STEPS]
    for by_way in turns.values():
        assert tuple(by_way) == grpc_broker.WAYS
        assert all(made.rate > 0 and made.client_us > 0 for (made,) in by_way.values())
        if sys.platform == "linux":
            assert by_way["client"][0].broker_us > 0
    assert len(lone) == 1


def test_client_of_the_broker_is_compared_with_the_stub_round_by_round(grpc_broker):
    made = {
        "direct": [grpc_broker.Turn(400, 1, 0, [])] * 3,
        "stub": [grpc_broker.Turn(rate, 10, 20, []) for rate in (100, 200, 400)],
        "client": [
            grpc_broker.Turn(rate, us, 30, []) for rate, us in ((90, 11), (200, 12), (100, 20))
        ],
    }

    # By round: 0.9, 1 and 0.25. The ratio of the medians would be 0.5.
    assert (
        grpc_broker.client_table({"send": made})[-1]
        == "| send | 0.90 | 0.25 to 1.00 | 10.0 | 12.0 | 20.0 | 30.0 |"
    )
    assert (
        grpc_broker.table({"send": made})[-1]
        == "| send: messages/s | 400 | 200 | 0.50 | 100 | 0.25 |"
    )


def git(folder, *words):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository of two commits, and of a file that is changed after them."""
    if shutil.which("git") is None:
        pytest.skip("git is not on the PATH")
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "text").write_text(text)
        git(folder, "add", "text")
        git(folder, "commit", "--quiet", "--message", text)
    (folder / "text").write_text("third")
    return folder


def test_revision_is_checked_out_beside_the_files_of_ours_and_removed_at_the_end(repository):
    with revisions.checked_out("HEAD~1", repository) as before:
        assert (before.folder / "text").read_text() == "first"
        assert (repository / "text").read_text() == "third"
        assert before.commit == git(repository, "rev-parse", "HEAD~1")

    assert not before.folder.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert revisions.here(repository) == git(repository, "rev-parse", "HEAD") + " with changes"


def test_revision_that_git_does_not_know_is_refused(repository):
    with (
        pytest.raises(revisions.UnknownRevision, match="single revision"),
        revisions.checked_out("nowhere", repository),
    ):
        pass


async def test_two_checkouts_take_turns_in_all_that_only_ours_can_do(tmp_path):
    package = Path(aiorsmq_ng.__file__).parent
    shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    before = Checkout("REV", "0" * 40, tmp_path)
    own = [workload for workload in workloads.ALL if workload.group == "own"]
    turns = []

    async with arena(entrants(["ours", "before"], before), pairs=True) as one:
        for workload in own:
            turns += await one.play(workload, rounds=2, duration_s=0.001, first=6)

    assert one.failures == {}
    sixth = [(name, 6) for name in ("before", "ours", "ours", "before")]
    seventh = [(name, 7) for name in ("ours", "before", "before", "ours")]
    for workload in own:
        played = [t for t in turns if t["workload"] == workload.name]
        assert [(t["contender"], t["round"]) for t in played] == [*sixth, *seventh]
        assert len({t["messages"] for t in played if t["round"] == 7}) == 1
    assert list(revisions.compared(turns)) == [workload.name for workload in own]


async def test_contender_that_would_run_another_package_is_refused(tmp_path):
    before = Checkout("REV", "0" * 40, tmp_path)

    async with arena([before.contender]) as one:
        assert "RuntimeError: the package is" in one.failures["before"]


def test_contender_before_takes_part_only_with_a_revision(capsys, tmp_path):
    before = Checkout("REV", "0" * 40, tmp_path)
    everyone = [contender.name for contender in contenders.ALL]

    assert [c.name for c in entrants([], before)] == everyone
    assert [c.name for c in entrants([], None)] == [n for n in everyone if n != "before"]
    with pytest.raises(SystemExit):
        options(["--contenders", "ours", "before"])
    assert "needs --before REV" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        options(["--before", "REV", "--contenders", "before"])
    assert "name both, or none" in capsys.readouterr().err


def test_interval_of_the_median_leaves_out_as_many_values_as_chance_allows():
    # With 15 values, 3 on either side: 1.8 % of all medians lie below, 1.8 % above.
    assert intervals.interval([*range(1, 15), 1000]) == (4, 12)
    assert intervals.interval(range(6)) == (0, 5)
    assert intervals.interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_several_turns_of_a_round_count_by_their_mean():
    turns = [turn("ours", 1, rate) for rate in (80, 120)]
    turns += [turn("before", 1, rate) for rate in (40, 60)]

    assert table.ratios(turns, "rate", ("send64", "ours"), ("send64", "before")) == [2]


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [(0.97, 1.2, "ok"), (0.8, 0.969, "below"), (0.96, 1.2, "undecided"), (0.9, 0.97, "undecided")],
)
def test_verdict_needs_the_whole_interval_on_one_side(low, high, said):
    assert revisions.verdict({"low": low, "high": high}) == said


def test_rounds_are_divided_into_heats_and_counted_through():
    assert revisions.heats(15) == [range(1, 6), range(6, 11), range(11, 16)]
    assert revisions.heats(2) == [range(1, 2), range(2, 3)]


def test_comparison_with_a_revision_has_more_and_shorter_turns():
    usual, compared = options([]), options(["--before", "REV"])

    assert (usual.rounds, usual.duration) == (7, 0.2)
    assert (compared.rounds, compared.duration) == (revisions.ROUNDS, revisions.TURN_S)
    assert options(["--before", "REV", "--rounds", "3"]).rounds == 3
    with pytest.raises(SystemExit):
        options(["--before", "REV", "--goals"])


def test_ratios_to_before_are_medians_of_the_rounds_and_every_workload_has_a_verdict():
    turns = [turn("ours", n, rate) for n, rate in enumerate((90, 96, 120))]
    turns += [turn("before", n, 100) for n in range(3)]
    turns += [turn("ours", 1, 50, "drain64"), turn("before", 1, 50, "drain64")]
    turns += [turn("ours", 1, 50, "consume")]
    about = {"revision": "REV", "commit": "0" * 40, "ours": "1" * 40, "load": [1.0, 2.0]}
    about |= {"ratios": revisions.compared(turns), "idle": {"commands_per_s": 4, "wake_p50_ms": 1}}
    idle = {"commands_per_s": 2, "wake_p50_ms": 3}
    result = {"samples": turns, "studies": {"idle": idle}, "before": about}
    lines = revisions.markdown(result).splitlines()

    assert about["ratios"]["send64"]["rate"] == 0.96
    assert about["ratios"].keys() == {"send64", "drain64"}
    assert (
        "| send64 | 64 senders | 96 | 100 | 0.960 | 0.90 to 1.20 (3) | 1.00 | 1.00 | undecided |"
        in lines
    )
    assert any(line.startswith("| drain64 |") and line.endswith("| 1.00 | ok |") for line in lines)
    assert "| commands/s | 2.00 | 4.00 |" in lines
    assert revisions.section({"samples": turns, "studies": {}}) == ""


def test_table_beside_go_is_made_of_what_was_kept():
    page, kept = pages.DOCS / "guides" / "rmq.md", json.loads(rmq.KEPT.read_text())
    assert pages.replaced(page.read_text(), "benchmarks/rmq.py", rmq.lines(kept)) == (
        page.read_text()
    )
    for found in kept["workloads"]:
        assert len(found["ratios"]) == kept["rounds"]
        assert found["ratio"] == pytest.approx(found["ours"] / found["go"], abs=0.01)
