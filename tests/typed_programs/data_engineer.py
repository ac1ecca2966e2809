"""What a data engineer writes: changes in, maintenance. Checked by `mypy --strict`, never run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import assert_type

import pyarrow as pa
import pyarrow.compute as pc

import fermion
from fermion.typing import TableLike
from fermion_table import MergeResult, Snapshot, Table, TableDiff


def ingest(path: Path, changes: TableLike, batches: pa.RecordBatchReader) -> Snapshot:
    """Upserts, merges, overwrites of partitions, conversions."""
    table = Table.open(path)
    assert_type(table.upsert(changes, change_type="op"), Snapshot)
    merge = table.merge(changes, on=["id"]).when_matched_update().when_not_matched_insert()
    assert_type(merge.execute(), MergeResult)
    table.overwrite(batches, filter=pc.field("day") == "2026-01-01")
    table.overwrite(batches, filter=(fermion.col("id") > 1) & ~fermion.col("id").is_null())
    table.delete([("id", "=", 1), ("day", "<", "2026")])
    table.append_batches([(7, changes), (8, {"id": [1]})])
    assert_type(table.diff(1, 2), TableDiff)
    assert_type(fermion.from_parquet("a.parquet", "a.fermion"), fermion.FileInfo)
    table.upsert(None)  # type: ignore[arg-type]
    table.merge(5, on=["id"])  # type: ignore[arg-type]
    table.append_batches([(7, 8)])  # type: ignore[list-item]
    table.delete(1)  # type: ignore[arg-type]
    table.append(changes, schema_mode="replace")  # type: ignore[arg-type]
    return table.append(changes, commit_user="job", commit_identifier=3)


def keep_small(table: Table) -> int:
    """Compaction and expiry."""
    table.expire_snapshots(older_than=timedelta(days=7), retain_last=10)
    table.compact(target_size="lots", min_input_files="two")  # type: ignore[arg-type]
    return len(table.snapshots())
