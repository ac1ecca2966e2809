"""Dictionaries that stripes share: one for all, read once, kept, full at some point, damaged."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fermion
from fermion.cli import main
from fermion.columns.types import BINARY, Bits, column_node
from fermion.encodings.choice import shared_dictionary
from fermion.encodings.choice.shared_dictionary import GrowingDictionary
from fermion.layout import FULL_CHUNK_DESC, ChunkFlag
from fermion.writing.column import ColumnPlan
from tests.kit.arrow_limits import message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import DICTIONARY_RECORD, Anatomy, put, repair
from tests.kit.files.identities import one_identity
from tests.kit.files.physical_values import binary_values
from tests.kit.strategies import tables

ROWS, STRIPE_ROWS = 9_000, 2_000
KEEP = fermion.ReadOptions(keep_dictionaries=True)


def stored(table: pa.Table, *names: str, **options: object) -> bytes:
    sink = io.BytesIO()
    settings = {"stripe_rows": STRIPE_ROWS, "page_rows_max": 500, **options}
    fermion.write_table(table, sink, global_dictionaries=names, **settings)
    return sink.getvalue()


@pytest.fixture(scope="module")
def words() -> list[str | None]:
    """Words of which each stripe has some that those before it lack; one in eleven is null."""
    picks = np.random.default_rng(3).integers(0, 40, ROWS) + np.arange(ROWS) // 100
    return [None if i % 11 == 0 else f"word number {pick}" for i, pick in enumerate(picks)]


@pytest.fixture(scope="module")
def table(words: list[str | None]) -> pa.Table:
    return pa.table({"w": words, "n": np.arange(ROWS)})


@pytest.fixture(scope="module")
def data(table: pa.Table) -> bytes:
    return stored(table, "w")


def test_stripes_share_one_dictionary(table, words, data):
    """Every page has codes; every value is stored once, in the order of its appearance."""
    with fermion.open(data) as file:
        (stream,) = [each for each in file.column("w").streams if each.type.name == "DATA"]
        encodings = {page.encoding for chunk in stream.chunks for page in chunk.pages}
        assert encodings == {"global_dictionary"}
        assert len(stream.chunks) == 5
        assert stream.dictionary is not None
        assert stream.dictionary.entries == len(set(words) - {None})
        assert_logically_equal(file.read(), table)
        assert file.verify().problems == ()
    with fermion.open(data, options=KEEP) as file:
        entries = file.read(["w"])["w"].chunk(0).dictionary.to_pylist()
    assert entries == [word for word in dict.fromkeys(words) if word is not None]
    assert len(data) < len(stored(table))


def test_any_rows_are_read(table, data):
    """A run of rows over stripes, single rows in any order, a filter, small batches."""
    with fermion.open(data) as file:
        assert_logically_equal(file.read(rows=(1_990, 4_010)), table.slice(1_990, 2_020))
        indices = [8_999, 3, 3, 4_000, 0]
        assert_logically_equal(file.take(indices), table.take(indices))
        batches = file.iter_batches(batch_size=777)
        assert_logically_equal(pa.Table.from_batches(batches, schema=table.schema), table)
        found = file.read(filter="w = 'word number 60'")
        expected = table.filter(pa.compute.equal(table["w"], "word number 60"))
        assert expected.num_rows > 0
        assert_logically_equal(found, expected)


def test_a_point_read_takes_one_page_and_the_dictionary_once(data):
    with fermion.open(data, options=fermion.ReadOptions(prefetch_bytes=1)) as file:
        streams = file.column("w").streams
        dictionary = streams[1].dictionary
        before = file.io_stats.bytes_used
        file.take([8_900], columns=["w"])
        first = file.io_stats.bytes_used - before
        file.take([8_900], columns=["w"])
        second = file.io_stats.bytes_used - before - first
    pages = [stream.chunks[4].pages[8_900 % STRIPE_ROWS // 500].length for stream in streams]
    assert second == sum(pages)
    assert first == second + dictionary.length


def same_dictionary(column: pa.ChunkedArray) -> bool:
    """Whether all chunks have the very same dictionary in memory."""
    places = {
        tuple(buffer.address for buffer in chunk.dictionary.buffers() if buffer is not None)
        for chunk in column.chunks
    }
    return len(places) == 1


def test_all_batches_have_the_same_dictionary(table, words, data):
    """Whole, in small batches, by rows, by a filter: one dictionary in memory, equal values."""
    with fermion.open(data, options=KEEP) as file:
        assert file.read().schema.field("w").type == pa.dictionary(pa.int32(), pa.string())
        small = pa.Table.from_batches(file.iter_batches(batch_size=300))
        readings = [
            (file.read(), words),
            (small, words),
            (file.read(rows=(1_990, 2_010)), words[1_990:2_010]),
            (file.read(filter="n >= 8999 OR n < 1"), [words[0], words[8_999]]),
        ]
        for found, expected in readings:
            assert found["w"].to_pylist() == expected
            assert same_dictionary(found["w"])
        together = [chunk for found, _ in readings for chunk in found["w"].chunks]
        assert same_dictionary(pa.chunked_array(together))
        taken = file.take([8_000, 5, 5], columns=["w"])
        assert taken["w"].to_pylist() == [words[8_000], words[5], words[5]]


@pytest.mark.parametrize("index_type", [pa.int8(), pa.uint16(), pa.int32()])
def test_columns_that_are_dictionaries_keep_their_type_and_share_one(index_type):
    """Their values come from several dictionaries; one read has one, of the schema's own type."""
    words = [None if i % 9 == 0 else f"word {i // 90 * 7 + i % 30}" for i in range(900)]
    chunks = [pa.array(words[at : at + 300]).dictionary_encode() for at in (0, 300, 600)]
    dtype = pa.dictionary(index_type, pa.string())
    column = pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(chunk.indices.cast(index_type), chunk.dictionary)
            for chunk in chunks
        ]
    )
    data = stored(pa.table({"w": column}), "w", stripe_rows=200)
    with fermion.open(data, options=KEEP) as file:
        assert file.schema.field("w").type == dtype
        small = pa.Table.from_batches(file.iter_batches(batch_size=70))
        for found in (file.read(), small, file.read(filter="w != 'word 3' OR w IS NULL")):
            assert found.schema.field("w").type == dtype
            assert same_dictionary(found["w"])
        assert small["w"].to_pylist() == words
    many = pa.array([f"{i % 400}" for i in range(2_000)])
    large = pa.chunked_array(
        [many.slice(at, 100).dictionary_encode() for at in range(0, 2_000, 100)]
    )
    data = stored(
        pa.table({"w": large.cast(pa.dictionary(pa.int8(), pa.string()))}), "w", stripe_rows=100
    )
    with fermion.open(data, options=KEEP) as file:  # more entries than int8 can number
        assert file.read()["w"].to_pylist() == many.to_pylist()


