"""Topics and the broker at full size, as scenes of the report: who got what, and what is wrong."""

from __future__ import annotations

from typing import Any

from ..lab import Verdict, Violation
from . import broker, broker_streams, gomq, slow_readers, topics

Figures = tuple[dict[str, Any], Verdict | None]

#: What the two restarts of the broker, and its end, look like.
STOPS = ["SIGTERM -> 0", "SIGKILL -> -9", "SIGTERM -> 0"]


async def by_topic(messages: int, kills: int) -> Figures:
    """Publish and observe on Redis itself; peers are killed and replaced under new names."""
    # Without kills no lease may run out, or a slow machine would look like a fault.
    found = await topics.storm(messages, kills, vt=2 if kills else 600)
    wrong = [] if found["published"] == messages else [_wrong("O1", found, "published")]
    wrong += _nothing(found, "O1", "lost")
    wrong += _nothing(found, "O3", "invented", *(() if kills else ("handled again",)))
    return found, Verdict(wrong)


async def by_broker(
    messages: int, *, kill: bool, kind: type[broker.Storm] = broker.Storm
) -> Figures:
    """Do the same through the broker, which is restarted twice."""
    report = await broker.storm(messages, kill=kill, kind=kind)
    found = {
        "published": report.messages, "peers killed": report.peers_killed,
        "broker stopped": report.broker_stops, "lost": report.lost, "doubled": report.doubled,
        "publishes repeated": report.publishes_repeated, "left": report.left_in_queues,
        "broker MB": report.broker_rss_mb, "seconds": report.seconds,
    }  # fmt: skip
    wrong = _nothing(found, "O1", "lost")
    wrong += _nothing(found, "O3", "left", *(() if kill else ("doubled",)))
    if report.broker_stops != (STOPS if kill else STOPS[:1]):
        wrong.append(_wrong("O8", found, "broker stopped"))
    return found, Verdict(wrong)


async def by_gomq(messages: int, *, kill: bool) -> Figures:
    """Do the same with clients of GOMQ."""
    return await by_broker(messages, kill=kill, kind=gomq.GomqStorm)


async def many_streams(streams: int) -> Figures:
    """Open many streams at once and give each some messages."""
    found: dict[str, Any] = {
        k.replace("_", " "): v for k, v in (await broker_streams.run(streams)).items()
    }
    wrong = _nothing(found, "O1", "lost") + _nothing(found, "O3", "doubled", "left")
    return found, Verdict(wrong + _nothing(found, "O8", "broker exit"))


async def slow(readers: int) -> Figures:
    """Let clients not read what they have asked for."""
    report = await slow_readers.run(readers)
    found: dict[str, Any] = {k.replace("_", " "): v for k, v in report.items()}
    lost = [] if found["given back"] == found["messages"] else [_wrong("O1", found, "given back")]
    return found, Verdict(lost + _nothing(found, "O8", "broker exit"))


def _nothing(found: dict[str, Any], rule: str, *names: str) -> list[Violation]:
    """Return those counts that are not 0, each a number or one for every subscription."""
    counts = {name: found[name] for name in names}
    return [
        _wrong(rule, found, name)
        for name, count in counts.items()
        if (any(count.values()) if isinstance(count, dict) else count)
    ]


def _wrong(rule: str, found: dict[str, Any], name: str) -> Violation:
    return Violation(rule, f"{name}: {found[name]}")
