"""Batch mode: batches stay whole, are found by id, and have two virtual columns."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.layout import StreamType

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.list_(pa.int32()))),
        ("f", pa.list_(pa.float32(), 3)),
        ("t", pa.struct([("x", pa.int8()), ("m", pa.map_(pa.string(), pa.int16()))])),
    ]
)


def rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.Table.from_pylist(
        [
            {
                "a": i,
                "s": "x" * (i % 9) if i % 4 else None,
                "l": [[j, None] for j in range(i % 4)] if i % 5 else None,
                "f": [i, None, 1.0] if i % 6 else None,
                "t": {"x": i % 100, "m": [(str(j), j) for j in range(i % 3)]} if i % 7 else None,
            }
            for i in numbers
        ],
        schema=SCHEMA,
    )


def written(batches: list[tuple[int | None, pa.Table]], **options: object) -> bytes:
    sink = io.BytesIO()
    with fermion.Writer(sink, SCHEMA, options=fermion.WriteOptions(**options)) as writer:
        for batch_id, data in batches:
            writer.append_batch(batch_id, data)
    return sink.getvalue()


BATCHES = st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 40)), min_size=1, max_size=30)


@given(BATCHES, st.sampled_from([50, 500, 512 * 1024]), st.sampled_from([30, 1_000_000]))
def test_each_id_gives_its_rows_in_order(batches, page_bytes, stripe_rows):
    """Ids unsorted, repeated, with empty batches; compared with a list of batches."""
    data, at = [], 0
    for batch_id, count in batches:
        data.append((batch_id, rows(at, count)))
        at += count
    with fermion.open(written(data, page_bytes=page_bytes, stripe_rows=stripe_rows)) as file:
        for batch_id in range(-6, 7):
            parts = [part for each, part in data if each == batch_id]
            assert file.read_batch(batch_id).equals(
                pa.concat_tables([SCHEMA.empty_table(), *parts])
            )
        assert file.read().equals(pa.concat_tables(part for _, part in data))
        ids = file.read(["batch_id", "index_in_batch"])
        assert ids["batch_id"].to_pylist() == [i for i, part in data for _ in range(len(part))]
        assert ids["index_in_batch"].to_pylist() == [
            j for _, part in data for j in range(len(part))
        ]
        assert file.verify().problems == ()


@given(BATCHES, st.sampled_from([50, 500]))
def test_no_batch_lies_on_two_pages_of_any_stream(batches, page_bytes):
    """Walks every page of every stream, nested children too, against the batches' slots there."""
    data, at = [], 0
    for batch_id, count in batches:
        data.append((batch_id, rows(at, count)))
        at += count
    whole = pa.concat_tables(part for _, part in data)
    row_ends = np.cumsum([len(part) for _, part in data])
    with fermion.open(written(data, page_bytes=page_bytes)) as file:
        for name in SCHEMA.names:
            ends_by_path = slot_ends(whole.column(name).combine_chunks(), (name,), row_ends)
            for stream in file.column(name).streams:
                allowed = {0, *ends_by_path[stream.path].tolist()}
                for chunk in stream.chunks:
                    slots = [page.slots for page in chunk.pages]
                    assert set(np.cumsum(slots).tolist()) <= allowed
                assert stream.type is not StreamType.BATCH_META


def slot_ends(array: pa.Array, path: tuple[str, ...], ends: np.ndarray) -> dict:
    """Slots up to each batch's end at every level of a column, computed from Arrow alone."""
    found = {path: ends}
    dtype = array.type
    if pa.types.is_struct(dtype):
        for index, field in enumerate(dtype):
            found |= slot_ends(array.field(index), (*path, field.name), ends)
    elif pa.types.is_fixed_size_list(dtype):
        found |= slot_ends(array.values, (*path, dtype.value_field.name), ends * dtype.list_size)
    elif pa.types.is_list(dtype) or pa.types.is_map(dtype):
        lengths = [len(value.as_py()) if value.is_valid else 0 for value in array]
        child_ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)[ends]
        if pa.types.is_map(dtype):
            path = (*path, "entries")
            found[path] = child_ends
            found |= slot_ends(array.keys, (*path, "key"), child_ends)
            found |= slot_ends(array.items, (*path, "value"), child_ends)
        else:
            found |= slot_ends(array.flatten(), (*path, dtype.value_field.name), child_ends)
    return found


def test_omitted_ids_count_up():
    data = written([(None, rows(0, 2)), (7, rows(2, 1)), (None, rows(3, 1))])
    with fermion.open(data) as file:
        assert file.read(["batch_id"])["batch_id"].to_pylist() == [0, 0, 7, 8]


def test_a_batch_larger_than_page_and_stripe_stays_whole():
    big = rows(0, 500)
    data = written([(1, rows(0, 3)), (2, big), (3, rows(0, 3))], page_bytes=64, stripe_rows=10)
    with fermion.open(data) as file:
        assert file.stripe_rows == (3, 500, 3)
        assert file.read_batch(2).equals(big)
        assert all(len(chunk.pages) <= 1 for s in file.column("a").streams for chunk in s.chunks)


def test_a_file_of_nothing_but_empty_batches_keeps_their_ids():
    with fermion.open(written([(5, rows(0, 0)), (6, rows(0, 0))])) as file:
        assert file.num_rows == 0
        assert file.read_batch(5).num_rows == 0
        assert file.read().equals(SCHEMA.empty_table())


def test_batches_and_plain_rows_do_not_mix():
    writer = fermion.Writer(io.BytesIO(), SCHEMA)
    writer.write(rows(0, 1))
    with pytest.raises(fermion.InvalidArgumentError, match="after write"):
        writer.append_batch(1, rows(0, 1))
    writer = fermion.Writer(io.BytesIO(), SCHEMA)
    writer.append_batch(1, rows(0, 1))
    with pytest.raises(fermion.InvalidArgumentError, match="after append_batch"):
        writer.write(rows(0, 1))


def test_a_user_column_may_not_have_a_virtual_name():
    writer = fermion.Writer(io.BytesIO(), pa.schema([("batch_id", pa.int64())]))
    with pytest.raises(fermion.InvalidArgumentError, match="virtual column"):
        writer.append_batch(1, {"batch_id": [1]})


def test_a_plain_file_has_no_batches():
    sink = io.BytesIO()
    fermion.write_table(rows(0, 3), sink)
    with fermion.open(sink.getvalue()) as file:
        with pytest.raises(fermion.InvalidArgumentError, match="batch mode"):
            file.read_batch(0)
        with pytest.raises(KeyError):
            file.read(["batch_id"])


def test_a_lookup_reads_one_page_a_column():
    """Counts the bytes of one batch among many stripes and pages."""
    batches = [(i, rows(i * 10, 10)) for i in range(1_000)]
    data = written(batches, page_bytes=2_000, stripe_rows=1_000)
    with fermion.open(data) as file:
        file.read_batch(3, columns=["a"])
        before = file.io_stats
        assert file.read_batch(3, columns=["a"]).equals(rows(30, 10).select(["a"]))
        after = file.io_stats
        (chunk,) = [c for c in file.column("a").streams[1].chunks if c.stripe == 0]
    assert after.bytes_used - before.bytes_used == chunk.pages[0].length


def test_filters_may_name_the_virtual_columns():
    data = written([(i, rows(i * 10, 10)) for i in range(20)])
    with fermion.open(data) as file:
        found = file.read(["a"], filter="batch_id = 7 AND index_in_batch >= 8")
        assert found["a"].to_pylist() == [78, 79]