def test_stripes_of_nulls_and_plain_pages_have_the_same_dictionary():
    """Pages that are smaller without codes are looked up; a stripe of nulls comes first."""
    feature = FEATURES["global_dictionaries"]()
    column = feature.table["stripe_of_nulls"].combine_chunks()
    nulls_first = pa.concat_arrays([pa.nulls(30, pa.string()), column])
    data = stored(pa.table({"w": nulls_first}), "w", stripe_rows=20, page_rows_max=12)
    with fermion.open(data, options=KEEP) as file:
        found = file.read()["w"]
        assert found.to_pylist() == nulls_first.to_pylist()
        assert same_dictionary(found)
    mixed = pa.array(["x" * 40] * 50 + ["a", "b", "c", "d"] * 2)
    data = stored(pa.table({"w": mixed}), "w", stripe_rows=29, page_rows_max=4)
    with fermion.open(data, options=KEEP) as file:
        pages = [page for chunk in file.column("w").streams[1].chunks for page in chunk.pages]
        assert {page.encoding for page in pages} == {"plain", "global_dictionary"}
        found = file.read()["w"]
        assert found.to_pylist() == mixed.to_pylist()
        assert same_dictionary(found)


@pytest.mark.parametrize(
    ("limit", "value"),
    [("GLOBAL_DICTIONARY_ENTRIES_MAX", 70), ("GLOBAL_DICTIONARY_BYTES_MAX", 1_000)],
)
def test_a_full_dictionary_leaves_later_stripes_to_their_own(
    monkeypatch, table, words, limit, value
):
    """The limits are lowered; what was coded stays, later stripes have other encodings."""
    monkeypatch.setattr(shared_dictionary, limit, value)
    data = stored(table, "w")
    with fermion.open(data) as file:
        stream = file.column("w").streams[1]
        shared = [
            any(page.encoding == "global_dictionary" for page in chunk.pages)
            for chunk in stream.chunks
        ]
        assert shared == sorted(shared, reverse=True)
        assert set(shared) == {True, False}
        assert stream.dictionary.entries <= 70
        assert_logically_equal(file.read(), table)
        assert file.take([8_999, 0], columns=["w"])["w"].to_pylist() == [words[8_999], words[0]]
        assert file.verify().problems == ()
    with fermion.open(data, options=KEEP) as file:
        assert file.read().equals(table)  # mixed columns are decoded


