"""Plays a scenario with one or two clients, and records what was said."""

from __future__ import annotations

import json
import secrets
import string
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .driver import Driver, DriverLost
from .expectations import Mismatch, Scope, compare, shown
from .redis import Redis, RedisError
from .scenarios import Scenario

#: A message that becomes visible later than this was given the wrong time.
PATIENCE_S = 5.0
#: A race is over after this, whether or not all messages arrived.
RACE_LIMIT_S = 60.0
#: How often a scenario is begun again whose calls a busy machine made too late.
ATTEMPTS = 5
PAUSE_S = 0.005
_DIGITS = string.digits + string.ascii_lowercase
_LETTERS = string.ascii_letters + string.digits


class TooSlow(Exception):
    """A call that must be made before some time was made too late: its result shows nothing."""


@dataclass
class Outcome:
    """What came of a scenario: ``passed``, ``failed``, or ``lacking`` if a verb is missing."""

    state: str
    detail: str = ""
    #: Requests, answers and planted data, as JSON objects in order.
    trace: list[dict[str, Any]] = field(default_factory=list)


class Play:
    """One scenario in a namespace of its own."""

    def __init__(self, url: str, scenario: Scenario, cast: Mapping[str, Driver]) -> None:
        self._url = url
        self._scenario = scenario
        self._cast = cast
        self._begin()

    def _begin(self) -> None:
        self._scope = Scope({"ns": f"rsmq-conformance-{secrets.token_hex(6)}"})
        self._trace: list[dict[str, Any]] = []
        self._channel: Redis | None = None

    @property
    def ns(self) -> str:
        """The namespace."""
        return str(self._scope.names["ns"])

    def run(self) -> Outcome:
        """Play all steps until one fails, and remove what they stored."""
        with Redis(self._url) as self._redis:
            for _ in range(ATTEMPTS):
                try:
                    return self._attempt()
                except TooSlow:
                    self._begin()
        return Outcome("failed", f"the machine was too slow in {ATTEMPTS} attempts", self._trace)

    def _attempt(self) -> Outcome:
        try:
            for number, step in enumerate(self._scenario.steps, 1):
                self._step(number, step)
        except Mismatch as mismatch:
            return Outcome("failed", str(mismatch), self._trace)
        finally:
            self._clean()
        return Outcome("passed", "", self._trace)

    def _clean(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if left := self._redis.keys(f"{self.ns}:"):
            self._redis.call("DEL", *left)

    def _step(self, number: int, step: dict[str, Any]) -> None:
        kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "verb": self._call,
            "look": self._look,
            "plant": self._plant,
            "wait": self._wait,
            "race": self._race,
            "check": self._check,
            "listen": self._listen,
            "heard": self._heard,
        }
        try:
            (kind,) = kinds.keys() & step.keys()
            kinds[kind](step)
        except (Mismatch, RedisError, DriverLost) as error:
            role = f" ({step['role']})" if "role" in step else ""
            raise Mismatch(f"step {number}{role}: {error}") from error

    # -- calls of a client

    def _call(self, step: dict[str, Any]) -> None:
        errors = []
        for _ in range(step.get("tries", 1)):
            answer = self._ask(self._redis, step)
            if "within" in step:
                self._in_time(step["within"])
            try:
                self._judge(step, answer)
            except Mismatch as mismatch:
                errors.append(mismatch)
            else:
                return
        raise errors[-1]

    def _in_time(self, limit: dict[str, Any]) -> None:
        """Raise ``TooSlow`` if the last call ended later than *ms* after that one began."""
        begun_us, _ = self._scope.calls[limit["of"]]
        if self._scope.calls["last"][1] - begun_us >= limit["ms"] * 1000:
            raise TooSlow

    def _ask(self, redis: Redis, step: dict[str, Any]) -> dict[str, Any]:
        driver = self._cast[step["role"]]
        before = redis.now_us()
        args = self._scope.filled(step["args"])
        try:
            request, answer = driver.call(
                step["verb"], self.ns, args, realtime=step.get("realtime", False)
            )
        except DriverLost as lost:
            self._trace.append({"to": step["role"], "request": lost.request, "lost": str(lost)})
            raise
        window = before, redis.now_us()
        self._scope.calls["last"] = window
        if "call" in step:
            self._scope.calls[step["call"]] = window
        self._trace.append({"to": step["role"], "request": request, "answer": answer})
        return answer

    def _judge(self, step: dict[str, Any], answer: dict[str, Any]) -> None:
        where = step["verb"]
        if "error" in step:
            codes = step["error"]
            wanted = "an error" if codes == ["any"] else " or ".join(codes)
            if "error" not in answer:
                said = shown(answer["ok"])
                raise Mismatch(f"{where}: expected {wanted}, but it returned {said}")
            if answer["error"] not in codes and codes != ["any"]:
                raise Mismatch(f"{where}: expected {wanted}, got {_refusal(answer)}")
        elif "error" in answer:
            raise Mismatch(f"{where}: {_refusal(answer)}")
        else:
            compare(self._scope.filled(step["reply"]), answer["ok"], self._scope, where)
            for name, path in step.get("save", {}).items():
                self._scope.names[name] = answer["ok"][path] if path else answer["ok"]

    # -- what is stored

    def _look(self, step: dict[str, Any]) -> None:
        kind, expected = step["look"], self._scope.filled(step["expect"])
        key = f"{self.ns}:{step['key']}" if "key" in step else ""
        if kind == "keys":
            self._look_at_keys(expected)
        elif kind == "hash":
            flat = self._redis.call("HGETALL", key)
            found = dict(zip(_texts(flat[::2]), _texts(flat[1::2]), strict=True))
            if extra := step.get("only") and sorted(found.keys() - expected.keys()):
                raise Mismatch(f"{step['key']}: fields that do not belong there: {extra}")
            compare(expected, found, self._scope, step["key"])
        elif kind == "zset":
            flat = _texts(self._redis.call("ZRANGE", key, 0, -1, "WITHSCORES"))
            found = dict(zip(flat[::2], flat[1::2], strict=True))
            if found.keys() != expected.keys():
                wanted = f"expected members {sorted(expected)}, got {sorted(found)}"
                raise Mismatch(f"{step['key']}: {wanted}")
            compare(expected, found, self._scope, step["key"])
        else:
            members = sorted(_texts(self._redis.call("SMEMBERS", key)))
            compare(sorted(expected), members, self._scope, step["key"])

    def _look_at_keys(self, expected: list[str]) -> None:
        """Expect these keys, without a TTL. A client may add keys of its own if they expire."""
        found = {}
        for key in self._redis.keys(f"{self.ns}:"):
            found[key.removeprefix(f"{self.ns}:")] = self._redis.call("PTTL", key)
        if missing := sorted(set(expected) - found.keys()):
            raise Mismatch(f"keys that are missing: {missing}; there are {sorted(found)}")
        if expiring := [key for key in expected if found[key] >= 0]:
            raise Mismatch(f"keys with a TTL, so messages will vanish: {expiring}")
        lasting = sorted(key for key, ttl in found.items() if ttl == -1)
        if extra := sorted(set(lasting) - set(expected)):
            raise Mismatch(f"keys that are left for ever: {extra}")

    def _plant(self, step: dict[str, Any]) -> None:
        """Store something as another client would have: queues, messages, or raw commands."""
        what = self._scope.filled(step["plant"])
        if "queue" in what:
            name = what.pop("queue")
            fields = {"vt": "30", "delay": "0", "maxsize": "65536"}
            fields |= {"created": "1600000000", "modified": "1600000000"} | what
            pairs = [word for pair in fields.items() for word in pair]
            commands: list[list[str | bytes]] = [["SADD", f"{self.ns}:QUEUES", name]]
            commands.append(["HSET", f"{self.ns}:{name}:Q", *pairs])
        elif "message" in what:
            commands = self._message(what)
        else:
            commands = [[_raw(word) for word in command] for command in what["commands"]]
        for command in commands:
            self._redis.call(*command)
        self._trace.append({"plant": [_texts(command) for command in commands]})

    def _message(self, what: dict[str, Any]) -> list[list[str | bytes]]:
        """Return the commands for a message that was sent a minute ago."""
        queue, sent_us = what["message"], self._redis.now_us() - 60_000_000
        id = what.get("id") or new_id(sent_us)
        self._scope.names[what.get("save", "id")] = id
        key = f"{self.ns}:{queue}"
        score = what.get("score") or str(sent_us // 1000)
        commands: list[list[str | bytes]] = [["ZADD", key, score, id]]
        if what.get("body") is not None:
            commands.append(["HSET", f"{key}:Q", id, _raw(what["body"])])
            commands.append(["HINCRBY", f"{key}:Q", "totalsent", "1"])
        extra = [suffix for suffix in ("rc", "fr", "meta") if suffix in what]
        return [*commands, *(["HSET", f"{key}:Q", f"{id}:{end}", what[end]] for end in extra)]

    # -- time

    def _wait(self, step: dict[str, Any]) -> None:
        what = self._scope.filled(step["wait"])
        if "ms" in what:
            time.sleep(what["ms"] / 1000)
        elif "visible" in what:
            score = self._redis.call("ZSCORE", f"{self.ns}:{what['in']}", what["visible"])
            if score is None:
                raise Mismatch(f"message {what['visible']} is not in the queue")
            self._sleep_until(float(score) * 1000 + 1000, "the message becomes visible")
        else:  # the first fifth of a second, by the clock of the server
            while (now := self._redis.now_us()) % 1_000_000 > 200_000:
                self._sleep_until(now - now % 1_000_000 + 1_000_000, "the second begins")

    def _sleep_until(self, at_us: float, what: str) -> None:
        while (left_s := (at_us - self._redis.now_us()) / 1_000_000) > 0:
            if left_s > PATIENCE_S:
                raise Mismatch(f"{what} in {left_s:.0f} s only")
            time.sleep(left_s)

    # -- publications

    def _listen(self, step: dict[str, Any]) -> None:
        self._channel = Redis(self._url, PATIENCE_S)
        self._channel.call("SUBSCRIBE", f"{self.ns}:{step['listen']}")

    def _heard(self, step: dict[str, Any]) -> None:
        assert self._channel
        heard = []
        for _ in step["heard"]:
            try:
                heard.append(_text(self._channel.read()[2]))
            except RedisError as error:
                missing = f"expected {step['heard']} to be published, heard {heard} ({error})"
                raise Mismatch(missing) from error
        compare(step["heard"], heard, self._scope, "published")

    # -- clients at the same time

    def _race(self, step: dict[str, Any]) -> None:
        """Let every track run in a thread of its own, from the same moment on."""
        gate = threading.Barrier(len(step["race"]))
        until = time.monotonic() + RACE_LIMIT_S
        results = self._scope.names
        for track in step["race"]:
            results[track["into"]] = []
        faults: list[Exception] = []

        def run(track: dict[str, Any]) -> None:
            try:
                with Redis(self._url) as redis:
                    gate.wait(RACE_LIMIT_S)
                    self._track(redis, track, until)
            except (Mismatch, RedisError, DriverLost, threading.BrokenBarrierError) as error:
                gate.abort()
                faults.append(error)

        threads = [threading.Thread(target=run, args=(track,)) for track in step["race"]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise Mismatch(str(faults[0]))

    def _track(self, redis: Redis, track: dict[str, Any], until: float) -> None:
        """Repeat a call; collect what it returned, or the name of the error."""
        into = self._scope.names[track["into"]]
        number = 0
        while not self._is_over(track, number) and time.monotonic() < until:
            answer = self._ask(redis, _numbered(track, number))
            number += 1
            got = answer.get("ok", answer.get("error"))
            if got is None:
                time.sleep(PAUSE_S)
                continue
            if "error" in answer and answer["error"] not in track.get("error", ()):
                raise Mismatch(f"{track['verb']}: {_refusal(answer)}")
            into.append(got)
            if "then" in track:
                follow = {**track["then"], "role": track["role"]}
                follow["args"] = {**follow["args"], "id": got["id"]}
                self._judge(follow, self._ask(redis, follow))

    def _is_over(self, track: dict[str, Any], number: int) -> bool:
        if "times" in track:
            return number >= int(track["times"])
        done = sum(len(self._scope.names[name]) for name in track["of"])
        return done >= int(track["total"])

    def _check(self, step: dict[str, Any]) -> None:
        names = self._scope.names
        if step["check"] == "each once":
            sent = Counter(id for name in step["sent"] for id in names[name])
            got = Counter(message["id"] for name in step["got"] for message in names[name])
            lost, doubled = sent - got, {id for id, count in got.items() if count > 1}
            strange = got.keys() - sent.keys()
            if lost or doubled or strange or max(sent.values(), default=1) > 1:
                raise Mismatch(
                    f"of {len(sent)} messages {len(lost)} were lost, {len(doubled)} were delivered "
                    f"twice although the first receiver still held them, {len(strange)} unknown; "
                    f"{sum(sent.values()) - len(sent)} ids were given twice"
                )
        else:  # "one wins"
            rounds = list(zip(*(names[name] for name in step["of"]), strict=True))
            if wrong := [each for each in rounds if each.count(True) != 1]:
                raise Mismatch(f"exactly one of two should succeed, got {shown(wrong[:3])}")


def new_id(sent_us: int) -> str:
    """Return an id as RSMQ makes them."""
    digits = ""
    while sent_us:
        sent_us, digit = divmod(sent_us, 36)
        digits = _DIGITS[digit] + digits
    return digits + "".join(secrets.choice(_LETTERS) for _ in range(22))


def _numbered(track: dict[str, Any], number: int) -> dict[str, Any]:
    args = json.loads(json.dumps(track["args"]).replace("{n}", str(number)))
    return {**track, "args": args}


def _refusal(answer: dict[str, Any]) -> str:
    return f"{answer['error']} ({answer.get('message', '')})"


def _raw(word: Any) -> str | bytes:
    return bytes.fromhex(word["hex"]) if isinstance(word, dict) else str(word)


def _text(value: Any) -> str:
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]
