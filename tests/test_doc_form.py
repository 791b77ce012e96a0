"""The form of tables, of the glossary and of decision records."""

import re
from collections import Counter

import pytest

from .support.pages import DOCS, IDS, PAGES, prose


def rows_without_head(text: str) -> list[str]:
    """Return the first row of every block of rows that is shown as text: its table was cut."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    return [b.split("\n")[0] for b in blocks if not re.match(r"\|.*\n\|[-:| ]+\|", b)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_table_has_a_head(page):
    assert rows_without_head(prose(page)) == []


def test_row_that_an_empty_line_cuts_off_is_found():
    assert rows_without_head("| a |\n|---|\n| b |\n\n| c |\n") == ["| c |"]


def glossary() -> list[list[list[str]]]:
    """Return the rows of each area, without the head."""
    areas = (DOCS / "reference/glossary.md").read_text().split("\n## ")[1:]
    tables = [re.findall(r"^\| (.*) \|$", area, re.MULTILINE)[1:] for area in areas]
    return [[re.split(r" *\| *", row) for row in table] for table in tables]


def test_glossary_has_one_row_for_each_term():
    terms = Counter(row[0].strip("`").lower() for area in glossary() for row in area)

    assert len(terms) > 100
    assert [term for term, count in terms.items() if count > 1 or "," in term] == []


def test_glossary_is_in_alphabetical_order_within_each_area():
    for area in glossary():
        terms = [row[0].strip("`").lower() for row in area]
        assert terms == sorted(terms)


def test_glossary_describes_every_term():
    assert [row for area in glossary() for row in area if len(row) != 4 or len(row[1]) < 10] == []


SEARCHED = """
    idempotency key, in flight, interceptor, job, callback, heartbeat, visibility timeout,
    pipelining, transient, primary, batching, timeout, DLQ, payload, enqueue, acknowledge, nack,
    consumer group, fan-out, receipt handle, master
"""


@pytest.mark.parametrize("word", [word.strip() for word in SEARCHED.split(",")])
def test_word_that_readers_search_for_is_in_the_glossary(word):
    assert any(word in (row[0] + row[3]) for area in glossary() for row in area)


RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))


def test_decisions_are_numbered_without_gaps():
    assert [int(record.name[:4]) for record in RECORDS] == [*range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_decision_has_the_form_of_all(record):
    status = re.match(r"# \d{4}: .+\n\nStatus: ([a-z ]+)\. Date: ", record.read_text())

    assert status
    assert status[1] in ("accepted", "changed in part", "superseded")
    assert re.findall(r"^## (.*)$", record.read_text(), re.MULTILINE) == [
        *("Context", "Decision", "Consequences")
    ]
