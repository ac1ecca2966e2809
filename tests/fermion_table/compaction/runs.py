"""Primary-key tables whose runs are written one by one, for the tests of what compacts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fermion_table import Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.merging.fold import fold
from fermion_table.merging.merge_engines.key_groups import group_rows
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.merging.sections import TreeFile, sorted_runs
from fermion_table.metadata.manifest import Entry
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.scanning.trees import Tree, trees_of
from fermion_table.schema.key_encoding import key_ranks
from fermion_table.writing.partition import partition_columns, split_batch
from fermion_table.writing.tree_writer import RunBatch, TreeWriter
from tests.fermion_table.keyed_model import is_retraction, merged
from tests.fermion_table.writing.trees import key_of

SCHEMA = pa.schema([("k", pa.int64()), ("p", pa.int64()), ("s", pa.int64()), ("v", pa.int64())])
KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
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
    """Commit rows as one flush: a run of level 0 in each tree, folded as far as that is exact."""
    table.refresh()
    key = key_of(table)
    if key.options.ignore_delete:
        rows = [row for row in rows if not is_retraction(row)]
    arrow = table.schema.to_arrow()
    batch = pa.RecordBatch.from_pylist(
        [{name: row.get(name) for name in arrow.names} for row in rows], schema=arrow
    )
    kinds = np.array([KINDS[row.get("_kind", "+I")] for row in rows], np.int8)
    added: list[Entry] = []
    with TreeWriter(table.store, table.schema, key) as writer:
        numbered = batch.append_column("_number", pa.array(range(len(rows))))
        for partition, part in split_batch(numbered, partition_columns(table.schema)):
            for bucket in np.unique(key.buckets(part)).tolist():
                chosen = part.filter(pa.array(key.buckets(part) == bucket))
                numbers = chosen.column("_number").to_numpy()
                run = _folded(chosen.remove_column(len(arrow)), kinds[numbers], key)
                added += writer.write_run(partition, bucket, 0, [run], has_kinds=run[2] is not None)
        writer.release()
    commit(table.store, CommitRequest(kind="upsert", added=added), branch=table.branch)
    table.refresh()


def _folded(rows: pa.RecordBatch, kinds: np.ndarray, key: PrimaryKey) -> RunBatch:
    options = key.options
    keys = key.keys(rows)
    groups = group_rows(
        keys.to_numpy() if key.is_direct else key_ranks(keys),
        np.arange(rows.num_rows),
        sequence=[rows.column(name) for name in options.sequence_fields],
        is_descending=options.sequence_descending,
    )
    folded = fold(rows, groups, key, kinds, is_oldest=False)
    return folded.gather(rows), keys.take(pa.array(folded.rows)), folded.kinds


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