def test_nulls_have_no_entry():
    """Neither where few are null nor where most are, nor at the start."""
    few = [None, None, *(["north", "south", "east", "west"] * 40)]
    most = [each if i % 3 == 1 else None for i, each in enumerate(few)]
    for values in (few, most):
        data = stored(pa.table({"w": values}), "w", stripe_rows=100)
        with fermion.open(data, options=KEEP) as file:
            found = file.read()["w"]
        assert found.to_pylist() == values
        assert sorted(found.chunk(0).dictionary.to_pylist()) == ["east", "north", "south", "west"]


def test_a_dictionary_that_saves_nothing_is_not_written():
    """Where plain pages are smaller everywhere there are no codes, and so is no dictionary."""
    table = pa.table({"a": pa.array(range(9), pa.int8())})
    with one_identity():
        assert stored(table, "a") == stored(table, encodings={"a": "plain"})


def test_inspect_shows_the_dictionary(data, tmp_path, capsys):
    """Where it lies, how many values it has, with --pages how it is encoded; also as JSON."""
    path = tmp_path / "x.fermion"
    path.write_bytes(data)
    with fermion.open(data) as file:
        found = file.column("w").streams[1].dictionary
    shown = f"global dictionary: {found.entries} values, {found.length} bytes at {found.offset:,}"
    for arguments, tree in ((["inspect"], ""), (["inspect", "--pages"], ", split_lengths(")):
        assert main([*arguments, str(path)]) == 0
        (line,) = [each for each in capsys.readouterr().out.splitlines() if "global dict" in each]
        assert line.strip().startswith(shown + tree)
    assert main(["inspect", "--json", str(path)]) == 0
    columns = {each["name"]: each for each in json.loads(capsys.readouterr().out)["columns"]}
    words, numbers = columns["w"]["streams"][1], columns["n"]["streams"][1]
    assert words["global_dictionary"] == {
        "offset": found.offset,
        "length": found.length,
        "entries": found.entries,
    }
    assert numbers["global_dictionary"] is None


