"""`Catalog.create_table` with its first rows, as `Table.create` takes them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from fermion_table import Catalog, CommitConflict, SchemaMismatch, Table, TableExists
from fermion_table.catalog.tables import Tables
from tests.kit.tables.warehouses import SCHEMA, again, ids, rows


def stream(*ids: int) -> pa.RecordBatchReader:
    """Rows that can be read once."""
    return rows(*ids).to_reader()


def test_a_table_is_made_with_the_rows_that_are_given(catalog: Catalog) -> None:
    made = catalog.create_table("db.t", rows(1, 2), message="import")
    assert ids(made) == ids(catalog.table("db.t")) == [1, 2]
    assert catalog.tables() == ["db.t"]
    assert [each.message for each in made.snapshots()] == ["import", "import"]
    frame = pd.DataFrame({"id": [3]}, index=[17])
    assert ids(catalog.create_table("frame", frame)) == [3]
    assert catalog.table("frame").schema.to_arrow(field_ids=False).metadata is None
    typed = catalog.create_table("typed", pa.schema({"id": pa.int32()}), data={"id": [4]})
    assert typed.scan().schema.field("id").type == pa.int32()
    assert ids(catalog.create_table("empty", rows().cast(SCHEMA))) == []
    keyed = catalog.create_table("keyed", rows(5, 5), primary_key="id", properties={"bucket": "1"})
    assert keyed.scan().to_arrow()["id"].to_pylist() == [5]


def test_a_table_with_rows_is_refused_opened_or_replaced(catalog: Catalog) -> None:
    catalog.create_table("t", rows(1))
    with pytest.raises(TableExists):
        catalog.create_table("t", rows(2))
    unread = stream(2)
    assert ids(catalog.create_table("t", unread, mode="ignore")) == [1]
    assert unread.read_all() == rows(2)
    replaced = catalog.create_table("t", stream(3), mode="overwrite")
    assert ids(replaced) == ids(catalog.table("t")) == [3]
    assert ids(catalog.table("t", version=1)) == [1]


def test_rows_that_fail_leave_neither_a_table_nor_a_name(catalog: Catalog) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows(1).to_batches()
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        catalog.create_table("t", pa.RecordBatchReader.from_batches(SCHEMA, broken()))
    with pytest.raises(SchemaMismatch):
        catalog.create_table("t", SCHEMA, data=pa.table({"id": ["text"]}))
    with pytest.raises(TypeError, match=r"schema: expected a pyarrow\.Schema beside data"):
        catalog.create_table("t", rows(1), data=rows(2))
    with pytest.raises(TypeError, match="schema"):
        catalog.create_table("t")
    assert not catalog.table_exists("t")
    assert catalog.tables() == []
    assert not Path(catalog.location, "t").exists()
    assert ids(catalog.create_table("t", rows(1))) == [1]


def test_a_repair_finds_the_name_of_a_table_that_was_made_with_rows(catalog: Catalog) -> None:
    """The name is longer than a directory's may be, so that only the table's creation has it."""
    name = "n" * 200 + "?"
    catalog.create_table(name, rows(1))
    shutil.rmtree(Path(catalog.location, "_catalog", "tables"))
    assert again(catalog).repair().ok
    assert again(catalog).tables() == [name]


@pytest.mark.parametrize("then", ["nothing", "create"])
@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_rows_that_were_read_are_not_lost_silently(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, mode: Any, then: str
) -> None:
    """Another client drops the table before it is listed: a stream can't be read again."""
    catalog.create_table("first", SCHEMA)
    client, enlist = again(catalog), Tables._enlist

    def late(tables: Tables, *given: Any) -> bool:
        monkeypatch.undo()
        client.drop_table("t", purge=True)
        done = enlist(tables, *given)
        if then == "create":
            client.create_table("t", rows(9))
        return done

    monkeypatch.setattr(Tables, "_enlist", late)
    expected = TableExists if (mode, then) == ("error", "create") else CommitConflict
    with pytest.raises(expected):
        catalog.create_table("t", stream(1, 2), mode=mode)
    assert catalog.table_exists("t") == (then == "create")
    if then == "create":
        assert ids(Table.open(catalog.table("t").location)) == [9]
