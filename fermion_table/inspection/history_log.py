"""A table's history as rows that print like a log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from fermion.display import LINE_LENGTH, counted, html_table, more, shortened
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.history import load_parent, load_table_schema
from fermion_table.metadata.manifest import ids_in
from fermion_table.metadata.manifest_store import first_added
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.difference import action_text, changes_in_words, schema_changes
from fermion_table.storage.store import AtomicStore


class HistoryLog(list[dict[str, Any]]):
    """The history, newest first: one dictionary per snapshot. `str` formats it as a log."""

    def __str__(self) -> str:
        return "\n".join(log_text(row) for row in self)

    def __repr__(self) -> str:
        lines = [f"  {shortened(log_text(row).splitlines()[0], LINE_LENGTH)}" for row in self[:5]]
        rest = [f"  {each}" for each in more(len(lines), len(self))]
        return "\n".join([f"HistoryLog of {counted(len(self), 'snapshot')}", *lines, *rest])

    def _repr_html_(self) -> str:
        shown = ("branch", "time", "kind", "changes", "author", "message", "rows_added")
        header = ("id", *(name.replace("_", " ") for name in (*shown, "rows", "files")))
        rows = (
            (str(row["id"]), *(_of_people(row[name]) for name in (*shown, "rows", "files")))
            for row in self
        )
        return html_table("History", header, rows, len(self))


def history_log(store: AtomicStore, branch: str, snapshots: Iterable[Snapshot]) -> HistoryLog:
    """The rows of snapshots of a branch, in their order."""
    return HistoryLog(
        _row(each, commit_changes(store, each, load_parent(store, each, branch=branch)))
        for each in snapshots
    )


def commit_changes(store: AtomicStore, snapshot: Snapshot, parent: Snapshot | None) -> list[str]:
    """The columns and properties that a commit changed, in words: ``add columns a, b``.

    parent: The snapshot before; None where that has expired: then there is nothing to say.
    """
    if parent is None:
        return []
    try:
        if snapshot.schema.hash != parent.schema.hash:
            schemas = [load_table_schema(store, each.schema) for each in (parent, snapshot)]
            return changes_in_words(schema_changes(*schemas))
        done = snapshot.deltas
        if snapshot.kind == "upsert" and not (done.files_added or done.rows_deleted):
            columns = _filled_columns(store, snapshot)
            return [action_text("fill column", columns)] if columns else []
    except CorruptMetadata:  # a history is asked for in bad times, too
        return ["columns that can't be read"]
    return []


def _filled_columns(store: AtomicStore, snapshot: Snapshot) -> Sequence[str]:
    """The columns of the newest column file of the first data file that has got one."""
    entry = first_added(store, snapshot)
    if entry is None or not entry.column_files:
        return ()
    newest = entry.column_files[-1]
    fields = load_table_schema(store, snapshot.schema).by_id
    return [fields[each].name for each in sorted(ids_in(newest.fields, fields))]


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
    if isinstance(value, list):
        return "; ".join(value)
    return "" if value is None else value


def _changes(row: dict[str, Any]) -> str:
    parts = list(row["changes"])
    parts += [
        f"{sign}{_rows_in_files(row[f'rows_{what}'], row[f'files_{what}'])}"
        for sign, what in (("+", "added"), ("-", "removed"))
        if row[f"files_{what}"]
    ]
    if row["rows_deleted"]:
        parts.append(f"{-row['rows_deleted']:+,} rows in files that stay")
    return f"{', '.join(parts or ['no files'])} = {_rows_in_files(row['rows'], row['files'])}"


def _rows_in_files(rows: int, files: int) -> str:
    return f"{counted(rows, 'row')} in {counted(files, 'file')}"


def _row(snapshot: Snapshot, changes: list[str]) -> dict[str, Any]:
    totals = snapshot.totals
    return {
        "id": snapshot.id,
        "branch": snapshot.branch,
        "time": datetime.fromtimestamp(snapshot.time_ms / 1000, UTC),
        "kind": snapshot.kind,
        "changes": changes,
        "author": snapshot.author,
        "message": snapshot.message,
        "properties": dict(snapshot.properties),
        "schema_id": snapshot.schema.id,
        **msgspec.structs.asdict(snapshot.deltas),
        "files": totals.files,
        "rows": totals.live_rows,
    }
