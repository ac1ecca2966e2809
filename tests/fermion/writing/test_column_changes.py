"""Columns added, dropped and put in another order, without touching the data of the others."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ChecksumError, ColumnNotFoundError, InvalidArgumentError, InvalidFileError
from fermion.layout import EXTENDED_CIT_ENTRY, HEAD, Incompat
from tests.kit.equality import assert_logically_equal
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, put, repair, repair_tail
from tests.kit.files.independent_reader import File

ROWS = 25
OPTIONS = {"stripe_rows": 10, "page_rows_max": 4}


def stored(table: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **OPTIONS, **options)
    return sink.getvalue()


def added(data: bytes, table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.add_columns(data, table, destination=sink, **options)
    return sink.getvalue()


def selected(data: bytes, columns: list) -> bytes:
    sink = io.BytesIO()
    fermion.select_columns(data, columns, destination=sink)
    return sink.getvalue()


def column(kind: str, seed: int) -> pa.Array:
    numbers = range(seed, seed + ROWS)
    return {
        "int": lambda: pa.array(numbers),
        "text": lambda: pa.array([None if i % 4 == 1 else f"text {i % 6}" for i in numbers]),
        "list": lambda: pa.array([[i] * (i % 3) for i in numbers]),
        "struct": lambda: pa.array([{"x": i, "y": str(i)} for i in numbers]),
        "null": lambda: pa.nulls(ROWS, pa.float32()),
    }[kind]()


kinds = st.sampled_from(["int", "text", "list", "struct", "null"])
changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(kinds, min_size=1, max_size=3)),
        st.tuples(st.just("select"), st.integers(0, 2**32)),
        st.tuples(st.just("drop"), st.integers(0, 2**32)),
    ),
    max_size=5,
)


@given(
    st.lists(kinds, max_size=3),
    changes,
    st.sampled_from([{}, {"align": 64}, {"column_index": False}]),
)
def test_any_changes_give_the_table_with_these_columns(first, changes, options):
    """Changes one after the other; the file reads as the table that Arrow makes by the same."""
    names = iter(f"c{i}" for i in range(100))
    table = pa.table({next(names): column(kind, i) for i, kind in enumerate(first)})
    if not first:
        table = pa.table({next(names): column("int", 0)})
    data = stored(table, **options)
    for kind, what in changes:
        if kind == "add":
            new = pa.table({next(names): column(each, 3 * i) for i, each in enumerate(what)})
            data = added(data, new)
            for name in new.column_names:
                table = table.append_column(name, new[name])
            continue
        rng = np.random.default_rng(what)
        order = rng.permutation(table.num_columns)[: rng.integers(0, table.num_columns + 1)]
        if kind == "drop":
            sink = io.BytesIO()
            fermion.drop_columns(data, order.tolist(), destination=sink)
            data = sink.getvalue()
            order = [i for i in range(table.num_columns) if i not in order]
        else:
            data = selected(data, order.tolist())
        table = table.select([int(i) for i in order])
    second = File(data)
    with fermion.open(data) as file:
        assert file.schema.equals(table.schema)
        assert file.num_rows == second.num_rows == ROWS
        assert file.verify().problems == ()
        found, taken = file.read(), file.take([ROWS - 1, 3])
        assert (found.num_rows, taken.num_rows) == (ROWS, 2)
        if table.num_columns:
            assert_logically_equal(found, table)
            assert_logically_equal(taken, table.take([ROWS - 1, 3]))
    for ordinal in range(table.num_columns):
        assert second.column(ordinal).combine_chunks() == table.column(ordinal).combine_chunks()


def test_what_was_there_stays_byte_for_byte():
    data = stored(pa.table({"a": range(ROWS), "b": range(ROWS)}))
    with fermion.open(data) as file:
        old = file.index.footer
    changed = added(data, {"c": range(ROWS)})
    assert changed[: old.tail_offset] == data[: old.tail_offset]
    with fermion.open(changed) as file:
        assert file.index.footer.incompat == Incompat.EXT_CIT | Incompat.PLACED
        assert file.index.footer.cmb_offset > old.tail_offset


@pytest.mark.parametrize("fallback", [False, True])
def test_a_local_file_is_replaced(tmp_path: Path, monkeypatch, fallback):
    """Whether or not the kernel can copy; what is open still reads the old file."""
    if fallback:

        def refuse(*_, **__):
            raise OSError

        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    path = tmp_path / "f.fermion"
    table = pa.table({"a": range(ROWS)})
    fermion.write_table(table, path)
    with fermion.open(path) as before:
        fermion.add_columns(path, {"b": range(ROWS)})
        assert before.read().equals(table)
    fermion.drop_columns(path, ["a"])
    fermion.add_columns(path, {"a": ["x"] * ROWS})
    fermion.select_columns(path, ["a", "b"])
    assert fermion.read_table(path).equals(pa.table({"a": ["x"] * ROWS, "b": range(ROWS)}))
    assert [each.name for each in tmp_path.iterdir()] == ["f.fermion"]


def test_a_crash_leaves_the_old_file(tmp_path: Path, monkeypatch):
    """At the rename, and after any piece that is written."""
    path = tmp_path / "f.fermion"
    fermion.write_table(pa.table({"a": range(ROWS)}), path)
    before = path.read_bytes()

    def refuse(*_):
        raise OSError("crash")

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", refuse)
        with pytest.raises(OSError, match="crash"):
            fermion.add_columns(path, {"b": range(ROWS)})
    with monkeypatch.context() as broken:
        broken.setattr(fermion.io.sink.LocalSink, "write", refuse)
        with pytest.raises(OSError, match="crash"):
            fermion.drop_columns(path, ["a"])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ({"b": range(ROWS - 1)}, {}, "expected 25 rows, found 24"),
        ({"b": range(ROWS + 1)}, {}, "expected 25 rows, found more"),
        ({"b": []}, {}, "expected 25 rows, found 0"),
        ({"a": range(ROWS)}, {}, "column 'a' is there already"),
        ({"b": range(ROWS)}, {"sorted_by": ["b"]}, "sorted_by: only rows"),
        ({"b": range(ROWS)}, {"bloom_filters": ["a"]}, "options name column 'a'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, data, options, message):
    path = tmp_path / "f.fermion"
    fermion.write_table(pa.table({"a": range(ROWS)}), path, stripe_rows=10)
    before = path.read_bytes()
    with pytest.raises(InvalidArgumentError, match=message):
        fermion.add_columns(path, data, **options)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_columns_that_are_not_there_cannot_be_dropped():
    data = stored(pa.table({"a": range(ROWS), "b": range(ROWS)}))
    with pytest.raises(ColumnNotFoundError, match="'c'"):
        fermion.drop_columns(data, ["c"], destination=io.BytesIO())
    for columns in ([2], [("a", "x")], [-1]):
        with pytest.raises(InvalidArgumentError, match="expected a top-level column"):
            selected(data, columns)
    with pytest.raises(InvalidArgumentError, match="column 1 comes twice"):
        selected(data, ["b", 1])


def test_only_local_files_are_replaced():
    table = pa.table({"a": range(ROWS)})
    first, second = "memory://changes/a.fermion", "memory://changes/b.fermion"
    fermion.write_table(table, first)
    for destination in (None, first):
        with pytest.raises(InvalidArgumentError, match="expected another destination"):
            fermion.add_columns(first, {"b": range(ROWS)}, destination=destination)
    with pytest.raises(InvalidArgumentError, match="expected another destination"):
        fermion.drop_columns(stored(table), ["a"])
    fermion.add_columns(first, {"b": range(ROWS)}, destination=second)
    assert fermion.read_table(first).equals(table)
    assert fermion.read_table(second).column_names == ["a", "b"]


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_a_file_with_any_feature_can_get_a_column(name):
    feature = FEATURES[name]()
    rows = feature.table.num_rows
    numbers = pa.table({"very new": pa.array(range(rows), pa.int64())})
    data = added(feature.stored(), numbers, bloom_filters=["very new"])
    columns = feature.table.column_names
    with fermion.open(data) as file:
        assert file.verify().problems == ()
        assert file.key_value_metadata == feature.metadata
        assert_logically_equal(file.read(list(range(len(columns)))), feature.table)
        assert file.read(["very new"]).equals(numbers)
        assert file.schema.metadata == feature.table.schema.metadata
        assert file.count('"very new" = 3') == int(rows > 3)
        if feature.batches is not None:
            found = file.read_batch(1002)["very new"].to_pylist()
            ids = [batch_id for batch_id, count in feature.batches for _ in range(count)]
            assert found == [row for row, batch_id in enumerate(ids) if batch_id == 1002]


@pytest.mark.parametrize(
    "options",
    [
        {"column_order": ["d", "c"]},
        {"read_back": True},
        {"global_dictionaries": ["c"], "page_bloom_filters": ["c"], "summaries": ["d"]},
        {"profile": "compact", "column_page_bytes": {"d": 64}},
        {"checksum": "none", "align": 64, "column_index": False, "stripe_rows": 3},
    ],
)
def test_new_columns_are_written_as_the_options_say(tmp_path: Path, options):
    """But for what is the file's: its stripes, checksums and alignment."""
    path = tmp_path / "f.fermion"
    table = pa.table({"a": range(ROWS), "b": column("text", 0)})
    fermion.write_table(table, path, **OPTIONS)
    new = pa.table({"c": column("text", 7), "d": range(ROWS)})
    fermion.add_columns(path, new, **options)
    with fermion.open(path) as file:
        assert file.verify().problems == ()
        assert file.settings["checksum"] == "crc32c"
        assert file.stripe_rows == (10, 10, 5)
        assert_logically_equal(file.read(["a", "b"]), table)
        assert_logically_equal(file.read(["c", "d"]), new)


