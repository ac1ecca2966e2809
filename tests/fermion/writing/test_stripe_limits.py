"""Stripes end where a dictionary's indices, or the ends of runs, can number no more."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import InvalidArgumentError
from tests.kit.arrow_samples import INT8, words
from tests.kit.equality import assert_logically_equal


def stored(data, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(data, sink, **options)
    return sink.getvalue()


def as_list(array: pa.Array) -> pa.Array:
    offsets = pa.array([*range(0, len(array), 2), len(array)], pa.int32())
    return pa.ListArray.from_arrays(offsets, array)


WRAPPED: dict[str, Callable[[pa.Array], pa.Array]] = {
    "top": lambda array: array,
    "list": as_list,
    "large list": lambda array: as_list(array).cast(pa.large_list(array.type)),
    "list view": lambda array: pa.ListViewArray.from_arrays(
        pa.array(range(0, len(array), 2), pa.int32()),
        pa.array([2] * (len(array) // 2), pa.int32()),
        array,
    ),
    "fixed list": lambda array: pa.FixedSizeListArray.from_arrays(array, 1),
    "struct": lambda array: pa.StructArray.from_arrays([array], ["x"]),
    "map": lambda array: pa.MapArray.from_arrays(
        pa.array(range(len(array) + 1), pa.int32()), pa.array(range(len(array))), array
    ),
    "deep": lambda array: as_list(pa.StructArray.from_arrays([array, array], ["x", "y"])),
    "extension": lambda array: pa.ExtensionArray.from_storage(
        pa.opaque(array.type, "t", "v"), array
    ),
    "runs": lambda array: pa.RunEndEncodedArray.from_arrays(
        pa.array(range(1, len(array) + 1), pa.int32()), array
    ),
}


def same_values(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.equals(expected.schema)
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("shape", WRAPPED)
def test_dictionary_chunks_that_do_not_fit_one_index_type_are_read_whole(shape):
    """Three chunks of 100 values, int8: what is written is read, in every way to read."""
    chunks = [WRAPPED[shape](words(100 * place, 100)) for place in range(3)]
    table = pa.table({"d": pa.chunked_array(chunks), "n": range(len(chunks[0]) * 3)})
    with fermion.open(stored(table)) as file:
        assert file.num_stripes == 3
        assert file.verify().ok
        same_values(file.read(), table)
        same_values(pa.Table.from_batches(file.iter_batches()), table)
        same_values(pa.Table.from_batches(file.iter_batches(batch_size=7)), table)
        same_values(file.read(filter="n >= 20"), table.slice(20))
        rows = [0, 2, table.num_rows - 1]
        assert file.take(rows)["d"].to_pylist() == [table["d"][row].as_py() for row in rows]


@pytest.mark.parametrize(
    ("index", "limit"), [(pa.int8(), 128), (pa.uint8(), 256), (pa.int16(), 2**15)]
)
def test_a_stripe_has_as_many_values_as_its_indices_can_number(index, limit):
    """Exactly as many share one, and one more begins another."""
    dtype = pa.dictionary(index, pa.string())
    half = [words(place * limit // 2, limit // 2, dtype) for place in range(2)]
    more = words(limit, 1, dtype)
    with fermion.open(stored(pa.table({"d": pa.chunked_array(half)}))) as file:
        assert file.num_stripes == 1
    whole = pa.table({"d": pa.chunked_array([*half, more])})
    with fermion.open(stored(whole)) as file:
        assert file.stripe_rows == (limit, 1)
        same_values(file.read(), whole)


def test_the_same_values_share_a_stripe_however_often_they_come():
    """In another order, beside values that nobody uses, and NaN, which equals itself here."""
    turned = pa.DictionaryArray.from_arrays(
        pa.array(range(100), pa.int8()), words(0, 100).dictionary[::-1]
    )
    unused = pa.DictionaryArray.from_arrays(
        pa.array([0, None], pa.int8()), words(50, 100).dictionary
    )
    chunks = pa.chunked_array([words(0, 100), turned, unused, words(0, 100)] * 3)
    nan = pa.DictionaryArray.from_arrays(
        pa.array(range(100), pa.int8()), pa.array([float("nan"), *np.arange(99.0)])
    )
    floats = pa.chunked_array([nan, nan.slice(0, 100), nan.slice(1, 2), nan] * 3)
    for column in (chunks, floats):
        table = pa.table({"d": column})
        with fermion.open(stored(table)) as file:
            assert file.num_stripes == 1
            assert_logically_equal(file.read(), table)


def test_a_dictionary_longer_than_its_indices_reach_is_one_array():
    indices = pa.array([0, 127, None], pa.int8())
    table = pa.table(
        {
            "d": pa.DictionaryArray.from_arrays(
                indices, words(0, 300, pa.dictionary(pa.int32(), pa.string())).dictionary
            )
        }
    )
    same_values(fermion.read_table(stored(table)), table)


def test_runs_that_do_not_fit_one_type_of_ends_are_read_whole():
    """Run ends of int16 number 32,767 rows."""
    dtype = pa.run_end_encoded(pa.int16(), pa.int64())
    chunks = [pa.array([place] * 20_000, dtype) for place in range(3)]
    table = pa.table({"r": pa.chunked_array(chunks)})
    with fermion.open(stored(table)) as file:
        assert file.num_stripes == 3
        same_values(file.read(), table)


def test_a_batch_whose_values_do_not_fit_is_refused_before_it_is_written(tmp_path):
    """It is stored in one piece; two batches that fit one by one get stripes of their own."""
    schema = pa.schema([("d", INT8)])
    path = tmp_path / "x.fermion"
    with fermion.Writer(path, schema) as writer:
        writer.append_batch(1, {"d": words(0, 100)})
        writer.append_batch(2, {"d": words(100, 100)})
        writer.append_batch(3, {"d": words(100, 100)})
    with fermion.open(path) as file:
        assert file.stripe_rows == (100, 200)
        assert file.read()["d"].to_pylist() == [
            f"w{n % 200 if n < 200 else n - 100}" for n in range(300)
        ]
    both = pa.table({"d": pa.chunked_array([words(0, 100), words(100, 100)])})
    before = path.read_bytes()
    message = "column 'd': 200 dictionary values in one stripe, expected at most 128: .*int8"
    with fermion.Writer(path, schema) as writer, pytest.raises(InvalidArgumentError, match=message):
        writer.append_batch(1, both)
    with pytest.raises(InvalidArgumentError, match=message):
        fermion.add_columns(stored({"n": range(200)}), both, destination=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("shape", ["top", "list", "struct", "deep", "map"])
def test_narrow_dictionaries_go_to_parquet_with_wider_indices(shape):
    """Parquet readers give all of a file one dictionary, which int8 could not number."""
    chunks = [WRAPPED[shape](words(100 * place, 100)) for place in range(3)]
    table = pa.table({"d": pa.chunked_array(chunks)})
    parquet = io.BytesIO()
    with pytest.warns(fermion.ConversionWarning, match="'d'"):
        fermion.to_parquet(stored(table), parquet)
    found = pq.read_table(io.BytesIO(parquet.getvalue()))
    assert found.to_pylist() == table.to_pylist()
    same_values(fermion.read_table(from_parquet(parquet.getvalue())), found)


def from_parquet(data: bytes) -> bytes:
    sink = io.BytesIO()
    fermion.from_parquet(data, sink)
    return sink.getvalue()


def test_narrow_dictionaries_that_fit_stay_narrow_in_parquet():
    table = pa.table({"d": pa.chunked_array([words(0, 100)] * 3)})
    parquet = io.BytesIO()
    fermion.to_parquet(stored(table, stripe_rows=100), parquet)
    assert pq.read_table(io.BytesIO(parquet.getvalue())).schema.field("d").type == INT8
    same_values(fermion.read_table(from_parquet(parquet.getvalue())), table)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 128)), min_size=1, max_size=12),
    st.booleans(),
)
def test_any_chunks_of_narrow_dictionaries_are_read_whole(ranges, ordered):
    dtype = pa.dictionary(pa.int8(), pa.string(), ordered)
    chunks = [words(first, count, dtype) for first, count in ranges]
    table = pa.table({"d": pa.chunked_array(chunks, dtype)})
    with fermion.open(stored(table)) as file:
        same_values(file.read(), table)


JSON = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["1", "2", "3", "4"]))
BESIDE_JSON = pa.StructArray.from_arrays([JSON, words(0, 4)], ["json", "word"])


@pytest.mark.parametrize(
    "array",
    [
        pa.ListArray.from_arrays(pa.array([0, 1, None, 4], pa.int32()), BESIDE_JSON),
        pa.ListArray.from_arrays(pa.array([0, 1, 4], pa.int32()), BESIDE_JSON).slice(1),
        pa.LargeListViewArray.from_arrays(pa.array([2, 0]), pa.array([2, 1]), BESIDE_JSON),
        pa.FixedSizeListArray.from_arrays(BESIDE_JSON, 2).slice(1),
    ],
    ids=["list", "slice", "list view", "fixed list"],
)
def test_lists_of_types_that_arrow_takes_no_rows_of_are_counted_too(array):
    """A narrow dictionary beside an extension type, below lists: they are stored all the same."""
    table = pa.table({"a": array})
    with fermion.open(stored(table)) as file:
        assert_logically_equal(file.read(), table)
