"""A progress bar on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int], None]


@contextmanager
def progress(label: str, total: int | None, shown: bool) -> Iterator[Advance]:
    """Show on stderr how much is done, if it is to be *shown*.

    Yields a function that takes how much more is done. Without *total* there is only a count.
    """
    if not shown:
        yield lambda _: None
        return
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
    # Ten times a second, as is usual, would take a tenth of the time that an import has.
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
