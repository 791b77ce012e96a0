"""What the contenders do: kinds of jobs, by number of tasks, size of batch and size of body."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1 << 20


@dataclass(frozen=True)
class Workload:
    """One line of the table."""

    name: str
    title: str
    kind: str
    tasks: int = 1
    batch: int = 1
    size: int = 100
    #: Queues, or subscriptions of the topic, that the messages are spread over.
    queues: int = 1
    #: Which of the tables it belongs to; ``--workloads`` takes these words, too.
    group: str = "rates"

    def job(self, messages: int) -> dict[str, object]:
        """Return the job description for a driver."""
        batched = self.kind in ("send_many", "consume", "loop")
        whole = max(1, round(messages / self.batch)) * self.batch if batched else messages
        return {
            "kind": self.kind,
            "messages": whole,
            "tasks": self.tasks,
            "batch": self.batch,
            "size": self.size,
            "queues": self.queues,
        }

    @property
    def first(self) -> int:
        """How many messages at least, and as long as no rate is known."""
        if self.kind == "wake":  # one message after another
            return 20
        if self.queues >= 1000:  # some for each queue
            return 4 * self.queues
        return max(2 * self.tasks, 2 * self.batch, 20 if self.size > MIB // 2 else 100)

    @property
    def most(self) -> int:
        """How many messages at most, so that they find room in memory."""
        return max(8, 128 * MIB // max(self.size, 512))


ALL = (
    Workload("send1", "one sender", "send"),
    Workload("send64", "64 senders", "send", tasks=64),
    Workload("send512", "512 senders", "send", tasks=512),
    Workload("send_many10", "send_many(10)", "send_many", batch=10, group="send_many"),
    Workload("send_many100", "send_many(100)", "send_many", batch=100, group="send_many"),
    Workload("send_many100_4", "4 tasks, send_many(100)", "send_many", 4, 100, group="send_many"),
    Workload("send_many1000", "send_many(1000)", "send_many", batch=1000, group="send_many"),
    Workload("cycle", "send, receive, ack by one task", "cycle"),
    Workload("drain64", "64 workers, one message each", "drain", tasks=64),
    Workload("consume", "consumer with prefetch", "consume", batch=256),
    Workload("loop100", "sequential loop, prefetch 100", "loop", batch=100, group="loop"),
    Workload("worker64", "worker, 64 messages at a time", "work", 64, group="worker"),
    Workload(
        "send64_1000q",
        "64 senders, 1 000 queues",
        "send_queues",
        64,
        queues=1000,
        group="many_queues",
    ),
    Workload(
        "receive64_1000q",
        "64 tasks receive and ack, 1 000 queues",
        "receive_queues",
        64,
        queues=1000,
        group="many_queues",
    ),
    Workload("send64_10k", "64 senders, 10 KiB", "send", 64, size=10 * KIB, group="bytes"),
    Workload("drain64_10k", "64 workers, 10 KiB", "drain", 64, size=10 * KIB, group="bytes"),
    Workload("send8_1m", "8 senders, 1 MiB", "send", 8, size=MIB, group="bytes"),
    Workload("drain8_1m", "8 workers, 1 MiB", "drain", 8, size=MIB, group="bytes"),
    # Only aiorsmq-ng does these: its peers have no such call, or none that does the same.
    Workload("receive1", "receive, ack by one task", "receive", group="own"),
    Workload("wake100", "send to one of 100 idle consumers", "wake", 100, group="own"),
    Workload("send64_100q", "64 senders, 100 queues", "send_queues", 64, queues=100, group="own"),
    Workload(
        "receive64_100q", "64 tasks, 100 queues", "receive_queues", 64, queues=100, group="own"
    ),
    Workload("publish1", "one publisher, 10 subscriptions", "publish", queues=10, group="own"),
    Workload("publish64", "64 publishers, 10 subscriptions", "publish", 64, queues=10, group="own"),
)