def test_values_of_lists_and_fields_of_structs_share_dictionaries(words):
    table = pa.table(
        {
            "l": [[word] * (i % 3) for i, word in enumerate(words)],
            "s": [{"a": word, "b": i} for i, word in enumerate(words)],
            "m": pa.array([[("key", word)] for word in words], pa.map_(pa.string(), pa.string())),
        }
    )
    with fermion.open(stored(table, "l", "s.a", "m")) as file:
        for name, ordinals in (("l", [3]), ("s", [2]), ("m", [4, 6])):
            streams = file.column(name).streams
            found = [each.ordinal for each in streams if each.dictionary is not None]
            assert found == ordinals, name
        assert_logically_equal(file.read(), table)
        assert_logically_equal(file.read(rows=(3_000, 3_010)), table.slice(3_000, 10))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("absent", {}, "'absent', which the schema lacks"),
        ("flag", {}, "'flag' has no values that a dictionary can hold"),
        ("s", {}, "'s' has no values that a dictionary can hold"),
        ("text", {"encodings": {"text": "plain"}}, "'text' has both"),
    ],
)
def test_columns_that_can_have_none_are_refused(name, options, message):
    table = pa.table({"flag": [True], "text": ["x"], "s": [{"a": 1}]})
    with pytest.raises(fermion.InvalidArgumentError, match=message):
        stored(table, name, **options)


def can_share(field: pa.Field) -> bool:
    """Whether the column has values that its name alone stands for and a dictionary can hold."""
    options = fermion.WriteOptions(global_dictionaries=[field.name])
    return bool(ColumnPlan.of(column_node(field), options).dictionaries)


@given(tables(), st.data())
def test_any_table_survives_with_global_dictionaries(table, data):
    """Whole and in part, kept or not, in tiny pages and stripes."""
    assume(message_can_hold(table.schema))
    names = [
        field.name
        for field in table.schema
        if table.schema.names.count(field.name) == 1 and can_share(field)
    ]
    assume(names)
    layout = {
        "page_bytes": data.draw(st.sampled_from([16, 64, 1024])),
        "stripe_rows": data.draw(st.sampled_from([1, 7, 64])),
        "profile": data.draw(st.sampled_from(["balanced", "compact", "fast", "random"])),
    }
    file_bytes = stored(table, *names, **layout)
    with fermion.open(file_bytes) as file:
        assert_logically_equal(file.read(), table)
        assert file.verify().problems == ()
        start = data.draw(st.integers(0, table.num_rows))
        assert_logically_equal(file.read(rows=(start, table.num_rows)), table.slice(start))
    with fermion.open(file_bytes, options=KEEP) as file:
        for found, expected in zip(file.read().columns, table.columns, strict=True):
            assert_logically_equal(without_dictionary(found, expected.type), expected)


def without_dictionary(column: pa.ChunkedArray, dtype: pa.DataType) -> pa.ChunkedArray:
    """A column that was read with its dictionaries as a column of this type."""
    if column.type == dtype:
        return column
    layout = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(dtype, dtype)
    parts = [(chunk.dictionary.cast(layout), chunk.indices) for chunk in column.chunks]
    return pa.chunked_array([values.take(at).cast(dtype) for values, at in parts], dtype)


@given(st.lists(st.lists(st.sampled_from(["", "a", "b", "cc", "ccc", "d"]), max_size=9)), st.data())
def test_codes_are_places_of_first_appearance(stripes, data):
    """Compared with a dict; values that are not valid get a code, but no entry."""
    dictionary, known = GrowingDictionary.of(BINARY), {}
    for values in stripes:
        valid = [data.draw(st.booleans()) for _ in values]
        held = [value if keep else "" for value, keep in zip(values, valid, strict=True)]
        for value, keep in zip(values, valid, strict=True):
            if keep:
                known.setdefault(value, len(known))
        codes = dictionary.codes(
            binary_values([each.encode() for each in held]), Bits.pack(np.array(valid, bool))
        )
        if any(valid):
            pairs = zip(codes.tolist(), values, valid, strict=True)
            assert all(code == known[value] for code, value, keep in pairs if keep)
            assert codes.max() < len(known)
        else:
            assert codes is None
    entries = dictionary.entries
    assert entries.data.tobytes() == "".join(known).encode()
    assert np.diff(entries.offsets).tolist() == [len(each) for each in known]


# Damage under right checksums.


