"""Whole files: any table survives, any part of it can be read alone, damage is noticed."""

from __future__ import annotations

import io
import itertools
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fermion
from fermion.layout import StreamType
from fermion.writing import file as file_writer
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal, valid_rows
from tests.kit.files.forced_encodings import forced_encodings
from tests.kit.files.identities import one_identity
from tests.kit.strategies import tables as any_tables

SMALL_PAGES = {"page_bytes": 64, "stripe_rows": 7}
LAYOUTS = st.fixed_dictionaries(
    {
        "profile": st.sampled_from(["balanced", "compact", "fast", "random"]),
        "page_bytes": st.sampled_from([16, 64, 1024, 512 * 1024]),
        "stripe_rows": st.sampled_from([1, 7, 64, 10_000]),
        "checksum": st.sampled_from(["crc32c", "xxh3", "crc32", "none"]),
        "align": st.sampled_from([8, 64]),
        "codec": st.sampled_from(["zstd", "lz4"]),
    }
)


def tables() -> st.SearchStrategy[pa.Table]:
    return any_tables().filter(lambda table: message_can_hold(table.schema))


def stored(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


@given(tables(), LAYOUTS)
def test_any_table_survives_the_round_trip(table, layout):
    """Exact schema with all metadata, equal values, in every profile, page and stripe size."""
    with fermion.open(stored(table, **layout)) as file:
        assert file.schema.equals(table.schema, check_metadata=True)
        assert_logically_equal(file.read(), table)
        assert file.verify().problems == ()


@given(tables(), LAYOUTS, st.data())
def test_any_table_survives_any_forced_encodings(table, layout, data):
    """An encoding drawn for each leaf out of those that hold any values of its type."""
    assume(len(set(table.schema.names)) == table.num_columns)
    encodings = data.draw(forced_encodings(table.schema))
    with fermion.open(stored(table, **layout, encodings=encodings)) as file:
        assert_logically_equal(file.read(), table)
        assert file.verify().problems == ()
        start = data.draw(st.integers(0, table.num_rows))
        assert_logically_equal(file.read(rows=(start, table.num_rows)), table.slice(start))


def test_an_encoding_is_forced_on_all_values_that_its_name_stands_for(tmp_path):
    """Scalars, fields of structs, lists within structs; each page has it."""
    table = pa.table(
        {
            "a": list(range(300)),
            "s": [{"x": i, "l": [i, i + 1]} for i in range(300)],
            "m": pa.array([[(i, i)] for i in range(300)], pa.map_(pa.int64(), pa.int64())),
        }
    )
    names = {"a": ["a"], "s.x": ["s", "x"], "s.l": ["s", "l", "item"], "m": ["m", "entries"]}
    for encoding in ("delta", "pcodec"):
        with fermion.open(stored(table, encodings=dict.fromkeys(names, encoding))) as file:
            streams = [stream for name in "asm" for stream in file.column(name).streams]
            data = [each for each in streams if each.type is StreamType.DATA]
            assert len(data) == 5
            pages = [page for each in data for chunk in each.chunks for page in chunk.pages]
            assert {page.encoding for page in pages} == {encoding}
            assert_logically_equal(file.read(), table)


@pytest.mark.parametrize(
    ("encodings", "message"),
    [
        ({"absent": "plain"}, "'absent', which the schema lacks"),
        ({"s": "plain"}, "'s' has no values of its own; name a field"),
        ({"s.x": "bitmap"}, "'s.x': encoding bitmap cannot hold values of type int64"),
        ({"s.x": "best"}, "'s.x': encoding 'best': expected one of plain, "),
    ],
)
def test_encodings_that_cannot_be_are_refused_when_the_writer_is_made(tmp_path, encodings, message):
    schema = pa.schema([("s", pa.struct([("x", pa.int64())]))])
    options = fermion.WriteOptions(encodings=encodings)
    with pytest.raises(fermion.InvalidArgumentError, match=message):
        fermion.Writer(tmp_path / "x.fermion", schema, options=options)
    assert list(tmp_path.iterdir()) == []


@given(tables(), st.data())
def test_any_run_of_rows_reads_as_a_slice(table, data):
    start = data.draw(st.integers(0, table.num_rows))
    stop = data.draw(st.integers(start, table.num_rows))
    with fermion.open(stored(table, **SMALL_PAGES)) as file:
        assert_logically_equal(file.read(rows=(start, stop)), table.slice(start, stop - start))


@given(tables(), st.data())
def test_taking_rows_agrees_with_arrow(table, data):
    limit = max(table.num_rows - 1, 0)
    count = st.integers(0, limit)
    indices = data.draw(st.lists(count, max_size=30 if table.num_rows else 0))
    with fermion.open(stored(table, **SMALL_PAGES)) as file:
        expected = pa.concat_tables([table.slice(0, 0), *(table.slice(i, 1) for i in indices)])
        assert_logically_equal(file.take(indices), expected)


@given(tables(), st.integers(1, 20))
def test_batches_put_together_are_the_table(table, size):
    with fermion.open(stored(table, **SMALL_PAGES)) as file:
        batches = list(file.iter_batches(batch_size=size))
        assert all(batch.num_rows <= size for batch in batches)
        assert_logically_equal(pa.Table.from_batches(batches, schema=file.schema), table)


@given(tables(), st.data())
def test_columns_come_in_the_order_asked(table, data):
    ordinals = st.permutations(range(table.num_columns))
    chosen = data.draw(ordinals)[: data.draw(st.integers(0, table.num_columns))]
    with fermion.open(stored(table)) as file:
        found = file.read(chosen)
        assert found.num_rows == table.num_rows
        assert_logically_equal(found, table.select(list(chosen)))


@pytest.fixture(scope="module")
def nested() -> pa.Table:
    rows = range(5_000)
    return pa.table(
        {
            "a": np.arange(5_000),
            "s": pa.array(
                [{"x": i, "y": {"z": str(i), "w": i / 2}} if i % 9 else None for i in rows]
            ),
            "l": pa.array([[{"k": j} for j in range(i % 5)] if i % 7 else None for i in rows]),
            "dotted.name": pa.array([None if i % 3 else i for i in rows]),
        }
    )


@pytest.fixture(scope="module")
def nested_file(nested: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("files") / "nested.fermion"
    fermion.write_table(nested, path, page_bytes=2_000, stripe_rows=2_000)
    return path


def test_a_path_into_a_struct_reads_only_that_field(nested, nested_file):
    """The other leaves' pages are not requested."""
    options = fermion.ReadOptions(prefetch_bytes=1)
    with fermion.open(nested_file, options=options) as file:
        found = file.read(["s.y.z", ("s", "x")])
        parts = file.io_stats.bytes_used
    with fermion.open(nested_file, options=options) as file:
        file.read(["s"])
        whole = file.io_stats.bytes_used
    assert str(found.schema.field("s").type) == "struct<x: int64, y: struct<z: string>>"
    expected = [
        row and {"x": row["x"], "y": {"z": row["y"]["z"]}} for row in nested["s"].to_pylist()
    ]
    assert found["s"].to_pylist() == expected
    assert parts < whole


def test_a_dotted_name_is_a_column_before_it_is_a_path(nested, nested_file):
    with fermion.open(nested_file) as file:
        assert file.read(["dotted.name"]).column(0).equals(nested["dotted.name"])


def test_no_columns_give_the_row_count(nested_file):
    assert fermion.read_table(nested_file, columns=[]).num_rows == 5_000


def test_a_missing_column_names_the_closest_matches(nested_file):
    with fermion.open(nested_file) as file, pytest.raises(KeyError, match=r"'dotted\.name'"):
        file.read(["dotted.nane"])


def test_a_missing_struct_field_names_the_closest_matches(nested_file):
    with fermion.open(nested_file) as file, pytest.raises(KeyError, match="'x'"):
        file.read(["s.xx"])


def test_a_duplicate_name_is_refused_but_its_ordinal_is_not():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with fermion.open(stored(table)) as file:
        assert file.read().equals(table)
        assert file.read([1]).column(0).to_pylist() == [2]
        with pytest.raises(fermion.InvalidArgumentError, match="2 columns are named 'a'"):
            file.read(["a"])


def test_rows_outside_the_file_are_refused(nested_file):
    with fermion.open(nested_file) as file:
        with pytest.raises(fermion.InvalidArgumentError, match="5001"):
            file.read(rows=(0, 5_001))
        with pytest.raises(fermion.InvalidArgumentError, match="row -1"):
            file.take([-1])


def test_an_all_null_column_has_no_metadata_block():
    table = pa.table({"full": [1, 2], "nulls": pa.nulls(2, pa.list_(pa.int64()))})
    sink = io.BytesIO()
    info = fermion.write_table(table, sink)
    assert info.columns_with_data == {0}
    with fermion.open(sink.getvalue()) as file:
        assert file.column("nulls").cmb_length == 0
        before = file.io_stats
        assert file.read(["nulls"]).equals(table.select(["nulls"]))
        assert file.io_stats == before


def test_ten_thousand_null_columns_cost_eight_bytes_and_their_name_each():
    """Within 2 KiB + 8 bytes a column + names of the file with the one column alone."""
    one = pa.table({"data": np.arange(100)})
    names = [f"c{number}" for number in range(10_000)]
    wide = pa.table(
        {"data": np.arange(100), **{name: pa.nulls(100, pa.float64()) for name in names}}
    )
    budget = 2048 + 8 * len(names) + sum(map(len, names))
    data = stored(wide)
    assert len(data) <= len(stored(one)) + budget
    with fermion.open(data) as file:
        assert len(file.schema) == 10_001
        before = file.io_stats
        found = file.read(names)
        assert found.num_columns == 10_000
        assert {column.null_count for column in found.columns} == {100}
        assert file.io_stats == before


@pytest.mark.parametrize(
    ("columns", "mib"), [(1, 128), (4_096, 128), (8_192, 256), (16_384, 512), (100_000, 512)]
)
def test_stripes_of_wide_files_are_larger(columns, mib):
    """32 KiB a column, between 128 and 512 MiB; what is asked for counts as it is."""
    assert fermion.WriteOptions().stripe_bytes_for(columns) == mib * 2**20
    assert fermion.WriteOptions(stripe_bytes=1_000).stripe_bytes_for(columns) == 1_000


def test_a_writer_closes_stripes_by_the_number_of_columns(monkeypatch):
    """The same bytes of rows: one stripe of ten columns, ten stripes of one."""
    monkeypatch.setattr("fermion.options.STRIPE_BYTES", 800)
    monkeypatch.setattr("fermion.options.STRIPE_BYTES_PER_COLUMN", 800)
    monkeypatch.setattr("fermion.options.WIDE_STRIPE_BYTES_MAX", 8_000)
    one = pa.table({"a": np.arange(1_000)})
    ten = pa.table({f"c{place}": np.arange(100) for place in range(10)})
    for table, stripes in ((one, 10), (ten, 1)):
        with fermion.open(stored(table)) as file:
            assert len(file.stripe_rows) == stripes
            assert_logically_equal(file.read(), table)


@pytest.mark.parametrize("limit", ["STRIPE_BYTES_MAX", "CHUNK_SLOTS_MAX"])
def test_a_stripe_closes_before_its_chunks_pass_what_the_format_allows(monkeypatch, limit):
    """Whatever the options say; the limits are lowered."""
    monkeypatch.setattr(file_writer, limit, 800 if limit == "STRIPE_BYTES_MAX" else 100)
    table = pa.table({"a": np.arange(1_000)})
    data = stored(table, stripe_bytes=2**40, stripe_rows=2**40)
    with fermion.open(data) as file:
        assert file.stripe_rows == (100,) * 10
        assert_logically_equal(file.read(), table)


@pytest.mark.parametrize("batches", [False, True])
def test_a_stripe_starts_in_the_next_block_rather_than_crossing_its_end(batches):
    """Where 5 % of a block are enough; what is skipped is zero, and reads as ever."""
    rng = np.random.default_rng(4)
    table = pa.table({"a": rng.integers(0, 2**62, 6_000), "b": rng.random(6_000)})
    schema, rows = table.schema, 500
    found = {}
    for block in (None, 20_000):
        sink = io.BytesIO()
        options = fermion.WriteOptions(stripe_rows=rows, block_bytes=block)
        with fermion.Writer(sink, schema, options=options) as writer:
            for start in range(0, 6_000, rows):
                part = table.slice(start, rows)
                writer.append_batch(start, part) if batches else writer.write(part)
        with fermion.open(sink.getvalue()) as file:
            assert_logically_equal(file.read(), table)
            assert file.verify().problems == ()
            streams = [each for name in "ab" for each in file.column(name).streams if each.length]
        places = [
            (min(chunk.offset for chunk in chunks), max(c.offset + c.length for c in chunks))
            for chunks in zip(*(stream.chunks for stream in streams), strict=True)
        ]
        crossing = sum(start // 20_000 != (stop - 1) // 20_000 for start, stop in places)
        found[block] = len(sink.getvalue()), crossing
        if block:
            skipped = [(end, start) for (_, end), (start, _) in itertools.pairwise(places)]
            assert any(start % block == 0 for _, start in skipped)
            assert max(start - end for end, start in skipped) <= 0.05 * block + 200 * batches
    assert found[None][1] > found[20_000][1]
    assert found[20_000][0] - found[None][0] <= 6 * 1_000


def test_the_same_input_gives_the_same_bytes(nested):
    """But for the identity of each."""
    with one_identity():
        assert stored(nested) == stored(nested)
    assert stored(nested) != stored(nested)


def test_an_exception_leaves_no_file(tmp_path):
    path = tmp_path / "x.fermion"
    schema = pa.schema([("a", pa.int64())])

    def fail_halfway() -> None:
        with fermion.Writer(path, schema) as writer:
            writer.write(pa.table({"a": [1]}))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.fermion"
    fermion.write_table(pa.table({"a": [1]}), path)
    bad = pa.table({"b": ["x"]})
    writer = fermion.Writer(path, pa.schema([("a", pa.int64())]))
    with pytest.raises(fermion.InvalidArgumentError, match="schema differs"):
        writer.write(bad)
    assert [each.name for each in tmp_path.iterdir()] == ["x.fermion"]
    assert fermion.read_table(path).to_pydict() == {"a": [1]}


def test_a_null_in_a_required_field_is_refused(tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array([1, None])], schema=schema)
    with pytest.raises(fermion.InvalidArgumentError, match="'a'"):
        fermion.write_table(batch, tmp_path / "x.fermion")
    assert list(tmp_path.iterdir()) == []


def older_interval(name: str) -> pa.DataType:
    """One of Arrow's older interval types, which pyarrow only makes out of a message."""
    message = bytearray(pa.schema([("i", pa.month_day_nano_interval())]).serialize())
    for at in range(len(message)):
        for unit in (0, 1):  # in place of 2
            changed = message[:at] + bytes([unit]) + message[at + 1 :]
            with suppress(pa.ArrowException, OSError):
                found = pa.ipc.read_schema(pa.py_buffer(changed))
                if len(found) == 1 and str(found.field(0).type) == name:
                    return found.field(0).type
    raise AssertionError(name)


def test_types_without_a_place_are_refused_when_the_writer_is_made(tmp_path):
    """Also nested ones; the message says which type it is, and what to do."""
    members = [pa.field("a", pa.int8())]
    cases = {
        pa.dense_union(members): "dense_union.*convert the union to a struct",
        pa.sparse_union(members): "sparse_union.*convert the union to a struct",
        older_interval("month_interval"): "month_interval; .*month_day_nano_interval",
        older_interval("day_time_interval"): "day_time_interval; .*month_day_nano_interval",
    }
    for dtype, message in cases.items():
        for nested in (dtype, pa.struct([("inner", pa.list_(dtype))])):
            schema = pa.schema([("u", nested)])
            with pytest.raises(fermion.UnsupportedTypeError, match=f"'u'.*{message}") as caught:
                fermion.Writer(tmp_path / "x.fermion", schema)
            assert isinstance(caught.value, TypeError)
            assert ("union" in str(caught.value)) == ("union" in str(dtype))
    assert list(tmp_path.iterdir()) == []


def test_every_arrow_producer_is_taken(tmp_path):
    table = pa.table({"a": [1, 2, 3]})
    producers = [
        table,
        table.to_batches()[0],
        table.to_reader(),
        iter(table.to_batches(max_chunksize=1)),
        table.to_pandas(),
        {"a": [1, 2, 3]},
    ]
    for producer in producers:
        fermion.write_table(producer, tmp_path / "x.fermion")
        assert fermion.read_table(tmp_path / "x.fermion").column("a").to_pylist() == [1, 2, 3]


def test_key_value_metadata_and_settings_come_back(tmp_path):
    path, schema = tmp_path / "x.fermion", pa.schema([("a", pa.int64())])
    with fermion.Writer(path, schema, key_value_metadata={"origin": "here"}) as writer:
        writer.write(pa.table({"a": [1]}))
    with fermion.open(path) as file:
        assert file.key_value_metadata == {"origin": "here"}
        assert file.settings == {
            "batch": False,
            "checksum": "crc32c",
            "column_index": True,
            "align": 8,
        }
        assert file.version == (1, 1)
        assert file.created_by.startswith("fermion ")


def test_a_file_on_another_file_system_reads_the_same(nested):
    """Through fsspec's memory file system, by ranges."""
    fermion.write_table(nested, "memory://folder/x.fermion", page_bytes=4096)
    with fermion.open("memory://folder/x.fermion") as file:
        assert file.read().equals(nested)


def test_opening_a_wide_file_and_reading_a_column_takes_few_requests(tmp_path):
    """At most five local requests and 160 KiB of metadata for one of 10,000 columns."""
    rng = np.random.default_rng(0)
    path = tmp_path / "wide.fermion"
    fermion.write_table({f"c{i}": rng.random(50) for i in range(10_000)}, path)
    with fermion.open(path) as file:
        assert file.read(["c777"]).num_rows == 50
        assert file.io_stats.requests <= 5
        assert file.io_stats.bytes_requested <= 64 * 1024 * 4


def test_the_arrow_c_stream_gives_the_table(nested, nested_file):
    with fermion.open(nested_file) as file:
        assert pa.table(file).equals(nested)


def test_every_form_of_filter_gives_the_same_rows(nested, nested_file):
    """Compared with pyarrow's own filter, with and without statistics."""
    import pyarrow.compute as pc

    forms = [
        (fermion.col("a") >= 10) & (fermion.col("a") < 20),
        "a >= 10 AND a < 20",
        [("a", ">=", 10), ("a", "<", 20)],
        (pc.field("a") >= 10) & (pc.field("a") < 20),
    ]
    for form in forms:
        for use in (True, False):
            options = fermion.ReadOptions(use_statistics=use)
            with fermion.open(nested_file, options=options) as file:
                assert file.read(filter=form).equals(nested.slice(10, 10))
                assert file.count(form) == 10
                assert file.read(["l"], filter=form).equals(nested.slice(10, 10).select(["l"]))
                assert file.read([], filter=form).num_rows == 10
                pieces = list(file.iter_batches(["a"], filter=form, batch_size=3))
                assert pa.Table.from_batches(pieces)["a"].to_pylist() == list(range(10, 20))


def test_a_filter_reads_only_the_pages_that_may_match():
    """One row touches one page of each column, once the metadata is there."""
    rng = np.random.default_rng(1)
    table = pa.table({"key": np.arange(100_000), "value": rng.random(100_000)})
    with fermion.open(stored(table, page_bytes=8 * 1024)) as file:
        pages = {name: file.column(name).streams[1].chunks[0].pages for name in ("key", "value")}
        before = file.io_stats.bytes_used
        found = file.read(filter="key = 43210")
        used = file.io_stats.bytes_used - before
    assert found.equals(table.slice(43_210, 1))
    assert used == sum(pages[name][43_210 // 1024].length for name in pages)


@given(tables(), st.data())
def test_a_filter_keeps_the_rows_that_arrow_keeps(table, data):
    """IS NULL on any column that is no union or list, in tiny pages and stripes."""
    names = [f.name for f in table.schema if table.schema.names.count(f.name) == 1]
    assume(names)
    name = data.draw(st.sampled_from(names))
    kept = np.flatnonzero(~valid_rows(table.column(name))).tolist()
    with fermion.open(stored(table, **SMALL_PAGES)) as file:
        found = file.read(filter=fermion.col(name).is_null())
    expected = pa.concat_tables([table.slice(0, 0), *(table.slice(i, 1) for i in kept)])
    assert_logically_equal(found, expected)


@given(tables())
def test_a_file_without_a_column_index_reads_the_same(table):
    """Its settings say so; CMBs are found by walking them."""
    with fermion.open(stored(table, column_index=False)) as file:
        assert file.settings["column_index"] is False
        assert_logically_equal(file.read(), table)
        assert file.verify().problems == ()
