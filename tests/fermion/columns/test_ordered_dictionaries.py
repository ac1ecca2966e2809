"""Ordered dictionaries keep their order and all of their values, wherever they are."""

from __future__ import annotations

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.columns.ordered_dictionaries import OrderedDictionaries, joined_order, parse_ordered
from fermion.columns.types import column_node
from fermion.errors import InvalidArgumentError, InvalidFileError, UnsupportedTypeError
from tests.kit.equality import assert_logically_equal

LEVELS = pa.array(["low", "mid", "high"])
DTYPE = pa.dictionary(pa.int8(), pa.string(), ordered=True)


def ordered(codes, entries=LEVELS, index=None) -> pa.DictionaryArray:
    indices = pa.array(codes, index or pa.int8())
    return pa.DictionaryArray.from_arrays(indices, entries, ordered=True)


def written(table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


def read(data: bytes, **asked) -> pa.Table:
    with fermion.open(data) as file:
        assert file.verify().ok
        return file.read(**asked)


def same(found: pa.Array | pa.ChunkedArray, expected: pa.Array) -> None:
    """Equal down to dictionaries and indices."""
    if isinstance(found, pa.ChunkedArray):
        assert found.num_chunks == 1
        found = found.chunk(0)
    found.validate(full=True)
    assert found.type == expected.type
    assert_logically_equal(found.dictionary, expected.dictionary)
    assert found.indices.equals(expected.indices)


@pytest.mark.parametrize("stripe_rows", [2, 100])
@pytest.mark.parametrize("nests", [False, True])
def test_dictionaries_that_differ_in_the_sign_of_zero_alone_stay_apart(
    stripe_rows: int, nests: bool
) -> None:
    """Arrow says that they are equal; the file could not be read back."""

    def batch(zero: float) -> pa.RecordBatch:
        entries = pa.array([zero, 1.0])
        if nests:
            entries = pa.StructArray.from_arrays([entries], ["x"])
        return pa.record_batch([ordered([0, 1], entries)], ["a"])

    sink = io.BytesIO()
    batches = [batch(zero) for zero in (0.0, -0.0, -0.0, 0.0)]
    options = fermion.WriteOptions(stripe_rows=stripe_rows)
    with fermion.Writer(sink, batches[0].schema, options=options) as writer:
        for each in batches:
            writer.write(each)
    found = read(sink.getvalue())["a"]
    values = [each for chunk in found.chunks for each in chunk.dictionary_decode().to_pylist()]
    numbers = [each["x"] if nests else each for each in values]
    zeros = [each for each in numbers if each == 0.0]
    assert [bool(np.signbit(each)) for each in zeros] == [False, True, True, False]


def test_dictionaries_that_differ_in_the_sign_of_zero_alone_count_as_two_values() -> None:
    """Together they have one value more than int8 can number: that begins another stripe."""
    entries = [np.arange(128, dtype=np.float64) for _ in range(2)]
    entries[1][0] = -0.0
    batches = [
        pa.record_batch(
            [pa.DictionaryArray.from_arrays(pa.array(range(128), pa.int8()), pa.array(each))],
            ["a"],
        )
        for each in entries
    ]
    sink = io.BytesIO()
    with fermion.Writer(sink, batches[0].schema) as writer:
        for each in batches:
            writer.write(each)
    found = read(sink.getvalue())["a"]
    decoded = np.concatenate([chunk.dictionary_decode().to_numpy() for chunk in found.chunks])
    assert decoded.tobytes() == np.concatenate(entries).tobytes()


def test_a_categorical_of_pandas_keeps_its_order_and_minimum(tmp_path):
    values = pd.Categorical(["high", "low", "high"], ["low", "mid", "high"], ordered=True)
    frame = pd.DataFrame({"a": values})
    fermion.write_table(frame, tmp_path / "a.fermion")
    found = fermion.read_table(tmp_path / "a.fermion").to_pandas()["a"]
    assert list(found.cat.categories) == ["low", "mid", "high"]
    assert (found.cat.ordered, found.min(), list(found)) == (True, "low", ["high", "low", "high"])


VALUES = {
    "strings": LEVELS,
    "integers": pa.array([5, -1, 3]),
    "floats": pa.array([np.nan, -0.0, 0.0]),
    "booleans": pa.array([True, False]),
    "timestamps": pa.array([3, 1, 2], pa.timestamp("us", "UTC")),
    "decimals": pa.array([3, 1, 2], pa.decimal128(5, 2)),
    "views": LEVELS.cast(pa.string_view()),
    "structs": pa.array([{"a": 2, "b": None}, {"a": 1, "b": "x"}]),
    "lists": pa.array([[2], [], [1, None]]),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("profile", ["balanced", "fast"])
def test_values_of_any_type_keep_their_order(name, profile):
    """The last entry comes first, the first one in no row, and nulls between."""
    array = ordered([len(VALUES[name]) - 1, None, 1, 1], VALUES[name])
    same(read(written(pa.table({"a": array}), profile=profile))["a"], array)


NESTED = {
    "struct": lambda a: pa.StructArray.from_arrays([pa.array(range(len(a))), a], ["n", "o"]),
    "list": lambda a: pa.ListArray.from_arrays([0, 1, 1, len(a)], a),
    "large_list": lambda a: pa.LargeListArray.from_arrays([0, 1, 1, len(a)], a),
    "list_view": lambda a: pa.ListViewArray.from_arrays([0, 1, 1], [1, 0, len(a) - 1], a),
    "fixed_list": lambda a: pa.FixedSizeListArray.from_arrays(a, 2),
    "map": lambda a: pa.MapArray.from_arrays([0, 1, 1, len(a)], pa.array(range(len(a))), a),
    "deep": lambda a: pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays([0, 1, 1, len(a)], NESTED["struct"](a))], ["deep"]
    ),
}


