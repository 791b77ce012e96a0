"""The command line speaks of flags, never of arguments in Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aiorsmq_ng
from aiorsmq_ng.cli.flag_names import _WORDS, in_flags

from .ctl import Ctl

PACKAGE = Path(aiorsmq_ng.__file__).parent
#: What a person at a shell cannot type.
PYTHON = re.compile(
    r"Options\(|=True|=False|=None|create_queue\(\)|\btoken=|\bns=|delete_queue\(\)"
)
#: Who writes handlers, tests and drop-ins reads Python; the broker's own sentences go to clients.
ELSEWHERE = ("worker", "compat", "testing", "cli", "broker", "reliable.py")


def sentences() -> Iterator[tuple[str, str]]:
    """Yield every text of the library that looks as if it spoke Python to its reader."""
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in ELSEWHERE:
            continue
        tree = ast.parse(path.read_text())
        documents = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(text, str) or text.startswith("<"):
                continue  # no text, or that of a repr
            if PYTHON.search(text) and id(node) not in documents:
                yield f"{place}:{node.lineno}", text


def test_every_sentence_of_the_library_has_its_words_here() -> None:
    """A new error that speaks of an option in Python needs a line in cli/flag_names.py."""
    found = dict(sentences())

    assert len(found) >= 8  # there are some, or this test looks at nothing
    assert {where: text for where, text in found.items() if PYTHON.search(in_flags(text))} == {}


def test_every_line_of_the_words_is_needed() -> None:
    """A sentence that the library does not say any more is not kept here."""
    whole = "\n".join(p.read_text() for p in PACKAGE.rglob("*.py") if p.name != "words.py")
    flat = re.sub(r'"\s*f?"', "", whole)  # texts that go on in the next line

    assert [python for python in _WORDS if python not in flat] == []


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("-r", "redis://:x@db.example", "queue", "list"), 2, "or --plain-password"),
        (("-r", "rediss://h?ssl_cert_reqs=none", "queue", "list"), 2, "or --insecure-tls"),
        (("-r", "grpc://u:p@h", "queue", "list"), 2, "by --token-file or RSMQ_TOKEN"),
        (("--ns", "a:b", "queue", "list"), 2, "no spaces or colons; see"),
        (("queue", "set", "-n", "jobs"), 2, "at least one of --vt, --delay, --maxsize"),
        (("queue", "create", "-n", "jobs"), 1, "look at it with: rsmqctl"),
        (("queue", "describe", "-n", "none"), 1, "queue create -n none"),
        (
            ("topic", "subscribe", "-n", "t", "-c", "c", "--mode", "broadcast", "-p", "p"),
            2,
            "--discard",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_name_flags(jobs: Ctl, args: tuple[str, ...], status: int, words: str) -> None:
    """In one sentence, with what can be typed."""
    jobs("topic", "subscribe", "-n", "t", "-c", "c")
    refused = jobs(*args)

    assert refused.status == status
    assert words in refused.sentence
    assert not PYTHON.search(refused.sentence)
