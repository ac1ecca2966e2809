"""Parquet to Fermion and back: every type, damage, metadata, options."""

from __future__ import annotations

import datetime
import io
import random
import warnings
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings

import fermion
from fermion.parquet.types import parquet_field
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.conversions import (
    QUICK,
    parquet,
    read,
    read_parquet,
    stored,
    stored_schema,
    to_fermion,
    to_parquet,
)
from tests.kit.strategies import tables


@pytest.mark.filterwarnings("ignore::fermion.ConversionWarning")
def test_damage_anywhere_gives_values_or_our_error():
    """One to three random bytes changed, or the end cut off, 250 times.

    Among them sizes of levels in a column's metadata that do not fit its type, which pyarrow ends
    the process for when asked for that column's metadata.
    """
    chooser = random.Random(8)
    rows = [{"a": i, "s": str(i), "l": [i / 2] * (i % 4), "m": [("k", i)]} for i in range(40)]
    schema = pa.schema(
        [
            ("a", pa.int64()),
            ("s", pa.string()),
            ("l", pa.list_(pa.float64())),
            ("m", pa.map_(pa.string(), pa.int64())),
        ]
    )
    whole = parquet(pa.Table.from_pylist(rows, schema=schema))
    refused = 0
    for _ in range(250):
        data = bytearray(whole)
        for _ in range(chooser.randint(1, 3)):
            data[chooser.randrange(len(data))] = chooser.randrange(256)
        if chooser.random() < 0.1:
            del data[chooser.randrange(len(data)) :]
        try:
            to_fermion(bytes(data))
        except fermion.FermionError:
            refused += 1
    assert refused > 25


@pytest.mark.filterwarnings("ignore::fermion.ConversionWarning")
@settings(max_examples=30)
@given(tables())
def test_any_table_goes_to_parquet_as_said_and_comes_back_as_read(table):
    """Values of columns whose types stay; types of all; Fermion's reading equals pyarrow's."""
    assume(message_can_hold(table.schema))
    # pyarrow makes lists of nulls with too few elements, which some of its functions end on.
    assume("null" not in {str(each) for field in table.schema for each in _types(field.type)})
    try:
        data = to_parquet(stored(table))
    except fermion.UnsupportedTypeError:
        with pytest.raises(fermion.UnsupportedTypeError, match="Parquet has nothing like"):
            _ = [parquet_field(field, where="x") for field in table.schema]
        return
    found = read_parquet(data)
    assert found.num_rows == (table.num_rows if table.num_columns else 0)
    for ordinal, field in enumerate(table.schema):
        column = found.column(ordinal)
        wanted = parquet_field(field, where="x").type
        # pyarrow forgets the sortedness of keys in nested maps.
        assert column.type == wanted or "keys_sorted" in str(wanted)
        if column.type == field.type:
            assert_logically_equal(column, table.column(ordinal))
    again = read(to_fermion(data))
    assert again.schema.equals(stored_schema(found.schema), check_metadata=True)
    for column, expected in zip(again.columns, found.columns, strict=True):
        assert_logically_equal(column, expected)


def _types(dtype: pa.DataType) -> list[pa.DataType]:
    if isinstance(dtype, pa.BaseExtensionType):
        return _types(dtype.storage_type)
    if isinstance(dtype, (pa.DictionaryType, pa.RunEndEncodedType)):
        return _types(dtype.value_type)
    below = [dtype.field(index).type for index in range(dtype.num_fields)]
    return [dtype, *(each for child in below for each in _types(child))]


MOMENT = datetime.datetime(2024, 2, 29, 12, 30, 15)
DAYS = [0, None, -86_400_000 * 400]
# before, after, and what stands there: the same Python values where None is given
CONVERSIONS = [
    (pa.array([1, 1, None], pa.int8()).dictionary_encode(), pa.int8(), None),
    (pa.array([[1], None, [1]], pa.list_view(pa.int8())), pa.list_view(pa.int8()), None),
    (pa.RunEndEncodedArray.from_arrays([2, 5], ["a", None]), pa.string(), None),
    (pa.array([MOMENT, None], pa.timestamp("s")), pa.timestamp("ms"), None),
    (
        pa.array([MOMENT, None], pa.timestamp("s", "Europe/Berlin")),
        pa.timestamp("ms", "Europe/Berlin"),
        None,
    ),
    (pa.array([5, None, 86_399], pa.time32("s")), pa.time32("ms"), None),
    (pa.array(DAYS, pa.date64()), pa.date32(), None),
    (pa.array([Decimal("1200"), None], pa.decimal128(5, -2)), pa.decimal128(7, 0), None),
    (pa.array([Decimal("-500"), None], pa.decimal32(3, -2)), pa.decimal128(5, 0), None),
    (pa.nulls(2, pa.decimal128(3, 5)), pa.decimal128(5, 5), None),
    (
        pa.array([pa.MonthDayNano([1, -2, 3]), None], pa.month_day_nano_interval()),
        pa.struct(
            [
                pa.field("months", pa.int32(), nullable=False),
                pa.field("days", pa.int32(), nullable=False),
                pa.field("nanoseconds", pa.int64(), nullable=False),
            ]
        ),
        [{"months": 1, "days": -2, "nanoseconds": 3}, None],
    ),
    (
        pa.array([["long enough for a view", None], None], pa.list_(pa.string_view())),
        pa.list_(pa.large_string()),
        None,
    ),
]


