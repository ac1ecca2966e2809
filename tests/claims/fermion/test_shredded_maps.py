"""Maps whose keys have columns of their own read like the same maps in Arrow, key by key."""

from __future__ import annotations

import io
import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import Shred, col
from fermion.cli.program import main
from fermion.columns import maps
from fermion.columns.maps import MapBuilder
from fermion.columns.rows import take_table_rows
from fermion.columns.types import column_node
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.layout import FOOTER, Incompat
from fermion.reading.layout_map import layout_map
from tests.kit.equality import assert_logically_equal
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import repair
from tests.kit.files.mutations import memory_limit

TEXT = pa.map_(pa.string(), pa.float32())
KEYS = ["a", "a.b", "it's", "", "['x']", "über", "日本"]
VALUES = {
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text("ab", max_size=3),
    pa.string_view(): st.text("ab", max_size=3),
    pa.list_(pa.int8()): st.lists(st.none() | st.integers(-5, 5), max_size=3),
    pa.struct([("x", pa.int8()), ("y", pa.string())]): st.fixed_dictionaries(
        {"x": st.none() | st.integers(-5, 5), "y": st.none() | st.text("ab", max_size=2)}
    ),
}


def stored(table: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, **options)
    return sink.getvalue()


def text_order(key: str | int) -> bytes | int:
    return key.encode() if isinstance(key, str) else key


@st.composite
def shredded(draw: st.DrawFn) -> tuple[list, pa.MapType, Shred]:
    """Rows of maps with their entries sorted, and which keys get columns."""
    kind = draw(st.sampled_from(list(VALUES)))
    keys: list = draw(st.sampled_from([KEYS, [-7, 0, 3, 100, 2**31]]))
    key = pa.string() if isinstance(keys[0], str) else pa.int64()
    values = st.none() | VALUES[kind]
    one = st.none() | st.dictionaries(st.sampled_from(keys), values)
    rows = draw(st.lists(one, max_size=12))
    chosen = st.just("all") | st.integers(0, 3) | st.lists(st.sampled_from(keys), unique=True)
    in_order = [row and sorted(row.items(), key=lambda entry: text_order(entry[0])) for row in rows]
    in_order = [[] if row == {} else row for row in in_order]
    return in_order, pa.map_(key, kind), Shred(draw(chosen))


@settings(max_examples=60)
@given(shredded(), st.integers(1, 12), st.data())
def test_any_maps_survive_the_round_trip(case, stripe_rows, data):
    """Whole maps, parts of them, single keys, filters by key: as plain Python has them."""
    rows, dtype, chosen = case
    table = pa.table({"m": pa.array(rows, dtype), "id": np.arange(len(rows))})
    file = stored(table, shred={"m": chosen}, stripe_rows=stripe_rows)
    keys = sorted({key for row in rows for key, _ in row or []}, key=text_order)
    with fermion.open(file) as opened:
        assert opened.schema == table.schema
        assert opened.verify().problems == ()
        assert_logically_equal(opened.read(), table)
        start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(rows))] * 2)))
        assert_logically_equal(opened.read(rows=(start, stop)), table.slice(start, stop - start))
        some = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
        assert_logically_equal(opened.take(some), take_table_rows(table, np.array(some, np.int64)))
        pieces = [batch for batch in opened.iter_batches(batch_size=5) if batch.num_rows]
        assert_logically_equal(pa.Table.from_batches(pieces, table.schema), table)
        for key in [*keys, keys[0] if keys else 5 if dtype.key_type == pa.int64() else "none"]:
            found = [None if row is None else dict(row).get(key) for row in rows]
            expected = pa.array(found, dtype.item_type)
            (column,) = opened.read([("m", str(key))]).columns
            assert_logically_equal(column, pa.chunked_array([expected]))
            nulls = [at for at, value in enumerate(found) if value is None]
            assert opened.read(["id"], filter=col("m")[key].is_null())["id"].to_pylist() == nulls
            if dtype.item_type == pa.int64():
                bound = data.draw(VALUES[dtype.item_type])
                kept = [at for at, value in enumerate(found) if value is not None and value > bound]
                above = opened.read(["id", "m"], filter=col("m")[key] > bound)
                assert_logically_equal(
                    above, take_table_rows(table, np.array(kept, np.int64)).select([1, 0])
                )


