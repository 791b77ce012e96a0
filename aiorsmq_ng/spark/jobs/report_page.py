"""The page of a report: one HTML file, readable on any screen, light or dark, without scripts."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

#: Queues with a colour of their own; smaller ones share one.
_OWN_COLOUR = 6
#: Queues whose waiting times are drawn: those with most messages.
_DRAWN = 20
_AT = "%Y-%m-%d %H:%M:%S"
_DAY_S = 86_400
_EMPTY = "The archive has no messages."


def render(found: dict[str, Any]) -> str:
    """Return the page for what ``report`` found."""
    sections = (
        ("Queues", _table([_readable(row) for row in found["queues"]], _EMPTY)),
        (f"Arrivals, {_bar_of(found['step_s'])}", _arrivals(found)),
        ("Waiting for the first receive", _waits(found["queues"])),
        ("How often messages were received", _receives(found["receives"])),
        ("Most often received", _poison(found)),
    )
    body = "\n".join(f"<h2>{html.escape(title)}</h2>\n{content}" for title, content in sections)
    return _PAGE.format(facts=_facts(found), body=body)


def _facts(found: dict[str, Any]) -> str:
    """Return what the page is about: source, period, time zone, time of creation."""
    messages = sum(row["messages"] for row in found["queues"])
    size = sum(row.get("bytes") or 0 for row in found["queues"])
    first, last = found["first_sent"], found["last_sent"]
    facts = {
        "Source": found["source"],
        "Sent": f"{first} to {last}" if first else "no message with a time",
        "Time zone": found["time_zone"],
        "Content": f"{_count(messages, 'message')} ({_size(size)}) in "
        f"{_count(len(found['queues']), 'queue')}",
        "Report made": found["created"],
    }
    rows = (f"<dt>{name}</dt><dd>{html.escape(value)}</dd>" for name, value in facts.items())
    return f"<dl>{''.join(rows)}</dl>"


def _arrivals(found: dict[str, Any]) -> str:
    rows = found["arrivals"]
    if not rows:
        return _note("No message has a time of sending.")
    colours = _colours(rows)
    counts: dict[str, dict[int, int]] = {}
    for row in rows:
        heights = counts.setdefault(row["at"], {})
        colour = colours[row["queue"]][0]
        heights[colour] = heights.get(colour, 0) + row["messages"]
    highest = max(sum(heights.values()) for heights in counts.values())
    times = list(_times(rows[0]["at"], rows[-1]["at"], found["step_s"]))
    bars = "".join(_stack(at, counts.get(at, {}), highest) for at in times)
    marked = [times[0], times[len(times) // 2], times[-1]] if len(times) > 5 else times[:1]
    marks = "".join(f"<span>{_short(at, found['step_s'])}</span>" for at in marked)
    width = f'style="max-width:{3 * len(times)}rem"'
    return (
        f"{_legend(colours)}"
        f'<div class="chart" role="img" aria-label="messages over time">'
        f'<div class="scale"><span>{highest:,}</span><span>0</span></div>'
        f'<div class="bars" {width}>{bars}</div><div class="marks" {width}>{marks}</div></div>'
    )


def _stack(at: str, heights: dict[int, int], highest: int) -> str:
    """Return the bar of one step; the largest queue is at the bottom."""
    total = sum(heights.values())
    parts = "".join(
        f'<i class="c{colour}" style="height:{100 * count / highest:.2f}%"></i>'
        for colour, count in sorted(heights.items(), reverse=True)
    )
    return f'<div title="{at}: {total:,}">{parts}</div>'


def _colours(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[int, str]]:
    """Return colour and label of each queue; the largest ones have a colour of their own."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row["queue"]] = sizes.get(row["queue"], 0) + row["messages"]
    ranked = sorted(sizes, key=lambda queue: (-sizes[queue], queue))
    shared = len(ranked) - _OWN_COLOUR
    return {
        queue: (place, queue) if place < _OWN_COLOUR else (_OWN_COLOUR, f"{shared} other queues")
        for place, queue in enumerate(ranked)
    }


