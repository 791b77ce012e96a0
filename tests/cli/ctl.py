"""Running ``rsmqctl``, in this process or as one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

MODULE = [sys.executable, "-m", "aiorsmq_ng.cli"]
ABSENT = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
NOWHERE = "unix:///nonexistent/redis.sock"


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line on stderr."""
        (line,) = self.err.splitlines()
        return line


Ctl = Callable[..., Outcome]


def shell(*args: str | bytes, stdin: bytes | None = None, **env: str) -> Outcome:
    """Run the real command, as a process."""
    return process(*MODULE, *args, stdin=stdin, **env)


def python(code: str) -> Outcome:
    """Run a program in an interpreter of its own."""
    return process(sys.executable, "-c", code)


def process(*command: str | bytes, stdin: bytes | None = None, **env: str) -> Outcome:
    """Run a process to its end."""
    done = subprocess.run(
        command,
        capture_output=True,
        input=stdin,
        env={**os.environ, **env},
        timeout=60,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
