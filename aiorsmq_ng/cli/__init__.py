"""``rsmqctl``: queues from the command line. Needs the extra ``cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_EXTRA = ("click", "rich")
_MISSING = 'rsmqctl needs the extra "cli": pip install "aiorsmq-ng[cli]"'


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (by default the process's own) and return its exit status."""
    try:
        from .app import run  # needs click, which the extra brings

        return run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"{_MISSING}\n")
        return 1
    except KeyboardInterrupt:
        return 130  # so early or late that there is nothing to tell
