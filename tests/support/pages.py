"""The pages of the documentation, for the tests that read them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples/README.md"])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
#: Pages with the names of today: measurements are reported with those of their time.
NOW = [
    page
    for page in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
    if "reports" not in page.parts
]
NOW_IDS = [str(page.relative_to(ROOT)) for page in NOW]
#: The section of the coming release has today's names, too.
NOW_AND_CHANGES = [*NOW, ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Return the text of *page* without code blocks."""
    return FENCE.sub("", page.read_text())
