"""Parquet files of data files that are exported otherwise than they are stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fermion_table import Table
from spark_ext.conversion.to_parquet import _Export

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def exported(table: Table, target: Path) -> list[dict[str, int]]:
    """Return the rows of a table's files after an export."""
    scan = table.scan()
    target.mkdir()
    export = _Export(scan.reader, str(target), whole=True, storage_options=None, parquet_options={})
    for numbered in enumerate(scan.plan().splits):
        export(numbered)
    tables = [pq.read_table(path) for path in sorted(target.iterdir())]
    return pa.concat_tables(tables).sort_by("a").to_pylist()


def test_deleted_rows_are_not_exported(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append({"a": list(range(10)), "b": [0] * 10})
    table.delete("a = 3")
    assert table.scan().count() == 9
    rows = exported(table, tmp_path / "parquet")
    assert [row["a"] for row in rows] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_files_of_a_keyed_table_are_merged(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, primary_key=["a"], properties={"bucket": "2"})
    table.upsert({"a": [1, 2, 3], "b": [1, 2, 3]})
    table.upsert({"a": [2, 9], "b": [20, 90]})
    table.delete_keys([3])
    wanted = [{"a": 1, "b": 1}, {"a": 2, "b": 20}, {"a": 9, "b": 90}]
    assert exported(table, tmp_path / "parquet") == wanted
    table.compact(full=True)
    assert exported(table, tmp_path / "again") == wanted
