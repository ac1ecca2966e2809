"""Variant columns whose paths have columns of their own come back equal, value by value."""

from __future__ import annotations

import datetime
import decimal
import io
import json
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion import Shred, col, kernels
from fermion.cli.program import main
from fermion.columns.variants import (
    STORAGE,
    TYPES,
    PathTree,
    VariantType,
    parse_path,
    path_text,
    paths_to_shred,
    values_of,
)
from fermion.columns.variants import with_offsets as with_offsets_of
from fermion.errors import FermionError, InvalidArgumentError, InvalidFileError
from fermion.layout import FOOTER, Incompat
from fermion.predicate.expression import VariantValue
from fermion.predicate.variant_value import PrunedVariant, parse_value
from fermion.reading.layout_map import layout_map
from fermion.variant import from_json, get, to_json
from tests.kit.files.file_anatomy import repair
from tests.kit.files.mutations import memory_limit
from tests.kit.variants import (
    column,
    dictionary,
    encoded,
    kind_of,
    objects,
    plain,
    primitive,
    put,
    table,
    taken,
    variant,
    with_offsets,
)

NAMES = ["a", "b", "a.b", "", "it's", "über", "*", "[0]"]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=70)
    | st.dates()
    | st.datetimes(datetime.datetime(1900, 1, 1))
    | st.datetimes(datetime.datetime(1900, 1, 1), timezones=st.just(datetime.UTC))
    | st.just(bytes([8 << 2, 2, 1, 0, 0, 0]))  # decimal4
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)
    ),
    max_leaves=12,
)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(tuple)


