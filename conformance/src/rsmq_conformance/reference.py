"""RSMQ in plain Python, as the npm package 0.12.4 does it: a client to compare others with.

It is the measure of the scenarios: it passes all of them, and each scenario fails with a variant of
it in which one thing is done wrong. ``python -m rsmq_conformance.reference`` runs it as a driver.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from .driver import URL_VARIABLE, VERBS
from .player import new_id
from .redis import Redis, RedisError

NAME = re.compile(r"[A-Za-z0-9_-]{1,160}")
ATTRIBUTES = ("vt", "delay", "maxsize")
DEFAULTS = {"vt": 30, "delay": 0, "maxsize": 65536}
MAX_TIME = 9_999_999
#: Selects the next message, counts it, and hides or removes it. KEYS: sorted set, hash.
#: ARGV: now (ms), new score (ms) or "pop".
TAKE = """
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)
while found[1] and redis.call('HEXISTS', KEYS[2], found[1]) == 0 do
  redis.call('ZREM', KEYS[1], found[1])
  found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)
end
local id = found[1]
if not id then return {} end
redis.call('HINCRBY', KEYS[2], 'totalrecv', 1)
local rc = redis.call('HINCRBY', KEYS[2], id .. ':rc', 1)
if rc == 1 then redis.call('HSET', KEYS[2], id .. ':fr', ARGV[1]) end
local fr = redis.call('HGET', KEYS[2], id .. ':fr') or '0'
local body = redis.call('HGET', KEYS[2], id)
if ARGV[2] == 'pop' then
  redis.call('ZREM', KEYS[1], id)
  redis.call('HDEL', KEYS[2], id, id .. ':rc', id .. ':fr')
else
  redis.call('ZADD', KEYS[1], ARGV[2], id)
end
return {id, body, rc, fr}
"""
CREATE = """
if redis.call('HEXISTS', KEYS[2], 'vt') == 1 then return 0 end
redis.call('HSET', KEYS[2], unpack(ARGV, 2))
redis.call('SADD', KEYS[1], ARGV[1])
return 1
"""


class Refused(Exception):
    """A refusal, under RSMQ's own name for it."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(text or code)
        self.code = code