def test_what_is_known_of_the_rows_is_kept():
    """Field ids, the keys of the order before one that is dropped, bounds of the file."""
    number = pa.field("n", pa.int32(), metadata={b"PARQUET:field_id": b"7"})
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64()), number])
    table = pa.table({"a": range(ROWS), "b": range(ROWS), "n": [3] * ROWS}, schema)
    data = selected(stored(table, sorted_by=["n", "a", "b"]), ["n", "b"])
    with fermion.open(added(data, {"c": range(5, ROWS + 5)})) as file:
        assert file.sort_order == (fermion.SortKey("n"),)
        assert file.schema.field("n").equals(number, check_metadata=True)
        entries = np.frombuffer(
            file.index.tail.view(*file.index.sections[4]), fermion.layout.FILE_STATISTICS_ENTRY
        )
        assert entries[["ordinal", "min", "max"]].tolist() == [(0, 3, 3), (1, 0, 24), (2, 5, 29)]
        assert file.verify().problems == ()
    with fermion.open(selected(data, ["b"])) as file:
        assert file.sort_order == ()


def test_few_bytes_are_read_to_add_a_column(tmp_path: Path):
    """Of a wide file: its metadata, and no data at all."""
    wide = pa.table({f"c{i}": np.random.default_rng(i).random(3_000) for i in range(60)})
    path = tmp_path / "wide.fermion"
    fermion.write_table(wide, path)
    with fermion.open(path) as file:
        metadata = path.stat().st_size - file.index.footer.cmb_offset
        assert metadata < path.stat().st_size / 20
    seen = []
    original = fermion.io.source.LocalSource.read

    def counted(self, offset, length):
        seen.append(length)
        return original(self, offset, length)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fermion.io.source.LocalSource, "read", counted)
        fermion.add_columns(path, {"new": range(3_000)})
    assert sum(seen) <= 2 * metadata + 2 * 65_536


