"""Ready-made jobs for queues: archive, replay, load, report, triage.

Functions that return a summary as a ``dict``; ``rsmqctl pipeline`` runs them from the command line.
"""

from .archive import archive, read_archive
from .check import check
from .replay_and_load import Pace, load, open_table, replay
from .report import report
from .session import session
from .triage import triage

__all__ = [
    "Pace",
    "archive",
    "check",
    "load",
    "open_table",
    "read_archive",
    "replay",
    "report",
    "session",
    "triage",
]
