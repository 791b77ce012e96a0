"""Who takes part: each in a process of its own, most in an environment of their own."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .environments import NotInstalled, go_program, node_with, python_with, rust_program
from .workloads import Workload

DRIVERS = Path(__file__).parent / "drivers"

#: Sends alone; also messages taken one by one; also by a consumer that leases ahead.
SENDS = ("send", "send_many")
TAKES = (*SENDS, "drain")
#: All that aiorsmq-ng does.
OURS = (
    *TAKES, "cycle", "consume", "loop", "receive", "work", "wake", "send_queues", "receive_queues",
    "publish",
)  # fmt: skip
#: Of job queues: a worker of theirs does the jobs.
JOBS = ("send", "work")


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
    #: A program that must be there.
    program: str = ""
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
        if self.program and shutil.which(self.program) is None:
            raise NotInstalled(f"{self.program} is not on the PATH")
        if self.driver == "go":
            return [go_program(DRIVERS / "go"), url], extra
        if self.driver == "rust":
            return [rust_program(DRIVERS / "rust", "bench-rsmq-async"), url], extra
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
        "tasks",
        "aiorsmq-ng, 64 bare tasks",
        "ours.py",
        ("work",),
        arguments=("tasks",),
    ),
    Contender(
        "awaited",
        "aiorsmq-ng, each ack awaited",
        "ours.py",
        ("loop",),
        arguments=("await",),
    ),
    Contender(
        "one-queue",
        "aiorsmq-ng, one queue",
        "ours.py",
        ("send_queues", "receive_queues"),
        arguments=("one-queue",),
        only=("many_queues",),
    ),
    Contender(
        "metrics",
        "aiorsmq-ng, metrics for Prometheus",
        "ours.py",
        OURS,
        arguments=("metrics",),
        only=("send1", "send64", "send_many100", "worker64"),
    ),
    Contender(
        "limit",
        "limit (raw socket)",
        "limit.py",
        (*SENDS, "consume", "loop"),
        only=("send64", "send_many", "consume", "loop", "bytes"),
    ),
    Contender(
        "bare-protocol",
        "bare protocol, hiredis",
        "bare_protocol.py",
        ("send", "cycle"),
        only=("send1", "cycle"),
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
    Contender(
        "rsmq-async",
        "rsmq_async (Rust)",
        "rust",
        ("send", "drain", "cycle"),
        without=("bytes", "send512"),
    ),
    Contender("streams", "Streams, redis-py", "streams.py", (*TAKES, "cycle", "consume", "loop")),
    Contender(
        "rabbitmq",
        "RabbitMQ, aio-pika",
        "rabbitmq.py",
        ("send", "loop", "work"),
        ("aio-pika",),
        program="rabbitmq-server",
        without=("bytes", "send512"),
    ),
    Contender("go-rmq", "adjust/rmq (Go)", "go", (*SENDS, "work"), without=("bytes", "send512")),
    Contender(
        "pyrsmq",
        "PyRSMQ (threads)",
        "pyrsmq.py",
        ("send", "drain", "cycle"),
        ("PyRSMQ", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender("arq", "arq", "arq_jobs.py", JOBS, ("arq",), without=("bytes", "send512")),
    Contender(
        "saq",
        "saq",
        "saq_jobs.py",
        JOBS,
        ("saq[redis]", "hiredis", "typing_extensions"),
        without=("bytes", "send512"),
    ),
    Contender(
        "taskiq",
        "taskiq-redis (Streams)",
        "taskiq_jobs.py",
        JOBS,
        ("taskiq-redis", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender(
        "bullmq",
        "bullmq (Python)",
        "bullmq_jobs.py",
        (*SENDS, "work"),
        ("bullmq", "hiredis"),
        without=("bytes", "send512"),
    ),
    Contender(
        "npm-bullmq",
        "npm bullmq",
        "bullmq.js",
        (*SENDS, "work"),
        ("bullmq", "ioredis"),
        without=("bytes", "send512"),
    ),
)