def damaged(change: Callable[[bytearray, list[int]], None]) -> bytearray:
    """A file of three stripes that share a dictionary; ``change`` gets the records' offsets."""
    words = ["green", "violet", "green", "green", "violet", "indigo"] * 20
    table = pa.table({"w": words[:40] + ["ochre"] * 40 + words[:40]})
    out = bytearray(Feature(table, {"global_dictionaries": ["w"], "stripe_rows": 40}).stored())
    places = [each.offset for each in Anatomy(out).places if each.dtype == DICTIONARY_RECORD]
    assert len(places) == 3
    change(out, places)
    return out


def field_of_record(name: str) -> tuple[int, int]:
    kind, offset, *_ = DICTIONARY_RECORD.fields[name]
    return offset, kind.itemsize


def set_field(data: bytearray, place: int, name: str, value: int) -> None:
    offset, width = field_of_record(name)
    put(data, place + offset, value, width)


def test_a_code_beyond_the_chunks_count_is_refused():
    def change(data: bytearray, places: list[int]) -> None:
        set_field(data, places[0], "count", 2)
        repair(data)

    with fermion.open(damaged(change)) as file:
        with pytest.raises(fermion.InvalidFileError, match=r"page at offset 16: .*code"):
            file.read()
        assert file.take([50])["w"].to_pylist() == ["ochre"]


def test_a_count_beyond_the_dictionary_is_refused():
    def change(data: bytearray, places: list[int]) -> None:
        set_field(data, places[2], "count", 5)
        repair(data)

    with (
        fermion.open(damaged(change)) as file,
        pytest.raises(fermion.InvalidFileError, match="at least 5 entries, found 4"),
    ):
        file.read()


def test_damage_to_the_dictionary_is_noticed():
    def change(data: bytearray, places: list[int]) -> None:
        data[data.index(b"greenviolet")] ^= 1

    with (
        fermion.open(damaged(change)) as file,
        pytest.raises(fermion.ChecksumError, match="global dictionary at"),
    ):
        file.read()


def test_a_dictionary_outside_of_the_data_is_refused():
    def change(data: bytearray, places: list[int]) -> None:
        for place in places:
            set_field(data, place, "offset", len(data))
        repair(data)

    with fermion.open(damaged(change)) as file:
        with pytest.raises(fermion.InvalidFileError, match="data ends at"):
            file.read()
        assert len(file.verify().problems) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (ChunkFlag.USES_GLOBAL_DICT | ChunkFlag.FIRST_PAGE_IS_DICT, "uses a global one too"),
        (ChunkFlag(0), "no dictionary"),
    ],
)
def test_flags_that_contradict_the_pages_are_refused(flags, message):
    def change(data: bytearray, places: list[int]) -> None:
        (place, *_) = [
            each.offset for each in Anatomy(data).places if each.dtype == FULL_CHUNK_DESC
        ]
        put(data, place + FULL_CHUNK_DESC.fields["flags"][1], flags)
        repair(data)

    with (
        fermion.open(damaged(change)) as file,
        pytest.raises(fermion.InvalidFileError, match=message),
    ):
        file.read()


def test_a_record_that_is_missing_is_named():
    def change(data: bytearray, places: list[int]) -> None:
        data[places[0] - 8] = 0x77  # another tag, unknown
        repair(data)

    with (
        fermion.open(damaged(change)) as file,
        pytest.raises(fermion.InvalidFileError, match="expected a record of 20 bytes"),
    ):
        file.read()


def test_verify_finds_counts_that_fall_and_entries_that_repeat():
    def falling(data: bytearray, places: list[int]) -> None:
        set_field(data, places[0], "count", 4)
        set_field(data, places[1], "count", 4)
        set_field(data, places[2], "count", 3)
        repair(data)

    def repeating(data: bytearray, places: list[int]) -> None:
        at = data.index(b"violetindigo")
        data[at : at + 12] = b"violetviolet"
        repair(data)

    for change, message in ((falling, "counts that grow"), (repeating, "every entry once")):
        with fermion.open(damaged(change)) as file:
            (problem,) = file.verify().problems
        assert message in problem