def inner(name: str, array: pa.Array) -> pa.DictionaryArray:
    if name == "deep":
        return array.field(0).values.field(1)
    if name == "struct":
        return array.field(1)
    return array.items if name == "map" else array.values


@pytest.mark.parametrize("name", NESTED)
def test_nested_ordered_dictionaries_keep_their_order(name):
    array = NESTED[name](ordered([2, None, 0, 2]))
    table = pa.table({"x": pa.array(range(len(array))), "a": array})
    found = read(written(table))
    assert_logically_equal(found, table)
    got = inner(name, found["a"].chunk(0))
    assert got.dictionary.equals(LEVELS)
    assert got.to_pylist() == ["high", None, "low", "high"]
    if name == "struct":
        part = read(written(table), columns=["a.o"])["a"].chunk(0).field(0)
        assert part.dictionary.equals(LEVELS)


def test_rows_by_number_filters_batches_and_kept_dictionaries_have_the_order(tmp_path):
    array = ordered([2, None, 0, 2] * 100)
    data = written(pa.table({"n": range(400), "a": array}), stripe_rows=150)
    with fermion.open(data) as file:
        assert file.num_stripes == 3
        for chunk in file.take([399, 2, 2], columns=["a"])["a"].chunks:
            assert chunk.dictionary.equals(LEVELS)
        found = file.read(["a"], filter="n >= 149 AND n < 152 AND a = 'high'")["a"]
        assert found.to_pylist() == ["high"]
        assert all(chunk.dictionary.equals(LEVELS) for chunk in found.chunks)
        for batch in file.iter_batches(["a"], batch_size=7):
            assert batch.column(0).dictionary.equals(LEVELS)
    with fermion.open(data, options=fermion.ReadOptions(keep_dictionaries=True)) as file:
        assert file.read()["a"].type == DTYPE
        assert all(chunk.dictionary.equals(LEVELS) for chunk in file.read()["a"].chunks)


def test_a_stripe_of_nulls_knows_the_dictionary():
    same(read(written(pa.table({"a": ordered([None, None])})))["a"], ordered([None, None]))


def test_dictionaries_of_one_order_share_a_stripe():
    """A part of the values in the same order, before and after the whole."""
    chunks = [ordered([0], LEVELS[1:]), ordered([2, 0]), ordered([1, 0], LEVELS.take([0, 2]))]
    data = written(pa.table({"a": pa.chunked_array(chunks)}))
    same(read(data)["a"], ordered([1, 2, 0, 2, 0]))


