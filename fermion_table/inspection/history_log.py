"""A table's history as rows that print like a log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from fermion.display import LINE_LENGTH, html_table, more, shortened
from fermion_table.metadata.snapshot import Snapshot


class HistoryLog(list[dict[str, Any]]):
    """The history, newest first: one dictionary per snapshot. `str` formats it as a log."""

    def __str__(self) -> str:
        return "\n".join(log_text(row) for row in self)

    def __repr__(self) -> str:
        lines = [f"  {shortened(log_text(row).splitlines()[0], LINE_LENGTH)}" for row in self[:5]]
        rest = [f"  {each}" for each in more(len(lines), len(self))]
        return "\n".join([f"HistoryLog of {counted(len(self), 'snapshot')}", *lines, *rest])

    def _repr_html_(self) -> str:
        shown = ("branch", "time", "kind", "author", "message", "rows_added", "files_added")
        header = ("id", *(name.replace("_", " ") for name in (*shown, "rows", "files")))
        rows = (
            (str(row["id"]), *(_of_people(row[name]) for name in (*shown, "rows", "files")))
            for row in self
        )
        return html_table("History", header, rows, len(self))


def history_log(snapshots: Iterable[Snapshot]) -> HistoryLog:
    """The rows of snapshots, in their order."""
    return HistoryLog(_row(snapshot) for snapshot in snapshots)


def log_text(row: dict[str, Any]) -> str:
    """One row of a log, as lines."""
    time = row["time"].strftime("%Y-%m-%d %H:%M:%S")
    branch = "" if row["branch"] == "main" else f" ({row['branch']})"
    head = f"snapshot {row['id']}{branch}  {time}  {row['kind']}  {_changes(row)}"
    lines = [f"{head}  by {row['author']}" if row["author"] else head]
    if row["message"]:
        lines += [f"    {line}" for line in row["message"].splitlines()]
    return "\n".join(lines)


def _of_people(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else value


def counted(count: int, noun: str) -> str:
    """A number of things in words: ``1 file``, ``2,000 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _changes(row: dict[str, Any]) -> str:
    parts = [
        f"{sign}{_rows_in_files(row[f'rows_{what}'], row[f'files_{what}'])}"
        for sign, what in (("+", "added"), ("-", "removed"))
        if row[f"files_{what}"]
    ]
    if row["rows_deleted"]:
        parts.append(f"{-row['rows_deleted']:+,} rows in files that stay")
    return f"{', '.join(parts or ['no files'])} = {_rows_in_files(row['rows'], row['files'])}"


def _rows_in_files(rows: int, files: int) -> str:
    return f"{counted(rows, 'row')} in {counted(files, 'file')}"


def _row(snapshot: Snapshot) -> dict[str, Any]:
    totals = snapshot.totals
    return {
        "id": snapshot.id,
        "branch": snapshot.branch,
        "time": datetime.fromtimestamp(snapshot.time_ms / 1000, UTC),
        "kind": snapshot.kind,
        "author": snapshot.author,
        "message": snapshot.message,
        "properties": dict(snapshot.properties),
        "schema_id": snapshot.schema.id,
        **msgspec.structs.asdict(snapshot.deltas),
        "files": totals.files,
        "rows": totals.live_rows,
    }
