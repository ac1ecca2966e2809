"""A table as a web page: first rows, columns with statistics, and the rows that commits changed.

Plain values of bounded size, for a table of any width: `table_page` and `difference_page` gather
them, and `table_page.js` draws them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion.display import counted, html_table, names_text, shortened, type_text
from fermion.engine import WebPage, value_text, web_page
from fermion.errors import FermionError, InvalidArgumentError
from fermion.redaction import redacted
from fermion_table.change_feed.changes import CHANGE_FIELDS, CHANGE_TYPE
from fermion_table.inspection.description import KnownValues
from fermion_table.inspection.history_log import commit_changes
from fermion_table.inspection.table_difference import TableDiff, table_difference
from fermion_table.metadata.history import load_table_schema, walk
from fermion_table.metadata.snapshot import PRIMARY_KEY, Snapshot
from fermion_table.moments import time_text
from fermion_table.scanning.scan import Scan
from fermion_table.schema.schema import Field, has_buckets

SHOWN_COLUMNS = 30
"""Of rows: more do not fit beside each other."""
LISTED_COLUMNS = 2_000
"""In the list of columns."""
LOOKED_AT = 200_000
"""Statistics that are read for the list of columns: one of each file and column."""
COMPARED_ROWS = 1_000_000
"""Of files that a commit added and removed; rows of larger commits are not shown."""
COMPARED_FILES = 10_000
"""Of a table; commits to larger ones are not compared."""
HEAD_ROWS, HEAD_COLUMNS = 5, 10
"""Where a notebook shows a table in brief."""
CELL_LENGTH = 120
SCRIPT = Path(__file__).parent / "table_page.js"


def table_page(scan: Scan, branch: str, *, rows: int, snapshots: int) -> WebPage:
    """The page of a table at the snapshot of a scan of all its columns.

    scan: Of the table.
    branch: Of the snapshot.
    rows: How many are shown, of the table and of each commit.
    snapshots: How many of the last commits are shown.
    """
    found = table_map(scan, branch, rows=rows, snapshots=snapshots)
    title = f"{found['title']} - Fermion table"
    return WebPage(title, web_page(title, found, (SCRIPT,)))


def difference_page(difference: TableDiff, *, rows: int) -> str:
    """A web page with what differs between two snapshots, and so many of the rows."""
    store, before, after = difference.store, difference.before, difference.after
    lines = str(difference).splitlines()
    title = shortened(redacted(store.location), CELL_LENGTH * 2)
    commit = _commit(lines[0], after, lines[1:], code=[])
    commit |= {"facts": []} | _difference_rows(difference, rows)
    found = {
        "title": title,
        "facts": [["before", _label(before)], ["after", _label(after)]],
        "commits": [commit],
    }
    return web_page(f"{title} - difference", found, (SCRIPT,))


def table_map(scan: Scan, branch: str, *, rows: int, snapshots: int) -> dict[str, Any]:
    """What the page of a table shows; parameters as of `table_page`."""
    snapshot, schema = scan.snapshot, scan.table_schema
    totals = snapshot.totals
    row = "stored rows" if has_buckets(schema) else "rows"
    key = [schema.by_id[number].name for number in schema.primary_key]
    parts = [field.text(schema) for field in schema.partition_by]
    facts = {
        row: f"{totals.live_rows:,}",
        "columns": f"{len(schema.fields):,}",
        "files": f"{totals.files:,}",
        "bytes": f"{totals.bytes:,}",
        "primary key": names_text(key, "columns"),
        "partitioned by": names_text(parts, "columns"),
        "branch": branch,
        "at": _label(snapshot),
    }
    found: dict[str, Any] = {
        "title": shortened(redacted(scan.store.location), CELL_LENGTH * 2),
        "facts": [[name, value] for name, value in facts.items()],
        "columns": _columns(scan),
        "commits": _commits(scan, branch, rows, snapshots),
    }
    try:
        found["head"] = _rows(scan.select(_shown_names(scan)).head(rows), len(schema.fields))
    except (FermionError, OSError) as error:  # what metadata say is worth a page, too
        found["note"] = f"The rows can't be read: {shortened(str(error), CELL_LENGTH * 2)}"
    return found


def head_html(scan: Scan) -> str:
    """The first rows of the first columns for a notebook; empty where they can't be read."""
    names = _shown_names(scan)[:HEAD_COLUMNS]
    try:
        head = scan.select(names).head(HEAD_ROWS)
    except (FermionError, OSError):
        return ""
    rows = _rows(head, len(scan.table_schema.fields))
    shown = (["null" if cell is None else cell for cell in row] for row in rows["rows"])
    return html_table("First rows", rows["names"], shown, head.num_rows)


def _shown_names(scan: Scan) -> list[tuple[str, ...]]:
    return [(name,) for name in scan.table_schema.names[:SHOWN_COLUMNS]]


def _label(snapshot: Snapshot) -> str:
    return f"snapshot {snapshot.id}, {time_text(snapshot.time_ms)} UTC"


def _rows(table: pa.Table, total: int) -> dict[str, Any]:
    """Rows as texts, null as None; `total` is the number of columns that the table has."""
    columns = [[_cell(value) for value in column] for column in table.columns]
    return {
        "names": [shortened(name, CELL_LENGTH) for name in table.column_names],
        "rows": [list(row) for row in zip(*columns, strict=True)],
        "hidden": total - len(columns),
    }


