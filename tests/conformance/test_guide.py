"""The guide for authors of clients, docs/guides/conformance.md, shows what there is."""

import re
from pathlib import Path

from rsmq_conformance import command, driver
from rsmq_conformance.scenarios import LEVELS, load

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/guides/conformance.md").read_text()
DRIVER = (ROOT / "conformance/adapters/aiorsmq_ng_driver.py").read_text()


def test_driver_in_the_guide_is_the_one_that_tests_run():
    (block,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)

    assert block == DRIVER
    # What the guide promises to authors.
    assert len(DRIVER.splitlines()) <= 50


def test_guide_describes_every_verb_and_every_option():
    named = set(re.findall(r"^\| `(\w+)` \|", GUIDE, re.MULTILINE))
    options = {option for option in command._parser().format_help().split() if option[:2] == "--"}

    assert {"hello", *driver.VERBS} <= named
    assert {"--driver", "--redis-url", "--level", "--scenario", "--no-pairs"} <= options
    assert all(f"`{name}" in GUIDE for name in ("--driver", "--redis-url", "--strict", "--out"))


def test_guide_names_every_kind_of_step_and_every_role():
    kinds = {key for scenario in load() for step in scenario.steps for key in step}
    prose = re.sub(r"^```.*?^```", "", GUIDE, flags=re.MULTILINE | re.DOTALL)
    spans = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", prose))))
    details = {"call", "expect", "key", "only", "tries", "sent", "got", "of"}

    assert kinds - details <= spans
    assert {role for scenario in load() for role in scenario.roles} <= spans


def test_readme_of_the_kit_describes_every_level():
    readme = (ROOT / "conformance/README.md").read_text()

    described = re.findall(r"^\| (L\d \w+) \|", readme, re.MULTILINE)
    assert described == [f"{level} {what}" for level, what in LEVELS.items()]