def stored(rows: pa.Table, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(rows, sink, **options)
    return sink.getvalue()


@settings(max_examples=100)
@given(
    st.lists(VALUES | st.just(...), max_size=12),
    st.just("all") | st.integers(0, 3) | st.lists(PATHS.map(path_text), unique=True),
    st.integers(1, 12),
)
def test_any_values_survive_the_round_trip(values, keys, stripe_rows):
    """Whole values, some rows, one by one, after a change of columns, in equal bytes."""
    rows = table(values).append_column("id", [list(range(len(values)))])
    file = stored(rows, shred={"event": Shred(keys)}, stripe_rows=stripe_rows)
    with fermion.open(file) as opened:
        assert opened.verify().problems == ()
        assert opened.version == (1, 6)
        assert opened.schema == rows.schema
        assert opened.read().equals(rows)
        some = list(range(0, len(values), 2))
        assert opened.take(some).equals(rows.take(pa.array(some, pa.int64())))
        assert opened.read(filter="id > 2").equals(rows.slice(3))


def test_paths_are_text_in_one_form():
    for path in (("user", "id"), ("a.b", "it's"), ("", "*"), ("[0]", '"', " x"), ("日本",)):
        assert parse_path(path_text(path), "") == path
    assert path_text(("user", "a.b")) == "user.'a.b'"
    for wrong in ("", ".", "a.", "a..b", "'a", "a'b", "a[0]", "*", "a.'b'c"):
        with pytest.raises(InvalidArgumentError):
            parse_path(wrong, "")
    with pytest.raises(InvalidArgumentError, match="65 names"):
        parse_path(".".join("a" * 65), "")
    assert paths_to_shred(Shred(["'$'.a"]), "") == {("$", "a")}
    with pytest.raises(InvalidArgumentError, match=r"'\$.user.id' is no path: write user.id"):
        paths_to_shred(Shred(["$.user.id"]), "")


def test_frequent_paths_of_one_type_get_columns():
    """Others stay in the rest, and a path is complete where the rest has only nulls of it."""
    values = [{"n": at, "s": {"t": "x" * at}, "mixed": at if at % 2 else "x"} for at in range(200)]
    values += [{"n": None, "rare": 1}, {"n": 5, "s": "text"}, {"n": "text", "s": {"t": None}}]
    file = stored(table(values), shred={"event": Shred()}, stripe_rows=202)
    with fermion.open(file) as opened:
        (paths,) = opened.index.map_keys.values()
        assert paths.keys == [("n",), ("s", "t")]
        assert [TYPES[kind] for kind in paths.kinds] == [pa.int64(), pa.string()]
        assert paths.complete.tolist() == [[True, True], [False, True]]
        assert opened.read().equals(table(values))


@pytest.mark.parametrize(("profile", "pages"), [("balanced", 4), ("compact", 4), ("random", 30)])
def test_what_is_left_of_values_lies_in_large_pages(profile, pages):
    """Where the profile asks for small files; a page of other columns has the bytes as ever."""
    values = [{"n": at, "list": [f"{at:0100}"]} for at in range(300)]
    rows = table(values).append_column("text", [[f"{at:0100}" for at in range(300)]])
    options = {"shred": {"event": Shred()}, "page_bytes": 1_024, "profile": profile}
    with fermion.open(stored(rows, **options)) as opened:
        event, other = opened.index.blocks([0, 1])
        value, plain = opened.index.node(0).children[1], opened.index.node(1)
        ((_, rest),), ((_, text),) = event.stored(value.stream), other.stored(plain.stream)
        assert abs(rest.num_pages - pages) <= pages / 3
        assert text.num_pages >= 25
        assert opened.read().equals(rows)


def test_types_that_change_between_stripes_stay_in_the_rest():
    values = [{"a": 1}, {"a": 2}, {"a": "x", "b": True}, {"a": {"b": 1.5}, "b": False}]
    file = stored(table(values), shred={"event": Shred()}, stripe_rows=2)
    with fermion.open(file) as opened:
        (paths,) = opened.index.map_keys.values()
        assert paths.keys == [("a",), ("b",), ("a", "b")]
        assert paths.complete.tolist() == [[True, False, False], [False, True, True]]
        assert opened.read().equals(table(values))


@settings(max_examples=60)
@given(st.lists(VALUES, max_size=6), st.lists(PATHS, unique=True, max_size=5), st.data())
def test_kernels_agree_with_values_taken_apart_in_python(values, paths, data):
    """Paths found and counted, values taken out, and put back."""
    source = values_of(column(values))
    trees = [plain(variant(each)) for each in values]
    parents, ends = np.empty(500, np.int32), np.empty(501, np.int64)
    text, counts = np.empty(5000, np.uint8), np.zeros((500, 8), np.uint32)
    rows = np.arange(len(values))
    found = kernels.variant_paths(*source, rows, parents, ends, text, counts.reshape(-1))
    expected: dict[tuple, list[int]] = {}

    def count(tree, path):
        for name, field in tree.items() if isinstance(tree, dict) else ():
            each = expected.setdefault((*path, name), [0] * 8)
            if kind_of(field) < 8:
                each[kind_of(field)] += 1
            count(field, (*path, name))

    for tree in trees:
        count(tree, ())
    names = [()]
    for node in range(1, found):
        name = bytes(text[ends[node] : ends[node + 1]]).decode()
        names.append((*names[parents[node]], name))
    assert {name: counts[at].tolist() for at, name in enumerate(names) if at} == expected

    kinds = np.array([data.draw(st.integers(1, 7)) for _ in paths], np.uint8)
    incomplete = np.zeros(len(paths), np.uint8)
    tree = PathTree(paths, kinds)
    rest, rest_ends, codes, row_of, words, texts = kernels.split_variants(
        *source, *tree.arguments, incomplete
    )
    entries: dict[tuple, bytes] = {}
    other = set()
    for row, whole in enumerate(trees):
        for at in sorted(range(len(paths)), key=lambda at: -len(paths[at])):
            value = taken(whole, paths[at])
            if value is not None and kind_of(value) == kinds[at]:
                entries[row, at] = value
            elif value is not None:
                put(whole, paths[at], value)
                if kind_of(value) != 8:
                    other.add(at)
    for row, value in enumerate(values):
        own = bytes(rest[rest_ends[row] : rest_ends[row + 1]])
        assert objects(dictionary(variant(value)["metadata"]), own) == trees[row]
    assert set(np.flatnonzero(incomplete).tolist()) == other
    start, text_ends = 0, [0]
    given_words = words.copy()
    assert row_of.tolist() == sorted(row_of.tolist())
    for at, (code, row, word) in enumerate(zip(codes, row_of, words, strict=True)):
        value = entries.pop((int(row), int(code)))
        if kinds[code] == 4:
            assert primitive(bytes(texts[start:word]).decode()) == value
            start = int(word)
            given_words[at] = len(text_ends) - 1
            text_ends.append(start)
        else:
            assert _word(value) == word
    assert not entries
    order = np.random.default_rng(1).permutation(len(codes))
    whole, whole_ends = kernels.assemble_variants(
        source.metas,
        source.meta_ends,
        rest,
        rest_ends,
        *tree.arguments,
        codes[order],
        row_of[order],
        given_words[order],
        np.array(text_ends),
        texts,
    )
    assert whole.tobytes() == b"".join(variant(each)["value"] for each in values)
    assert whole_ends.tolist() == source.value_ends.tolist()


JSON = st.recursive(
    st.none() | st.integers(-300, 300) | st.text(max_size=70),
    lambda inner: (
        st.lists(inner, max_size=300) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=8)
    ),
    max_leaves=300,
)


