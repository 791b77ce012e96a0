"""Tokens: the roles of callers, and the queues and topics they may use."""

from __future__ import annotations

import hmac
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, NamedTuple

from aiorsmq_ng import InvalidValue

from .._protocol.topic_names import read_queue_name

PRODUCER, CONSUMER, ADMIN = "producer", "consumer", "admin"
ROLES = frozenset({PRODUCER, CONSUMER, ADMIN})
#: Fields of a token. Any other field is an error: ignored, it could permit too much.
_NAMES = ("queues", "topics", "consumers")
_FIELDS = frozenset({"token", "sha256", "roles", *_NAMES})
#: Shortest token, so that it cannot be guessed.
_SHORTEST = 16


class Refused(Exception):
    """A call that is not allowed; ``known`` is False if the caller is not authenticated."""

    def __init__(self, message: str, *, known: bool) -> None:
        super().__init__(message)
        self.known = known


class Owner(NamedTuple):
    """Topic and consumer that the queue of a subscription belongs to."""

    topic: str
    consumer: str


#: Owner unknown: only tokens for all queues may use it.
UNKNOWN = Owner("", "")


def owner_of(queue: str) -> Owner | None:
    """Return the owner of a subscription's *queue*, read from its name; None for other queues.

    A topic's own queue has no consumer. A dead-letter queue has the owner of its queue.
    """
    parts = read_queue_name(queue)
    if parts is None:
        return None
    return Owner(parts[0], parts[1] if len(parts) > 1 else "") if parts else UNKNOWN


def _listed(identity: str, name: str, given: Iterable[str]) -> tuple[str, ...]:
    # A text is a list of its characters, and "*" is one of those of "shop-*".
    words = () if isinstance(given, str | bytes) else tuple(given)
    if isinstance(given, str | bytes) or not all(isinstance(word, str) for word in words):
        raise InvalidValue(f"caller {identity!r} has {name} that are not a list of texts")
    return words


@dataclass(frozen=True, slots=True, init=False)
class Caller:
    """An authenticated caller: its name, and what it may do.

    Without any of the three lists it is for all names. Once one is given, a list that is missing
    means none. Without roles it may see figures, and nothing else.
    """

    #: Its name, as audit logs show it.
    identity: str
    #: What it may do: ``producer``, ``consumer``, ``admin``.
    roles: frozenset[str]
    #: Names or patterns of the queues that it may use.
    queues: tuple[str, ...]
    #: Names or patterns of the topics that it may use.
    topics: tuple[str, ...]
    #: Consumers whose subscriptions to those topics it may use.
    consumers: tuple[str, ...]

    def __init__(
        self,
        identity: str,
        roles: Iterable[str] = (),
        queues: Iterable[str] | None = None,
        topics: Iterable[str] | None = None,
        consumers: Iterable[str] | None = None,
    ) -> None:
        """Raise ``InvalidValue`` for a role that does not exist, and for a text as a list.

        Args:
            identity: its name, as audit logs show it.
            roles: any of ``producer``, ``consumer`` and ``admin``.
            queues: names or patterns of queues.
            topics: names or patterns of topics.
            consumers: names or patterns of consumers, whose subscriptions to those topics it uses.
        """
        set_field = object.__setattr__
        set_field(self, "identity", identity)
        set_field(self, "roles", frozenset(_listed(identity, "roles", roles)))
        if unknown := sorted(self.roles - ROLES):
            known = ", ".join(sorted(ROLES))
            raise InvalidValue(
                f"caller {identity!r} has the role {unknown[0]!r}; known are {known}"
            )
        lists = dict(zip(_NAMES, (queues, topics, consumers), strict=True))
        # A single list restricts the caller; lists that are missing then permit nothing.
        rest = ("*",) if all(given is None for given in lists.values()) else ()
        for name, given in lists.items():
            set_field(self, name, rest if given is None else _listed(identity, name, given))

    def has(self, *roles: str) -> bool:
        """Return True if it has one of *roles*; an admin has all."""
        return ADMIN in self.roles or any(role in self.roles for role in roles)

    def need(self, *roles: str, what: str) -> None:
        """Raise ``Refused`` unless it has one of *roles*, which *what* needs."""
        if not self.has(*roles):
            needed = " or ".join(roles)
            raise Refused(
                f"token {self.identity!r} lacks the role {needed}, which {what} needs", known=True
            )

    def sees_queue(self, queue: str, owner: Owner | None = None) -> bool:
        """Return True if it may use *queue*. *owner*, if known, is that of a subscription's queue.

        The queue of a subscription has two names, so patterns of queues do not apply to it: those
        of topics and consumers do.
        """
        owner = owner or owner_of(queue)
        if owner is None:
            return _fits(queue, self.queues)
        return self.sees_subscription(*owner)

    def sees_topic(self, topic: str) -> bool:
        """Return True if it may use *topic*."""
        return _fits(topic, self.topics)

    def sees_subscription(self, topic: str, consumer: str) -> bool:
        """Return True if it may use the subscription of *consumer* to *topic*."""
        return self.sees_topic(topic) and _fits(consumer, self.consumers)