def _legend(colours: dict[str, tuple[int, str]]) -> str:
    entries = dict(sorted(colours.values()))
    shown = (f'<li><i class="c{n}"></i>{html.escape(name)}</li>' for n, name in entries.items())
    return f'<ul class="legend">{"".join(shown)}</ul>'


def _waits(rows: Sequence[dict[str, Any]]) -> str:
    rows = [row for row in rows if row["waited_p50"] is not None]
    if not rows:
        return _note(
            "No consumer received a message before it was archived, so none waited for a receive."
        )
    drawn = sorted(rows, key=lambda row: (-row["messages"], row["queue"]))[:_DRAWN]
    shares = (50, 95, 99)
    longest = max(row[f"waited_p{share}"] for row in drawn for share in shares)
    lines = [
        _bar(
            row["queue"] if not at else "",
            max(row[f"waited_p{share}"], 0.0),
            longest,
            f"{_duration(row[f'waited_p{share}'])} (p{share})",
            f"p{share}",
        )
        for row in drawn
        for at, share in enumerate(shares)
    ]
    left = len(rows) - len(drawn)
    more = _note(f"{left} queues with fewer messages are in the table above.") if left else ""
    told = "p95: 95 of 100 messages waited no longer than that. Bars grow with the logarithm."
    return f'{_note(told)}<div class="lines">{"".join(lines)}</div>{more}'


def _receives(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return _note(_EMPTY)
    most = max(row["messages"] for row in rows)
    lines = (
        _bar(str(row["receives"]), row["messages"], most, f"{row['messages']:,}", "c0")
        for row in rows
    )
    told = (
        "Messages by their number of receives; that of the archive is not counted. "
        "Bars grow with the logarithm."
    )
    return f'{_note(told)}<div class="lines">{"".join(lines)}</div>'


def _poison(found: dict[str, Any]) -> str:
    if found["poison"]:
        told = "A message that is received again and again may be one that breaks its consumer."
        return _note(told) + _table(found["poison"], "")
    messages = sum(row["messages"] for row in found["receives"])
    never = sum(row["messages"] for row in found["receives"] if not row["receives"])
    return _note(
        f"No message was received more than once. Of {messages:,}, consumers received "
        f"{messages - never:,} before they were archived, and {never:,} not at all."
    )


def _bar(label: str, value: float, most: float, text: str, look: str) -> str:
    """Return a line with a bar whose length grows with the logarithm of *value*."""
    unit = 0.001 if most < 1000 and not float(most).is_integer() else 1.0
    share = math.log1p(value / unit) / math.log1p(most / unit) if most else 0.0
    return (
        f"<span>{html.escape(label)}</span>"
        f'<div><i class="{look}" style="width:{100 * share:.1f}%"></i>'
        f"<b>{html.escape(text)}</b></div>"
    )


def _table(rows: Sequence[dict[str, Any]], empty: str) -> str:
    if not rows:
        return _note(empty)
    head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in rows[0])
    lines = "".join(f"<tr>{_cells(row.values())}</tr>" for row in rows)
    return f'<div class="wide"><table><tr>{head}</tr>{lines}</table></div>'