@pytest.mark.parametrize("keys", ["all", 1, ["a.b"], 0])
def test_a_key_is_named_in_every_form(keys):
    """As text in brackets, as a tuple, by `col` and in SQL, in any order of columns."""
    rows = [{"a.b": 1.0, "it's": 2.0}, None, {"it's": 5.0}]
    texts = [row and sorted(row.items()) for row in rows]
    table = pa.table({"m": pa.array(texts, TEXT), "n": pa.array([[(-5, 1)], [], [(7, 2)]], _INTS)})
    file = stored(table, shred={"m": Shred(keys), "n": Shred("all")})
    with fermion.open(file) as opened:
        found = opened.read(["n[7]", "m['a.b']", ("m", "it's"), "m", "m['none']", "n[-5]"])
        assert found.column_names == ["n[7]", "m['a.b']", "m['it''s']", "m", "m['none']", "n[-5]"]
        assert found["m['it''s']"].to_pylist() == [2.0, None, 5.0]
        assert found["n[-5]"].to_pylist() == [1, None, None]
        assert found["m"].to_pylist() == table["m"].to_pylist()
        for condition in (col("m")["it's"] > 3, col("m", "it's") > 3, "m['it''s'] > 3"):
            assert opened.read(["n[7]"], filter=condition)["n[7]"].to_pylist() == [2]
            assert opened.count(condition) == 1
        assert opened.count("n[7] = 2 AND m['it''s'] IS NOT NULL") == 1
        with pytest.raises(InvalidArgumentError, match="key 'x': expected a value of type int16"):
            opened.read(["n['x']"])


_INTS = pa.map_(pa.int16(), pa.int8())


def test_maps_that_are_not_shredded_have_keys_as_well():
    table = pa.table({"m": pa.array([[("b", 1.0), ("a", 2.0)], None, []], TEXT)})
    with fermion.open(stored(table)) as opened:
        assert opened.version == (1, 1)
        assert opened.read(["m['a']"]).to_pydict() == {"m['a']": [2.0, None, None]}
        assert opened.count(col("m")["a"] == 2) == 1
        assert_logically_equal(opened.read(), table)  # in the order in which they were written


def test_a_column_of_the_whole_name_comes_before_a_key():
    table = pa.table({"m['a']": [7], "m": pa.array([[("a", 1.0)]], TEXT)})
    with fermion.open(stored(table, shred={"m": Shred()})) as opened:
        assert opened.read(["m['a']"]).to_pydict() == {"m['a']": [7]}
        assert opened.read([("m", "a")]).to_pydict() == {"m['a']": [1.0]}


def test_one_key_reads_its_own_pages_and_filters_prune_them():
    """Of a thousand keys over ascending values: bytes as of a column, pages by their bounds."""
    rows, keys = 4_000, 50
    values = np.arange(rows * keys, dtype=np.float64)
    names = pa.array([f"key_{at:03}" for at in range(keys)] * rows)
    offsets = np.arange(0, rows * keys + 1, keys, dtype=np.int32)
    maps = pa.MapArray.from_arrays(offsets, names, pa.array(values))
    column = values.reshape(rows, keys)[:, 7]
    table = pa.table({"m": maps, "real": column})
    options = {"page_bytes": 4096, "profile": "fast"}
    file = stored(table, shred={"m": Shred()}, **options)
    with fermion.open(file) as opened:
        asked, costs = ("m['key_007']", "real"), []
        for name in asked:
            before = opened.io_stats.bytes_requested
            assert opened.read([name])[name].to_numpy().tolist() == column.tolist()
            costs.append(opened.io_stats.bytes_requested - before)
        assert abs(costs[0] - costs[1]) < 200
        paths = ("m", "key_007"), ("real",)
        kept = [opened.prune(col(*path) > column[-5], columns=[]) for path in paths]
        assert kept[0].pages_kept == kept[1].pages_kept == 1
        assert kept[0].pages == kept[1].pages > 5
        assert opened.read([asked[0]], filter=col("m")["key_007"] > column[-5]).num_rows == 4
        assert_logically_equal(opened.read(), table)


def test_keys_that_come_later_get_columns_unless_they_were_rare():
    """A key that was stored in the map stays there: no key is in two places."""
    first = [[("a", 1.0)]] * 299 + [[("a", 1.0), ("rare", 2.0)]]
    second = [[("new", 3.0), ("rare", 4.0)]] * 300
    table = pa.table({"m": pa.array([*first, *second], TEXT)})
    with fermion.open(stored(table, shred={"m": Shred()}, stripe_rows=300)) as opened:
        assert opened.index.map_keys[0].keys == ["a", "new"]
        assert opened.verify().ok
        assert (
            opened.read(["m['rare']"]).column(0).to_pylist() == [None] * 299 + [2.0] + [4.0] * 300
        )
        assert_logically_equal(opened.read(), table)


