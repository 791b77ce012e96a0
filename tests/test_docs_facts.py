"""Statements of the pages that follow from the code: names, tables, figures."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from aiorsmq_ng.broker.status import STATUS

import aiorsmq_ng
import aiorsmq_ng.errors
from aiorsmq_ng import Options
from aiorsmq_ng._protocol import limits
from aiorsmq_ng._transport import conductor, lanes

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: What most clients use.
DEFAULTS = Options()
#: Records and measurements tell what was, with the names of their time.
PAST = ("decisions", "reports")
#: Files that readers are told to make.
TO_BE_MADE = {"first.py", "shop.py", "aiorsmq_ng/_protocol/scripts/queue/touch.lua"}
PAGES = [
    page
    for page in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
    if not set(PAST) & set(page.parts)
]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", (DOCS / page).read_text())


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below *heading*."""
    text = (DOCS / page).read_text()
    table = re.search(r"(?:^\|.*\n)+", text[text.index(heading) :], re.MULTILINE)
    return [re.split(r"\s*(?<!\\)\|\s*", row)[1:-1] for row in table[0].splitlines()[2:]]


def has(owner: type, name: str) -> bool:
    if hasattr(owner, name) or name in getattr(owner, "__annotations__", {}):
        return True
    return any(
        re.search(rf"\bself\.{name}(:|,| =)", inspect.getsource(kind))
        for kind in owner.__mro__
        if kind.__module__.startswith("aiorsmq_ng")
    )


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_member_of_a_public_class_that_a_page_names_exists(page):
    missing = []
    for owner, name in re.findall(r"`([A-Z]\w+)\.([a-z_]\w*)", page.read_text()):
        if owner in aiorsmq_ng.__all__ and not has(getattr(aiorsmq_ng, owner), name):
            missing.append(f"{owner}.{name}")
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_module_that_a_page_names_exists(page):
    """As ``_transport/urls.py`` or with the folder in front; a name alone may be anywhere."""
    missing = []
    for path in re.findall(r"`([\w./-]+\.(?:py|lua|proto))`", page.read_text()):
        places = [ROOT / path, ROOT / "aiorsmq_ng" / path, ROOT / "tests" / path]
        alone = "/" not in path and any((ROOT / "aiorsmq_ng").rglob(path))
        if path not in TO_BE_MADE and not alone and not any(p.exists() for p in places):
            missing.append(path)
    assert missing == []


def test_page_of_the_broker_lists_every_code_with_its_status():
    listed = {
        code: status
        for codes, status, _ in rows("reference/grpc.md", "## Errors")
        for code in re.findall(r"`(\w+)`", codes)
    }

    assert listed == {code: status.name for code, status in STATUS.items()}


def test_page_of_options_lists_every_option_with_its_default():
    listed = {
        name.strip("`"): default.strip("`")
        for name, default, _ in rows("reference/url-and-options.md", "\n## Options\n")
    }
    defaults = {
        one.name: f'"{one.default}"' if isinstance(one.default, str) else str(one.default)
        for one in dataclasses.fields(Options)
    }

    assert listed == defaults


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (
            "explanation/architecture.md",
            f"at most {lanes.MAX_WEIGHT} messages or {lanes.MAX_SIZE >> 10} KiB of bodies",
        ),
        (
            "decisions/0002-operations-as-values.md",
            f"bounded ({lanes.MAX_WEIGHT} messages, {lanes.MAX_SIZE >> 10} KiB)",
        ),
        ("explanation/architecture.md", f"nothing is under way, {lanes.SPLIT_FROM} operations"),
        ("explanation/guarantees.md", f"(token {conductor.TOKEN_S / 60:.0f} min,"),
        ("explanation/guarantees.md", f"and for {conductor.TOKEN_S / 60:.0f} minutes."),
        ("reference/errors.md", f"within {conductor.TOKEN_S / 60:.0f} minutes: no second copy"),
        ("explanation/guarantees.md", f"default {DEFAULTS.dedup_window / 60:.0f} min"),
        ("explanation/guarantees.md", f"`Options.deadline` ({DEFAULTS.deadline:.0f} s)"),
        ("explanation/guarantees.md", f"within `Options.poll_cap` ({DEFAULTS.poll_cap:.0f} s)"),
        ("explanation/architecture.md", f"`poll_base` ({DEFAULTS.poll_base} s)"),
        ("reference/protocol.md", f"| count | 1 to {limits.MAX_COUNT} |"),
    ],
)
def test_figure_on_a_page_is_that_of_the_code(page, sentence):
    assert sentence in text_of(page)


def test_docstring_of_a_send_of_unknown_outcome_tells_how_long_its_token_is_good():
    minutes = f"{conductor.TOKEN_S / 60:.0f} minutes"

    assert minutes in (aiorsmq_ng.errors.SendUnknown.__doc__ or "")
