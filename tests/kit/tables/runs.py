"""Primary-key tables whose runs are written one by one, for the tests of what compacts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from fermion_table import Table
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.planning.tree_plan import Tree, trees_of
from tests.kit.tables.keyed_model import merged
from tests.kit.tables.trees import key_of

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("s", pa.int64()), ("v", pa.int64())])
KIND = "_kind"
Rows = Sequence[dict[str, Any]]


def table_of(path: Path | str, properties: dict[str, str] | None = None, **options: Any) -> Table:
    """Return a new table with the key ``k``, two buckets, and few runs a tree."""
    known = {"bucket": "2", "num_sorted_run.compaction_trigger": "2"}
    return Table.create(
        path,
        SCHEMA,
        **{"primary_key": ["k"], "durability": "fast"} | options,
        properties={**known, **(properties or {})},
    )


def write_run(table: Table, rows: Rows) -> None:
    """Upsert rows: a run of level 0 in each tree. `_kind` is the kind of a row."""
    table.refresh()
    table_schema = table.schema.to_arrow()
    arrow = pa.schema([*table_schema, (KIND, pa.string())])
    given = [{**row, KIND: row.get(KIND, "+I")} for row in rows]
    table.upsert(pa.Table.from_pylist(given, schema=arrow), change_type=KIND)
    table.refresh()


def trees(table: Table) -> dict[Tree, list[TreeFile]]:
    """Return the files of the latest snapshot's trees; each has runs without keys in common."""
    table.refresh()
    found = trees_of(live_entries(table.store, table.snapshot), key_of(table))
    for files in found.values():
        sorted_runs(files)
    return found


def levels(table: Table) -> dict[Tree, list[int]]:
    """Return the level of each file, by tree."""
    return {tree: sorted(file.level for file in files) for tree, files in trees(table).items()}


def entries(table: Table) -> list[Entry]:
    """Return the entries of all files."""
    return [file.entry for files in trees(table).values() for file in files]


def shown(table: Table) -> list[dict[str, Any]]:
    """Return the rows that a scan shows, in the order of keys."""
    found = table.scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["k"])


def expected(table: Table, rows: Rows) -> list[dict[str, Any]]:
    """Return the rows that a scan must show after these were written."""
    key = key_of(table)
    names = table.schema.to_arrow().names
    return sorted(merged(rows, names, key.names, key.options), key=lambda row: row["k"])