def test_dictionaries_of_different_orders_get_stripes_of_their_own():
    """Whatever is written comes back: each chunk with its own dictionary."""
    other = LEVELS.take([2, 1, 0])
    chunks = [ordered([0]), ordered([0, 1], other), ordered([None, 2], other), ordered([2])]
    data = written(pa.table({"a": pa.chunked_array(chunks)}))
    found = read(data)["a"]
    assert found.to_pylist() == ["low", "high", "mid", None, "low", "high"]
    assert [chunk.dictionary.to_pylist() for chunk in found.chunks] == [
        LEVELS.to_pylist(),
        other.to_pylist(),
        LEVELS.to_pylist(),
    ]


def test_rows_of_different_orders_are_taken_with_their_own_dictionaries():
    """In the order asked for, at the top level and nested; runs of one order lie together."""
    other = LEVELS.take([2, 1, 0])
    chunks = [ordered([0, 1]), ordered([0, 1], other)]
    nested = [pa.StructArray.from_arrays([chunk], ["o"]) for chunk in chunks]
    table = pa.table({"a": pa.chunked_array(chunks), "s": pa.chunked_array(nested)})
    with fermion.open(written(table)) as file:
        found = file.take([3, 0, 1, 2])
    assert found["a"].to_pylist() == ["mid", "low", "mid", "high"]
    orders = [chunk.dictionary.to_pylist() for chunk in found["a"].chunks]
    assert orders == [other.to_pylist(), LEVELS.to_pylist(), other.to_pylist()]
    assert orders == [chunk.field("o").dictionary.to_pylist() for chunk in found["s"].chunks]


def test_a_batch_of_two_orders_is_refused_in_batch_mode(tmp_path):
    target = tmp_path / "a.fermion"
    chunks = pa.chunked_array([ordered([0]), ordered([0], LEVELS.take([2, 1, 0]))])
    with pytest.raises(InvalidArgumentError, match=r"batch 7: column 'a': expected ordered"):  # noqa: SIM117
        with fermion.Writer(target, pa.schema([("a", DTYPE)])) as writer:
            writer.append_batch(7, pa.table({"a": chunks}))
    assert not target.exists()


def test_changed_columns_keep_their_dictionaries(tmp_path):
    """Kept, moved, dropped and added ones."""
    path = tmp_path / "a.fermion"
    reverse = LEVELS.take([2, 1, 0])
    table = pa.table({"a": ordered([2, 0]), "b": [1, 2], "c": ordered([2, 0], reverse)})
    fermion.write_table(table, path)
    fermion.add_columns(path, pa.table({"d": ordered([1, 1])}))
    fermion.select_columns(path, ["d", "c", "b"])
    found = read(path.read_bytes())
    assert found.schema.names == ["d", "c", "b"]
    same(found["d"], ordered([1, 1]))
    same(found["c"], ordered([2, 0], reverse))


def test_both_converters_keep_the_order(tmp_path):
    """Through Parquet, whose page dictionaries have it, one row group an order."""
    table = pa.table({"a": ordered([2, None, 0]), "s": NESTED["struct"](ordered([2, None, 0]))})
    fermion.write_table(table, tmp_path / "a.fermion")
    fermion.to_parquet(tmp_path / "a.fermion", tmp_path / "a.parquet")
    fermion.from_parquet(tmp_path / "a.parquet", tmp_path / "b.fermion")
    found = fermion.read_table(tmp_path / "b.fermion")
    same(found["a"], ordered([2, None, 0]))


def test_orders_that_differ_survive_parquet(tmp_path):
    other = LEVELS.take([2, 1, 0])
    table = pa.table({"a": pa.chunked_array([ordered([0, 2]), ordered([0, 1], other)])})
    fermion.write_table(table, tmp_path / "a.fermion")
    fermion.to_parquet(tmp_path / "a.fermion", tmp_path / "a.parquet")
    fermion.from_parquet(tmp_path / "a.parquet", tmp_path / "b.fermion")
    found = fermion.read_table(tmp_path / "b.fermion")["a"]
    assert found.to_pylist() == ["low", "high", "high", "mid"]
    assert [chunk.dictionary.to_pylist() for chunk in found.chunks] == [
        LEVELS.to_pylist(),
        other.to_pylist(),
    ]