@settings(max_examples=60)
@given(st.lists(JSON, max_size=6))
def test_ranks_stand_for_offsets_of_values_in_any_order(values):
    """As a reader of the specification sees them; and the bytes come back."""
    _, _, data, ends = values_of(from_json(list(map(json.dumps, values))))
    ranked = data.copy()
    kernels.variant_ranks(ranked, ends, back=False)
    for start, stop, value in zip(ends, ends[1:], values, strict=False):
        own = bytes(ranked[start:stop])
        assert with_offsets(own) == bytes(data[start:stop])
        assert (own != bytes(data[start:stop])) == (isinstance(value, list | dict) and any([value]))
    kernels.variant_ranks(ranked, ends, back=True)
    assert ranked.tobytes() == data.tobytes()


def object_of(offsets: list[int], values: bytes) -> bytes:
    count = len(offsets) - 1
    return bytes([2, count, *range(count), *offsets]) + values


def in_arrays(value: bytes, levels: int) -> bytes:
    for _ in range(levels):
        value = bytes([3 << 2 | 3, 1]) + struct.pack("<II", 0, len(value)) + value
    return value


AS_THEY_ARE = {
    "a gap": object_of([0, 2, 3], b"\0\0\0"),
    "a gap at the end": object_of([0, 1, 3], b"\0\0\0"),
    "a gap in front": object_of([1, 2, 3], b"\0\0\0"),
    "one value for two names": object_of([0, 0, 1], b"\0"),
    "a value of an array that is cut": b"\3\2\0\1\2\0\x18",
    "no fields, and bytes": object_of([1], b"\0"),
    "no fields": object_of([0], b""),
    "no value of an object": b"\0",
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
@pytest.mark.parametrize("levels", [0, 1, 64, 70])
def test_values_with_gaps_and_deep_ones_keep_their_offsets(name, levels):
    value = in_arrays(AS_THEY_ARE[name], levels)
    data, ends = np.frombuffer(value, np.uint8).copy(), np.array([0, len(value)])
    kernels.variant_ranks(data, ends, back=False)
    assert data.tobytes().endswith(in_arrays(AS_THEY_ARE[name], max(levels - 64, 0)))
    assert with_offsets(data.tobytes()) == value
    rows = raw({"metadata": b"\x01\2\0\1\2ab", "value": value})
    file = stored(rows, shred={"event": Shred(["x"])})
    with fermion.open(file) as opened:
        assert opened.read().equals(rows)


def test_ranks_that_are_none_are_refused():
    """Twice the same, too large, and offsets that do not fit; a value that has ranks is none."""
    two = b"\0\0"
    many = bytes([3, 2, 0, 1, 0]) + (b"\x40" + struct.pack("<I", 300) + b"x" * 300) * 2
    cut = object_of([1, 0, 0], two[:1])
    for value in (object_of([0, 0, 0], two), object_of([2, 0, 0], two), many, cut):
        data = np.frombuffer(value, np.uint8).copy()
        with pytest.raises(ValueError, match="row 0: bytes that are no Variant value"):
            kernels.variant_ranks(data, np.array([0, len(value)]), back=True)
        rest = pa.array([{"metadata": b"\x01\0\0", "value": value}], STORAGE)
        with pytest.raises(InvalidFileError, match="x: row 0"):
            with_offsets_of(rest, "x")
    rows = raw({"metadata": b"\x01\0\0", "value": in_arrays(object_of([0, 0, 0], b""), 1)})
    with pytest.raises(InvalidArgumentError, match="no Variant value"):
        stored(rows, shred={"event": Shred(["x"])})


def _word(value: bytes) -> int:
    kind = value[0] >> 2
    if kind in (1, 2):
        return 2 - kind
    return int.from_bytes(value[1:], "little", signed=True)


def test_values_in_another_form_come_back_equal():
    """Wide integers and offsets, fields in no order, names in no order."""
    names = b"\x01\x02\x00\x01\x02ba"  # b: 0, a: 1
    wide = bytes([6 << 2]) + struct.pack("<q", 5)
    value = bytes([(3 | 1 << 2) << 2 | 2, 2]) + b"\1\0\0\0" + struct.pack("<III", 2, 0, 11)
    value += b"\x05x" + wide
    rows = raw({"metadata": names, "value": value})
    with fermion.open(stored(rows, shred={"event": Shred(["a", "b"])})) as opened:
        (found,) = opened.read()["event"].to_pylist()
    assert found["metadata"] == names
    assert plain(found) == {"a": primitive(5), "b": primitive("x")}


def test_many_names_in_no_order_are_put_together_by_their_first_ids():
    """A thousand, each of which is there twice."""
    names = [f"{at * 7919 % 1_000:03}" for at in range(1_000)]
    value = {name: at for at, name in enumerate(names)}
    texts = [name.encode() for name in names] * 2
    metadata = b"\x41" + struct.pack("<H", len(texts))
    metadata += struct.pack(f"<{len(texts) + 1}H", *range(0, 6_001, 3)) + b"".join(texts)
    whole = {
        "metadata": metadata,
        "value": encoded(value, {name: at for at, name in enumerate(names)}),
    }
    with fermion.open(stored(raw(whole), shred={"event": Shred()})) as opened:
        assert opened.index.map_keys[0].count == 1_000
        assert opened.read()["event"].to_pylist() == [whole]


WRONG = {
    "no metadata": {"metadata": b"", "value": b"\x02\0\0"},
    "a cut value": {"metadata": b"\x01\0\0", "value": b"\x18\0"},
    "bytes behind the value": {"metadata": b"\x01\0\0", "value": b"\0\0"},
    "an unknown type": {"metadata": b"\x01\0\0", "value": b"\xfc"},
    "an id without a name": {"metadata": b"\x01\0\0", "value": b"\x02\1\0\0\1\0"},
    "a field twice": {"metadata": b"\x01\1\0\1a", "value": b"\x02\2\0\0\0\1\2\0\0"},
}


@pytest.mark.parametrize("name", WRONG)
def test_bytes_that_are_no_values_are_refused(name):
    with pytest.raises(InvalidArgumentError, match="column 'event': row 0"):
        stored(raw(WRONG[name]), shred={"event": Shred(["a.b"])})


def raw(value: dict[str, bytes]) -> pa.Table:
    storage = pa.array([value], STORAGE)
    return pa.table([pa.ExtensionArray.from_storage(VariantType(), storage)], ["event"])


def test_fields_that_share_an_object_are_refused_in_bounded_time():
    """64 levels of two fields that are the same object: 2 ** 64 paths."""
    value = b"\0"
    for _ in range(63):
        size = len(value)
        value = bytes([1 << 2 | 2, 2, 0, 1]) + struct.pack("<HHH", 0, 0, size) + value
    with pytest.raises(InvalidArgumentError, match="no Variant value"):
        stored(raw({"metadata": b"\x01\2\0\1\2ab", "value": value}), shred={"event": Shred()})


def test_paths_that_metadata_only_claim_are_refused():
    """A million paths in a section of few bytes, types that there are not: an error, at once."""
    file = bytearray(stored(table([{"a": 1, "b": {"c": 2}}] * 8), shred={"event": Shred()}))
    footer = np.frombuffer(file, FOOTER, 1, len(file) - FOOTER.itemsize)[0]
    assert int(footer["incompat"]) & Incompat.VARIANT_PATHS
    with fermion.open(bytes(file)) as opened:
        offset, _ = opened.index.sections[9]
        assert opened.index.map_keys[0].complete.shape == (1, 2)
    for at, change in ((12, struct.pack("<I", 10**6)), (32, b"\x09"), (32, b"\0")):
        wrong = bytearray(file)
        wrong[offset + at : offset + at + len(change)] = change
        repair(wrong)
        with (
            memory_limit(),
            pytest.raises(FermionError),
            fermion.open(bytes(wrong)) as opened,
        ):
            opened.read()


def test_values_of_paths_that_do_not_fit_the_rest_are_refused():
    tree = PathTree([("a",), ("b", "c")], np.array([2, 2], np.uint8))
    number = pa.array([7])
    for rest in ([{"a": 1, "b": {}}], [{"b": 5}], [...], [5], [{"c": 1}]):
        for places in ([0], [1]):
            if rest == [{"a": 1, "b": {}}] and places == [1]:
                continue
            with pytest.raises(InvalidFileError, match="x: row 0"):
                tree.assemble(column(rest), places, [number], "x")


def test_columns_that_are_added_and_dropped_leave_paths_as_they_are(tmp_path):
    rows = table([{"a": at, "b": {"c": "x"}} for at in range(9)]).append_column(
        "id", [list(range(9))]
    )
    path, other = tmp_path / "one.fermion", tmp_path / "two.fermion"
    path.write_bytes(stored(rows, shred={"event": Shred()}, stripe_rows=4))
    fermion.add_columns(path, pa.table({"new": list(range(9))}), destination=other)
    with fermion.open(other) as opened:
        assert opened.verify().problems == ()
        assert opened.read().equals(rows.append_column("new", [list(range(9))]))
        assert opened.index.map_keys[0].keys == [("a",), ("b", "c")]


def test_ten_thousand_paths_are_one_line(tmp_path, capsys):
    """In `inspect`, `stats` and the page of the file, which count them and name none."""
    path = tmp_path / "many.fermion"
    values = [{"a": {f"name_{at}": at for at in range(10_000)}}]
    path.write_bytes(stored(table(values), shred={"event": Shred()}))
    for command in ("inspect", "stats"):
        assert main([command, str(path)]) == 0
        shown = capsys.readouterr().out
        assert "10,000 paths with a column" in shown
        assert "name_7" not in shown
        assert main([command, str(path), "--keys", "NAME_77", "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)["columns"]
        assert len(shown) == 111
        assert "variant_get(event, '$.a.name_77', 'bigint')" in str(shown)
    with fermion.open(path) as opened:
        assert layout_map(opened.index)["names"] == ["event (10,000 paths)"]
        assert opened.read().equals(table(values))


@pytest.mark.parametrize("keys", ["X'", "x''y"])
def test_keys_with_quotes_are_found_as_they_are_and_as_they_are_shown(keys, tmp_path, capsys):
    path = tmp_path / "a.fermion"
    path.write_bytes(stored(table([{"x'y": 1, "xy": 2}] * 50), shred={"event": Shred()}))
    assert main(["inspect", str(path), "--keys", keys, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["columns"]
    assert len(shown) == 1


def test_a_filter_by_a_path_reads_its_column_alone():
    """And what is left of values, where other values of the path are; else whole values."""
    rng = np.random.default_rng(5)
    events = [
        {
            "user": {"id": at, "name": f"n{at % 7}"},
            "size": "0" if at == 1_500 else at % 100,
            "body": rng.bytes(200).hex(),
        }
        for at in range(3_000)
    ]
    rows = pa.table({"id": range(3_000), "event": from_json(list(map(json.dumps, events)))})
    plain, shredded = io.BytesIO(), io.BytesIO()
    fermion.write_table(rows, plain, stripe_rows=1_000)
    fermion.write_table(rows, shredded, stripe_rows=1_000, shred={"event": Shred()})
    user = col("event")["user"]
    number = user["id"].cast(pa.int64())
    for condition, is_quick in (
        (number == 1_234, True),
        (number.is_null(), True),
        ((user["name"].cast(pa.string()) == "n3") & (col("id") < 500), True),
        (number.isin([5, 2_999]) | number.between(7, 9), True),
        (user["id"].cast(pa.int32()) > 2_990, True),
        ("variant_get(event, '$.user.id', 'string') LIKE '12%'", True),
        ("try_variant_get(event, '$.size', 'bigint') = 7", True),
        ("variant_get(event, '$.none', 'bigint') IS NULL", True),
        (user.cast(pa.string()) == '{"id":1234,"name":"n2"}', False),
    ):
        asked, found = [], []
        for data in (plain, shredded):
            with fermion.open(data.getvalue()) as file:
                found.append(file.read(["id"], filter=condition)["id"].to_pylist())
                asked.append(file.io_stats.bytes_requested)
        assert found[0] == found[1], condition
        assert (asked[1] * 3 < asked[0]) == is_quick, condition


def test_a_path_is_a_column_of_what_is_read():
    """Its own column alone is read; where there is none the value is looked up, all the same."""
    rng = np.random.default_rng(5)
    events = [{"user": {"id": at}, "body": rng.bytes(200).hex()} for at in range(3_000)]
    rows = pa.table({"event": from_json(list(map(json.dumps, events)))})
    file = stored(rows, shred={"event": Shred()}, stripe_rows=1_000)
    number = col("event")["user"]["id"].cast(pa.int64())
    name = "variant_get(event, '$.user.id', 'bigint')"
    asked = []
    for columns in (["event"], [number], ["VARIANT_GET( event,'$.user.id','bigint')"]):
        with fermion.open(file) as opened:
            found = opened.read(columns)
            asked.append(opened.io_stats.bytes_requested)
        if found.column_names != ["event"]:
            assert found.schema == pa.schema([(name, pa.int64())])
            assert found[name].to_pylist() == list(range(3_000))
    assert max(asked[1:]) * 10 < asked[0]  # what opens the file
    with fermion.open(file) as opened:
        for wrong, message in (
            (name.replace("bigint", "tinyint"), "row 128: .*of type int8"),
            ("variant_get(event, 'user', 'int')", "expected a path"),
            ("variant_get(event, '$.user', 'map')", "type 'map': expected boolean"),
            ("variant_get(none, '$.user', 'int')", "no column 'none'"),
            ("variant_get(event, '$.user')", "no column"),
        ):
            with pytest.raises(FermionError, match=message):
                opened.read([wrong])
    for each in (name, "variant_get(event, '$.user', 'map')"):  # a column has this name
        with fermion.open(stored(pa.table({each: [1], "event": [5]}))) as opened:
            assert opened.read([each], filter=col(each) == 1)[each].to_pylist() == [1]
            with pytest.raises(InvalidArgumentError, match="is int64, expected a Variant column"):
                opened.read(["variant_get(event, '$.user', 'int')"])


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_filter_by_a_path_selects_the_rows_that_whole_values_do(data):
    inner = st.none() | st.integers(-3, 3) | st.sampled_from(["a", "3", 1.5, True])
    below = st.fixed_dictionaries({}, optional={"a": inner})
    events = st.none() | st.fixed_dictionaries({}, optional={"a": inner, "b": below})
    rows = data.draw(st.lists(events, min_size=1, max_size=12))
    texts = pa.array([each if each is None else json.dumps(each) for each in rows], pa.string())
    table = pa.table({"id": range(len(rows)), "event": from_json(texts)})
    path = data.draw(st.sampled_from([("a",), ("b", "a"), ("b",), (), ("b", "a", 0), ("b", "c")]))
    dtype, other = data.draw(
        st.sampled_from(
            [
                (pa.int64(), 1),
                (pa.string(), "a"),
                (pa.float64(), 1.5),
                (pa.bool_(), True),
                (pa.int8(), -1),
                (pa.large_string(), "true"),
                (pa.decimal128(9, 2), decimal.Decimal(3)),
                (pa.timestamp("us"), datetime.datetime(1970, 1, 1)),
            ]
        )
    )
    value = VariantValue("event", path, dtype, strict=False)
    expected = get(table["event"], path, dtype, strict=False).to_pylist()
    stored = io.BytesIO()
    stripe_rows = data.draw(st.sampled_from([3, 100]))
    fermion.write_table(table, stored, stripe_rows=stripe_rows, shred={"event": Shred(5)})
    with fermion.open(stored.getvalue()) as file:
        for condition, chosen in (
            (value == other, [each == other for each in expected]),
            (value.is_null(), [each is None for each in expected]),
            (value != other, [each is not None and each != other for each in expected]),
        ):
            found = file.read(["id"], filter=condition)["id"].to_pylist()
            assert found == np.flatnonzero(chosen).tolist()
            assert file.count(condition) == len(found)
        for kept in (None, "id > 1", value.is_null(), value == other):
            found = file.read([value, "id", value.to_sql(), "event"], filter=kept)
            assert found.schema.field(0) == pa.field(value.to_sql(), dtype)
            assert found.column_names == [value.to_sql(), "id", "event"]
            assert found[0].equals(get(found["event"], path, dtype, strict=False))
        again = [0, len(rows) - 1, 0]
        taken = file.take(again, columns=[value])[0].to_pylist()
        assert taken == [expected[at] for at in again]
        assert [
            row for batch in file.iter_batches([value]) for row in batch[0].to_pylist()
        ] == expected


@given(
    st.lists(VALUES | st.just(...), min_size=1, max_size=12),
    st.just("all") | st.lists(PATHS.map(path_text), unique=True),
    st.sets(PATHS, min_size=1, max_size=4),
    st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_values_of_which_some_paths_are_wanted_have_them_as_whole_values(
    values, keys, paths, with_nulls
):
    """At each path and below, and where they are null; so in other rows, and without columns."""
    rows = table(values).append_column("id", [list(range(len(values)))])
    part = PrunedVariant(rows.column_names[0], paths, with_nulls)
    assert parse_value(part.to_sql(), "").to_sql() == part.to_sql()
    for shred in ({}, {rows.column_names[0]: Shred(keys)}):
        with fermion.open(stored(rows, shred=shred, stripe_rows=5)) as file:
            for kept in (None, "id > 2"):
                whole, some = file.read(filter=kept)[0], file.read([part], filter=kept)[0]
                assert some.type == whole.type
                assert some.is_null().equals(whole.is_null())
                for path in paths:
                    found = [to_json(get(each, path)).to_pylist() for each in (whole, some)]
                    if not with_nulls:
                        found = [[each if each != "null" else None for each in of] for of in found]
                    assert found[0] == found[1], path


def test_values_of_which_some_paths_are_wanted_read_their_columns_alone():
    """Without what is left of the values where all values of the paths have columns."""
    rng = np.random.default_rng(5)
    events = [
        {
            "id": at,
            "user": {"name": f"n{at}"},
            "mixed": [at, "x"][at % 2],
            "text": text,
            "list": [text],
        }
        for at, text in enumerate(rng.bytes(200).hex() for _ in range(3_000))
    ]
    rows = pa.table({"event": from_json(list(map(json.dumps, events)))})
    file = stored(rows, shred={"event": Shred()}, stripe_rows=1_000)
    asked = []
    for part in (
        PrunedVariant("event", [("id",), ("user", "name")], False),
        PrunedVariant("event", [("id",)], True),
        PrunedVariant("event", [("mixed",)], False),
        "event",
    ):
        with fermion.open(file) as opened:
            opened.read([part])
            asked.append(opened.io_stats.bytes_requested)
    assert asked[0] * 15 < asked[-1], asked
    assert max(asked[1:3]) * 3 < asked[-1] * 2, asked  # what is left has the list, no text


@pytest.mark.parametrize(
    ("metadata", "value"),
    [
        (b"\x11\x03\x00\x01\x02\x03bac", b"\x02\x02\x00\x01\x00\x02\x04\x0c\x06\x0c\x05"),
        (b"\x11\x02\x00\x01\x02ab", b"\x02\x03\x00\x01\x00\x00\x02\x04\x06\x0c\x05\x0c\x01\x05q"),
    ],
    ids=["names that are not sorted as they say", "a name twice, not in a row"],
)
def test_values_that_could_not_be_put_together_again_are_not_written(metadata, value):
    usual = column([{"a": 5, "b": 1, "c": 2}] * 60).storage.to_pylist()
    rows = pa.array([*usual, {"metadata": metadata, "value": value}], STORAGE)
    column_of = pa.ExtensionArray.from_storage(VariantType(), rows)
    with pytest.raises(InvalidArgumentError, match="no Variant value"):
        fermion.write_table(pa.table({"event": column_of}), io.BytesIO(), shred={"event": Shred()})
