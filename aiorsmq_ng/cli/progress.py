"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

Advance = Callable[[int], None]


#: Up to this number of messages the work is short on every machine: no bar is shown.
SHORT = 1000


@contextmanager
def progress(label: str, total: int | None, shown: bool, short: int = SHORT) -> Iterator[Advance]:
    """Show progress on stderr, if it is to be *shown* and the work is more than *short*.

    Yields a callback that is given each increment. Without *total* there is only a count.
    """
    if not shown:
        yield lambda _: None
        return
    with ExitStack() as stack:
        draw = stack.enter_context(_bar(label, total)) if (total or 0) > short else None
        done = 0

        def advance(count: int) -> None:
            nonlocal draw, done
            done += count
            if draw is not None:
                draw(count)
            elif done > short:
                draw = stack.enter_context(_bar(label, total))
                draw(done)

        yield advance


@contextmanager
def _bar(label: str, total: int | None) -> Iterator[Advance]:
    """Show a rich progress bar."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
    if total is not None:
        columns += [TaskProgressColumn(show_speed=True), TimeRemainingColumn()]
    # The usual ten refreshes per second would cost a tenth of the time of an import.
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
