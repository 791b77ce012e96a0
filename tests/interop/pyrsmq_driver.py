"""Owns the PyPI package PyRSMQ for a run of tests; runs in an environment of its own.

One JSON object per line on stdin, one per line back: ``{"op", "args", "ns", "realtime"}`` is
answered by ``{"ok"}`` or ``{"err", "msg"}``. RSMQ_INTEROP_URL names the server.
"""

import json
import os
import sys
import time
from typing import Any

from redis import Redis
from rsmq import RedisSMQ

HEARD_LIMIT_S = 10


class Driver:
    """The clients of all namespaces, and what was heard on subscribed channels."""

    def __init__(self, url: str) -> None:
        self.connection = Redis.from_url(url, decode_responses=True)
        self.listener = self.connection.pubsub(ignore_subscribe_messages=False)
        self.heard: dict[str, list[str]] = {}
        self.clients: dict[tuple[str, bool], RedisSMQ] = {}

    def run(self, op: str, args: dict[str, Any], ns: str, realtime: bool) -> Any:
        if op == "subscribe":
            return self.subscribe(**args)
        if op == "hear":
            return self.hear(**args)
        key = ns, realtime
        if key not in self.clients:
            self.clients[key] = RedisSMQ(client=self.connection, ns=ns, realtime=realtime)
        return getattr(self.clients[key], op)(**args).execute()

    def subscribe(self, channel: str) -> bool:
        self.heard[channel] = []
        self.listener.subscribe(channel)
        return self._listen(lambda told: told["type"] == "subscribe" and told["channel"] == channel)

    def hear(self, channel: str, count: int) -> list[str]:
        heard = self.heard[channel]
        if len(heard) < count:
            self._listen(lambda _: len(heard) >= count)
        return heard

    def _listen(self, enough: Any) -> bool:
        until = time.monotonic() + HEARD_LIMIT_S
        while (left := until - time.monotonic()) > 0:
            told = self.listener.get_message(timeout=left)
            if told is None:
                continue
            if told["type"] == "message":
                self.heard[told["channel"]].append(told["data"])
            if enough(told):
                return True
        return False


def main() -> None:
    # Stdout belongs to the answers; the package prints some of its remarks there.
    answers, sys.stdout = sys.stdout, sys.stderr
    driver = Driver(os.environ["RSMQ_INTEROP_URL"])
    for line in sys.stdin:
        try:
            answer = {"ok": driver.run(**json.loads(line))}
        except Exception as error:
            answer = {"err": type(error).__name__, "msg": str(error)}
        # Queue names come as a set.
        answers.write(json.dumps(answer, default=sorted) + "\n")
        answers.flush()


main()
