"""`Table.create` with rows: the schema is taken from them, and a failure leaves no table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fermion_table import SchemaMismatch, Table, TableExists

ROWS = pa.table({"id": [1, 2], "name": ["a", None]}, metadata={"source": "here"})


def failing() -> Iterator[pa.RecordBatch]:
    """Some rows, then an error."""
    yield ROWS.to_batches()[0]
    raise RuntimeError("halfway")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ROWS,
        lambda: ROWS.to_batches()[0],
        ROWS.to_reader,
        ROWS.to_batches,
        ROWS.to_pydict,
        lambda: pl.DataFrame(ROWS.to_pydict()),
        lambda: pd.DataFrame(ROWS.to_pydict(), index=["x", "y"]),
    ],
    ids=["table", "batch", "reader", "iterable", "mapping", "polars", "pandas"],
)
def test_rows_give_the_schema_and_are_appended(tmp_path: Path, make: Any):
    """Any Arrow producer; the table is then one like any other."""
    table = Table.create(tmp_path / "t", make(), durability="fast", message="why")
    assert table.scan().to_arrow().to_pylist() == ROWS.to_pylist()
    assert [snapshot.kind for snapshot in table.snapshots()] == ["create", "append"]
    assert [row["message"] for row in table.history()] == ["why", "why"]
    assert b"pandas" not in (table.schema.to_arrow().metadata or {})
    table.append({"id": [3]})
    assert Table.open(tmp_path / "t").scan().count() == 3


def test_metadata_of_the_rows_is_kept_and_no_rows_are_a_creation_alone(tmp_path: Path):
    table = Table.create(tmp_path / "t", ROWS.slice(0, 0), durability="fast")
    assert (table.snapshot.id, table.scan().count()) == (0, 0)
    assert table.schema.to_arrow().metadata[b"source"] == b"here"


def test_rows_beside_a_schema_are_cast_and_refused_where_they_do_not_fit(tmp_path: Path):
    """As `append` does; a table with a primary key merges them."""
    schema = pa.schema([("id", pa.int8()), ("name", pa.string()), ("more", pa.bool_())])
    twice = pa.concat_tables([ROWS, ROWS])
    table = Table.create(tmp_path / "t", schema, data=twice, primary_key="id", durability="fast")
    assert table.scan().to_arrow().column("id").to_pylist() == [1, 2]
    with pytest.raises(SchemaMismatch, match="name"):
        Table.create(tmp_path / "u", pa.schema([("id", pa.int8())]), data=ROWS)
    with pytest.raises(TypeError, match=r"schema: expected a pyarrow\.Schema beside data"):
        Table.create(tmp_path / "u", ROWS, data=ROWS)
    with pytest.raises(TypeError, match=r"schema: expected a pyarrow\.Schema, or rows"):
        Table.create(tmp_path / "u")
    with pytest.raises(TypeError, match="data: expected rows"):
        Table.create(tmp_path / "u", data=5)
    assert not (tmp_path / "u").exists()


def test_rows_that_fail_halfway_leave_nothing(tmp_path: Path):
    """No table, no directory; a table that was to be replaced stays."""
    with pytest.raises(RuntimeError, match="halfway"):
        Table.create(tmp_path / "t", failing())
    assert list(tmp_path.iterdir()) == []
    before = Table.create(tmp_path / "t", ROWS, durability="fast")
    files = sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file())
    with pytest.raises(RuntimeError, match="halfway"):
        Table.create(tmp_path / "t", failing(), mode="overwrite")
    assert Table.open(tmp_path / "t").snapshot == before.snapshot
    assert sorted(path for path in (tmp_path / "t").rglob("*") if path.is_file()) == files


def test_each_mode_where_a_table_exists(tmp_path: Path):
    """An error reads no rows; `ignore` appends none; `overwrite` is one snapshot."""
    Table.create(tmp_path / "t", ROWS, durability="fast")
    with pytest.raises(TableExists):
        Table.create(tmp_path / "t", iter(ROWS.to_batches()))
    opened = Table.create(tmp_path / "t", ROWS, mode="ignore", durability="fast")
    assert (opened.snapshot.id, opened.scan().count()) == (1, 2)
    replaced = Table.create(tmp_path / "t", {"other": [7]}, mode="overwrite", durability="fast")
    assert replaced.snapshot.kind == "overwrite"
    assert replaced.scan().to_arrow().to_pylist() == [{"other": 7}]
    assert replaced.scan(snapshot_id=1).count() == 2
