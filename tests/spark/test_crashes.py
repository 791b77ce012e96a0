"""The JVM is killed at every point where it hurts; nothing is missing, nothing is doubled."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from .conftest import Bench
from .support import run_driver

COUNT = 3000
#: Of those that are refused, this number does not decode.
BAD = 300
#: Messages in a batch, as ``drivers.py`` has it.
BATCH = 1200
LATE = "Python worker failed to connect back"


@dataclass
class Scene:
    """What a kill left behind: in Spark's checkpoint, and on the server."""

    logged: int
    committed: int
    #: Claim being made, claims that are made, claims acknowledged.
    open: int = 0
    sealed: set[int] = field(default_factory=set)
    acked: int = 0
    #: Messages that the first claim still has.
    first: int = 0
    #: The sink: messages that are there, rows set aside, what is known of the epoch.
    arrived: int = 0
    staged: int = 0
    epochs: set[str] = field(default_factory=set)
    #: Messages in the dead-letter queue.
    letters: int = 0

    @classmethod
    def look(cls, bench: Bench, out: Bench, folder) -> Scene:
        scene = cls(
            newest(folder / "checkpoint" / "offsets"), newest(folder / "checkpoint/commits")
        )
        redis = bench.redis
        for key in redis.keys(f"{bench.keys.zset}:ng:ledger:*"):
            ledger = {
                name.decode(): int(v) for name, v in redis.hgetall(key).items() if v.isdigit()
            }
            scene.open, scene.acked = ledger.get("open", 0), ledger["acked"]
            scene.sealed = {int(n.split(":")[1]) for n in ledger if n.startswith("sealed:")}
        for key in redis.keys(f"{bench.keys.zset}:ng:claim:*:1"):
            runs = redis.zrange(key, 0, -1)
            scene.first = sum(len(run.partition(b"\n")[2]) // 32 for run in runs)
        scene.letters = redis.zcard(f"{bench.keys.zset}-dead")
        scene.arrived = out.size
        staged = redis.keys(f"{out.keys.zset}:ng:staged:*")
        scene.staged = sum(redis.llen(key) for key in staged) // 3
        for key in redis.keys(f"{out.keys.zset}:ng:epochs:*"):
            scene.epochs = {name.decode() for name in redis.hkeys(key)}
        return scene


def newest(log) -> int:
    return max((int(f.name) for f in log.glob("*") if f.name.isdecimal()), default=-1)


#: Per query the points at which its runs are killed, each with what shows that it was there. Every
#: next run goes on from the checkpoint.
POINTS = {
    "leased": {
        "claim_half": lambda s: (s.open, s.sealed, s.first) == (1, set(), 1000),
        "claim_done": lambda s: 1 in s.sealed and s.logged == -1,
        "planned": lambda s: (s.logged, s.committed) == (0, -1) and s.first == BATCH,
        "read_half": lambda s: (s.logged, s.committed) == (0, -1) and s.first == BATCH,
        "before_ack": lambda s: (s.logged, s.committed, s.first) == (0, 0, BATCH),
        "ack_half": lambda s: (s.committed, s.acked, s.first) == (0, 0, 200) and 1 in s.sealed,
    },
    "copied": {
        "stage_half": lambda s: 0 < s.staged < BATCH and not s.epochs and not s.arrived,
        "before_commit": lambda s: s.staged > BATCH and not s.epochs and not s.arrived,
        "commit_half": lambda s: s.epochs == {"begun:0"} and 0 < s.arrived < BATCH,
        "after_commit": lambda s: (s.epochs, s.arrived, s.committed) == ({"done"}, BATCH, -1),
    },
    "moved": {
        "claim_half": lambda s: (s.open, s.sealed) == (1, set()),
        "read_half": lambda s: (s.logged, s.committed) == (0, -1),
        "before_ack": lambda s: s.committed == 0 and 1 in s.sealed,
    },
    "refused": {
        "letter_half": lambda s: (s.logged, s.committed) == (0, -1) and 0 < s.letters < BAD,
        "read_half": lambda s: s.committed == -1 and 0 < s.letters < BAD,
        "before_ack": lambda s: s.committed == 0 and 0 < s.letters < BAD,
        "ack_half": lambda s: (s.committed, s.acked) == (0, 0),
    },
    "refused_moved": {
        "letter_half": lambda s: (s.logged, s.committed) == (0, -1) and 0 < s.letters < BAD,
        "read_half": lambda s: s.committed == -1 and 0 < s.letters < BAD,
        "before_ack": lambda s: s.committed == 0 and 0 < s.letters < BAD,
    },
    "staged": {
        "stage_half": lambda s: 0 < s.staged < COUNT and not s.epochs and not s.arrived,
        "before_commit": lambda s: s.staged > COUNT and not s.epochs and not s.arrived,
        "commit_half": lambda s: s.epochs == {"begun:0"} and 0 < s.arrived < COUNT,
        "after_commit": lambda s: (s.epochs, s.arrived) == ({"done"}, COUNT),
    },
    "direct": {"send_half": lambda s: 0 < s.arrived < COUNT},
}
#: Those that take messages from a queue; the others send the rows of a table.
READERS = ("leased", "copied", "moved", "refused", "refused_moved")


def until_python_came_up(query, bench, folder, **given):
    """Run the query; again if a busy machine took longer to start Python than Spark waits."""
    for _ in range(10):
        done = run_driver("crash", bench, folder, query=query, count=COUNT, **given)
        if LATE not in done.stderr:
            break
    return done


def kill_again_and_again(query, bench, out, folder):
    """Kill the query at each of its points, then let it come to its end."""
    folder.mkdir()
    for point, shows in POINTS[query].items():
        died = until_python_came_up(query, bench, folder, point=point)
        assert died.returncode != 0, f"{query} did not reach {point}"
        assert (folder / point).exists(), died.stderr[-3000:]
        scene = Scene.look(bench, out, folder)
        assert shows(scene), (query, point, scene)
    final = until_python_came_up(query, bench, folder, point="none")
    assert final.returncode == 0, final.stderr[-3000:]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_drivers_lose_nothing_and_double_nothing(server_url, ns, tmp_path):
    benches = {name: Bench(server_url, ns, name) for name in POINTS}
    sinks = benches | {"copied": Bench(server_url, ns, "out")}
    for name in READERS:
        bad = BAD // 10 if "refused" in name else 0
        for at in range(0, COUNT, COUNT // 10):
            benches[name].fill_numbers(COUNT // 10 - bad, start=at)
            if bad:
                benches[name].fill(*[b"\xff%d" % (at + n) for n in range(bad)])

    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(kill_again_and_again, name, benches[name], sinks[name], tmp_path / name)
            for name in POINTS
        ]
        for run in runs:
            run.result()

    everything = list(range(COUNT))
    for name in ("leased", "moved"):
        rows = (tmp_path / name / "rows").read_text().split()
        assert sorted(map(int, rows)) == everything, name
    for name in ("copied", "staged", "direct"):
        assert sorted(map(int, sinks[name].bodies())) == everything, name
    for name in ("refused", "refused_moved"):
        rows = (tmp_path / name / "rows").read_text().split()
        assert sorted(map(int, rows)) == [n for n in everything if n % 300 < 270], name
        dead = Bench(server_url, ns, f"{name}-dead")
        bad = [b"\xff%d" % (at + n) for at in range(0, COUNT, 300) for n in range(30)]
        assert sorted(dead.bodies()) == sorted(bad), name
        assert dead.size == BAD
    for name in READERS:
        bench = benches[name]
        assert bench.size == 0
        assert bench.side_keys() == ["group", "ledger"]
        assert bench.redis.hlen(bench.keys.hash) == 7
    # Rows of attempts that were killed wait for the end of their life; they will never be sent.
    for name in ("copied", "staged"):
        staged = sinks[name].redis.keys(f"{sinks[name].keys.zset}:ng:staged:*")
        assert staged
        assert all(0 < sinks[name].redis.ttl(key) <= 86400 for key in staged)