def test_the_most_frequent_keys_get_columns():
    rows = [[("a", 1.0), ("b", 1.0)], [("b", 2.0)], [("b", None), ("c", 1.0)], [("c", 3.0)]]
    table = pa.table({"m": pa.array([*rows, [("c", 1.0)]], TEXT)})
    with fermion.open(stored(table, shred={"m": Shred(2)})) as opened:
        assert sorted(opened.index.map_keys[0].keys) == ["b", "c"]
        assert_logically_equal(opened.read(), table)


def test_a_hundred_thousand_keys_in_a_stripe():
    """Each is found by few requests; the maps come back whole."""
    count, rows = 100_000, 3
    names = pa.array([f"k{at:06}" for at in range(count)] * rows)
    offsets = np.arange(0, count * rows + 1, count, dtype=np.int32)
    values = pa.array(np.arange(count * rows, dtype=np.float32))
    table = pa.table({"m": pa.MapArray.from_arrays(offsets, names, values)})
    with fermion.open(stored(table, shred={"m": Shred()})) as opened:
        expected = [float(row * count + 77_777) for row in range(rows)]
        assert opened.read(["m['k077777']"]).column(0).to_pylist() == expected
        assert opened.io_stats.bytes_requested < 2_000_000
        assert opened.read().equals(table)


@pytest.mark.parametrize("kind", [pa.float32(), pa.string(), pa.decimal128(20, 2)])
def test_keys_in_groups_and_a_slice_of_something_huge(kind, monkeypatch):
    """Columns written and read one or two at once, with rare keys and nulls between them.

    The rows are some of many, in chunks; there are maps that are null, empty, or below a null.
    """
    rows, rng = 1_000, np.random.default_rng(11)
    entries = [
        [(f"k{key}", None if rng.random() < 0.1 else int(rng.integers(99))) for key in range(9)]
        for _ in range(rows)
    ]
    kept = [[each for each in row if rng.random() < 0.7] for row in entries]
    kept = [None if at % 7 == 0 else [] if at % 5 == 0 else row for at, row in enumerate(kept)]
    texts = [row and [(key, None if v is None else str(v)) for key, v in row] for row in kept]
    maps = pa.array(texts, pa.map_(pa.string(), pa.string())).cast(pa.map_(pa.string(), kind))
    hidden = pa.MapArray.from_arrays(
        maps.offsets, maps.keys, maps.items, mask=pa.array(np.arange(rows) % 3 == 0)
    )
    huge = pa.chunked_array([pa.concat_arrays([maps] * 50), hidden, maps.slice(5, 20)])
    table = pa.table({"m": huge}).slice(49 * rows + 13, rows + 500)
    table = pa.concat_tables([table, pa.table({"m": huge}).slice(51 * rows - 3)])
    shred = {"m": Shred(["k1", "k4", "k5", "k8"])}
    whole = stored(table, shred=shred, checksum="none")
    for size in (1, 300_000):
        monkeypatch.setattr("fermion.writing.maps.GROUP_BYTES", size)
        monkeypatch.setattr("fermion.reading.stripe.KEYS_BYTES", size)
        file = stored(table, shred=shred, checksum="none")
        start = fermion.open(file).index.footer.cmb_offset
        assert file[:start] == whole[:start]
        with fermion.open(file) as opened:
            assert_logically_equal(opened.read(), table)
            assert_logically_equal(opened.read(rows=(70, 900)), table.slice(70, 830))


def test_a_key_that_is_in_a_map_twice_is_found_when_it_is_put_together():
    """In a column and in the rest, and in the rest alone; also the entries of a null map."""
    rest = pa.array([[("a", None)], [("b", None)], [("b", 1.0), ("b", 2.0)], None], TEXT)
    node = column_node(pa.field("", pa.float32()), where="")
    column = pa.array([1.0, None, None, None], pa.float32())

    def built(rows: slice, ranks: list[int], columns: list[pa.Array]) -> pa.MapArray:
        builder = MapBuilder(rest[rows], np.array(ranks), node, "x")
        builder.add(np.zeros(len(columns), np.int64), columns, 2)
        return builder.build(pa.array(["a", "b"]))

    assert built(slice(0, 2), [1, 1], [column[:2]]).to_pylist() == [
        [("a", 1.0), ("b", None)],
        [("b", None)],
    ]
    for rows, ranks, columns in (
        (slice(0, 2), [0, 1], [column[:2]]),
        (slice(1, 3), [1, 1, 1], [column[1:3]]),
    ):
        with pytest.raises(InvalidFileError, match="a key twice"):
            built(rows, ranks, columns)
    with pytest.raises(InvalidFileError, match="null has entries"):
        built(slice(3, 4), [], [column[:1]])


