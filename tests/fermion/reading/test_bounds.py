"""Filters on whole files: statistics may skip pages and answer counts, never change a result."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.metadata.cmb import Chunk, ColumnBlock
from fermion.statistics import bounds as chunk_details
from tests.kit.equality import assert_logically_equal
from tests.kit.files.predicate_model import SCHEMA, expressions, rows, table_of, truth


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


SHARABLE = [name for name in SCHEMA.names if name not in ("t", "n", "st")]


@given(st.data())
def test_any_filter_selects_the_same_rows_with_and_without_statistics(data):
    """Through pages, stripes, bloom filters, dictionaries and bounds in full, against the model."""
    expression = data.draw(expressions())
    records = data.draw(rows(expression.columns() or {("i",)}))
    table = table_of(records * data.draw(st.integers(1, 4)))
    kept = [row for row, record in enumerate(records) if truth(expression, record)]
    repeats = table.num_rows // len(records)
    expected = [row + len(records) * i for i in range(repeats) for row in kept]
    named = [name for name in table.column_names if name in SHARABLE]
    chosen = st.lists(st.sampled_from(named), unique=True) if named else st.just([])
    options = {
        "page_rows_max": data.draw(st.sampled_from([1, 3, 100])),
        "stripe_rows": data.draw(st.sampled_from([2, 10, 1000])),
        "bloom_filters": data.draw(chosen),
        "global_dictionaries": data.draw(chosen),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk_details, "LONG_CHUNK_BYTES_MIN", 0)
        file_bytes = stored(table, **options)
    for use in (True, False):
        with fermion.open(file_bytes, options=fermion.ReadOptions(use_statistics=use)) as file:
            assert file.find(expression).to_indices().tolist() == expected
            assert file.count(expression) == len(expected)
            found = file.read(filter=expression)
            assert_logically_equal(found, rows_of(table, expected))


def rows_of(table: pa.Table, numbers: list[int]) -> pa.Table:
    return pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in numbers)])


def test_an_exact_chunk_maximum_does_not_make_page_maximums_exact():
    """A page whose truncated maximum only looks exact still has rows beyond it."""
    table = pa.table({"a": pa.array([b"aa", b"ab\xff", b"b", b"b"])})
    data = stored(table, page_rows_max=2)
    with fermion.open(data) as file:
        found = file.read(filter=fermion.col("a") > b"ab\x01")
    assert found["a"].to_pylist() == [b"ab\xff", b"b", b"b"]


def test_a_count_reads_only_pages_that_statistics_leave_open():
    """A range over sorted keys is settled but for the pages at its two ends."""
    table = pa.table({"key": np.arange(100_000)})
    data = stored(table, page_bytes=8 * 1024, encodings={"key": "plain"})
    with fermion.open(data) as file:
        pages = file.column("key").streams[1].chunks[0].pages
        before = file.io_stats.bytes_used
        assert file.count("key >= 5000 AND key < 90000") == 85_000
        used = file.io_stats.bytes_used - before
        assert file.count("key >= 0") == 100_000
        assert file.io_stats.bytes_used == before + used
    assert used == pages[5_000 // 1024].length + pages[90_000 // 1024].length


def test_rows_that_must_match_are_read_without_the_filter_s_columns():
    table = pa.table({"key": np.arange(10_000), "value": np.arange(10_000) * 2})
    data = stored(table, encodings={"key": "plain", "value": "plain"})
    with fermion.open(data) as file:
        value = file.column("value").streams[1].length
        before = file.io_stats.bytes_used
        assert file.read(["value"], filter="key < 99999").num_rows == 10_000
        assert file.io_stats.bytes_used - before == value


def test_statistics_of_a_required_field_below_a_null_struct_claim_nothing_of_its_filler():
    """The filler is a zero that no query sees, and the field is null where the struct is."""
    required = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.int32())])
    table = pa.table({"s": pa.array([None, {"a": 5, "b": 5}], required)})
    info = fermion.write_table(table, io.BytesIO())
    hidden, plain = info.statistics["s", "a"], info.statistics["s", "b"]
    assert (hidden.null_count, plain.null_count) == (-1, 1)
    assert hidden.min_value(pa.int32(), exact=True) is None
    assert plain.min_value(pa.int32(), exact=True).as_py() == 5


def test_a_column_may_have_smaller_pages_than_the_others():
    """A filter on it reads less; the other columns keep their pages, nested streams included."""
    rng = np.random.default_rng(2)
    table = pa.table(
        {
            "key": np.arange(50_000),
            "value": rng.random(50_000),
            "list": pa.array([[i, None] if i % 3 else None for i in range(50_000)]),
        }
    )
    sizes = {"key": 4096, "list": 8192}
    data = stored(table, column_page_bytes=sizes, encodings={"key": "plain"})
    with fermion.open(data) as file:
        pages = {
            name: [len(stream.chunks[0].pages) for stream in file.column(name).streams]
            for name in table.column_names
        }
        assert pages["key"] == [0, 98]
        assert pages["value"] == [0, 1]
        assert min(pages["list"]) >= 1
        assert max(pages["list"]) >= 50
        assert_logically_equal(file.read(), table)
        before = file.io_stats.bytes_used
        assert file.read(["key"], filter="key = 1234").num_rows == 1
        assert file.io_stats.bytes_used - before == 16 + 8 + 4096
    with pytest.raises(fermion.InvalidArgumentError, match="'absent', which the schema lacks"):
        stored(table, column_page_bytes={"absent": 10})
    with pytest.raises(fermion.InvalidArgumentError, match="at least 1"):
        stored(table, column_page_bytes={"key": 0})


def test_pages_of_stripes_that_chunks_rule_out_are_not_looked_at(monkeypatch):
    rows = pa.table({"x": np.arange(1000), "s": pa.array([{"y": each} for each in range(1000)])})
    asked = set()
    data_pages = ColumnBlock.data_pages

    def counted(block: ColumnBlock, chunk: Chunk) -> np.ndarray | None:
        asked.add(chunk.offset)
        return data_pages(block, chunk)

    monkeypatch.setattr(ColumnBlock, "data_pages", counted)
    with fermion.open(stored(rows, stripe_rows=100, page_rows_max=10)) as file:
        for condition, expected in (
            ("x = 555", [555]),
            ("s.y BETWEEN 551 AND 553", [551, 552, 553]),
            ("x < 100 AND x > 97", [98, 99]),
        ):
            asked.clear()
            assert file.read(["x"], filter=condition)["x"].to_pylist() == expected
            assert len(asked) == 1, condition
        asked.clear()
        assert file.count("x IN (5, 995)") == 2
        assert len(asked) == 2
