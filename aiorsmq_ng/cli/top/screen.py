"""The screen of ``rsmqctl top``, and the keys that change its order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...sampling import Trace
from ..output import Record, printable

#: Key -> the column by which it sorts.
SORT_KEYS = {
    "n": "queue", "r": "ready", "l": "leased", "d": "delayed", "o": "oldest_age", "i": "in_s",
    "u": "out_s", "t": "retries_s", "x": "dead",
}  # fmt: skip
_TITLES = {
    "queue": "QUEUE", "ready": "READY", "leased": "LEASED", "delayed": "DELAYED",
    "oldest_age": "OLDEST", "in_s": "IN/s", "out_s": "OUT/s", "retries_s": "RETRY/s",
    "dead": "DEAD",
}  # fmt: skip
_BARS, _ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
#: Widths in characters: the sparkline at most and at least (narrower, it is left out), a name that
#: must fit beside it, and all numbers.
_CURVE, _SHORT_CURVE, _NAME, _NUMBERS = 24, 8, 14, 68
#: If the screen is too narrow for a name and all numbers: width of a number, and the columns that
#: are left out first.
_SHORT_NAME, _NUMBER = 12, 8.5
_LEAST = ("retries_s", "delayed", "in_s", "out_s", "leased", "oldest_age", "dead")
#: Lines of the screen that are not queues: title, error, header, keys.
_FRAME = 4


@dataclass(slots=True)
class View:
    """State of the screen: order, place and the last error."""

    place: str
    sort: str = "queue"
    backwards: bool = False
    trouble: str = ""

    def press(self, key: str) -> bool:
        """Handle a key press; return False to quit."""
        if key in SORT_KEYS:
            column = SORT_KEYS[key]
            # Highest first, except for names; the same key again reverses the order.
            self.backwards = not self.backwards if column == self.sort else column != "queue"
            self.sort = column
        return key not in ("q", "Q", "\x03")

    def ordered(self, rows: Iterable[Record]) -> list[Record]:
        """Return rows in the chosen order; equal ones by name."""
        named = sorted(rows, key=lambda row: str(row["queue"]))
        if self.sort == "queue":
            return named[::-1] if self.backwards else named
        nothing = -1.0
        return sorted(
            named,
            key=lambda row: nothing if row[self.sort] is None else float(row[self.sort]),
            reverse=self.backwards,
        )


def picture(
    view: View,
    traces: Mapping[str, Trace],
    clock: str,
    size: tuple[int, int],
    unicode: bool = True,
) -> RenderableType:
    """Return the whole screen of *size* (columns and lines)."""
    width, height = size
    rows = view.ordered(trace.row(name) for name, trace in traces.items())
    shown = rows[: max(1, height - _FRAME)]
    curve = min(_CURVE, width - _NUMBERS - _NAME)
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0))
    columns = _columns(width, view.sort)
    for column in columns:
        mark = ("v" if view.backwards else "^") if column == view.sort else ""
        style = "bold cyan" if mark else "bold"
        name = column == "queue"
        table.add_column(
            Text(_TITLES[column] + mark, style),
            justify="left" if name else "right",
            no_wrap=True,
            ratio=1 if name else None,
        )
    if curve >= _SHORT_CURVE:
        table.add_column(Text("DEPTH", "bold"), no_wrap=True, width=curve)
    bars = _BARS if unicode else _ASCII_BARS
    for row in shown:
        cells = _cells(row, columns)
        if curve >= _SHORT_CURVE:
            depths = list(traces[row["queue"]].depths)[-curve:]
            cells.append(Text(sparkline(depths, bars), "green"))
        table.add_row(*cells)
    head = _line(_title(view, len(rows), len(shown), clock))
    trouble = _line(Text(printable(view.trouble), "bold red"))
    return Group(head, trouble, table, _line(_keys()))


def _columns(width: int, sort: str) -> list[str]:
    """Return the columns that fit on a screen beside names of a useful width."""
    kept = list(_TITLES)
    for column in _LEAST:
        if _SHORT_NAME + (len(kept) - 1) * _NUMBER <= width:
            break
        if column != sort:
            kept.remove(column)
    return kept


def _line(text: Text) -> Text:
    """Return *text* as exactly one line, cropped to the screen."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _cells(row: Record, columns: Iterable[str]) -> list[Text]:
    cells = []
    for column in columns:
        if column == "queue":
            cells.append(Text(printable(row[column])))
        elif column == "oldest_age":
            cells.append(Text(age(row[column])))
        elif column in ("dead", "retries_s"):
            cells.append(Text(_number(row[column]), "bold red" if row[column] else "dim"))
        else:
            cells.append(Text(_number(row[column]), "" if row[column] else "dim"))
    return cells


def _title(view: View, total: int, shown: int, clock: str) -> Text:
    more = f", the first {shown} shown" if shown < total else ""
    count = f"{total} queue{'' if total == 1 else 's'}{more}"
    return Text.assemble(
        ("rsmqctl top", "bold"), f"  {clock}  {count}  ", (printable(view.place), "dim")
    )


def _keys() -> Text:
    words = ((key, _TITLES[column].lower()) for key, column in SORT_KEYS.items())
    line = Text("sort: ", "dim")
    for key, word in words:
        line.append(f" {key} ", "bold")
        line.append(word, "dim")
    return line.append("   q ", "bold").append("quit", "dim")


def sparkline(values: Iterable[int], bars: str = _BARS) -> str:
    """Return values as a sparkline, scaled to the highest of them."""
    last = list(values)
    highest = max(last, default=0)
    if not highest:
        return bars[0] * len(last)
    top = len(bars) - 1
    # Rounded up, so that every value above 0 is visible.
    return "".join(bars[-(-value * top // highest)] for value in last)


def age(seconds: float | None) -> str:
    """Return a time as 0:12, 4:02:10 or 3d 4h; empty for none."""
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole >= 86400:
        return f"{whole // 86400}d {whole % 86400 // 3600}h"
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, float) and value < 100 and not value.is_integer():
        return f"{value:.1f}"
    return f"{value:,.0f}"