@pytest.mark.parametrize(
    ("array", "after", "values"), CONVERSIONS, ids=[str(each[0].type) for each in CONVERSIONS]
)
def test_types_that_parquet_lacks_keep_their_values(array, after, values):
    """Alone, and in structs in lists; with a warning that names the column, where types change."""
    nested = pa.StructArray.from_arrays([array], names=["x"])
    listed = pa.ListArray.from_arrays([0, 0, len(array)], nested)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = read_parquet(to_parquet(stored(pa.table({"plain": array}))))
        below = read_parquet(to_parquet(stored(pa.table({"deep": listed}))))
    assert found.schema.field(0).type == after
    assert found["plain"].to_pylist() == (values or array.to_pylist())
    wanted = [{"x": each} for each in (values or array.to_pylist())]
    assert below["deep"].to_pylist() == [[], wanted]
    messages = [str(each.message) for each in caught]
    if after != array.type:
        assert all(each.category is fermion.ConversionWarning for each in caught)
        assert "'plain'" in messages[0]
        assert "'deep'" in messages[1]
    else:
        assert messages == []


@pytest.mark.parametrize(
    "dtype", [pa.struct([]), pa.binary(0), pa.list_(pa.int8(), 0), pa.decimal256(76, -1)], ids=str
)
def test_types_that_have_nothing_near_are_refused_by_name(dtype, tmp_path):
    source = stored(pa.table({"a": [1, 2], "bad": pa.nulls(2, pa.list_(dtype))}))
    with pytest.raises(TypeError, match=r"column 'bad'\.item: Parquet has nothing like"):
        fermion.to_parquet(source, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_the_new_type_cannot_hold_is_refused(tmp_path):
    """A date with a time of day, and seconds that are too many for milliseconds."""
    arrays = [pa.array([86_400_001], pa.date64()), pa.array([2**62], pa.timestamp("s"))]
    for array in arrays:
        source = stored(pa.table({"when": array}))
        with (
            pytest.warns(fermion.ConversionWarning),
            pytest.raises(fermion.InvalidArgumentError, match="column 'when' cannot become"),
        ):
            fermion.to_parquet(source, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_many_converted_columns_make_one_short_warning():
    columns = {f"c{i}": pa.array([1], pa.time32("s")) for i in range(500)}
    with pytest.warns(fermion.ConversionWarning) as caught:
        to_parquet(stored(pa.table(columns)))
    assert len(caught) == 1
    assert str(caught[0].message).endswith("'c9' (time32[s]) as time32[ms] and 490 more")


def test_every_bit_of_a_nan_and_of_a_zero_is_kept_both_ways():
    doubles = np.array([0x7FF8000000000001, 0xFFF8DEAD00000000, 1 << 63, 0], np.uint64)
    singles = np.array([0x7FC00001, 0xFFC12345, 1 << 31, 0], np.uint32)
    halves = np.array([0x7E01, 0xFE12, 1 << 15, 0], np.uint16)
    bits = {"d": doubles, "f": singles, "h": halves}
    floats = {"d": np.float64, "f": np.float32, "h": np.float16}
    table = pa.table({name: array.view(floats[name]) for name, array in bits.items()})
    for found in (read(to_fermion(parquet(table))), read_parquet(to_parquet(stored(table)))):
        for name, array in bits.items():
            assert found[name].to_numpy().view(array.dtype).tolist() == array.tolist()


def test_schema_metadata_and_field_ids_are_kept_both_ways():
    inner = pa.field("x", pa.int32(), nullable=False, metadata={"PARQUET:field_id": "8"})
    schema = pa.schema(
        [
            pa.field("s", pa.struct([inner]), metadata={"PARQUET:field_id": "7", "unit": "m"}),
            pa.field("d", pa.duration("us"), metadata={"PARQUET:field_id": "9"}),
            pa.field("l", pa.large_string()),
        ],
        metadata={"origin": "here", "bytes": b"\xff\x00"},
    )
    table = pa.table([[{"x": 1}, None], [5, None], ["a", "b"]], schema=schema)
    for found in (read(to_fermion(parquet(table))), read_parquet(to_parquet(stored(table)))):
        assert_logically_equal(found, table)


def test_key_value_metadata_goes_both_ways(tmp_path):
    """Fermion's becomes Parquet's; Parquet's becomes the schema's, as pyarrow has it, and ours."""
    path, schema = tmp_path / "x.fermion", pa.schema([("a", pa.int64())], metadata={"b": "own"})
    entries = {"origin": "here", "b": "other"}
    with fermion.Writer(path, schema, key_value_metadata=entries) as writer:
        writer.write(pa.table({"a": [1]}, schema=schema))
    data = to_parquet(path)
    assert pq.ParquetFile(pa.BufferReader(data)).metadata.metadata[b"origin"] == b"here"
    with fermion.open(to_fermion(data)) as file:
        assert file.key_value_metadata == entries
        assert file.schema.metadata == read_parquet(data).schema.metadata
    with fermion.open(to_fermion(to_parquet(to_fermion(data)))) as file:
        assert file.key_value_metadata == entries


def test_rows_of_many_row_groups_and_stripes_keep_their_order():
    rng = np.random.default_rng(3)
    table = pa.table({"a": rng.integers(0, 9, 10_000), "s": rng.random(10_000).astype(str)})
    sink = io.BytesIO()
    fermion.from_parquet(
        parquet(table, row_group_size=1_234),
        sink,
        options=QUICK.with_overrides({"stripe_rows": 70}),
    )
    data = to_parquet(sink.getvalue(), row_group_size=999)
    assert pq.ParquetFile(pa.BufferReader(data)).num_row_groups == -(-10_000 // 999)
    assert_logically_equal(read_parquet(data), table)


def test_dictionaries_that_differ_from_stripe_to_stripe_come_out_whole():
    texts = [f"value {i // 50}" for i in range(1_000)]
    table = pa.table({"a": pa.array(texts).dictionary_encode()})
    data = to_parquet(stored(table, stripe_rows=100))
    assert read_parquet(data)["a"].to_pylist() == texts
    assert read(to_fermion(data))["a"].to_pylist() == texts


@pytest.mark.parametrize(
    "table",
    [
        pa.table({}),
        pa.table({"a": pa.array([], pa.int32()), "l": pa.array([], pa.list_(pa.string()))}),
        pa.Table.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"]),
        pa.table({"": [1], "a.b": [2], "日本": [None]}),
    ],
    ids=["no columns", "no rows", "a name twice", "odd names"],
)
def test_unusual_tables_go_both_ways(table):
    data = to_parquet(stored(table))
    assert_logically_equal(read_parquet(data).cast(table.schema), table)
    assert_logically_equal(read(to_fermion(data)).cast(table.schema), table)


def rows_without_columns(rows: int) -> bytes:
    """A Parquet file that has rows but no columns; pyarrow cannot write one."""
    name = b"schema"
    element = bytes([0x48, len(name)]) + name + bytes([0x15, 0, 0])
    footer = bytes([0x15, 2, 0x19, 0x1C]) + element + bytes([0x16, 2 * rows, 0x19, 0x0C, 0])
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def test_rows_without_columns_are_counted_and_lost_to_parquet_with_a_warning():
    data = to_fermion(rows_without_columns(5))
    with fermion.open(data) as file:
        assert (file.num_rows, file.num_columns) == (5, 0)
    with pytest.warns(fermion.ConversionWarning, match="5 rows without a column"):
        to_parquet(data)


def test_batches_lose_their_ids_to_parquet_with_a_warning(tmp_path):
    path, schema = tmp_path / "x.fermion", pa.schema([("a", pa.int64())])
    with fermion.Writer(path, schema) as writer:
        for number in range(3):
            writer.append_batch(number, pa.table({"a": [number] * number}, schema=schema))
    with pytest.warns(fermion.ConversionWarning, match="batches"):
        assert read_parquet(to_parquet(path))["a"].to_pylist() == [1, 2, 2]


def test_progress_counts_every_row_once():
    seen: list[tuple[int, int]] = []
    table = pa.table({"a": range(5_000)})
    sink = io.BytesIO()
    fermion.from_parquet(
        parquet(table, row_group_size=1_000),
        sink,
        options=QUICK.with_overrides({"stripe_rows": 700}),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1_000 * i, 5_000) for i in range(1, 6)]
    seen.clear()
    fermion.to_parquet(
        sink.getvalue(),
        io.BytesIO(),
        row_group_size=1_400,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1_400, 5_000), (2_800, 5_000), (4_200, 5_000), (5_000, 5_000)]


def test_an_exception_in_between_leaves_nothing(tmp_path):
    def fail(done: int, total: int) -> None:
        raise RuntimeError(f"stop at {done} of {total}")

    source = pa.table({"a": range(10)})
    with pytest.raises(RuntimeError, match="stop at 10 of 10"):
        fermion.from_parquet(parquet(source), tmp_path / "x.fermion", progress=fail)
    with pytest.raises(RuntimeError, match="stop at 10 of 10"):
        fermion.to_parquet(stored(source), tmp_path / "x.parquet", progress=fail)
    assert list(tmp_path.iterdir()) == []


def test_a_conversion_holds_a_piece_of_the_file_at_a_time(tmp_path, monkeypatch):
    """32 MB of random numbers in 16 pieces: Arrow never holds a third of them."""
    monkeypatch.setattr("fermion.parquet.source.BATCH_BYTES", 2**19)
    monkeypatch.setattr("fermion.parquet.convert.ROW_GROUP_BYTES", 2**21)
    source, middle = tmp_path / "x.parquet", tmp_path / "x.fermion"
    rng = np.random.default_rng(5)
    pq.write_table(pa.table({"a": rng.random(4_000_000)}), source, row_group_size=250_000)
    pool, most = pa.default_memory_pool(), 0
    before = pool.bytes_allocated()

    def look(done: int, total: int) -> None:
        nonlocal most
        most = max(most, pool.bytes_allocated() - before)

    options = QUICK.with_overrides({"stripe_bytes": 2**21})
    fermion.from_parquet(source, middle, options=options, progress=look)
    fermion.to_parquet(middle, tmp_path / "y.parquet", progress=look)
    assert 0 < most < 32_000_000 / 3


def test_wide_row_groups_are_read_in_few_rows_at_a_time(monkeypatch):
    """500 columns of doubles: no more than 1 MiB of them is decoded at once."""
    monkeypatch.setattr("fermion.parquet.source.BATCH_BYTES", 2**20)
    seen: list[int] = []
    table = pa.table({f"c{i}": np.zeros(2_000) for i in range(500)})
    fermion.from_parquet(
        parquet(table), io.BytesIO(), options=QUICK, progress=lambda done, _: seen.append(done)
    )
    steps = np.diff([0, *seen])
    assert steps.max() * 500 * 8 <= 2**20
    assert seen[-1] == 2_000


def test_paths_urls_and_file_objects_are_taken(tmp_path):
    table = pa.table({"a": [1, 2]})
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet(table))
    with path.open("rb") as file:
        for source in (path, str(path), f"file://{path}", file, path.read_bytes()):
            assert read(to_fermion(source)).equals(table)
        assert not file.closed
    fermion.from_parquet(path, "memory://convert/x.fermion")
    fermion.to_parquet("memory://convert/x.fermion", "memory://convert/x.parquet")
    fermion.from_parquet("memory://convert/x.parquet", "memory://convert/y.fermion")
    assert fermion.read_table("memory://convert/y.fermion").equals(table)


