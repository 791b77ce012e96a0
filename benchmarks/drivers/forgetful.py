"""Scripts that remember no calls: what the package would send if a lost reply did not matter."""

from __future__ import annotations

import re

from aiorsmq_ng._protocol import scripts

#: Script, or part of scripts -> what is taken out of it, and what stands there instead.
CUTS = {
    "_replay_send": (r"redis\.call\('SET', memory, outcome, [^\n]*'GET'\)\n", "false\n"),
    "_idempotency": (
        r"\Z",
        "remember = function() end\nrecall = function() return nil end\n",
    ),
}


def forget() -> None:
    """Load scripts without memory from now on; fails if their text is not what it was."""
    read = scripts._read  # noqa: SLF001

    def read_and_cut(name: str) -> str:
        text = read(name)
        if name in CUTS:
            text, count = re.subn(*CUTS[name], text)
            if count != 1:
                raise RuntimeError(f"{name}.lua does not remember calls as it did")
        return text

    scripts._read = read_and_cut  # noqa: SLF001
