"""The kinds of findings: name, severity and the text of each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..models import Finding, FindingKind, Severity


class _Words(NamedTuple):
    severity: Severity
    #: What is wrong; ``{}`` is replaced by the detail.
    fact: str
    #: What to do about it.
    todo: str
    #: What the repair did; empty for kinds that are never repaired.
    done: str = ""


_WORDS: dict[FindingKind, _Words] = {
    "phantom": _Words(
        "warning",
        "ids without a body, which other clients deliver as empty messages",
        "repairing removes them",
        "they were removed",
    ),
    "not_an_id": _Words(
        "warning",
        "members of the sorted set that cannot be the ids of messages",
        "repairing removes them from it; the attributes and messages of the queue stay as they are",
        "they were removed from it",
    ),
    "orphan": _Words(
        "error",
        "stored bodies whose ids are not in the sorted set, so that no consumer receives them",
        "repairing makes them visible",
        "they are visible now",
    ),
    "leak": _Words(
        "warning",
        "fields of messages that are gone, which only take memory",
        "repairing removes them",
        "they were removed",
    ),
    "ghost": _Words(
        "error",
        "an incomplete queue that lacks {}, so that calls fail with queueNotFound",
        "repairing fills in RSMQ's defaults and keeps what is stored",
        "it was completed with RSMQ's defaults",
    ),
    "headless": _Words(
        "error",
        "a queue without its hash: the bodies and attributes of its messages are lost",
        "repairing removes the ids that are left; look for a bad eviction policy",
        "the ids that were left were removed; look for a bad eviction policy",
    ),
    "vacant": _Words(
        "warning",
        "a name in the list of queues for which no queue is stored",
        "repairing removes it from the list",
        "it was removed from the list",
    ),
    "unlisted": _Words(
        "warning",
        "a queue that is not in the list of queues",
        "repairing adds it",
        "it was added",
    ),
    "absent": _Words(
        "error", "there is no such queue", "check the name, or create it with create_queue"
    ),
    "wrong_type": _Words(
        "error", "{}", "look at the key with redis-cli, then rename or delete it by hand"
    ),
    "bad_number": _Words(
        "error",
        "{} is not a valid number",
        "repairing sets it to a default",
        "it was set to a default; correct it with set_attributes if need be",
    ),
    "not_a_queue": _Words(
        "info",
        "{} has a name like the key of a queue, but does not look like one",
        "it is left alone; if another program owns it, give the queues a namespace of their own",
    ),
    "other_format": _Words(
        "info",
        "{} belongs to a queue of another format (rbmq, or times in microseconds), which is in use",
        "it is left alone; use it with its own client, and give it a namespace of its own",
    ),
    "hidden_by_clock": _Words(
        "warning",
        "messages hidden for longer than requested, because the server's clock went back",
        "repairing subtracts the time by which the clock went back",
        "the time by which the clock went back was subtracted",
    ),
    "too_far": _Words(
        "warning",
        "messages hidden for longer than {}",
        "repairing makes them visible",
        "they are visible now",
    ),
    "long_hidden": _Words(
        "info",
        "messages hidden for more than 12 hours from now, and more than the queue's vt and delay",
        "if that is not intended, repair with max_hidden, which makes them visible",
    ),
    "sent_in_future": _Words(
        "warning",
        "messages whose ids were made by a clock ahead of the server's, so it went back",
        "they are delivered all the same; keep the clock right (NTP)",
    ),
    "moved": _Words(
        "info",
        "messages are held outside of the queue by a Spark query with claimMode=move: {}",
        "its query acknowledges them; if it never runs again, return them with spark.release",
    ),
    "milliseconds": _Words(
        "warning",
        "{}, so it looks like milliseconds, which some Rust clients store",
        "set it in seconds with set_attributes, or give vt and delay with each call",
    ),
    "fraction": _Words(
        "info",
        "{} is stored with a fraction, on which some clients fail",
        "store whole seconds with set_attributes",
    ),
    "unknown_field": _Words(
        "info",
        "fields in the hash that are neither attributes nor messages",
        "they are left alone; delete them by hand if no program needs them",
    ),
    "odd_name": _Words(
        "info",
        "names in the list of queues that cannot be the names of queues",
        "they are left alone; remove them with SREM by hand",
    ),
    "scan_refused": _Words(
        "warning",
        "the keys of the namespace could not be searched for queues that are not listed ({})",
        "allow SCAN to this user, or name the queues",
    ),
    "clock_offset": _Words(
        "warning",
        "the server's clock is {} the local one",
        "set both by NTP; delays and leases go by the server's",
    ),
    "eviction": _Words(
        "error",
        "maxmemory-policy {} deletes queues when memory runs out",
        "set it to noeviction",
    ),
    "volatile_eviction": _Words(
        "info",
        "maxmemory-policy {} may drop keys with a TTL, such as our side keys, never messages",
        "noeviction keeps those as well",
    ),
    "no_persistence": _Words(
        "warning",
        "the server keeps {}",
        "switch on its append-only file: appendonly yes",
    ),
    "fsync": _Words(
        "info",
        "the append-only file is synced {}",
        "appendfsync always loses nothing, and is slower",
    ),
    "no_maxmemory": _Words(
        "info",
        "maxmemory is not set, so that the server grows until the system stops it",
        "set a limit; a full server refuses sends and goes on with the rest",
    ),
    "memory_low": _Words(
        "warning",
        "the server uses {} of its maxmemory",
        "consume messages, or raise the limit",
    ),
    "facts_refused": _Words(
        "warning",
        "the server refuses INFO, so eviction, memory and persistence were not checked ({})",
        "allow INFO to this user, or run the doctor as a user that has it",
    ),
    "facts_unknown": _Words(
        "info",
        "the server does not disclose {}",
        "allow INFO and CONFIG GET to this user if these are to be checked",
    ),
}


def finding(
    kind: FindingKind,
    queue: str | None = None,
    count: int = 1,
    *,
    fixed: bool = False,
    what: str = "",
    ids: Iterable[str] = (),
) -> Finding:
    """Return a finding of *kind* with its text."""
    words = _WORDS[kind]
    return Finding(
        queue=queue,
        kind=kind,
        count=count,
        severity=words.severity,
        detail=f"{words.fact.format(what)}; {words.done if fixed else words.todo}",
        fixable=fixable(kind),
        fixed=fixed,
        ids=tuple(ids),
    )


def fixable(kind: FindingKind) -> bool:
    """Return True if findings of *kind* can be repaired."""
    return bool(_WORDS[kind].done)


def kinds() -> list[FindingKind]:
    """Return the names of all kinds of findings."""
    return list(_WORDS)
