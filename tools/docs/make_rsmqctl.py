"""Write docs/reference/rsmqctl.md from the help of every command: ``python tools/docs/make_rsmqctl.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from aiorsmq_ng.cli.app import cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "rsmqctl.md"

INTRODUCTION = """\
# rsmqctl

<!-- Made by tools/docs/make_rsmqctl.py from the help of the commands; change it there. -->

The command line of the extra `cli`: `pip install "aiorsmq-ng[cli]"`. Every command shows its page with
`--help`; this document holds them all. `python -m aiorsmq_ng` is the same command.

![rsmqctl top](pictures/top.svg)

## What all commands share

**The server** is named by `-r`, or `RSMQ_URL`, or `REDIS_URL`; without any it is
`redis://localhost:6379`. `-r embedded://` needs no server at all. A password may be in the URL, but
other users of a machine can see command lines: `RSMQ_PASSWORD` fills it into a URL that has none,
`--password-file` takes the first line of a file, `--password-prompt` asks for it. A broker (`grpc://`,
`grpcs://`) takes a token instead: that in `RSMQ_TOKEN`, or with `--token-file` the first line of a
file.

**Results** go to stdout, everything else (notes, questions, progress bars, errors) to stderr. `-o`
chooses the form:

| `-o` | one record | many records |
|---|---|---|
| `json` (default) | an object on one line | a list on one line |
| `ndjson` | the same | an object per line |
| `table` | a line per value | aligned columns; a cell has 60 characters at most, and times are readable, in UTC |
| `csv` | a header and a line | a header and lines; text that begins with `=`, `+`, `-`, `@`, their full-width forms, a tab or a line break is prefixed with `'`, so that no spreadsheet reads it as a formula |

`queue create`, `queue delete` and `message delete` print nothing, `message send` the id, `message
visibility` a sentence, independent of `-o`. A control character in a message never reaches the terminal:
it is shown as `\\u001b`. Only CSV in a pipe or a file, which has no such escapes, contains it unchanged.
`NO_COLOR` is honoured.

**Exit status**: 0 done; 1 failed, for example a missing queue; 2 wrong usage, also a value that RSMQ does
not allow; 3 nothing there, only with `--fail-empty`, or no server running, by `server status`; 4 the server cannot be reached or refuses; 130
Ctrl-C. An error is one sentence with a next step; `-v` adds the log and a traceback.

**Questions.** `queue purge`, `dlq purge`, a `dlq redrive` of everything, `doctor --fix`, `topic delete` and
`topic unsubscribe --discard` ask first on a terminal. Except for `doctor`, they look before they ask: the
question says how many messages are affected, and a missing queue is reported instead of asking. Without a terminal, in a
pipe or a script, they are refused with status 2 unless `--yes` is given. RSMQ's own `queue delete` and `message delete` ask
nothing.

**An outage.** If the server cannot be reached, commands fail after 2 s; `worker run` and `serve grpc` wait for the server, and say so.
After the start a call is tried for 5 seconds, and a call of a long transfer (`export`, `import`, `--file`, `queue move`, `dlq
redrive`) for a minute, which outlasts a failover; a note on stderr says that it waits.

**Ctrl-C** gives back what was received and not finished, and leaves files as they were. Long work says how
far it came: how many lines are done, how many messages were moved, exported, printed or deleted. A reader of
stdout that is slow gets whole lines, and as many as the note says; a second Ctrl-C does not wait for it.

## Files of messages

`message export` writes, and `message import` reads, one JSON object per line:

| field | value | import |
|---|---|---|
| `id` | the message's id | not used: a message that is sent again gets a new one |
| `body` | the text | needed, or the next |
| `body_base64` | the bytes, if they are not UTF-8 text | |
| `sent` | epoch milliseconds, or null if the id does not tell | not used |
| `rc`, `fr` | how often received, and the time of the first receive (ms); 0 if never | not used |
| `visible_at` | epoch milliseconds from which on it can be received | if it lies in the future, the message is delayed until then, at most for RSMQ's 9 999 999 seconds, and a note says so; `--now` passes over it |

Both work page by page, so the size of a queue does not matter. `message send --file` is simpler: every line
is a body as it stands.

How fast that is: [report](../reports/transfer.md).

## Commands
"""


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    for path, text in helps(cli, click.Context(cli, info_name="rsmqctl")):
        level = "#" * max(3, 1 + len(path.split()))
        parts.append(f"{level} {path}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def helps(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the path and the help of *command* and of all below it."""
    context.terminal_width = 80
    context.help_option_names = ["-h", "--help"]
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from helps(child, click.Context(child, parent=context, info_name=name))


if __name__ == "__main__":
    PAGE.write_text(page())