def test_what_is_no_file_keeps_its_own_error(tmp_path):
    for convert in (fermion.from_parquet, fermion.to_parquet):
        with pytest.raises(FileNotFoundError, match="missing"):
            convert(tmp_path / "missing", tmp_path / "x")
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        fermion.from_parquet(tmp_path, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_options_that_pyarrow_does_not_know_are_refused(tmp_path):
    source = stored(pa.table({"a": [1]}))
    for options in ({"compresion": "zstd"}, {"compression": "best"}, {"row_group_size": 0}):
        with pytest.raises(fermion.InvalidArgumentError):
            fermion.to_parquet(source, tmp_path / "x.parquet", **options)
    assert list(tmp_path.iterdir()) == []


def test_options_of_parquet_arrive():
    data = to_parquet(stored(pa.table({"a": ["x"] * 9})), compression="zstd")
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"


def test_a_map_read_from_parquet_can_be_written_again():
    """pyarrow names its entries after the column, which was taken for a type that gets lost."""
    maps = pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32()))
    found = read_parquet(parquet(pa.table({"column": maps})))
    assert_logically_equal(read(stored(found)), pa.table({"column": maps}))


def test_a_footer_that_counts_no_rows_is_overruled_by_its_row_groups(shared_data):
    name = "parquet-testing/data/repeated_no_annotation.parquet"
    assert pq.ParquetFile(shared_data / name).metadata.num_rows == 0
    assert read(to_fermion(shared_data / name)).num_rows == 6
