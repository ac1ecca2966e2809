"""Batch mode: batches stay whole, are found by id, and have two virtual columns."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion.layout import FOOTER, Incompat, StreamType
from fermion.pages.batches import POSITION_STREAM
from tests.kit.files.file_anatomy import repair
from tests.kit.files.identities import one_identity
from tests.kit.files.independent_reader import File

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


@st.composite
def positioned_batches(draw) -> list[tuple[int, list[int]]]:
    """Ids, and the positions of what is left of each batch."""
    left = st.sets(st.integers(0, 60), max_size=20).map(sorted)
    counted = st.integers(0, 20).map(lambda rows: list(range(rows)))
    return draw(st.lists(st.tuples(st.integers(-3, 3), left | counted), min_size=1, max_size=12))


@given(positioned_batches(), st.sampled_from([16, 500]), st.sampled_from([15, 1_000_000]))
def test_rows_have_the_positions_that_they_were_written_with(batches, page_bytes, stripe_rows):
    """Read whole, in runs, by id and by filter, and by the specification alone."""
    sink, at = io.BytesIO(), 0
    options = fermion.WriteOptions(page_bytes=page_bytes, stripe_rows=stripe_rows)
    with fermion.Writer(sink, SCHEMA, options=options) as writer:
        for batch_id, positions in batches:
            writer.append_batch(batch_id, rows(at, len(positions)), positions=positions)
            at += len(positions)
    model = [(batch_id, position) for batch_id, some in batches for position in some]
    expected = [position for _, position in model]
    assert File(sink.getvalue()).index_in_batch() == expected
    with fermion.open(sink.getvalue()) as file:
        assert file.verify().problems == ()
        assert file.read(["index_in_batch"])["index_in_batch"].to_pylist() == expected
        part = file.read(["index_in_batch"], rows=(at // 3, at))["index_in_batch"]
        assert part.to_pylist() == expected[at // 3 :]
        taken = file.take([*range(0, at, 3)], columns=["index_in_batch"])["index_in_batch"]
        assert taken.to_pylist() == expected[::3]
        for batch_id in range(-3, 4):
            own = [position for number, position in model if number == batch_id]
            found = file.read_batch(batch_id, columns=["index_in_batch"])["index_in_batch"]
            assert found.to_pylist() == own
        for batch_id, position in model[:20]:
            chosen = f"batch_id = {batch_id} AND index_in_batch = {position}"
            places = [place for place, each in enumerate(model) if each == (batch_id, position)]
            assert file.read(["a"], filter=chosen)["a"].to_pylist() == places


@pytest.mark.parametrize("positions", [None, [0, 1, 2], np.arange(3, dtype=np.uint8)])
def test_positions_that_count_from_0_leave_no_trace(positions):
    """The file has the same bytes, and earlier versions read it."""
    data = []
    for given_ in (None, positions):
        sink = io.BytesIO()
        with one_identity(), fermion.Writer(sink, SCHEMA) as writer:
            writer.append_batch(1, rows(0, 3), positions=given_)
            writer.append_batch(2, rows(0, 0), positions=None if given_ is None else [])
        data.append(sink.getvalue())
    assert data[0] == data[1]
    with fermion.open(data[1]) as file:
        assert file.version == (1, 1)
        assert not file.index.footer.incompat & Incompat.BATCH_POSITIONS


def test_a_stripe_stores_positions_only_if_its_rows_need_them():
    sink = io.BytesIO()
    with fermion.Writer(sink, SCHEMA, options=fermion.WriteOptions(stripe_rows=2)) as writer:
        for positions in ([0, 1], [5, 6], [0, 1]):
            writer.append_batch(1, rows(0, 2), positions=positions)
    with fermion.open(sink.getvalue()) as file:
        assert file.version == (1, 2)
        (block,) = file.index.blocks([file.num_columns])
        assert [block.chunk(POSITION_STREAM, stripe).is_empty for stripe in range(3)] == [
            True,
            False,
            True,
        ]


def test_the_caller_may_change_positions_after_they_were_given():
    sink, positions = io.BytesIO(), np.array([1, 3], np.uint32)
    with fermion.Writer(sink, SCHEMA) as writer:
        writer.append_batch(1, rows(0, 2), positions=positions)
        positions[:] = 8, 9
        writer.append_batch(2, rows(0, 2), positions=positions)
    with fermion.open(sink.getvalue()) as file:
        assert file.read(["index_in_batch"])["index_in_batch"].to_pylist() == [1, 3, 8, 9]


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        ([1], fermion.InvalidArgumentError, "batch 7: positions: expected 2 positions.*found 1"),
        ([1, 1], fermion.InvalidArgumentError, "row 1: expected a position .* above 1, found 1"),
        ([2, 1], fermion.InvalidArgumentError, "row 1: expected a position .* above 2, found 1"),
        ([-1, 0], fermion.InvalidArgumentError, "row 0: .* from 0 to 2147483646, found -1"),
        ([0, 2**31 - 1], fermion.InvalidArgumentError, "row 1: .* found 2147483647"),
        ([[0], [1]], fermion.InvalidArgumentError, "one dimension"),
        (pa.array([0, None]), fermion.InvalidArgumentError, "1 nulls"),
        ([0, 1.5], TypeError, "expected an integer, found float"),
        ("01", TypeError, "expected integers, found str"),
        (7, TypeError, "expected integers, found int"),
    ],
)
def test_positions_that_no_rows_of_a_batch_can_have_are_refused(positions, error, message):
    with fermion.Writer(io.BytesIO(), SCHEMA) as writer, pytest.raises(error, match=message):
        writer.append_batch(7, rows(0, 2), positions=positions)


@pytest.mark.parametrize(
    ("positions", "message"),
    [([3, 3], "row 1: expected a position in the batch above 3, found 3"), ([5, 4], "above 5")],
)
def test_stored_positions_that_do_not_ascend_are_an_error_of_the_file(
    positions, message, monkeypatch
):
    monkeypatch.setattr("fermion.writing.file.wrong_position", lambda positions, ends: None)
    sink = io.BytesIO()
    with fermion.Writer(sink, SCHEMA) as writer:
        writer.append_batch(7, rows(0, 2), positions=positions)
    with fermion.open(sink.getvalue()) as file:
        (problem,) = file.verify().problems
        assert message in problem
        assert file.read().equals(rows(0, 2))
        with pytest.raises(fermion.InvalidFileError, match=message):
            file.read(["index_in_batch"])


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("pages", [1, 2])
def test_positions_for_more_or_fewer_rows_are_an_error_of_the_file(count, pages, monkeypatch):
    """One page tells its slots in its header, several in the metadata of the column."""
    sink, cuts = io.BytesIO(), np.array([0, count] if pages == 1 else [0, 1, count])
    with fermion.Writer(sink, SCHEMA) as writer, monkeypatch.context() as patch:
        writer.append_batch(7, rows(0, 3), positions=[1, 2, 3])
        assert writer._batches is not None
        writer._batches.positions = [np.arange(1, 1 + count, dtype=np.uint32)]
        patch.setattr("fermion.pages.batches.cut_batches", lambda *_, **__: cuts)
        writer.close()
    message = f"expected 3 slots, found {count}" if pages == 1 else f"{count} slots, expected 3"
    with fermion.open(sink.getvalue()) as file:
        (problem,) = file.verify().problems
        assert message in problem
        with pytest.raises(fermion.InvalidFileError, match=message):
            file.read(["index_in_batch"])


def test_positions_without_batches_are_an_error_of_the_file():
    sink = io.BytesIO()
    fermion.write_table(rows(0, 3), sink)
    data = bytearray(sink.getvalue())
    at = len(data) - FOOTER.itemsize + FOOTER.fields["incompat"][1]
    data[at] |= Incompat.BATCH_POSITIONS
    repair(data)
    with pytest.raises(fermion.InvalidFileError, match="wrong positions in batches"):
        fermion.open(data)
