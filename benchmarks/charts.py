"""Stored results as pictures: bars of each case, for docs/comparison.md.

``python -m benchmarks.summary`` writes them, and nobody else does.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from benchmarks.report import figure
from benchmarks.side_by_side import TENTH, Row, measured, stored_results

WIDTH, MARGIN, GAP = 860, 12, 10
PANEL = (WIDTH - 2 * MARGIN - GAP) // 2
HEAD, LINE, FOOT = 32, 19, 8
LABELS, FIGURES = 78, 180
"""Pixels beside the bars: names of libraries, and what was measured."""
STYLE = """
    .card { fill: #ffffff; stroke: #d0d5de; }
    .box { fill: #f5f6fa; stroke: #d0d5de; }
    .own { fill: #3f51b5; }
    .rival { fill: #aab3c8; }
    .text { font: 600 13px sans-serif; fill: #1c2333; }
    .mono { font: 12px sans-serif; fill: #3d465c; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #1c1f29; stroke: #3a4053; }
      .box { fill: #242936; stroke: #3a4053; }
      .own { fill: #7986cb; }
      .rival { fill: #5f6a85; }
      .text { fill: #f0f2f8; }
      .mono { fill: #c3cadb; }
    }
"""


def drawn(title: str, rows: tuple[Row, ...], folder: Path) -> str:
    """A picture (SVG) with a panel for each row: a bar a library, the longest one as wide as fits.

    Shorter is better. What is missing was not measured, or is not offered.
    """
    stored = stored_results(rows, folder)
    panels = [(row, measured(row, stored[row.question])) for row in rows]
    parts, top = [], MARGIN
    for pair in (panels[place : place + 2] for place in range(0, len(panels), 2)):
        height = HEAD + LINE * max(len(found) for _, found in pair) + FOOT
        for place, (row, found) in enumerate(pair):
            parts += _panel(row, found, MARGIN + place * (PANEL + GAP), top, height)
        top += height + GAP
    size = f'width="{WIDTH - 2}" height="{top - GAP + MARGIN - 2}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top - GAP + MARGIN}" '
        'role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>{STYLE}  </style>",
        f'  <rect class="card" x="1" y="1" {size} rx="10"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _panel(
    row: Row, found: dict[str, tuple[float, str]], left: int, top: int, height: int
) -> list[str]:
    longest = max(value for value, _ in found.values())
    title = escape(row.alone or row.text)
    parts = [
        f'  <rect class="box" x="{left}" y="{top}" width="{PANEL}" height="{height}" rx="6"/>',
        f'  <text class="text" x="{left + 10}" y="{top + 21}">{title}</text>',
    ]
    for place, (column, (value, name)) in enumerate(found.items()):
        y = top + HEAD + LINE * place
        width = max(1.0, round(value / longest * (PANEL - LABELS - FIGURES), 1))
        shown = figure(row.metric, value) + (TENTH if name.endswith(TENTH) else "")
        kind = "own" if column == "Fermion" else "rival"
        start = left + LABELS
        parts += [
            f'  <text class="mono" x="{left + 10}" y="{y + 13}">{column}</text>',
            f'  <rect class="{kind}" x="{start}" y="{y + 3}" width="{width}" height="13" rx="2"/>',
            f'  <text class="mono" x="{round(start + width + 6, 1)}" y="{y + 13}">{shown}</text>',
        ]
    return parts
