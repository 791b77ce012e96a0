"""Time, processor time and memory of the processes that take part in a benchmark of Spark."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

LATE = "Python worker failed to connect back"
#: The Python process that Spark runs on the driver for the source of a stream.
SOURCE = "python_streaming_source_runner"
TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds between two looks at memory.
LOOK_S = 0.5


class ProcessTimes:
    """Measures servers, this process, Spark's Java process and its Python processes."""

    def __init__(self, servers: Sequence[int], jvm: int) -> None:
        self._servers, self._jvm = servers, jvm

    def measure(self, work: Callable[[], object]) -> dict[str, float]:
        """Run *work*; return seconds by the clock and of processor time, and memory at most (MB).

        ``source`` is the part of ``python`` that the source of a stream needs on the driver.
        """
        while True:
            looks = _Looks(self._jvm)
            before, started = self._seconds(), time.perf_counter()
            try:
                with looks:
                    work()
                break
            except Exception as error:
                if LATE not in str(error):
                    raise
                sys.stderr.write("once more: python took longer to start than Spark waits\n")
        wall, after = time.perf_counter() - started, self._seconds()
        spent = {name: round(after[name] - before[name], 3) for name in after}
        # Processor time of all processes, minus those that take part.
        spent["foreign"] = round(2 * spent["foreign"] - sum(spent.values()), 3)
        return {"wall": round(wall, 3), **spent, **looks.found}

    def _seconds(self) -> dict[str, float]:
        """Return the processor time of each part so far."""
        table = _processes()
        workers = [table[pid] for pid in _below(self._jvm, table)]
        return {
            "server": sum(table[pid][1] for pid in self._servers),
            "client": time.thread_time(),
            "java": table[self._jvm][1],
            "python": sum(own + ended for _, own, ended in workers) + table[self._jvm][2],
            "foreign": _busy(),
        }


class _Looks:
    """Looks at memory, and at the source's process, as long as it is entered."""

    def __init__(self, jvm: int) -> None:
        self._jvm = jvm
        self.found: dict[str, float] = {"java_mb": 0, "python_mb": 0, "source": 0}
        #: Processes of earlier queries, which end some time after these.
        self._earlier = set(_below(jvm, _processes()))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            table, found = _processes(), self.found
            found["java_mb"] = max(found["java_mb"], _memory_mb(self._jvm))
            for pid in _below(self._jvm, table):
                found["python_mb"] = max(found["python_mb"], _memory_mb(pid))
                if pid not in self._earlier and SOURCE in _command(pid):
                    found["source"] = max(found["source"], table[pid][1])


def _processes() -> dict[int, tuple[int, float, float]]:
    """Return all processes: parent, seconds of its own, seconds of children that ended."""
    table = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
                table[int(folder.name)] = (int(fields[1]), own / TICKS, ended / TICKS)
    return table


def _busy() -> float:
    """Return the processor time that all processes together have used."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) / TICKS


def _below(parent: int, table: dict[int, tuple[int, float, float]]) -> list[int]:
    found = [pid for pid, (above, _, _) in table.items() if above == parent]
    return found + [pid for child in found for pid in _below(child, table)]


def _memory_mb(pid: int) -> int:
    with suppress(OSError, IndexError):
        status = Path(f"/proc/{pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024
    return 0


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text()
    return ""
