"""A client under test: a process that answers one line of JSON per line."""

from __future__ import annotations

import json
import os
import queue
import re
import shlex
import subprocess
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

PROTOCOL = 1
VERBS = (
    *("createQueue", "listQueues", "deleteQueue", "getQueueAttributes", "setQueueAttributes"),
    *("sendMessage", "receiveMessage", "popMessage", "deleteMessage", "changeMessageVisibility"),
)
OPTIONS = ("realtime",)
#: Environment variable by which a driver learns where Redis is.
URL_VARIABLE = "RSMQ_CONFORMANCE_URL"
#: A driver that needs longer for one answer counts as hanging.
ANSWER_LIMIT_S = 30.0
STDERR_LINES = 200
#: The line of a stack trace that says what went wrong.
_TELLING = re.compile(r"panic|error|exception|fatal", re.IGNORECASE)


class DriverLost(Exception):
    """The process ended, hangs, or writes something that is no answer."""

    request: dict[str, Any] | None = None


@dataclass(frozen=True)
class Hello:
    """How a driver introduces itself."""

    name: str
    version: str
    language: str
    verbs: tuple[str, ...]
    options: tuple[str, ...]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Hello:
        """Read the answer to ``hello``; raise ``DriverLost`` if a field is missing or unknown."""
        said = answer.get("ok")
        if not isinstance(said, dict) or not isinstance(said.get("name"), str):
            raise DriverLost(f'no "ok" with a "name" in the answer to hello: {answer}')
        verbs = tuple(said.get("verbs", VERBS))
        options = tuple(said.get("options", ()))
        if unknown := {*verbs, *options} - {*VERBS, *OPTIONS}:
            raise DriverLost(f"hello names what this kit does not know: {sorted(unknown)}")
        version, language = str(said.get("version", "")), str(said.get("language", ""))
        return cls(said["name"], version, language, verbs, options)

    @property
    def title(self) -> str:
        """Name and version."""
        return f"{self.name} {self.version}".strip()

    def lacks(self, needed: set[str]) -> list[str]:
        """Return what of *needed* (verbs and options) this client does not have."""
        return sorted(needed - {*self.verbs, *self.options})


class Driver:
    """A process that owns a client. Threads may call it; one call is in flight at a time."""

    def __init__(self, command: str, url: str) -> None:
        self.command = command
        self._url = url
        self._turn = threading.Lock()
        self._count = 0
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: deque[str] = deque(maxlen=STDERR_LINES)

    def hello(self) -> Hello:
        """Start the process and return how it introduces itself."""
        return Hello.of(self.call("hello", "", {"protocol": PROTOCOL})[1])

    def call(
        self, verb: str, ns: str, args: dict[str, Any], *, realtime: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the request as it was sent, and the answer.

        Raises ``DriverLost`` if there is none; the next call then starts the process again.
        """
        with self._turn:
            self._count += 1
            request: dict[str, Any] = {"id": self._count, "verb": verb, "ns": ns, "args": args}
            if realtime:
                request["realtime"] = True
            try:
                return request, self._ask(request)
            except DriverLost as lost:
                lost.request = request
                self._end()
                raise

    def close(self) -> None:
        """End the process: it leaves when its input ends."""
        with self._turn:
            self._end()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process or self._start()
        assert process.stdin
        with suppress(OSError):  # that it reads no more is seen by the end of its output
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        try:
            line = self._lines.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            raise DriverLost(self._story(f"no answer within {ANSWER_LIMIT_S:g} s")) from None
        if line is None:
            raise DriverLost(self._story(_end_of(process)))
        try:
            answer = json.loads(line)
        except ValueError:
            raise DriverLost(self._story(f"not a line of JSON: {line[:200]!r}")) from None
        if not isinstance(answer, dict) or answer.get("id") != request["id"]:
            raise DriverLost(self._story(f"not an answer to call {request['id']}: {line[:200]}"))
        if ("ok" in answer) == ("error" in answer):
            raise DriverLost(self._story(f'an answer has either "ok" or "error": {line[:200]}'))
        return answer

    def _start(self) -> subprocess.Popen[str]:
        try:
            process = subprocess.Popen(  # noqa: S603 - the user names the program
                shlex.split(self.command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env={**os.environ, URL_VARIABLE: self._url},
            )
        except (OSError, ValueError) as error:
            raise DriverLost(f"cannot start {self.command!r}: {error}") from error
        self._process, self._lines = process, queue.Queue()
        self._said = deque(maxlen=STDERR_LINES)
        listening = threading.Thread(target=_listen, args=(process, self._lines), daemon=True)
        self._hearing = threading.Thread(target=_hear, args=(process, self._said), daemon=True)
        listening.start()
        self._hearing.start()
        return process

    def _story(self, what: str) -> str:
        """Return what happened, with the line on stderr that says most about it."""
        self._hearing.join(1)  # if it has ended, what it said last is here soon
        said = [line.strip() for line in self._said if line.strip()]
        telling = [line for line in said if _TELLING.search(line)] or said[-1:]
        return f"{what}; on stderr: {telling[0]}" if telling else what

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin
        try:
            process.stdin.close()
            process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            process.wait(5)


def _listen(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout
    with process.stdout as talk:
        for line in talk:
            lines.put(line)
    lines.put(None)


def _hear(process: subprocess.Popen[str], said: deque[str]) -> None:
    assert process.stderr
    with process.stderr as talk:
        for line in talk:
            said.append(line.rstrip())


def _end_of(process: subprocess.Popen[str]) -> str:
    try:
        return f"the driver ended with {process.wait(5)}"
    except subprocess.TimeoutExpired:
        return "the driver closed its output"
