"""Rows in order: sorted as they are written, clustered by compaction, in bounded memory."""

from __future__ import annotations

import datetime
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.schema.sorting import RowOrder, interleaved, parse_order, sorted_rows
from fermion_table.schema.transforms import bucket

SCHEMA = pa.schema([("p", pa.string()), ("a", pa.int64()), ("b", pa.string())])


def made_up(seed: int, count: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "p": rng.choice(["x", "y"], count),
            "a": [None if n == 0 else int(n) for n in rng.integers(0, 9, count)],
            "b": rng.choice(["", "q", "ö"], count),
        },
        schema=SCHEMA,
    )


def files_of(table: Table) -> list[pa.Table]:
    """The rows of each file by itself."""
    scan = table.scan()
    return [
        pa.Table.from_batches(scan.reader.read(split), scan.schema) for split in scan.plan().splits
    ]


def is_sorted(rows: pa.Table, *names: str) -> bool:
    listed = list(zip(*(rows.column(name).to_pylist() for name in names), strict=True))
    keys = [
        tuple((value is None, value if value is not None else 0) for value in r) for r in listed
    ]
    return all(one <= other for one, other in itertools.pairwise(keys))


@settings(max_examples=15)
@given(st.integers(0, 2**32), st.sampled_from([None, "p", bucket(2, "a")]), st.integers(1, 4))
def test_every_file_of_a_sorted_table_is_sorted(tmp_path_factory, seed, partition_by, appends):
    path = tmp_path_factory.mktemp("sorted") / "table"
    options = {"partition_by": partition_by, "sort_by": ["a", "b"], "durability": "fast"}
    properties = {"write_buffer_size": "1KB"}
    table = Table.create(path, SCHEMA, properties=properties, **options)
    parts = [made_up(seed + n, 60) for n in range(appends)]
    for part in parts:
        table.append(part.to_reader(max_chunksize=20))
    assert all(is_sorted(rows, "a", "b") for rows in files_of(table))
    expected = pa.concat_tables(parts)
    order = [(name, "ascending") for name in SCHEMA.names]
    assert table.scan().to_arrow().sort_by(order).equals(expected.sort_by(order))
    table.compact()
    assert all(is_sorted(rows, "a", "b") for rows in files_of(table))
    assert table.scan().to_arrow().sort_by(order).equals(expected.sort_by(order))


def test_a_full_buffer_ends_files_so_that_each_is_sorted(table_path):
    properties = {"write_buffer_size": "8KB"}
    table = Table.create(
        table_path, pa.schema([("a", pa.int64())]), sort_by="a", properties=properties
    )
    table.append(pa.table({"a": list(range(4_000, 0, -1))}).to_reader(max_chunksize=500))
    found = files_of(table)
    assert [rows.num_rows for rows in found] == [1_500, 1_500, 1_000]
    assert all(is_sorted(rows, "a") for rows in found)


def test_the_sort_order_follows_a_rename_and_can_be_changed(table_path):
    Table.create(table_path, pa.schema([("a", pa.int64()), ("b", pa.int64())]), sort_by=["a"])
    table = Table.open(table_path)
    table.rename_column("a", "c")
    table.append({"c": [2, 1], "b": [1, 2]})
    with pytest.raises(InvalidArgumentError, match="sort column"):
        table.drop_columns("c")
    with table.update_schema() as update:
        update.set_sort_order(["b"])
    table.append({"c": [1, 2], "b": [2, 1]})
    with table.update_schema() as update:
        update.set_sort_order([])
    table.append({"c": [2, 1], "b": [2, 1]})
    rows = [part.column("c").to_pylist() for part in files_of(table)]
    assert rows == [[1, 2], [2, 1], [2, 1]]


def test_batches_keep_their_order_in_sorted_tables(table_path):
    table = Table.create(table_path, SCHEMA, sort_by="a")
    table.append_batches([(2, {"a": [3, 1]}), (1, {"a": [2]})])
    assert table.scan().to_arrow().column("a").to_pylist() == [3, 1, 2]


