"""Write docs/reference/scripts.md from the headers of the Lua files: ``python tools/docs/make_scripts.py``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "scripts.md"
SCRIPTS = ROOT / "aiorsmq_ng" / "_protocol" / "scripts"

#: Folder -> title and a sentence about it.
AREAS = {
    "queue": ("Queues and messages", "The verbs of RSMQ, and what this library adds to them."),
    "topic": ("Topics", "Publish/subscribe: see [topics](../guides/topics.md)."),
    "rmq": ("Queues of rmq", "What Go programs share: see [Queues of rmq](../guides/rmq.md)."),
    "spark": ("Spark", "Claims, bulk writes and snapshots: see [Spark](../guides/spark.md)."),
    "doctor": (
        "Doctor",
        "Looking for damage and repairing it: see [the doctor](../guides/doctor.md).",
    ),
    "testing": ("Testing", "For tests only: `aiorsmq_ng.testing`."),
}
FIELDS = ("KEYS", "ARGV", "Returns", "Errors", "Cost")

INTRODUCTION = """\
# Scripts

<!-- Made by tools/docs/make_scripts.py from the headers of the Lua files; run `nox -s docs` after a change. -->

Every operation is one Lua script, called by its digest. This page has the contract of each: keys, arguments, reply,
errors and cost. The stored format and the rules behind the scripts are on [the protocol page](protocol.md).

- All keys are in KEYS, everything else is in ARGV. The server's clock is read inside the script.
- A reply that is one code word (`queueNotFound`, `queueCorrupt`, ...) is an error of the whole call.
- A *part* is the operation of one caller. Operations of several callers may share a call: their arguments follow each
  other, and the reply is a list with one entry per part.
- `-1` for a duration means the value stored on the queue. `''` is an empty text. `{...}` is a list.
- Names of keys: *zset* `ns:queue`, *hash* `ns:queue:Q`, *index* `ns:QUEUES`, *topics* `ns:ng:topics`; *deliveries*,
  *consumers*, *reason* and so on are the [side keys](protocol.md#keys) `ns:queue:ng:...`; *dead ...* belongs to the
  dead-letter queue, *own ...* to the queue of a topic itself. The *memory of the caller's series* and the *marker* of a
  dedup key are `ns:queue:ng:call:<series>` and `ns:queue:ng:dedup:<digest>`.
- Files whose names begin with an underscore are parts that several scripts include.
"""


def page() -> str:
    """Return the whole page."""
    found = {area: sorted((SCRIPTS / area).glob("[!_]*.lua")) for area in AREAS}
    parts = [INTRODUCTION, "| area | scripts |\n|---|---|"]
    for area, files in found.items():
        title, _ = AREAS[area]
        links = ", ".join(f"[`{file.stem}`](#{file.stem})" for file in files)
        parts.append(f"| [{title}](#{anchor(title)}) | {links} |")
    for area, files in found.items():
        title, sentence = AREAS[area]
        parts.append(f"\n## {title}\n\n{sentence}")
        parts.extend(contract(file) for file in files)
    return "\n".join(parts) + "\n"


def contract(file: Path) -> str:
    """Return the section of one script, made of the comment that its file opens with."""
    header = re.match(r"(?:--.*\n)+", file.read_text(encoding="utf-8"))
    lines = [line[3:] for line in header[0].splitlines()] if header else []
    lines = [line for line in lines if not line.startswith("@include")]
    purpose, *fields = re.split(rf"(?:^|\n)({'|'.join(FIELDS)}): ", "\n".join(lines))
    if tuple(fields[::2]) != FIELDS:
        raise ValueError(f"{file.name} must open with its purpose, then {', '.join(FIELDS)}")
    rows = [
        f"| {name} | {in_one_line(text)} |" for name, text in zip(FIELDS, fields[1::2], strict=True)
    ]
    return "\n".join([f"\n### {file.stem}\n", in_one_line(purpose), "\n| | |\n|---|---|", *rows])


def in_one_line(text: str) -> str:
    """Return a paragraph as one line of Markdown, with names of files and code words as code."""
    text = re.sub(r"\s+", " ", text).strip().replace("|", "\\|")
    text = re.sub(r"(?<!\w)(_\w+\.lua)", r"`\1`", text)
    return re.sub(r"(?<!\w)'([\w-]*)'(?!\w)", r"`'\1'`", text)


def anchor(title: str) -> str:
    """Return the anchor that Markdown gives a heading."""
    return title.lower().replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
