"""A scene whose producers ask until they know what became of a send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import pairwise
from typing import Any

from aiorsmq_ng import DurabilityUnmet, Queue, RSMQError, SendUnknown

from ..lab import Verdict
from .scene import Scene


class SteadfastScene(Scene):
    """Producers resend what is unknown; how long every send and resend took is watched."""

    longest_s = 0.0
    #: Those that took longer than their deadline and half a second.
    overdue = 0
    #: Sends that ended as SendUnknown, how often they were asked for again, and how they ended.
    unknown = resent = resolved = unmet = 0

    @property
    def gap_s(self) -> float:
        """The longest time without a confirmed send while the faults lasted."""
        acked = [e.at for e in self.history.of("acked") if e.at <= self.ended]
        return max(b - a for a, b in pairwise([self.began, *sorted(acked), self.ended]))

    def figures(self, verdict: Verdict) -> dict[str, Any]:
        """Return what is worth telling."""
        return {
            "acked": verdict.acked,
            "lost": verdict.lost,
            "copies": verdict.copies,
            "overlaps": verdict.overlaps,
            "delivered": verdict.delivered,
            "redelivered": verdict.redelivered,
            "refused": verdict.refused,
            "left unknown": verdict.unknown,
            "failed": verdict.failed,
            "SendUnknown": self.unknown,
            "resent": self.resent,
            "resolved": self.resolved,
            "below their level": self.unmet,
            "faults": self.faults,
            "gap s": round(self.gap_s, 2),
            "longest send s": round(self.longest_s, 2),
            "overdue": self.overdue,
            "escaped": [e.detail for e in self.history.of("escaped")],
        }

    async def send(self, queue: Queue, key: str) -> None:
        """Send until the outcome is known, or cannot be known."""
        history = self.history
        history.sending(key)
        try:
            history.acked(key, await self._until_known(queue, key))
        except DurabilityUnmet as error:
            # It is stored, but not as safely as it shall be: nothing is promised.
            self.unmet += 1
            history.unknown(key, type(error).__name__)
        except SendUnknown as error:
            history.unknown(key, type(error).__name__)
        except RSMQError as error:
            history.failed(key, str(error))
        except asyncio.CancelledError:
            history.unknown(key, "cancelled")
            raise
        except BaseException as error:
            history.unknown(key, type(error).__name__)
            history.escaped(error)
            raise

    async def _until_known(self, queue: Queue, key: str) -> str:
        try:
            return await self._timed(queue.send(key))
        except SendUnknown as unknown:
            self.unknown += 1
            # For longer than any fault lasts.
            for _ in range(20):
                assert unknown.token is not None
                self.resent += 1
                try:
                    (id,) = await self._timed(queue.resend(unknown.token))
                except SendUnknown as again:
                    unknown = again
                else:
                    self.resolved += 1
                    return str(id)
            raise

    async def _produce(self, number: int) -> None:
        pause = self.load.producers / self.load.rate if self.load.rate else 0
        n = 0
        while not self._stopping:
            n += 1
            await self.send(self.queue, f"{self.ns}-{number}-{n}")
            await asyncio.sleep(pause)

    async def _timed(self, call: Awaitable[Any]) -> Any:
        begun = self.history.clock()
        try:
            return await call
        finally:
            took = self.history.clock() - begun
            self.longest_s = max(self.longest_s, took)
            self.overdue += took > self.load.deadline + 0.5
