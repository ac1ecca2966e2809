"""`fermion table repair`: damaged snapshots and missing files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fermion_table import Table


def test_a_damaged_table_is_repaired(run: Any, json_of: Any, table: Table) -> None:
    path = Path(table.location, "snapshot", f"{5:020d}.json")
    path.write_bytes(path.read_bytes()[:100])
    assert "can't be read" in run("repair", "--dry-run", status=1)
    assert json_of("repair")["actions"]
    assert run("repair") == "0 repairs done\n"
    assert Table.open(table.location).snapshot.id == 4


def test_missing_files_are_left_out_if_that_is_asked_for(
    run: Any, json_of: Any, table: Table
) -> None:
    """The exit status is 1, as older snapshots go on naming the files."""
    for path in Path(table.location, "data").rglob("*.fermion"):
        path.unlink()
    rows = table.scan().count()
    assert f"files missing, {rows} rows lost" in run("repair", status=1)
    words = ("--leave-out-missing", "--lost-deletions", "leave-out")
    assert "leaves out" in run("repair", "--dry-run", *words, status=1)
    assert Table.open(table.location).snapshot.id == table.snapshot.id
    told = json.loads(run("repair", "--json", *words, status=1))
    assert told["rows_lost"] == rows
    assert len(told["actions"]) == 1
    assert told["losses"]
    assert Table.open(table.location).scan().to_arrow().num_rows == 0
