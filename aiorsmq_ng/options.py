"""Settings of a client that most users never touch."""

from __future__ import annotations

from dataclasses import dataclass

from ._common.durability import MEMORY, Durability
from ._common.durations import Duration
from .errors import InvalidValue

#: Settings that an error may tell users to switch on.
_ALLOW = {
    "allow_eviction": "Options(allow_eviction=True)",
    "insecure_tls": "Options(insecure_tls=True)",
    "plain_password": "Options(plain_password=True)",
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """Limits and pacing of one client.

    Durations are given in seconds or as a ``timedelta``, and read as seconds.
    """

    #: Connections to Redis at most, besides the one that listens for wake-ups. Concurrent calls
    #: on one queue share script calls, so few are needed.
    max_connections: int = 16
    #: How long a call may take altogether, reconnects included.
    deadline: Duration = Duration(10.0)
    #: How long one attempt to connect may take.
    connect_timeout: Duration = Duration(2.0)
    #: A waiting receiver looks again after this long at first ...
    poll_base: Duration = Duration(0.05)
    #: ... and then ever less often, up to this: the longest it can miss a message whose sender
    #: publishes no wake-up.
    poll_cap: Duration = Duration(5.0)
    #: How safe a message is when ``send`` returns: ``memory`` (executed by the primary),
    #: ``replicated:n`` (received by n replicas) or ``fsynced`` (on the primary's disk).
    durability: str = MEMORY
    #: How long a ``dedup_key`` keeps a second copy away.
    dedup_window: Duration = Duration(300.0)
    #: Work on a server that may evict queues when its memory is full (``allkeys-*``).
    allow_eviction: bool = False
    #: Work with names that PyRSMQ allows and RSMQ does not (dots, spaces, any alphabet).
    foreign_names: bool = False
    #: Allow a colon in the namespace. Then ns "a" with queue "b" and ns "a:b" may share keys.
    nested_ns: bool = False
    #: Let the URL switch off parts of the check of a server's certificate. An attacker between
    #: client and server can then read and change everything.
    insecure_tls: bool = False
    #: Let a password, or a broker's token, go to another machine in clear text.
    plain_password: bool = False

    def __post_init__(self) -> None:
        if self.max_connections < 1:
            raise InvalidValue(f"max_connections must be at least 1, not {self.max_connections}")
        Durability.parse(self.durability)
        for name in ("deadline", "connect_timeout", "poll_base", "poll_cap", "dedup_window"):
            if not getattr(self, name) > 0:
                raise InvalidValue(f"{name} must be more than 0 seconds")
        if self.poll_cap < self.poll_base:
            raise InvalidValue("poll_cap must not be less than poll_base")

    def how_to_allow(self, setting: str) -> str:
        """Return what an error tells users to pass so that *setting* is on.

        A front with other names for settings overrides it; empty if it has none for *setting*.
        """
        return _ALLOW[setting]