def _readable(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of a queue with its size in a unit that fits."""
    return {name: _size(value or 0) if name == "bytes" else value for name, value in row.items()}


def _cells(values: Iterable[Any]) -> str:
    return "".join(f"<td>{html.escape(_shown(value))}</td>" for value in values)


def _note(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _times(first: str, last: str, step_s: int) -> Iterable[str]:
    """Yield the beginnings of all steps, also of those without a message."""
    at, end = datetime.strptime(first, _AT), datetime.strptime(last, _AT)
    while at <= end:
        yield at.strftime(_AT)
        at += timedelta(seconds=step_s)


def _short(at: str, step_s: int) -> str:
    if step_s >= _DAY_S:
        return at[:10]
    return at[5:16] if step_s >= 60 else at[5:]


def _bar_of(step_s: int) -> str:
    """Return how long the step of a bar is, in words."""
    for unit, name in ((_DAY_S, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if step_s % unit == 0:
            count = step_s // unit
            return f"by {name}" if count == 1 else f"by {count} {name}s"
    raise ValueError(step_s)


def _duration(seconds: float) -> str:
    for unit, name in ((_DAY_S, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{1000 * seconds:.3g} ms"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count} bytes"


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Queue traffic</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root {{ color-scheme: light dark; --text: #1d2733; --soft: #5b6875; --line: #d8dee4;
  --back: #fff; --head: #f3f5f7; --c0: #2f6690; --c1: #e07a1f; --c2: #5b8e3e; --c3: #7d5ba6;
  --c4: #b5394a; --c5: #3c8d8d; --c6: #8a949e; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e3e8ed; --soft: #9aa7b4; --line: #36414c;
  --back: #14191f; --head: #1e262e; --c0: #6ba6d6; --c1: #f2a65a; --c2: #93c572; --c3: #b79ae0;
  --c4: #e57f8c; --c5: #72c3c3; --c6: #7c8893; }} }}
* {{ box-sizing: border-box; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 84rem;
  padding: 1.5rem clamp(1rem, 4vw, 2.5rem) 4rem; color: var(--text); background: var(--back); }}
h1, h2 {{ font-weight: 600; line-height: 1.2; }} h2 {{ margin: 2.5rem 0 .6rem; font-size: 1.2rem; }}
p {{ margin: .4rem 0; color: var(--soft); max-width: 46rem; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: 0 0 1rem; }}
dt {{ color: var(--soft); }} dd {{ margin: 0; overflow-wrap: anywhere; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: separate; border-spacing: 0; font-size: 13px;
  font-variant-numeric: tabular-nums; }}
th, td {{ padding: .35rem .5rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }}
th {{ background: var(--head); font-weight: 600; white-space: normal; vertical-align: bottom; }}
th:first-child, td:first-child {{ text-align: left; position: sticky; left: 0; }}
td:first-child {{ background: var(--back); }}
.legend {{ display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .4rem 0; padding: 0;
  list-style: none; font-size: 13px; }}
.legend li {{ overflow-wrap: anywhere; }}
.legend i {{ display: inline-block; width: .8em; height: .8em; margin-right: .4em; }}
.chart {{ display: grid; grid-template-columns: max-content 1fr; column-gap: .5rem;
  font-size: 12px; color: var(--soft); font-variant-numeric: tabular-nums; }}
.scale {{ display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; }}
.bars {{ display: flex; gap: 1px; height: 13rem; border: solid var(--line); border-width: 1px 0; }}
.bars div {{ flex: 1 1 0; min-width: 0; max-width: 3rem; display: flex; flex-direction: column;
  justify-content: flex-end; }}
.bars i {{ display: block; min-height: 1px; }}
.marks {{ grid-column: 2; display: flex; justify-content: space-between; }}
.lines {{ display: grid; grid-template-columns: minmax(2rem, max-content) 1fr; gap: .25rem .8rem;
  font-size: 13px; align-items: center; }}
.lines span {{ text-align: right; max-width: 30vw; overflow-wrap: anywhere; }}
.lines div {{ display: flex; align-items: center; gap: .5rem; padding-right: 8.5rem; }}
.lines .p99 + b {{ margin-bottom: .6rem; }} .lines .p99 {{ margin-bottom: .6rem; }}
.lines i {{ height: 1rem; min-width: 2px; flex: none; }}
.lines b {{ font-weight: 400; color: var(--soft); white-space: nowrap; margin-right: -8.5rem; }}
.c0 {{ background: var(--c0); }} .c1 {{ background: var(--c1); }} .c2 {{ background: var(--c2); }}
.c3 {{ background: var(--c3); }} .c4 {{ background: var(--c4); }} .c5 {{ background: var(--c5); }}
.c6 {{ background: var(--c6); }} .p50, .p95, .p99 {{ background: var(--c0); }}
.p95 {{ opacity: .7; }} .p99 {{ opacity: .45; }}
</style></head><body>
<h1>Queue traffic</h1>
{facts}
<p>Waited: seconds from sending to the first receive, of messages that consumers received before
they were archived. Kept: seconds from sending to archiving.</p>
{body}
</body></html>
"""