def entry_places(data: bytes) -> list[int]:
    return [each.offset for each in Anatomy(data).places if each.dtype == EXTENDED_CIT_ENTRY]


@pytest.mark.parametrize(
    ("field", "value", "error", "message"),
    [
        ("offset", 8, InvalidFileError, "CMB of column 0: expected a range within 16 to"),
        ("offset", 2**63, InvalidFileError, "CMB of column 0: expected a range"),
        ("offset", HEAD.itemsize + 1, InvalidFileError, "CMB of column 0: expected a range"),
        ("length", 8, InvalidFileError, "CMB of column 0: expected a range"),
        ("length", 2**32 - 8, InvalidFileError, "CMB of column 0: expected a range"),
        ("length", 0, InvalidFileError, "CMB of column 0: expected a range"),
        ("crc", 1, ChecksumError, "CMB of column 0: expected the checksum 0x00000001, found"),
    ],
)
@pytest.mark.parametrize("columns", [2, 100])
def test_a_wrong_entry_is_noticed(columns, field, value, error, message):
    table = pa.table({f"c{i}": range(ROWS) for i in range(columns)})
    data = bytearray(selected(stored(table), list(range(columns))))
    kind, offset, *_ = (EXTENDED_CIT_ENTRY.fields or {})[field]
    place = entry_places(data)[0] + offset
    put(data, place, value, kind.itemsize)
    if field == "crc":
        repair_tail(data, Anatomy(data).footer)
    else:
        repair(data)
    with fermion.open(data) as file, pytest.raises(error, match=message):
        file.read()


def test_an_entry_for_another_column_is_noticed():
    """Both CMBs are sound, and of the same shape: only the checksum tells them apart."""
    data = bytearray(
        selected(stored(pa.table({"a": range(ROWS), "b": range(7, ROWS + 7)})), [0, 1])
    )
    first, second = entry_places(data)
    data[first : first + 12] = data[second : second + 12]
    repair_tail(data, Anatomy(data).footer)
    with fermion.open(data) as file, pytest.raises(ChecksumError, match="CMB of column 0"):
        file.read()
