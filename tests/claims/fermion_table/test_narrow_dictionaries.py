"""Dictionaries whose indices number few values, in tables whose files have many together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion import InvalidArgumentError
from fermion_table import Table
from tests.kit.arrow_samples import INT8, words

NESTED = pa.list_(INT8)
SCHEMA = pa.schema([("d", INT8), ("n", pa.int64()), ("l", NESTED)])


def rows(first: int) -> pa.Table:
    one = words(first, 100)
    lists = pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), one)
    return pa.table({"d": one, "n": range(first, first + 100), "l": lists}, schema=SCHEMA)


def test_files_that_fit_one_by_one_are_compacted_to_one_that_is_read(table_path):
    """Three files of 100 values each, int8, top-level and nested; from chunks of one append too."""
    table = Table.create(str(table_path), SCHEMA)
    for first in range(0, 300, 100):
        table.append(rows(first))
    expected = table.scan().to_arrow().to_pylist()
    assert sorted(each["n"] for each in expected) == list(range(300))
    table.compact()
    assert len(list(table.inspect.files().to_pylist())) == 1
    assert table.scan().to_arrow().to_pylist() == expected
    table.append(pa.concat_tables([rows(300), rows(400)]))
    table.delete("n = 7")
    assert sorted(row["d"] for row in table.scan().to_arrow().to_pylist()) == sorted(
        f"w{n}" for n in range(500) if n != 7
    )
    assert table.verify(data=True).ok


def test_rows_that_are_sorted_together_need_wider_indices(table_path):
    """One array then holds what several files hold: refused, nothing is changed, and mended."""
    schema = pa.schema([SCHEMA.field("d"), SCHEMA.field("n")])
    table = Table.create(str(table_path), schema, sort_by=["n"])
    both = pa.concat_tables([rows(100).select(["d", "n"]), rows(0).select(["d", "n"])])
    with pytest.raises(InvalidArgumentError, match=r"wider indices by Table.alter_column.*'d'"):
        table.append(both)
    assert table.scan().count() == 0
    table.append(both.slice(0, 100))
    table.append(both.slice(100))
    before = table.snapshot.id
    with pytest.raises(InvalidArgumentError, match="wider indices"):
        table.compact(sort_by=["n"])
    assert table.refresh().id == before
    table.alter_column("d", type=pa.dictionary(pa.int32(), pa.string()))
    table.compact(sort_by=["n"])
    assert table.scan().to_arrow()["d"].to_pylist() == [f"w{n}" for n in range(200)]
