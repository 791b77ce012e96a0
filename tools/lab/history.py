"""Records every call of a test and its outcome, to be checked afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, Self, TextIO

from aiorsmq_ng.errors import RSMQError

Kind = Literal[
    "sending", "acked", "unknown", "failed",
    "receiving", "received", "nothing", "unclaimed",
    "extended", "settling", "settled", "lost",
    "popping", "popped", "escaped", "fault over", "drained",
]  # fmt: skip
#: How a lease ended.
How = Literal["ack", "release", "reject", "forward"]


#: The detail of a receive that waited in vain.
WAITED = "waited"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. What does not concern its kind is empty."""

    kind: Kind
    #: When, in seconds on the clock of the history.
    at: float
    #: What tells one body from all others.
    key: str = ""
    #: The message and the number of its delivery.
    id: str = ""
    rc: int = 0
    #: Who received it.
    holder: str = ""
    #: When the call began whose outcome this is.
    begun: float = 0.0
    #: The lease in seconds.
    vt: float = 0.0
    how: str = ""
    #: The receive or pop that this belongs to, and how many messages it asked for.
    call: str = ""
    count: int = 0
    detail: str = ""


class History:
    """The events of a test, in the order in which they were recorded. Only ever added to.

    All times are of one *clock*. The system's monotonic clock, the default, is the same for all
    processes of a machine, so that histories of several can be put together; *name* keeps their
    calls apart then. With *path*, every event is written there at once, one JSON object per line:
    what a process did before it was killed is not forgotten.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        name: str = "",
        path: Path | None = None,
    ) -> None:
        self.clock = clock
        self._name = name
        self._calls = 0
        self._events: list[Event] = []
        self._file: TextIO | None = path.open("a", encoding="utf-8") if path else None

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events)

    def __len__(self) -> int:
        return len(self._events)

    def of(self, *kinds: Kind) -> list[Event]:
        """Return the events of these kinds."""
        return [event for event in self._events if event.kind in kinds]

    def sending(self, key: str) -> None:
        """Record that a send begins; *key* tells its body from all others."""
        self.add(Event("sending", self.clock(), key=key))

    def acked(self, key: str, id: str) -> None:
        """Record that the send returned."""
        self.add(Event("acked", self.clock(), key=key, id=id))

    def unknown(self, key: str, detail: str = "") -> None:
        """Record that the outcome of the send is unknown."""
        self.add(Event("unknown", self.clock(), key=key, detail=detail))

    def failed(self, key: str, detail: str = "") -> None:
        """Record that it certainly was not stored."""
        self.add(Event("failed", self.clock(), key=key, detail=detail))

    def receiving(self, holder: str, count: int = 1) -> str:
        """Record that a receive of up to *count* messages begins; return what to call it by."""
        return self._begin("receiving", holder, count)

    def received(
        self, call: str, id: str, rc: int, key: str, *, holder: str, begun: float, vt: float
    ) -> None:
        """Record a message that a receive brought; *begun* is when the receive began."""
        at = self.clock()
        self.add(Event("received", at, key, id, rc, holder, begun=begun, vt=vt, call=call))

    def nothing(self, call: str, *, waited: bool = False) -> None:
        """Record that a receive or pop returned without a message.

        A wait may end while a message is on its way to it, which is given back then.
        """
        self.add(Event("nothing", self.clock(), call=call, detail=WAITED if waited else ""))

    def unclaimed(self, call: str, detail: str = "") -> None:
        """Record that a receive or pop may have taken messages that its caller never got."""
        self.add(Event("unclaimed", self.clock(), call=call, detail=detail))

    def extended(self, id: str, rc: int, *, begun: float, vt: float) -> None:
        """Record that a lease was renewed."""
        self.add(Event("extended", self.clock(), id=id, rc=rc, begun=begun, vt=vt))

    def settling(self, id: str, rc: int, how: How) -> None:
        """Record that a holder begins to end its lease."""
        self.add(Event("settling", self.clock(), id=id, rc=rc, how=how))

    def settled(self, id: str, rc: int, how: How, *, begun: float) -> None:
        """Record that it did."""
        self.add(Event("settled", self.clock(), id=id, rc=rc, how=how, begun=begun))

    def lost(self, id: str, rc: int, how: How, *, begun: float) -> None:
        """Record that it was refused: the lease was no longer its own."""
        self.add(Event("lost", self.clock(), id=id, rc=rc, how=how, begun=begun))

    def popping(self, holder: str, count: int = 1) -> str:
        """Record that a pop begins; return what to call it by."""
        return self._begin("popping", holder, count)

    def popped(self, call: str, id: str, key: str) -> None:
        """Record a message that a pop brought."""
        self.add(Event("popped", self.clock(), key=key, id=id, call=call))

    def escaped(self, error: BaseException) -> None:
        """Record an exception that came out of a call, if it is none that is documented."""
        if not isinstance(error, RSMQError):
            self.add(Event("escaped", self.clock(), detail=f"{type(error).__name__}: {error}"))

    def fault_over(self) -> None:
        """Record that from now on nothing is made to fail."""
        self.add(Event("fault over", self.clock()))

    def drained(self) -> None:
        """Record that the queue is empty; the check will see whether it is."""
        self.add(Event("drained", self.clock()))

    def add(self, event: Event) -> None:
        """Add an event that is complete."""
        self._events.append(event)
        if self._file is not None:
            self._file.write(_line(event))
            self._file.flush()

    def write(self, path: Path) -> None:
        """Write everything to *path*, one JSON object per line."""
        path.write_text("".join(map(_line, self._events)), encoding="utf-8")

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Return what was written to *paths*, put together in order of time.

        A last line that its process could not finish is left out.
        """
        history = cls()
        for path in paths:
            *lines, _unfinished = path.read_text(encoding="utf-8").split("\n")
            history._events += [Event(**json.loads(line)) for line in lines]
        history._events.sort(key=lambda event: event.at)
        return history

    def close(self) -> None:
        """Close the file that events are written to."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __repr__(self) -> str:
        return f"<History of {len(self)} events>"

    def _begin(self, kind: Kind, holder: str, count: int) -> str:
        self._calls += 1
        call = f"{self._name}{self._calls}"
        self.add(Event(kind, self.clock(), holder=holder, call=call, count=count))
        return call


def _line(event: Event) -> str:
    said = {name: value for name, value in asdict(event).items() if value not in ("", 0)}
    return json.dumps({"at": 0.0, **said}) + "\n"
