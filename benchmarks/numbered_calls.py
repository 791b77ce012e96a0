"""What it costs the server to remember calls: send and receive with their memory and without.

The same scripts, once as they are and once with the lines about the memory taken out, on one
server, in short turns, medians over many rounds. Time is the processor time of the server's main
thread, so it counts everything that a call costs there.
"""

from __future__ import annotations

import argparse
import os
import statistics

import redis

from aiorsmq_ng.embedded import EmbeddedServer
from aiorsmq_ng.ids import suffixes
from aiorsmq_ng.protocol.scripts import load


def without_memory(name: str) -> bytes:
    """Return a script that remembers nothing; fails if its text is not what it was."""
    text = load(name).source.decode()
    if name == "send":
        start = text.index("if ARGV[2] ~= '1' then")
        middle = text.index("local stored = redis.call('HMGET'")
        text = text[:start] + text[middle:]
        start = text.index("local outcome = ARGV[1]")
        end = text.index("local scores, bodies = {}, {}")
        return (text[:start] + text[end:].replace("if met then", "if false then")).encode()
    start = text.index("local before = recall()")
    end = text.index("local dead, parts")
    text = text[:start] + text[end:]
    start = text.index("for part = 1, #replies do\n  if #replies[part] > 2")
    return (text[:start] + "return replies\n").encode()


def server_us(client: redis.Redis, run) -> float:
    """Return the microseconds of processor time that the server spent while *run* ran."""
    before = client.info("cpu")
    run()
    after = client.info("cpu")
    names = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    return sum(after[name] - before[name] for name in names) * 1e6


def measure(client: redis.Redis, batch: int, calls: int, rounds: int) -> dict[str, float]:
    bodies = [b"x" * 100] * batch
    names = {
        name: (client.script_load(load(name).source), client.script_load(without_memory(name)))
        for name in ("send", "receive")
    }
    number = 0

    def send(sha: str) -> None:
        nonlocal number
        for _ in range(calls):
            number += 1
            args = [number, 1, "w", 0, 0, batch]
            for suffix, body in zip(suffixes(os.urandom(22 * batch)), bodies, strict=True):
                args += (suffix, body)
            client.evalsha(sha, 3, "b:q", "b:q:Q", "b:q:ng:call:s", *args)

    def receive(sha: str) -> None:
        nonlocal number
        for _ in range(calls):
            number += 1
            client.evalsha(
                sha, 4, "b:q", "b:q:Q", "b:q:ng:deliveries", "b:q:ng:call:s",
                number, 1, 0, "", "", batch, 60000,
            )  # fmt: skip

    spent: dict[tuple[str, bool], list[float]] = {}
    for turn in range(rounds + 1):
        for remembers in (True, False) if turn % 2 else (False, True):
            client.flushdb()
            client.hset("b:q:Q", mapping={"vt": 30, "delay": 0, "maxsize": 65536})
            for name, run in (("send", send), ("receive", receive)):
                sha = names[name][0 if remembers else 1]
                us = server_us(client, lambda run=run, sha=sha: run(sha)) / calls
                if turn:  # the first round only warms up
                    spent.setdefault((name, remembers), []).append(us)
    return {
        name: statistics.median(spent[name, True]) / statistics.median(spent[name, False])
        for name in names
    } | {f"{name}_us": statistics.median(spent[name, True]) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--calls", type=int, default=1000)
    options = parser.parse_args()
    print(f"{'messages per call':>18} {'send':>8} {'ratio':>7} {'receive':>9} {'ratio':>7}")
    with EmbeddedServer.ephemeral() as server, redis.Redis.from_url(server.url) as client:
        for batch in (1, 10, 100):
            found = measure(client, batch, max(20, options.calls // batch), options.rounds)
            print(
                f"{batch:>18} {found['send_us']:>6.1f}us {found['send']:>7.3f} "
                f"{found['receive_us']:>7.1f}us {found['receive']:>7.3f}"
            )


if __name__ == "__main__":
    main()
