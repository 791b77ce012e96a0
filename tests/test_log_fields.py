"""The page about logging has every line with fields, with its logger, level and fields."""

import ast
import re
from pathlib import Path

from .test_docs import rows

PACKAGE = Path(__file__).parents[1] / "aiorsmq_ng"
#: What ``Execution.fields`` returns.
OF_EXECUTION = ("queue", "message_id", "rc", "handler", "count", "duration")
LEVELS = {"log": "WARNING, then DEBUG"}


def calls():
    """Yield logger, level, text and fields of every call with fields in the package."""
    for file in sorted(PACKAGE.rglob("*.py")):
        source = file.read_text()
        if "extra=" not in source:
            continue
        logger = re.search(r"getLogger\(\"aiorsmq_ng\.([\w.]+)\"\)", source)
        for node in ast.walk(ast.parse(source)):
            extra = [k.value for k in getattr(node, "keywords", ()) if k.arg == "extra"]
            if not extra or ast.unparse(node.func).rpartition(".")[0] not in ("logger", "_log"):
                continue
            name = node.func.attr
            text = node.args[name == "log"].value
            shown = re.sub(r"%[.\w]*[srdfg]", "…", text)
            yield logger[1], LEVELS.get(name, name.upper()), shown, fields(extra[0])


def fields(extra):
    if isinstance(extra, ast.Dict):
        return tuple(key.value for key in extra.keys)
    assert ast.unparse(extra.func).endswith(".fields")
    return (*OF_EXECUTION, *(keyword.arg for keyword in extra.keywords))


def listed():
    for line, logger, level, _, names in rows("guides/logging.md", "## Lines with fields"):
        text = re.match(r"`([^`]+)`", line)[1]
        yield logger.strip("`"), level, text, tuple(re.findall(r"`(\w+)`", names))


def test_page_of_logging_lists_every_line_with_its_fields():
    table = list(listed())
    found = {}
    for call in calls():
        fitting = [
            row
            for row in table
            if row[:2] == call[:2] and row[3] == call[3]
            and (call[2] == "…" if row[2] == "…" else call[2].startswith(row[2]))
        ]  # fmt: skip
        assert len(fitting) == 1, (call, fitting)
        found[fitting[0]] = call

    assert set(found) == set(table)


def test_page_of_logging_explains_every_field():
    explained = {
        name
        for row in rows("guides/logging.md", "\n| field | is |")
        for name in re.findall(r"`(\w+)`", row[0])
    }

    assert explained == {name for row in listed() for name in row[3]}
