"""What the pages say can be read as it was meant, and agrees with what it is about."""

import re
import runpy
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from aiorsmq_ng._protocol.scripts import names

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def rows_without_head(text: str) -> list[str]:
    """Return the first row of every block of rows that is shown as text: its table was cut."""
    blocks = re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)
    return [b.split("\n")[0] for b in blocks if not re.match(r"\|.*\n\|[-:| ]+\|", b)]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_table_has_a_head(page):
    assert rows_without_head(prose(page)) == []


def test_row_that_an_empty_line_cuts_off_is_found():
    assert rows_without_head("| a |\n|---|\n| b |\n\n| c |\n") == ["| c |"]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page):
    broken = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def glossary() -> list[list[str]]:
    text = (ROOT / "docs/reference/glossary.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]*)\|", text, re.MULTILINE)
    return [[cell.strip() for cell in row] for row in rows if row[0].strip() != "word"]


def test_glossary_has_one_row_for_each_word():
    words = Counter(word.strip() for row in glossary() for word in row[0].split(","))

    assert len(words) > 50
    assert [word for word, count in words.items() if count > 1] == []


SEARCHED = """
    idempotency key, in flight, interceptor, job, callback, heartbeat, visibility timeout,
    pipelining, transient, primary, batching, timeout, DLQ
"""


@pytest.mark.parametrize("word", [word.strip() for word in SEARCHED.split(",")])
def test_word_that_readers_search_for_is_in_the_glossary(word):
    assert any(word in (row[0] + row[2]) for row in glossary())


def test_architecture_names_every_layer_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = {
        name
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
        for line in contract["layers"]
        for name in re.split(r"[|: ]+", line)
    }
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    table = text[text.index("| layer | does") :].split("\n\n")[0]

    assert layers == {
        n for row in table.split("\n")[2:] for n in re.findall(r"`(\w+)`", row.split("|")[1])
    }


def test_every_decision_has_status_and_date_and_is_in_the_index():
    """If it fails: ``python tools/docs/make_decisions.py``."""
    script = runpy.run_path(str(ROOT / "tools/docs/make_decisions.py"))

    assert script["page"]() == (ROOT / "docs/decisions/README.md").read_text()


def test_page_of_scripts_is_made_from_the_headers_of_the_scripts():
    """If it fails: ``python tools/docs/make_scripts.py``."""
    script = runpy.run_path(str(ROOT / "tools/docs/make_scripts.py"))

    assert script["page"]() == (ROOT / "docs/reference/scripts.md").read_text()
    assert {name for name in names() if f"\n### {name}\n" not in script["page"]()} == set()


def test_every_page_is_in_the_index():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page != index]

    assert [
        str(page.relative_to(ROOT))
        for page in pages
        if page not in linked and page.parent / "README.md" not in linked
    ] == []


def test_every_test_that_a_page_names_exists():
    """A page names tests as *file* `test`, the file from ``tests/``."""
    missing = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        file = ""
        for word in re.findall(r"[\w/]*test_\w+(?:\.py)?", page.read_text()):
            if word.endswith(".py"):
                file = word.removeprefix("tests/")
                if not (ROOT / "tests" / file).exists():
                    missing.append(word)
            elif file and word not in (ROOT / "tests" / file).read_text():
                missing.append(f"{file} {word}")
    assert missing == []
