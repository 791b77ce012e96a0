"""``rsmqctl``: queues from the command line. Needs the extra ``cli``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .signals import sigterm_as_ctrl_c
from .standard_streams import buffer_stdout, drop_unwritten, open_missing_streams

#: Modules that the extra installs.
EXTRA = ("click", "rich")
#: Exit status after Ctrl-C, or SIGTERM.
INTERRUPTED = 130
_MISSING = 'rsmqctl needs the extra "cli": pip install "aiorsmq-ng[cli]"'


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line *args* (by default the process's own) and return its exit status."""
    open_missing_streams()
    buffer_stdout()
    try:
        from .app import run  # needs click, which the extra brings

        with sigterm_as_ctrl_c():
            status = run(args)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        sys.stderr.write(f"{_MISSING}\n")
        return 1
    except KeyboardInterrupt:
        status = INTERRUPTED  # before or after the command: no message is needed
    if status:
        drop_unwritten(wait=status != INTERRUPTED)
    return status
