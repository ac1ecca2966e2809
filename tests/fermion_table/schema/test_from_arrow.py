"""Dictionaries of text and binary views, as polars has them, become plain columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fermion_table import Table

TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string()]
KINDS = [(pa.string_view(), each) for each in TEXTS] + [(pa.binary_view(), each) for each in BYTES]


@pytest.mark.parametrize(("view", "dtype"), KINDS, ids=str)
def test_dictionaries_of_views_can_be_appended(table_path, view, dtype):
    """A slice, with a null, and a column of text dictionaries into a column of views."""
    values = pa.array(["a", "ü", "a" * 30]).cast(pa.binary()).cast(view)
    made = pa.DictionaryArray.from_arrays(pa.array([2, 0, None, 1, 0], pa.int8()), values)
    table = Table.create(table_path, pa.schema([("k", dtype)]), durability="fast")
    table.append(pa.table({"k": made.slice(1)}))
    expected = pa.array(["a", None, "ü", "a"]).cast(pa.binary()).cast(dtype)
    assert table.scan().to_arrow()["k"].combine_chunks() == expected


def test_dictionaries_of_text_become_views(table_path):
    table = Table.create(table_path, pa.schema([("k", pa.string_view())]), durability="fast")
    table.append(pa.table({"k": pa.array(["a", None, "b"]).dictionary_encode()}))
    assert table.scan().to_arrow()["k"].to_pylist() == ["a", None, "b"]


def test_categories_of_polars_can_be_appended(table_path):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"k": polars.Series(["a", None, "b"], dtype=polars.Categorical)})
    table = Table.create(table_path, pa.schema([("k", pa.string())]), durability="fast")
    table.append(frame)
    assert table.scan().to_arrow()["k"].to_pylist() == ["a", None, "b"]
