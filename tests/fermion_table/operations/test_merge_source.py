"""Merges by keys of every type, and what they read: files by key, and only columns that matter."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.errors import SchemaMismatch
from fermion_table.operations import merge_matching, merge_source
from fermion_table.operations.merge_source import SourceKeys

RUNS = pa.run_end_encoded(pa.int32(), pa.int64())
NAN, DAY = float("nan"), datetime.date(2026, 2, 3)
MOMENT = datetime.datetime(2026, 2, 3, 4, 5, 6, 7)
ZONED = MOMENT.replace(tzinfo=datetime.UTC)
TEXT = [pa.string(), pa.large_string(), pa.string_view()]
NAMES = pa.dictionary(pa.int8(), pa.string())
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2)]

KEYS: list[tuple[pa.DataType, list, pa.DataType]] = [
    *((dtype, [1, 2, 3], pa.int64()) for dtype in (pa.int8(), pa.uint64(), pa.float32())),
    *((dtype, ["a", "", "ü"], other) for dtype in TEXT for other in TEXT),
    (NAMES, ["a", "", "ü"], pa.string()),
    (pa.large_string(), ["a", "", "ü"], NAMES),
    *((dtype, [b"ab", b"\x00\xff", b"zz"], dtype) for dtype in BYTES),
    (pa.float16(), [1.5, 2.0, NAN], pa.float16()),
    (pa.float64(), [0.0, NAN, -1.0], pa.float32()),
    (pa.decimal32(7, 2), [Decimal("1.10"), Decimal("-2.00"), Decimal(3)], pa.decimal128(9, 3)),
    (pa.decimal128(20, 2), [Decimal("1.10"), Decimal(-2), Decimal(3)], pa.decimal256(50, 4)),
    (pa.bool_(), [True, False], pa.bool_()),
    (pa.date32(), [DAY, datetime.date(1969, 1, 1)], pa.date64()),
    (pa.time32("ms"), [datetime.time(1, 2, 3), datetime.time(0)], pa.time64("ns")),
    (pa.timestamp("us"), [MOMENT, MOMENT.replace(year=1900)], pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"), [ZONED], pa.timestamp("us", "Asia/Tokyo")),
    (pa.duration("s"), [datetime.timedelta(1), datetime.timedelta(-3)], pa.duration("us")),
    (RUNS, [4, 4], RUNS),
]


def create(path, schema: pa.Schema, **options) -> Table:
    return Table.create(path, schema, durability="fast", **options)


def made(values: list, dtype: pa.DataType) -> pa.Array:
    if pa.types.is_run_end_encoded(dtype):
        return pc.run_end_encode(pa.array(values, dtype.value_type))
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).cast(dtype)
    return pa.array(values, dtype)


@pytest.mark.parametrize("in_list_max", [1000, 0])
@pytest.mark.parametrize(("dtype", "values", "other"), KEYS, ids=lambda each: str(each)[:40])
def test_keys_of_every_type_match(table_path, monkeypatch, dtype, values, other, in_list_max):
    """Each key alone; nulls on both sides match nothing. Once by a list, once by a range."""
    monkeypatch.setattr(merge_source, "IN_LIST_MAX", in_list_max)
    table = create(table_path, pa.schema([("id", dtype), ("v", pa.int64())]))
    table.append(pa.table({"id": made([*values, None], dtype), "v": range(len(values) + 1)}))
    for number, value in enumerate(values):
        source = pa.table({"id": made([value, None], other), "v": [number + 100, -1]})
        builder = table.merge(source, ["id"])
        result = builder.when_matched_update({"v": "source.v"}).execute()
        assert result.rows_updated == values.count(value)
        found = table.scan(filter=f"v = {number + 100}").to_arrow()["id"].to_pylist()
        assert len(found) == values.count(value)
        assert found[0] == value or value != value


def test_nan_matches_nan_and_the_zeros_match(table_path):
    """As SQL groups floats; also as one of two keys, and whatever NaN's bits are."""
    table = create(table_path, pa.schema([("x", pa.float64()), ("id", pa.int64())]))
    table.append({"x": [-0.0, 0.0, NAN, None, 1.0], "id": [1] * 5})
    source = pa.table({"x": [0.0, -NAN, None], "id": [1, 1, 1]})
    for on in (["x"], ["x", "id"], ["id", "x"]):
        builder = table.merge(source, on).when_matched_update({"id": pc.field("target", "id")})
        assert builder.execute().rows_updated == 3
    builder = table.merge(source, ["x"]).when_not_matched_by_source_delete()
    assert builder.execute().rows_deleted == 2


@pytest.mark.parametrize(
    ("dtype", "source"),
    [
        (pa.int8(), pa.array([300])),
        (pa.int64(), pa.array([1.5])),
        (pa.timestamp("s"), pa.array([MOMENT], pa.timestamp("us"))),
        (pa.timestamp("us"), pa.array([ZONED], pa.timestamp("us", "UTC"))),
        (pa.decimal128(5, 1), pa.array([Decimal("1.25")], pa.decimal128(5, 2))),
        (pa.date32(), pa.array([MOMENT], pa.timestamp("us"))),
        (pa.string(), pa.array([1])),
    ],
)
def test_keys_that_would_lose_something_are_refused(table_path, dtype, source):
    table = create(table_path, pa.schema([("id", dtype)]))
    version = table.snapshot.id
    with pytest.raises(SchemaMismatch, match="on: column 'id' of the source"):
        table.merge(pa.table({"id": source}), ["id"]).when_not_matched_insert().execute()
    assert table.refresh().id == version


