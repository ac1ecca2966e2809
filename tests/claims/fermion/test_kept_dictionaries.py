"""Columns that are read with the dictionaries of their chunks."""

from __future__ import annotations

import decimal
import io

import numpy as np
import pyarrow as pa
import pytest

import fermion


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


def test_dictionaries_are_kept_when_asked_for():
    """Strings that are stored with a dictionary come as one, of equal values, in every reading."""
    picks = np.random.default_rng(0).integers(0, 50, 20_000)
    words = [None if pick == 7 else f"word number {pick}" for pick in picks]
    table = pa.table({"w": words, "n": np.arange(20_000)})
    data = stored(table, stripe_rows=6_000, page_bytes=8_192)
    options = fermion.ReadOptions(keep_dictionaries=True)
    with fermion.open(data, options=options) as file:
        found = file.read()
        assert found.schema.field("w").type == pa.dictionary(pa.int32(), pa.string())
        assert set(found["w"].chunk(0).dictionary.to_pylist()) - {""} == set(words) - {None}
        assert found["w"].cast(pa.string()).equals(table["w"])
        assert file.read(["w"], rows=(5_990, 6_010))["w"].to_pylist() == words[5_990:6_010]
        taken = file.take([19_999, 3, 3], columns=["w"])
        assert taken["w"].to_pylist() == [words[19_999], words[3], words[3]]
        chosen = file.read(["w"], filter="w = 'word number 3'")
        assert chosen.num_rows == words.count("word number 3")
        assert pa.table(file)["w"].to_pylist() == words


def test_dictionaries_of_half_floats_that_differ_by_chunk_keep_their_values():
    """Arrow's own joining of such chunks gives other values; ours must not rely on it."""
    halves = [np.array([-86, 11], np.float16), np.array([0.5, -91], np.float16)]
    indices = pa.array([0, 1, 1], pa.int8())
    chunks = [pa.DictionaryArray.from_arrays(indices, pa.array(each)) for each in halves]
    table = pa.table({"h": pa.chunked_array(chunks)})
    with fermion.open(stored(table)) as file:
        found = file.read()["h"].chunk(0)
    assert found.dictionary.take(found.indices).to_pylist() == [-86, 11, 11, 0.5, -91, -91]


def test_bug_nulls_of_a_kept_dictionary_where_no_row_read_has_a_value():
    """Rows that were all null came out as the value of code 0."""
    words = [None if i % 10 == 0 else f"word number {i % 7}" for i in range(400)]
    data = stored(pa.table({"w": words}), page_rows_max=100, encodings={"w": "dictionary"})
    options = fermion.ReadOptions(keep_dictionaries=True)
    with fermion.open(data, options=options) as file:
        assert pa.types.is_dictionary(file.read().schema.field("w").type)
        assert file.read(rows=(30, 31))["w"].to_pylist() == [None]
        assert file.take([30, 0])["w"].to_pylist() == [None, None]


@pytest.mark.parametrize("dtype", [pa.decimal32(5, 1), pa.decimal64(9, 1), pa.float16()])
def test_bug_kept_dictionaries_of_types_that_arrow_cannot_encode(dtype):
    """A stripe of nulls, and one whose pages are plain, beside one with a dictionary."""
    numbers = [None] * 8 + [i % 3 for i in range(40)] + [0, 1, 2] * 3
    make = np.float16 if dtype == pa.float16() else decimal.Decimal
    column = pa.array([None if each is None else make(each) for each in numbers], dtype)
    options = {"stripe_rows": 8, "page_rows_max": 4}
    for how in ({"encodings": {"d": "dictionary"}}, {"global_dictionaries": ["d"]}):
        data = stored(pa.table({"d": column}), **options, **how)
        read = fermion.ReadOptions(keep_dictionaries=True)
        with fermion.open(data, options=read) as file:
            assert file.read()["d"].to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kept", [True, False])
def test_bug_half_floats_taken_from_stripes_with_dictionaries_of_their_own(kept):
    """Arrow joins the dictionaries of chunks when it takes rows, and mixes up those of halves."""
    halves = [np.float16(i % 5) for i in range(200)] + [np.float16(9 + i % 7) for i in range(200)]
    column = pa.array(halves, pa.float16())
    entries = column.take(pa.array(range(0, 400, 34)))
    codes = pa.array([i % 200 % 12 for i in range(400)], pa.int8())
    plain = pa.DictionaryArray.from_arrays(codes, entries)
    table = pa.table({"h": column if kept else plain})
    options = {"encodings": {"h": "dictionary"}, "stripe_rows": 200, "page_rows_max": 50}
    read = fermion.ReadOptions(keep_dictionaries=kept)
    indices = [399, 0, 201, 7, 7, 350]
    with fermion.open(stored(table, **options), options=read) as file:
        found = file.take(indices)["h"]
    assert pa.types.is_dictionary(found.type)
    assert found.to_pylist() == [table["h"][at].as_py() for at in indices]
