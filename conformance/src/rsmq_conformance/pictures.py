"""Pictures as SVG: a badge of one client, and the table of all."""

from __future__ import annotations

from xml.sax.saxutils import escape

GOOD, FAIR, POOR, PLAIN = "#2e7d32", "#b26a00", "#b3261e", "#5f6368"
#: Width of a character of the font, in pixels; generous, because the font is the reader's.
_CHAR = 7.2
_FONT = 'font-family="Verdana,DejaVu Sans,sans-serif" font-size="11"'


def colour(score: str) -> str:
    """Return the colour of a score such as ``58/63``."""
    passed, _, of = score.partition("/")
    if not of or not passed.isdigit():
        return PLAIN
    if passed == of:
        return GOOD
    return FAIR if int(passed) >= 0.9 * int(of) else POOR


def badge(label: str, score: str) -> str:
    """Return a badge with a label and a score."""
    left, right = (round(len(text) * _CHAR) + 14 for text in (label, score))
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" '
        f'aria-label="{escape(label)}: {escape(score)}">\n'
        f'<rect width="{left}" height="20" fill="#444"/>\n'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour(score)}"/>\n'
        f'<g fill="#fff" {_FONT} text-anchor="middle">'
        f'<text x="{left / 2:g}" y="14">{escape(label)}</text>'
        f'<text x="{left + right / 2:g}" y="14">{escape(score)}</text></g>\n</svg>\n'
    )


def matrix(rows: list[list[str]]) -> str:
    """Return a table whose cells have the colours of their scores; the first row is the head."""
    first = round(max(len(row[0]) for row in rows) * _CHAR) + 16
    others = round(max(len(cell) for row in rows for cell in row[1:]) * _CHAR) + 12
    width, height = first + others * (len(rows[0]) - 1) + 8, 26 * len(rows) + 8
    drawn = []
    for down, row in enumerate(rows):
        y = 4 + 26 * down
        drawn.append(f'<text x="8" y="{y + 17}" fill="#222">{escape(row[0])}</text>')
        for across, cell in enumerate(row[1:]):
            x = first + others * across
            fill = "#222"
            if down:
                fill = "#fff"
                drawn.append(
                    f'<rect x="{x + 1}" y="{y + 1}" width="{others - 2}" height="24" rx="3" '
                    f'fill="{colour(cell) if cell else "#ddd"}"/>'
                )
            drawn.append(
                f'<text x="{x + others / 2:g}" y="{y + 17}" fill="{fill}" '
                f'text-anchor="middle">{escape(cell)}</text>'
            )
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" '
        f'aria-label="RSMQ conformance">\n<rect width="100%" height="100%" fill="#fff"/>\n'
        f"<g {_FONT}>\n{body}\n</g>\n</svg>\n"
    )
