"""Stored results as one table with a column a library, for README.md and docs/comparison.md.

``python -m benchmarks.summary`` writes it between the markers of these pages, and nobody else does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import figure

BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->\n"
TENTH = " (10 % of rows)"
"""Ends the name of a library that gets a tenth of the rows, so that it ends in time."""

# Of a rival the best of its settings counts, case by case; of Fermion the defaults.
COLUMNS: dict[str, tuple[str, ...]] = {
    "Fermion": ("fermion",),
    "Parquet": ("parquet zstd", "parquet snappy", "polars parquet"),
    "Vortex": ("vortex", "vortex strings", "vortex mapped", "vortex compact"),
    "Lance": ("lance", "lance indexed"),
    "Iceberg": ("pyiceberg",),
    "Delta": ("deltalake",),
    "Paimon": ("pypaimon", "pypaimon" + TENTH),
}


@dataclass(frozen=True)
class Row:
    """A case of a benchmark, in words.

    Attributes
    ----------
    text
        What is measured.
    question, case, metric
        Where it lies in the stored results.
    in_readme
        Whether the README shows it: of each kind of work some, with those that others win.
    alone
        The text where it stands alone, if that differs.
    """

    text: str
    question: str
    case: str
    metric: str = "seconds"
    in_readme: bool = False
    alone: str = ""


FILES = (
    Row(
        "open a file of 10,000 columns, read 10 of them",
        "open_wide",
        "10,000 columns",
        in_readme=True,
    ),
    Row(
        "the same of 100,000 columns",
        "open_wide",
        "100,000 columns",
        alone="open a file of 100,000 columns, read 10 of them",
    ),
    Row("read all of 10,000 columns, 2,000 rows", "wide_file", "read all"),
    Row("write them", "wide_file", "write", alone="write 10,000 columns, 2,000 rows"),
    Row(
        "TPC-H lineitem, 6,001,215 rows: size of the file",
        "lineitem_size",
        "size",
        "file_bytes",
        in_readme=True,
    ),
    Row("write it", "lineitem_write", "write", in_readme=True, alone="write lineitem"),
    Row("read all of it", "lineitem_read", "read all", in_readme=True, alone="read lineitem"),
    Row("read 3 of 16 columns", "lineitem_read", "3 columns", alone="read 3 columns of lineitem"),
    Row(
        "read one month, 3 columns",
        "lineitem_read",
        "one month, 3 columns",
        in_readme=True,
        alone="read one month of lineitem, 3 columns",
    ),
    Row(
        "read one month, all columns",
        "lineitem_read",
        "one month, all columns",
        alone="read one month of lineitem, all columns",
    ),
    Row(
        "take 1,000 random rows",
        "random_rows",
        "all columns",
        in_readme=True,
        alone="take 1,000 random rows of lineitem",
    ),
    Row("one of 100,000 batches by its id", "batch_ids", "warm"),
)
TABLES = (
    Row("append 1,000 rows, one commit", "table_commits", "append", in_readme=True),
    Row("read 100 files of 1,000 rows", "table_commits", "read 100 files", in_readme=True),
    Row("plan 10,000 files, for one id", "table_planning", "10,000 files, one id", in_readme=True),
    Row("compact 1,000 files of 10,000 rows", "table_compaction", "compact"),
    Row("delete 1 % of 5,000,000 rows", "table_row_changes", "delete", in_readme=True),
    Row("update 1 % of them", "table_row_changes", "update", alone="update 1 % of 5,000,000 rows"),
    Row("upsert 40,000 rows into 2,000,000", "primary_key", "upsert", in_readme=True),
    Row("read all after five upserts", "primary_key", "read all after 5 upserts"),
    Row("look up one key (Lance: no index)", "primary_key", "1 key", in_readme=True),
    Row("look up 1,000 keys", "primary_key", "1,000 keys"),
)
IN_README = tuple(row for row in (*FILES, *TABLES) if row.in_readme)


def text(rows: tuple[Row, ...], folder: Path) -> str:
    """A table of stored results: lower is better, and the best figure of each row is bold."""
    stored = stored_results(rows, folder)
    lines = ["| | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        lines.append(f"| {row.text} | " + " | ".join(_cells(row, stored[row.question])) + " |")
    dates = sorted({result["date"] for result in stored.values()})
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return "\n".join(lines) + f"\n\nMeasured on {days}.\n"


def stored_results(rows: tuple[Row, ...], folder: Path) -> dict[str, Any]:
    """The stored results that rows name, by question."""
    names = dict.fromkeys(row.question for row in rows)
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names}


def measured(row: Row, stored: dict[str, Any]) -> dict[str, tuple[float, str]]:
    """The best figure of each column of a row, and the library's name with its settings."""
    found = {
        result["library"]: result["median"][row.metric]
        for result in stored["results"]
        if result["case"] == row.case and (result["median"] or {}).get(row.metric) is not None
    }
    if not found:
        raise ValueError(f"{row.question}: no case {row.case!r} with {row.metric}")
    columns = {
        column: [(found[name], name) for name in names if name in found]
        for column, names in COLUMNS.items()
    }
    return {column: min(figures) for column, figures in columns.items() if figures}


def _cells(row: Row, stored: dict[str, Any]) -> list[str]:
    """The figures of a row, a dash where a library was not measured or can't do it."""
    found = measured(row, stored)
    best = min(value for value, name in found.values() if not name.endswith(TENTH))
    cells = []
    for column in COLUMNS:
        value, name = found.get(column, (None, ""))
        shown = figure(row.metric, value)
        shown = f"**{shown}**" if value == best else shown
        cells.append(shown + (TENTH if name.endswith(TENTH) else ""))
    return cells


def updated(page: str, rows: tuple[Row, ...], folder: Path) -> str:
    """A page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{text(rows, folder)}{END}{after}"