def test_columns_added_and_dropped_keep_the_columns_of_keys():
    feature = FEATURES["shredded_maps"]()
    sink = io.BytesIO()
    fermion.select_columns(feature.stored(), ["id", "number"], destination=sink)
    with fermion.open(sink.getvalue()) as opened:
        assert opened.verify().problems == ()
        assert_logically_equal(opened.read(), feature.table.select(["id", "number"]))
    fermion.drop_columns(feature.stored(), ["text", "number"], destination=(sink := io.BytesIO()))
    with fermion.open(sink.getvalue()) as opened:
        assert opened.version == (1, 1)
        assert opened.verify().problems == ()
    with pytest.raises(InvalidArgumentError, match="shred: only maps of files"):
        fermion.add_columns(
            feature.stored(),
            feature.table.select(["text"]).rename_columns(["new"]),
            destination=io.BytesIO(),
            shred={"new": Shred()},
        )


@pytest.mark.parametrize(
    ("table", "shred", "message"),
    [
        ({"m": pa.array([[("a", 1.0), ("a", 2.0)]], TEXT)}, {"m": Shred()}, "'a' comes twice"),
        ({"m": pa.array([[("a", 1.0), ("a", None)]], TEXT)}, {"m": Shred([])}, "'a' comes twice"),
        ({"m": [1]}, {"m": Shred()}, "expected a map with strings or integers as keys"),
        ({"m": pa.array([[(1.5, 1)]], pa.map_(pa.float32(), pa.int8()))}, {"m": Shred()}, "is map"),
        ({"m": pa.array([[("a", 1.0)]], TEXT)}, {"x": Shred()}, "shred names column 'x'"),
        (
            {"m": pa.array([[("a", "b")]], pa.map_(pa.string(), pa.dictionary(pa.int8(), "str")))},
            {"m": Shred()},
            "without dictionary or run ends",
        ),
        ({"m": pa.array([[(1, 1)]], _INTS)}, {"m": Shred(["x"])}, "key 'x': expected a value"),
    ],
)
def test_what_cannot_be_shredded_is_refused_and_leaves_no_file(tmp_path, table, shred, message):
    path = tmp_path / "x.fermion"
    with pytest.raises(InvalidArgumentError, match=message):
        fermion.write_table(pa.table(table), path, shred=shred)
    assert not path.exists()


def test_wrong_options_are_refused():
    for keys in ("most", -1):
        with pytest.raises(InvalidArgumentError, match="keys"):
            Shred(keys)
    with pytest.raises(TypeError, match="keys"):
        Shred(1.5)
    with pytest.raises(TypeError, match=r"shred\['m'\]: expected Shred, found str"):
        fermion.WriteOptions(shred={"m": "all"})


def changed(file: bytes, name: str, value: int) -> bytearray:
    """A file with another number in its footer, under right checksums."""
    data = bytearray(file)
    kind, at = FOOTER.fields[name][:2]
    start = len(data) - FOOTER.itemsize + at
    data[start : start + kind.itemsize] = value.to_bytes(kind.itemsize, "little")
    repair(data)
    return data


def test_a_million_keys_that_are_only_declared_are_refused_in_bounded_memory():
    """In the footer, in the entry of the map and in the index of its keys, each alone and all."""
    table = pa.table({"m": pa.array([[("a", 1.0)]], TEXT)})
    million = 1_000_000
    for options in ({}, {"column_index": False}):
        file = stored(table, shred={"m": Shred()}, **options)
        assert len(file) < 2048
        entry = file.index(struct.pack("<IIQ", 0, 1, 32))
        index = file.index(struct.pack("<IIII", 1, 16, 1, 0) + b"\0" * 4 + b"\x01a")
        for number in range(1, 8):
            data = changed(file, "num_system_columns", million) if number & 1 else bytearray(file)
            if number & 2:
                data[entry + 4 : entry + 8] = million.to_bytes(4, "little")
            if number & 4:
                data[index : index + 8] = struct.pack("<II", million, million)
            repair(data)
            with memory_limit(), pytest.raises(InvalidFileError):
                fermion.open(data).read()