class Reference:
    """The ten verbs. Everything that a faulty client may do wrong is a method of its own."""

    name = "reference"

    def __init__(self, redis: Redis, ns: str, realtime: bool = False) -> None:
        self.redis, self.ns, self.realtime = redis, ns, realtime

    # -- parts

    def zset(self, qname: str) -> str:
        """Return the key of the messages."""
        return f"{self.ns}:{qname}"

    def hash(self, qname: str) -> str:
        """Return the key of the attributes and bodies."""
        return f"{self.ns}:{qname}:Q"

    def score(self, now_us: int, seconds: float) -> str:
        """Return when a message becomes visible."""
        return str(now_us // 1000 + int(seconds) * 1000)

    def seconds(self, now_us: int) -> int:
        """Return the time as ``created`` and ``modified`` store it."""
        return now_us // 1_000_000

    def stored(self, values: dict[str, int]) -> dict[str, Any]:
        """Return attributes as they are stored."""
        return dict(values)

    def new_id(self, now_us: int) -> str:
        """Return the id of a new message."""
        return new_id(now_us)

    def check_name(self, qname: str) -> None:
        """Refuse what is no name of a queue."""
        if not NAME.fullmatch(qname) or qname == "QUEUES":
            raise Refused("invalidFormat", "Invalid qname format")

    def check_value(self, name: str, value: int) -> None:
        """Refuse a setting that is out of range."""
        low, high = (1024, 65536) if name == "maxsize" else (0, MAX_TIME)
        if not low <= value <= high and not (name == "maxsize" and value == -1):
            raise Refused("invalidValue", f"{name} must be between {low} and {high}")

    def check_size(self, message: str, maxsize: int) -> None:
        """Refuse a message that is too long."""
        if maxsize != -1 and len(message.encode()) > maxsize:
            raise Refused("messageTooLong", "Message too long")

    def queue(self, qname: str) -> dict[str, int]:
        """Return the attributes of a queue; refuse one that does not exist."""
        self.check_name(qname)
        found = self.redis.call("HMGET", self.hash(qname), *ATTRIBUTES)
        if None in found:
            raise Refused("queueNotFound", "Queue not found")
        return {name: int(float(each)) for name, each in zip(ATTRIBUTES, found, strict=True)}

    # -- queues

    def createQueue(self, qname: str, **given: int) -> bool:  # noqa: N802 - RSMQ's names
        """Create a queue."""
        self.check_name(qname)
        for name, value in given.items():
            self.check_value(name, value)
        now_s = self.seconds(self.redis.now_us())
        fields = {**self.stored({**DEFAULTS, **given}), "created": now_s, "modified": now_s}
        if not self.create(qname, fields):
            raise Refused("queueExists", "Queue exists")
        return True

    def create(self, qname: str, fields: dict[str, Any]) -> bool:
        """Store a new queue and its name, as one; return False if there is one already."""
        pairs = [word for pair in fields.items() for word in pair]
        keys = f"{self.ns}:QUEUES", self.hash(qname)
        return bool(self.redis.call("EVAL", CREATE, 2, *keys, qname, *pairs))

    def listQueues(self) -> list[str]:  # noqa: N802
        """Return the names of all queues."""
        return [name.decode() for name in self.redis.call("SMEMBERS", f"{self.ns}:QUEUES")]

    def deleteQueue(self, qname: str) -> bool:  # noqa: N802
        """Delete a queue with its messages."""
        self.check_name(qname)
        done = self.redis.transaction(
            ("DEL", self.hash(qname), self.zset(qname)), ("SREM", f"{self.ns}:QUEUES", qname)
        )
        if not done[0]:
            raise Refused("queueNotFound", "Queue not found")
        return True

    def getQueueAttributes(self, qname: str) -> dict[str, Any]:  # noqa: N802
        """Describe a queue."""
        shown: dict[str, Any] = self.queue(qname)
        names = ("created", "modified", "totalsent", "totalrecv")
        numbers = self.redis.call("HMGET", self.hash(qname), *names)
        shown |= {name: int(n or 0) for name, n in zip(names, numbers, strict=True)}
        return shown | self.counts(qname)

    def counts(self, qname: str) -> dict[str, int]:
        """Return how many messages there are, and how many are hidden."""
        zset, now_ms = self.zset(qname), self.redis.now_us() // 1000
        hidden = self.redis.call("ZCOUNT", zset, f"({now_ms}", "+inf")
        return {"msgs": self.redis.call("ZCARD", zset), "hiddenmsgs": hidden}

    def setQueueAttributes(self, qname: str, **given: int) -> dict[str, Any]:  # noqa: N802
        """Change attributes of a queue."""
        if not given:
            raise Refused("noAttributeSupplied", "No attribute was supplied")
        self.queue(qname)
        for name, value in given.items():
            self.check_value(name, value)
        fields = {**self.stored(given), "modified": self.seconds(self.redis.now_us())}
        self.redis.call("HSET", self.hash(qname), *(w for pair in fields.items() for w in pair))
        return self.getQueueAttributes(qname)

    # -- messages

    def sendMessage(self, qname: str, message: str, delay: int | None = None) -> str:  # noqa: N802
        """Send a message and return its id."""
        queue = self.queue(qname)
        if delay is None:
            delay = queue["delay"]
        self.check_value("delay", delay)
        self.check_size(message, queue["maxsize"])
        now_us = self.redis.now_us()
        id = self.new_id(now_us)
        self.store(qname, id, self.score(now_us, delay), message.encode())
        if self.realtime:
            self.redis.call("PUBLISH", f"{self.ns}:rt:{qname}", self.counts(qname)["msgs"])
        return id

    def store(self, qname: str, id: str, score: str, body: bytes) -> None:
        """Store a message, as one."""
        self.redis.transaction(
            ("ZADD", self.zset(qname), score, id),
            ("HSET", self.hash(qname), id, body),
            ("HINCRBY", self.hash(qname), "totalsent", 1),
        )

    def receiveMessage(self, qname: str, vt: int | None = None) -> dict[str, Any] | None:  # noqa: N802
        """Take the next message and hide it."""
        queue = self.queue(qname)
        if vt is None:
            vt = queue["vt"]
        self.check_value("vt", vt)
        now_us = self.redis.now_us()
        return self.message(self.take(qname, str(now_us // 1000), self.score(now_us, vt)))

    def popMessage(self, qname: str) -> dict[str, Any] | None:  # noqa: N802
        """Take the next message and delete it."""
        self.queue(qname)
        return self.message(self.take(qname, str(self.redis.now_us() // 1000), "pop"))

    def take(self, qname: str, now_ms: str, score: str) -> list[Any]:
        """Select, count and hide or remove the next message, as one."""
        reply = self.redis.call("EVAL", TAKE, 2, self.zset(qname), self.hash(qname), now_ms, score)
        return list(reply)

    def message(self, taken: list[Any]) -> dict[str, Any] | None:
        """Return a message as its receiver sees it."""
        if not taken:
            return None
        id, body, rc, fr = taken
        sent = int(id[:10], 36) / 1000
        text = body.decode(errors="replace")
        return {"id": id.decode(), "message": text, "rc": rc, "fr": int(fr), "sent": sent}

    def fields(self, id: str) -> Iterable[str]:
        """Return the fields that belong to a message."""
        return (id, f"{id}:rc", f"{id}:fr", f"{id}:meta")

    def deleteMessage(self, qname: str, id: str) -> bool:  # noqa: N802
        """Delete a message; return True if there was one."""
        done = self.redis.transaction(
            ("ZREM", self.zset(qname), id), ("HDEL", self.hash(qname), *self.fields(id))
        )
        return bool(done[0] == 1 and done[1] > 0)

    def changeMessageVisibility(self, qname: str, id: str, vt: int) -> bool:  # noqa: N802
        """Hide a message for *vt* from now; return True if there is one."""
        self.queue(qname)
        self.check_value("vt", vt)
        score = self.score(self.redis.now_us(), vt)
        present = self.redis.call("ZSCORE", self.zset(qname), id) is not None
        if present:
            self.redis.call("ZADD", self.zset(qname), "XX", score, id)
        return present


def serve(make: Callable[[Redis, str, bool], Reference]) -> None:
    """Answer the lines on stdin until they end."""
    redis = Redis(os.environ[URL_VARIABLE])
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {"id": request["id"]}
        client = make(redis, request["ns"], request.get("realtime", False))
        try:
            if request["verb"] == "hello":
                answer["ok"] = {"name": client.name, "language": "Python", "verbs": VERBS}
                answer["ok"] |= {"version": "", "options": ["realtime"]}
            else:
                answer["ok"] = getattr(client, request["verb"])(**request["args"])
        except Refused as refusal:
            answer |= {"error": refusal.code, "message": str(refusal)}
        except (RedisError, TypeError, ValueError) as error:
            answer |= {"error": type(error).__name__, "message": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(Reference)
