"""The report of the long runs: a table can be played alone."""

from __future__ import annotations

import json

import pytest

from tools.lab import Verdict, Violation
from tools.storms import __main__ as program
from tools.storms import report


@pytest.fixture
def scenes(monkeypatch):
    """Two tables with a scene each; the second scene breaks a rule."""

    async def scene(number, verdict):
        return {"lost": number}, verdict

    monkeypatch.setattr(
        program,
        "scenes",
        lambda _: {
            "One": {"calm": scene(0, Verdict())},
            "Two": {"storm": scene(3, Verdict([Violation("O1", "lost: 3")]))},
        },
    )


@pytest.fixture
def folder(tmp_path):
    kept = {"machine": "2 cores", "tables": {"One": [{"scene": "calm", "figures": "lost: 9"}]}}
    report.write(tmp_path, kept)
    return tmp_path


def play(folder, *titles):
    kept = json.loads((folder / "fault-report.json").read_text())
    return program.play_tables(list(titles), folder, kept, 1)


def test_a_table_that_is_played_alone_leaves_the_rest_as_it_is(scenes, folder):
    wrong = play(folder, "Two")

    page = (folder / "fault-report.md").read_text()
    assert "| calm | lost: 9 |" in page
    assert "| storm | lost: 3 |" in page
    assert [line.partition(" (")[0] for line in wrong] == ["storm: O1"]


def test_a_table_that_is_not_there_is_named_and_nothing_is_written(scenes, folder):
    before = (folder / "fault-report.md").read_text()

    assert play(folder, "Three") == ["there is no table 'Three'"]
    assert (folder / "fault-report.md").read_text() == before