def test_bug_unicode_error_of_a_key_that_has_no_column():
    """Found by the fuzzer: bytes that are no text, under right checksums."""
    table = pa.table({"m": pa.array([[("long key", 1.0)], [("é", 2.0)]], TEXT)})
    data = bytearray(stored(table, shred={"m": Shred(["long key"])}))
    assert data.count("é".encode()) == 1
    data[data.index("é".encode())] = 0x80
    repair(data)
    with fermion.open(data) as opened:
        assert opened.read(["m['long key']"])["m['long key']"].to_pylist() == [1.0, None]
        with pytest.raises(InvalidFileError, match="a key that is no text"):
            opened.read()


def test_a_file_with_keys_is_refused_by_readers_that_do_not_know_them():
    with fermion.open(FEATURES["shredded_maps"]().stored()) as opened:
        assert opened.index.footer.incompat & Incompat.MAP_KEYS
        assert opened.version == (1, 3)


def test_a_file_without_shredded_maps_is_what_it_was():
    """Byte for byte but for its identity: the option alone changes nothing of other columns."""
    table = pa.table({"m": pa.array([[("a", 1.0)]], TEXT), "id": [1]})
    files = [stored(table, checksum="none"), stored(table, checksum="none", shred={})]
    assert [len(file) for file in files] == [len(files[0])] * 2
    starts = [fermion.open(file).index.footer.cmb_offset for file in files]
    assert files[0][: starts[0]] == files[1][: starts[1]]


def test_keys_come_in_the_order_of_their_bytes_or_numbers():
    texts = pa.array([[("b", 1.0), ("ä", 2.0), ("B", 3.0), ("", 4.0)]], TEXT)
    numbers = pa.array([[(10, 1), (-1, 2), (9, 3)]], _INTS)
    for keys in ("all", 1, 0):
        shred = {"t": Shred(keys), "n": Shred(keys)}
        with fermion.open(stored(pa.table({"t": texts, "n": numbers}), shred=shred)) as opened:
            (row,) = opened.read().to_pylist()
        assert [key for key, _ in row["t"]] == ["", "B", "b", "ä"]
        assert all(low < high for (low, _), (high, _) in pairwise(row["n"]))


@pytest.mark.parametrize(
    ("rows", "is_sorted"),
    [
        ([[("a", 1.0), ("b", None)], None, [("a", 2.0)], [], [("Z", 1.0), ("é", 2.0)]], True),
        ([[("b", 1.0)], [("b", 2.0), ("a", 1.0)]], False),
        ([None, [("b", 1.0)], []], True),
        ([[], None], True),
        ([], True),
    ],
)
def test_maps_without_columns_of_keys_are_only_put_together_if_their_keys_do_not_ascend(
    rows, is_sorted, monkeypatch
):
    array = pa.array([[("z", 0.0), ("y", 0.0)], *rows], TEXT).slice(1)
    built = []
    monkeypatch.setattr(MapBuilder, "build", lambda self, keys: built.append(keys) or array)
    assert maps.are_sorted(array) == is_sorted
    file = stored(pa.table({"m": array}), shred={"m": Shred([])})
    assert fermion.read_table(file)["m"].to_pylist() == rows
    assert len(built) == (not is_sorted)


def test_ten_thousand_keys_are_one_line_of_what_people_are_shown(tmp_path, capsys):
    """Of the layout, the statistics and the page, in which all bytes of the file are counted."""
    count, path = 10_000, tmp_path / "x.fermion"
    names, values = pa.array([f"k{at:05}" for at in range(count)]), pa.array(range(count))
    maps = pa.MapArray.from_arrays(pa.array([0, count], pa.int32()), names, values)
    fermion.write_table(pa.table({"features": maps}), path, shred={"features": Shred()})
    for command in ("inspect", "stats"):
        assert main([command, str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) < 20
        (line,) = [line for line in lines if "10,000 keys with a column" in line]
        assert "--keys TEXT" in line
        assert main([command, str(path), "--column", "features['k00007']"]) == 0
        assert "features['k00007']" in capsys.readouterr().out
        assert main([command, str(path), "--keys", "K0000"]) == 0
        shown = capsys.readouterr().out
        assert shown.count("features['k0000") == 10
        assert "more" not in shown
        assert main([command, str(path), "--keys", "7"]) == 0
        assert "more (--all shows them" in capsys.readouterr().out
    with fermion.open(path) as file:
        assert file.column("features").num_keys == count
        found = layout_map(file.index)
    assert found["names"] == ["features (10,000 keys)"]
    assert [each[:2] for each in found["keys"]] == [(0, name) for name in names.to_pylist()]
    parts = dict(found["parts"])
    assert sum(parts.values()) == path.stat().st_size
    assert parts["pages"] > count * 24
    assert parts["padding"] < 100