def _cell(value: pa.Scalar) -> str | None:
    return shortened(value_text(value), CELL_LENGTH) if value.is_valid else None


def _columns(scan: Scan) -> dict[str, Any]:
    """The columns with what files say of their values, as far as reading that is cheap."""
    fields = scan.table_schema.fields
    files = scan.snapshot.totals.files
    known, looked_at = KnownValues(scan), LOOKED_AT // max(files, 1)
    return {
        "header": ["Name", "Type", "Nulls", "Minimum", "Maximum", "Comment"],
        "rows": [
            [
                shortened(field.name, CELL_LENGTH),
                shortened(type_text(field.type), CELL_LENGTH)
                + ("" if field.nullable else " not null"),
                *(_statistics(known, field) if place < looked_at else (None, None, None)),
                shortened(field.comment or "", CELL_LENGTH),
            ]
            for place, field in enumerate(fields[:LISTED_COLUMNS])
        ],
        "hidden": max(len(fields) - LISTED_COLUMNS, 0),
    }


def _statistics(known: KnownValues, field: Field) -> tuple[str | None, str | None, str | None]:
    """Nulls, minimum and maximum of a column, or limits of them; None where nothing is known."""
    nulls, is_exact = known.nulls(field)
    most = None if nulls is None else f"{'' if is_exact or not nulls else '≤ '}{nulls:,}"
    try:
        bounds, is_exact = known.bounds(field)
    except InvalidArgumentError:  # values without an order
        bounds = None
    low, high = bounds or (None, None)
    if not is_exact:
        low, high = low and f"≥ {low}", high and f"≤ {high}"
    return most, low, high


def _commits(scan: Scan, branch: str, rows: int, most: int) -> list[dict[str, Any]]:
    """The last commits of a branch, oldest first, each with rows that it changed."""
    walked = list(itertools.islice(walk(scan.store, scan.snapshot, branch=branch), most + 1))
    found = []
    for snapshot, before in itertools.zip_longest(walked[:most], walked[1:]):
        code = [["Read it:", f"table.scan(version={snapshot.id})"]]
        if snapshot.id and before is not None:
            code.append(["Undo it:", f"table.undo(commit={snapshot.id})"])
        if snapshot is not scan.snapshot:
            code.append(["Go back to it:", f"table.restore({snapshot.id})"])
        commit = _commit(
            f"{_label(snapshot)} · {snapshot.kind}",
            snapshot,
            commit_changes(scan.store, snapshot, before),
            code=code,
        )
        if before is not None and snapshot.kind != "compact":
            commit |= _changed_rows(scan, before, snapshot, rows)
        found.append(commit)
    return found[::-1]


def _commit(
    title: str, snapshot: Snapshot, lines: Iterable[str], *, code: list[list[str]]
) -> dict[str, Any]:
    done, totals = snapshot.deltas, snapshot.totals
    row = "stored row" if PRIMARY_KEY in snapshot.reader_features else "row"
    facts = {
        "author": snapshot.author,
        "message": snapshot.message or "",
        "files": f"+{done.files_added:,} -{done.files_removed:,}",
        "afterwards": f"{counted(totals.live_rows, row)} in {counted(totals.files, 'file')}",
    }
    return {
        "title": title,
        "facts": [[name, shortened(value, CELL_LENGTH * 2)] for name, value in facts.items()],
        "lines": [shortened(line, CELL_LENGTH * 2) for line in lines],
        "rows": None,
        "note": "",
        "code": code,
    }


def _changed_rows(scan: Scan, before: Snapshot, after: Snapshot, rows: int) -> dict[str, Any]:
    files = max(before.totals.files, after.totals.files)
    if files > COMPARED_FILES:
        return {"note": f"Its rows are not compared: the table has {files:,} files."}
    try:
        return _difference_rows(table_difference(scan.store, before, after), rows)
    except (FermionError, OSError) as error:
        return {"note": f"Its rows can't be compared: {shortened(str(error), CELL_LENGTH * 2)}"}


def _difference_rows(difference: TableDiff, rows: int) -> dict[str, Any]:
    """The first rows that differ, or why there are none."""
    entries = (*difference.files_added, *difference.files_removed)
    stored = sum(entry.rows for entry in entries)
    if stored > COMPARED_ROWS:
        return {"note": f"Its rows are not compared: there are {stored:,} in files that differ."}
    taken = {field.name for field in CHANGE_FIELDS}
    schema = load_table_schema(difference.store, difference.after.schema)
    names = [(name,) for name in schema.names if name not in taken][:SHOWN_COLUMNS]
    found = _first(difference.rows(columns=names).to_batches(), rows)
    if not found:
        return {"note": "No row differs in the columns shown." if entries else "No row differs."}
    table = pa.Table.from_batches(found)
    changes = table[CHANGE_TYPE].to_pylist()
    shown = _rows(table.select(range(len(names))), len(schema.fields))
    note = f"The first {len(changes):,} rows that differ." if len(changes) == rows else ""
    return {"rows": shown | {"changes": changes}, "note": note}


def _first(batches: Iterable[pa.RecordBatch], rows: int) -> Sequence[pa.RecordBatch]:
    """Batches with the first rows of a stream, of which no more is read."""
    found: list[pa.RecordBatch] = []
    for batch in batches:
        found.append(batch.slice(0, rows))
        rows -= found[-1].num_rows
        if rows <= 0:
            break
    return found