@pytest.mark.parametrize("names", [["nope"], ["l"], ["a", "a"]])
def test_columns_that_have_no_order_are_refused(table_path, names):
    schema = pa.schema([("a", pa.int64()), ("l", pa.list_(pa.int64()))])
    with pytest.raises((InvalidArgumentError, ColumnNotFoundError)):
        Table.create(table_path, schema, sort_by=names)
    table = Table.create(table_path, schema)
    table.append({"a": [1]})
    table.append({"a": [2]})
    with pytest.raises((InvalidArgumentError, ColumnNotFoundError)):
        table.compact(sort_by=names)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.bool_(), [True, False, None]),
        (pa.decimal32(5, 2), [Decimal("1.10"), Decimal("-1.10"), None]),
        (pa.string_view(), ["b", "a" * 30, None]),
        (pa.binary_view(), [b"b", b"a", None]),
        (pa.timestamp("ns", "UTC"), [2, 1, None]),
        (pa.date32(), [datetime.date(2024, 1, 1), datetime.date(1, 1, 1), None]),
        (pa.duration("s"), [2, 1, None]),
        (pa.float64(), [2.5, -1.0, None]),
        (pa.uint64(), [2**64 - 1, 0, None]),
        (pa.binary(2), [b"zz", b"aa", None]),
    ],
)
@pytest.mark.parametrize("is_curve", [False, True])
def test_all_plain_types_sort_with_nulls_last(dtype, values, is_curve):
    batch = pa.record_batch({"x": pa.array(values, dtype), "same": pa.array([1, 1, 1])})
    found = sorted_rows([batch], RowOrder(("x", "same"), is_curve))
    assert found.column("x").equals(pa.array([values[1], values[0], None], dtype))


def test_codes_interleave_bits_as_morton_drew_them():
    """Four by four cells, numbered along the curve."""
    rows, columns = np.divmod(np.arange(16), 4)
    cells = np.argsort(interleaved([rows, columns]), kind="stable")
    assert cells.tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15]


@given(st.integers(2, 16), st.integers(0, 2**32))
def test_codes_never_overflow_and_respect_every_column(columns, seed):
    """A row that is nowhere below another one does not come before it."""
    rng = np.random.default_rng(seed)
    ranks = rng.integers(0, rng.integers(1, 2**31), (columns, 20))
    codes = interleaved(list(ranks))
    assert (codes >= 0).all()
    for one, other in itertools.permutations(range(20), 2):
        if (ranks[:, one] <= ranks[:, other]).all():
            assert codes[one] <= codes[other]


def test_orders_are_read_from_text():
    assert parse_order("a") == RowOrder(("a",))
    assert parse_order(["a", "b"]) == RowOrder(("a", "b"))
    assert parse_order(["ZOrder(a, b c)"]) == RowOrder(("a", "b c"), is_curve=True)
    for text in ("zorder(a)", "zorder(a, a)"):
        with pytest.raises(InvalidArgumentError):
            parse_order(text)


def test_clustering_narrows_bounds_in_every_column(table_path):
    """Of a grid in random order, a query for an edge reads few files, whichever column it names."""
    side = 64
    rng = np.random.default_rng(3)
    cells = rng.permutation(side * side)
    table = Table.create(table_path, pa.schema([("x", pa.int64()), ("y", pa.int64())]))
    for part in np.array_split(cells, 8):
        table.append({"x": part // side, "y": part % side})
    size = table.snapshot.totals.bytes
    assert len(table.scan(filter="x < 8").plan().splits) == 8
    table.compact(sort_by="zorder(x, y)", target_size=size // 12)
    files = table.snapshot.totals.files
    assert files >= 8
    for text in ("x < 8", "y < 8", "x >= 56 AND y >= 56"):
        scan = table.scan(filter=text)
        assert len(scan.plan().splits) <= files * 2 // 3, text
        assert scan.count() == (64 if "AND" in text else 8 * side)
    assert table.scan().count() == side * side


def test_sorting_moves_rows_between_big_files(table_path):
    table = Table.create(table_path, pa.schema([("a", pa.int64())]))
    for start in range(4):
        table.append({"a": range(start, 4_000, 4)})
    size = table.scan().entries[0][0].size
    table.compact(sort_by="a", target_size=size)
    assert table.scan().to_arrow().column("a").to_pylist() == list(range(4_000))
    assert table.snapshot.totals.files > 1
    assert len(table.scan(filter="a = 5").plan().splits) == 1


def test_a_writer_to_many_partitions_closes_files_rather_than_fill_the_memory(table_path):
    properties = {"write_buffer_size": "64KB"}
    schema = pa.schema([("p", pa.int64()), ("a", pa.int64())])
    table = Table.create(table_path, schema, partition_by="p", properties=properties)
    with table.writer() as writer:
        for start in range(0, 40_000, 2_000):
            numbers = np.arange(start, start + 2_000)
            writer.write(pa.table({"p": numbers % 8, "a": numbers}))
            waiting = sum(file.waiting_bytes for file in writer._open.values())
            assert waiting <= 64 * 1024
        table.commit(writer.prepare_commit())
    assert table.scan().count() == 40_000
    assert table.snapshot.totals.files > 8


def test_one_big_file_is_not_cut_for_the_buffer(table_path):
    properties = {"write_buffer_size": "4KB"}
    table = Table.create(table_path, pa.schema([("a", pa.int64())]), properties=properties)
    table.append({"a": range(10_000)})
    assert table.snapshot.totals.files == 1