#: The caller of a broker without tokens. It may do everything.
ANONYMOUS = Caller("anonymous", ROLES)
#: A caller whose token has not arrived yet. It may do nothing.
UNIDENTIFIED = Caller("", queues=())
#: The caller of the call that is running; the interceptor sets it.
CALLER: ContextVar[Caller] = ContextVar("aiorsmq_ng.broker.caller", default=ANONYMOUS)


class Tokens:
    """The tokens that a broker accepts. Only their digests are stored."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = tuple(callers.items())

    def __len__(self) -> int:
        return len(self._callers)

    def caller(self, metadata: Iterable[tuple[str, Any]]) -> Caller:
        """Return the caller that sent *metadata*, or raise ``Refused``."""
        if not self._callers:
            return ANONYMOUS
        given = [value for key, value in metadata if key.lower() == "authorization"]
        if len(given) != 1 or not isinstance(given[0], str):
            raise Refused("no token given: send 'authorization: Bearer <token>'", known=False)
        scheme, _, token = given[0].partition(" ")
        presented = digest(token.strip() if scheme.lower() == "bearer" else "")
        found: Caller | None = None
        # All digests are compared, each in constant time, so that timing reveals nothing.
        for stored, caller in self._callers:
            if hmac.compare_digest(stored, presented):
                found = caller
        if found is None:
            raise Refused("the token is not known here", known=False)
        return found

    @classmethod
    def read(cls, text: str) -> Tokens:
        """Read a token file (TOML), or raise ``InvalidValue``. Format: docs/guides/grpc.md.

        Args:
            text: content of the file.
        """
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidValue(f"the token file is not TOML: {error}") from None
        callers: dict[bytes, Caller] = {}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise InvalidValue(f"the token file has {name!r} outside of a table [name]")
            stored = _digest_of(name, table)
            if stored in callers:
                raise InvalidValue(f"tokens {name!r} and {callers[stored].identity!r} are the same")
            callers[stored] = _caller(name, table)
        if not callers:
            raise InvalidValue("the token file has no tokens; a token is a table [name]")
        return cls(callers)

    @classmethod
    def single(cls, token: str) -> Tokens:
        """Return tokens with a single one, which may do everything.

        Args:
            token: the token, as clients send it.
        """
        return cls({_checked("RSMQ_BROKER_TOKEN", token): Caller("admin", ROLES)})


def digest(token: str) -> bytes:
    """Return the digest of a token. Random tokens need no slow hash."""
    return sha256(token.encode(errors="surrogatepass")).digest()


def _digest_of(name: str, table: Mapping[str, Any]) -> bytes:
    if unknown := sorted(set(table) - _FIELDS):
        raise InvalidValue(f"token {name!r} has an unknown field {unknown[0]!r}")
    given = [key for key in ("token", "sha256") if isinstance(table.get(key), str)]
    if len(given) != 1:
        raise InvalidValue(f"token {name!r} needs either 'token' or 'sha256', a text")
    if given == ["token"]:
        return _checked(name, table["token"])
    try:
        stored = bytes.fromhex(table["sha256"])
    except ValueError:
        stored = b""
    if len(stored) != 32:
        raise InvalidValue(f"token {name!r} has a 'sha256' that is not 64 hexadecimal digits")
    return stored


def _checked(name: str, token: str) -> bytes:
    if len(token) < _SHORTEST or token != token.strip() or not token.isascii():
        raise InvalidValue(
            f"token {name!r} must have at least {_SHORTEST} ASCII characters, no space at its ends"
        )
    return digest(token)


def _caller(name: str, table: Mapping[str, Any]) -> Caller:
    roles = _words(name, table, "roles", ())
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        wrong = f", not {', '.join(map(repr, unknown))}" if unknown else ""
        known = ", ".join(sorted(ROLES))
        raise InvalidValue(f"token {name!r} needs 'roles', a list of {known}{wrong}")
    names = {key: _words(name, table, key, ()) for key in _NAMES if key in table}
    return Caller(name, roles, **names)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _words(name: str, table: Mapping[str, Any], key: str, default: Sequence[str]) -> Sequence[str]:
    words = table.get(key, default)
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InvalidValue(f"token {name!r} has {key!r} that is not a list of texts")
    return words
