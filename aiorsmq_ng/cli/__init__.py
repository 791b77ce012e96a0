"""``rsmqctl``: queues from the command line. Needs the extra ``cli``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

#: Modules that the extra brings.
EXTRA = ("click", "rich")
_MISSING = 'rsmqctl needs the extra "cli": pip install "aiorsmq-ng[cli]"'


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (by default the process's own) and return its exit status."""
    _fill_streams()
    try:
        from .app import run  # needs click, which the extra brings

        return run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"{_MISSING}\n")
        return 1
    except KeyboardInterrupt:
        return 130  # so early or late that there is nothing to tell


def _fill_streams() -> None:
    """Open /dev/null for the standard streams that are closed.

    Otherwise a connection would get the number of one of them, and be taken for it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        name = ("stdin", "stdout", "stderr")[number]
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    os.close(number)