@pytest.mark.parametrize(
    "dtype", [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.map_(pa.string(), pa.int8())]
)
def test_nested_keys_are_refused(table_path, dtype):
    table = create(table_path, pa.schema([("id", dtype)]))
    with pytest.raises(InvalidArgumentError, match="on: column 'id' is"):
        table.merge(pa.table({"id": pa.nulls(1, dtype)}), ["id"])


def test_pairs_of_many_columns_are_those_of_a_nested_loop():
    """Keys of three columns with repeats, against a loop over all pairs."""
    left = [
        [i % 3 for i in range(40)],
        [i % 4 or None for i in range(40)],
        [i % 2 for i in range(40)],
    ]
    right = [[i % 5 for i in range(30)], [i % 3 for i in range(30)], [i % 4 for i in range(30)]]
    keys = SourceKeys([pa.array(column, pa.int64()) for column in right])
    rows, source_rows = keys.match([pa.array(column, pa.int64()) for column in left])
    expected = [
        (i, j)
        for i, one in enumerate(zip(*left, strict=True))
        for j, other in enumerate(zip(*right, strict=True))
        if one == other and None not in one
    ]
    assert len(expected) == 10
    assert sorted(zip(rows.tolist(), source_rows.tolist(), strict=True)) == expected
    assert rows.tolist() == sorted(rows.tolist())


@pytest.fixture
def reads(monkeypatch) -> list[tuple[str, list]]:
    """Files opened, and the columns that were decoded of each; filters aside."""
    found: list[tuple[str, list]] = []
    original = fermion.FermionFile.iter_batches

    def spy(self, columns=None, **options):
        found.append((str(self), list(columns)))
        return original(self, columns, **options)

    monkeypatch.setattr(fermion.FermionFile, "iter_batches", spy)
    return found


WIDE = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.int64()), ("c", pa.int64())])


def wide(path, files: int = 3) -> Table:
    table = create(path, WIDE)
    for number in range(files):
        ids = range(100 * number, 100 * number + 100)
        table.append({"id": ids, "a": ids, "b": ids, "c": ids})
    return table


def test_only_files_with_keys_of_the_source_are_opened(table_path, monkeypatch):
    """By a list of few keys, by a range of many, and by a condition on rows without a partner."""
    table = wide(table_path)
    opened: list[str] = []
    original = fermion.open
    monkeypatch.setattr(
        fermion, "open", lambda path, **o: (opened.append(path), original(path, **o))[1]
    )
    for limit, ids in ((1000, [5, 205]), (0, [105, 195])):
        opened.clear()
        monkeypatch.setattr(merge_source, "IN_LIST_MAX", limit)
        table.merge({"id": ids}, ["id"]).when_matched_delete("target.a < 0").execute()
        assert len(set(opened)) == (2 if limit else 1)
    opened.clear()
    builder = table.merge({"id": [5]}, ["id"])
    builder.when_not_matched_by_source_update({"b": 0}, "target.a = 250").execute()
    assert len(set(opened)) == 2
    assert table.scan(filter="b = 0").to_arrow()["id"].to_pylist() == [0, 250]
    opened.clear()
    table.merge({"id": [999]}, ["id"]).when_not_matched_insert({"id": "source.id"}).execute()
    assert opened == []


def test_only_columns_that_matter_are_decoded(table_path, reads):
    table = wide(table_path, 1)
    source = {name: [5, 6] for name in ("a", "b", "c")} | {"id": [5, 6]}
    table.merge(source, ["id"]).when_matched_delete("target.a < 0").execute()
    assert [columns for _, columns in reads] == [[("a",), ("id",)]]
    reads.clear()
    table.merge(source, ["id"]).when_matched_update().execute()
    assert [columns for _, columns in reads] == [[("id",)]]
    reads.clear()
    values = {"a": pc.field("target", "b") + 1, "b": "source.c", "id": "source.id"}
    table.merge({"id": [50], "c": [7]}, ["id"]).when_matched_update(values).execute()
    assert [columns for _, columns in reads] == [[("id",)], [("b",), ("c",)]]
    assert table.scan(filter="b = 7 AND c = 50").to_arrow().to_pylist() == [
        {"id": 50, "a": 51, "b": 7, "c": 50}
    ]


def test_large_tables_are_matched_piece_by_piece(table_path, monkeypatch):
    """Pieces of ten rows: a file is in several of them, and a piece has rows of several files."""
    monkeypatch.setattr(merge_matching, "PIECE_ROWS_MIN", 10)
    monkeypatch.setattr(merge_matching, "INSERT_ROWS", 3)
    table = create(table_path, WIDE)
    for number in range(3):
        ids = range(100 * number, 100 * number + 7 * number + 5)
        table.append({"id": ids, "a": ids})
    source = {"id": [0, 4, 100, 102, 109, 201, 218, *range(900, 910)]}
    builder = table.merge(source, ["id"]).when_matched_update({"b": "source.id"}, "target.a > 4")
    builder.when_matched_delete().when_not_matched_insert({"id": "source.id"})
    result = builder.when_not_matched_by_source_update({"c": 1}).execute()
    assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == (10, 34, 2)
    found = table.scan().to_arrow().to_pylist()
    assert {row["id"] for row in found if row["b"] is not None} == {100, 102, 109, 201, 218}
    assert sum(row["c"] == 1 for row in found) == 29
    assert len(found) == 36 - 2 + 10
