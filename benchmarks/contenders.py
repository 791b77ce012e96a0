"""Who takes part: each in a process of its own, most in an environment of their own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .environments import node_with, python_with
from .workloads import Workload

DRIVERS = Path(__file__).parent / "drivers"

#: Sends alone; also messages taken one by one; also by a consumer that leases ahead.
SENDS = ("send", "send_many")
TAKES = (*SENDS, "drain")
#: All that aiorsmq-ng does.
OURS = (
    *TAKES, "cycle", "consume", "receive", "work", "wake", "send_queues", "receive_queues",
    "publish",
)  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """One way to send and to take messages."""

    name: str
    label: str
    driver: str
    #: Kinds of jobs that it can do.
    kinds: Sequence[str]
    #: What to install for it; nothing: it runs on the interpreter of the harness.
    packages: Sequence[str] = ()
    arguments: Sequence[str] = ()
    #: Workloads, or groups of them, that it takes part in only (all if none are named), or not.
    only: Sequence[str] = ()
    without: Sequence[str] = ()
    #: Folder of the checkout whose package it runs; none: the checkout of the harness.
    checkout: Path | None = None

    def plays(self, workload: Workload) -> bool:
        """Return True if it takes part in a workload."""
        names = {workload.name, workload.group}
        chosen = not self.only or names & set(self.only)
        return workload.kind in self.kinds and bool(chosen) and not names & set(self.without)

    def command(self, url: str) -> tuple[list[str], dict[str, str]]:
        """Return the command that starts it and what it needs in its environment."""
        script = str(DRIVERS / self.driver)
        extra: dict[str, str] = {}
        if self.driver.endswith(".js"):
            program, extra = node_with(self.name, self.packages)
        elif self.packages:
            program = python_with(self.name, self.packages)
        else:
            program = sys.executable
        arguments = list(self.arguments)
        if self.checkout is not None:
            extra["PYTHONPATH"] = str(self.checkout)
            arguments.append(f"checkout={self.checkout}")
        return [program, script, url, *arguments], extra


ALL = (
    Contender("ours", "aiorsmq-ng", "ours.py", OURS),
    # Takes part only if a revision is named; ``revisions`` checks it out.
    Contender("before", "aiorsmq-ng, revision before", "ours.py", OURS),
    Contender(
        "uvloop",
        "aiorsmq-ng, uvloop",
        "ours.py",
        OURS,
        arguments=("uvloop",),
    ),
    Contender(
        "forgetful",
        "aiorsmq-ng, calls not remembered",
        "ours.py",
        TAKES,
        arguments=("forgetful",),
        only=("send1", "send64", "send_many100", "drain64"),
    ),
    Contender(
        "limit",
        "limit (raw socket)",
        "limit.py",
        (*SENDS, "consume"),
        only=("send64", "send_many", "consume", "bytes"),
    ),
    Contender(
        "evalsha",
        "bare EVALSHA, redis-py",
        "evalsha.py",
        ("send",),
        only=("send1",),
    ),
    Contender(
        "evalsha-empty",
        "empty EVALSHA, redis-py",
        "evalsha.py",
        ("send",),
        only=("send1",),
        arguments=("empty",),
    ),
    Contender("aiorsmq", "aiorsmq's way, redis-py 8", "aiorsmq_way.py", ("send", "drain", "cycle")),
    Contender("npm-rsmq", "npm rsmq", "rsmq.js", ("send", "drain", "cycle"), ("rsmq",)),
    Contender("streams", "Streams, redis-py", "streams.py", (*TAKES, "cycle", "consume")),
    Contender(
        "pyrsmq",
        "PyRSMQ (threads)",
        "pyrsmq.py",
        ("send", "drain", "cycle"),
        ("PyRSMQ", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender(
        "arq", "arq", "arq_jobs.py", ("send", "drain"), ("arq",), without=("bytes", "send512")
    ),
    Contender(
        "saq",
        "saq",
        "saq_jobs.py",
        ("send", "drain"),
        ("saq[redis]", "hiredis", "typing_extensions"),
        without=("bytes", "send512"),
    ),
    Contender(
        "taskiq",
        "taskiq-redis (Streams)",
        "taskiq_jobs.py",
        ("send", "drain"),
        ("taskiq-redis", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender(
        "bullmq",
        "bullmq (Python)",
        "bullmq_jobs.py",
        TAKES,
        ("bullmq", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender(
        "npm-bullmq",
        "npm bullmq",
        "bullmq.js",
        TAKES,
        ("bullmq", "ioredis"),
        without=("bytes", "send512"),
    ),
)
