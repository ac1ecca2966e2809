"""Writes the golden tables that are not there yet; what is there is never touched.

    python -m tests.golden.write_golden_tables

A golden table was written once, by the release that brought its feature, and is read by every later
one. It is an archive (see `golden_archives`); beside it lie the rows that each of its versions must
give, as JSON.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from fermion_table import Table
from tests.golden.table_features import TABLES
from tests.kit.golden_archives import archive_of, pack

FOLDER = Path(__file__).resolve().parent / "tables" / "v1"


def content(table: Table, **version: Any) -> dict[str, Any]:
    """What a version gives: its schema in words, and its rows in their order.

    Those of a table with a primary key, which have none, are in the order of their texts.
    """
    scan = table.scan(threads=1, **version)
    rows = scan.to_arrow()
    listed = [json.loads(json.dumps(row, default=str)) for row in rows.to_pylist()]
    if scan.key is not None:
        listed.sort(key=json.dumps)
    return {"schema": [f"{field.name}: {field.type}" for field in rows.schema], "rows": listed}


def changes(table: Table) -> list[Any]:
    """All changes of rows, in the order of their texts, without the times of commits."""
    found = table.scan_changes(0).to_arrow().drop_columns("_commit_timestamp").to_pylist()
    return sorted((json.loads(json.dumps(row, default=str)) for row in found), key=json.dumps)


def expectations(path: Path) -> dict[str, Any]:
    """What every version of a table gives."""
    table = Table.open(path)
    heads = [head.name for head in table.branches.list()]
    recorded: dict[str, Any] = {}
    if any(each.changelog is not None for each in table.snapshots()):
        recorded = {"changes": changes(table)}
    if consumers := table.consumers.list():
        recorded |= {"consumers": {each.name: each.snapshot_id for each in consumers}}
    return {
        **recorded,
        "snapshots": {
            str(each.id): {**content(table, snapshot_id=each.id), "kind": each.kind}
            for each in table.snapshots()
        },
        "tags": {tag.name: content(table, tag=tag.name) for tag in table.tags.list()},
        "branches": {name: content(Table.open(path, branch=name)) for name in heads},
    }


def main() -> None:
    """Write what is missing."""
    for name, make in TABLES.items():
        told = FOLDER / f"{name}.json"
        if archive_of(FOLDER, name).exists() or told.exists():
            print(f"{name}: there already")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            made = Path(scratch) / name
            make(made)
            pack(made, FOLDER)
            told.write_text(json.dumps(expectations(made), indent=1, ensure_ascii=False) + "\n")
        print(f"{name}: written")


if __name__ == "__main__":
    main()