def test_ordered_dictionaries_within_runs_and_dictionaries_keep_their_order():
    level = ordered([2, None, 0])
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 3, 4], pa.int32()), level)
    coded = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 0, None], pa.int8()),
        pa.StructArray.from_arrays([ordered([2, 0])], ["level"]),
    )
    found = read(written(pa.table({"runs": runs, "coded": coded})))
    assert_logically_equal(found["runs"].chunk(0), runs)
    assert found["runs"].chunk(0).values.dictionary.equals(LEVELS)
    assert_logically_equal(found["coded"].chunk(0), coded)
    assert found["coded"].chunk(0).dictionary.field("level").dictionary.equals(LEVELS)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.dictionary(pa.int8(), DTYPE, ordered=True),
        pa.dictionary(pa.int8(), pa.struct([("a", DTYPE)]), ordered=True),
        pa.run_end_encoded(
            pa.int32(), pa.dictionary(pa.int8(), pa.struct([("a", DTYPE)]), ordered=True)
        ),
    ],
    ids=str,
)
def test_an_order_that_a_file_cannot_keep_is_refused_at_once(dtype, tmp_path):
    with pytest.raises(UnsupportedTypeError, match="column 'a'"):
        fermion.Writer(tmp_path / "a.fermion", pa.schema([("a", dtype)]))
    assert list(tmp_path.iterdir()) == []


@given(st.permutations(range(5)), st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_an_order_for_both_holds_both(order, start, stop, swap):
    """Compared with the plain rule: a subsequence."""
    whole = pa.array(order, pa.int64())
    part = pa.array(sorted(order[start:stop]), pa.int64())
    places = [order.index(each) for each in part.to_pylist()]
    found = joined_order(part, whole) if swap else joined_order(whole, part)
    assert (found is not None) == (places == sorted(places))
    if found is not None and len(part) < 5:
        assert found.equals(whole)


def test_a_damaged_section_is_an_error_or_values(tmp_path):
    """Every bit of every byte flipped behind the checksum, and the section cut at every byte."""
    tree = column_node(pa.field("a", DTYPE))
    section = OrderedDictionaries({(0, 0): [(0, LEVELS), (1, LEVELS[::-1])]}).build()
    assert parse_ordered(memoryview(section), [tree], 2, "x").build() == section
    damaged = [section[:at] for at in range(len(section))]
    for at, byte in enumerate(section):
        damaged += [section[:at] + bytes([byte ^ 1 << bit]) + section[at + 1 :] for bit in range(8)]
    messages = []
    for data in damaged:
        try:
            parse_ordered(memoryview(data), [tree], 2, "x").build()
        except InvalidFileError as error:
            messages.append(str(error))
    assert len(messages) > len(damaged) // 4
    assert all(message.startswith("x: ordered dictionaries") for message in messages)


@pytest.mark.parametrize("hidden", [[True, False, True], [True, True, True], [False, False, False]])
@pytest.mark.parametrize("form", ["plain", "runs", "fixed list"])
def test_a_required_dictionary_below_null_structs_is_read(form, hidden):
    """A file has fillers below null, which are no values of the dictionary."""
    values: pa.Array = ordered([2, 1, 2])
    if form == "runs":
        values = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 3], pa.int32()), values)
    elif form == "fixed list":
        pair = pa.field("item", DTYPE, nullable=False)
        values = pa.FixedSizeListArray.from_arrays(ordered([2, 1] * 3), type=pa.list_(pair, 2))
    fields = [pa.field("level", values.type, nullable=False)]
    structs = pa.StructArray.from_arrays([values], fields=fields, mask=pa.array(hidden))
    table = pa.table({"a": structs})
    found = read(written(table))
    assert found.schema == table.schema
    assert found["a"].to_pylist() == structs.to_pylist()


def test_a_value_that_is_no_text_is_refused_like_any_other():
    """A damaged file has one; the message can't show it."""
    node = column_node(pa.field("c", pa.dictionary(pa.int8(), pa.string(), ordered=True)))
    known = OrderedDictionaries({(0, node.validity): [(0, pa.array(["a"]))]})
    buffers = [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\x80")]
    found = pa.DictionaryArray.from_arrays(
        pa.array([0], pa.int8()), pa.Array.from_buffers(pa.string(), 1, buffers), ordered=True
    )
    with pytest.raises(InvalidFileError, match="found another at place 0 of 1"):
        known.restore(0, node, 0, found, where="f")
