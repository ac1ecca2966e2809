"""A declared sort order: what writers refuse, what files say, what `verify` finds."""

from __future__ import annotations

import functools
import io
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import ChecksumError, InvalidArgumentError, InvalidFileError, SortKey
from fermion.layout import SORT_KEY, ChunkFlag, SortFlag
from tests.kit.files.file_anatomy import Anatomy, put, repair

REALS = st.sampled_from([None, math.nan, -math.inf, -1.5, -0.0, 0.0, 2.0])
TEXTS = st.sampled_from([None, "", "a", "ab", "b", "ü", "a\0"])


def written(table: pa.Table, keys: list, **options) -> bytes:
    sink = io.BytesIO()
    fermion.write_table(table, sink, sorted_by=keys, **options)
    return sink.getvalue()


def compare_values(left, right) -> int:
    """SQL's order of two values that are not null."""
    if isinstance(left, float):
        left, right = (
            (math.isnan(each), 0 if math.isnan(each) else each) for each in (left, right)
        )
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return (left > right) - (left < right)


def compare_rows(left: dict, right: dict, keys: list[SortKey]) -> int:
    for key in keys:
        one, two = left[key.name], right[key.name]
        if one is None or two is None:
            found = (one is None) - (two is None)
            found = -found if key.nulls_first else found
        else:
            found = compare_values(one, two)
            found = -found if key.descending else found
        if found:
            return found
    return 0


sort_keys = st.permutations(["real", "text"]).flatmap(
    lambda names: st.tuples(
        *(st.builds(SortKey, st.just(name), st.booleans(), st.booleans()) for name in names)
    )
)


@given(
    st.lists(st.fixed_dictionaries({"real": REALS, "text": TEXTS}), max_size=8),
    sort_keys,
    st.booleans(),
    st.sampled_from([1, 3, 100]),
)
def test_rows_that_keep_the_order_are_written_and_others_refused(rows, keys, sort, stripe_rows):
    """Against a comparison of rows one by one; in stripes of any length."""
    keys = list(keys)
    compare = functools.partial(compare_rows, keys=keys)
    if sort:
        rows = sorted(rows, key=functools.cmp_to_key(compare))
    schema = pa.schema([("real", pa.float64()), ("text", pa.string())])
    table = pa.Table.from_pylist(rows, schema)
    wrong = [i for i in range(1, len(rows)) if compare(rows[i - 1], rows[i]) > 0]
    if wrong:
        with pytest.raises(InvalidArgumentError, match=f"sorted_by: row {wrong[0]}: column"):
            written(table, keys, stripe_rows=stripe_rows)
        return
    with fermion.open(written(table, keys, stripe_rows=stripe_rows)) as file:
        assert file.sort_order == tuple(keys)
        assert file.verify().problems == ()
        assert file.read().equals(table) or any(row["real"] != row["real"] for row in rows)


def test_the_error_names_file_row_column_and_values(tmp_path):
    table = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "z", "y"]})
    path = tmp_path / "f.fermion"
    wanted = (
        r"f\.fermion: sorted_by: row 3: column 'b': expected ascending order, nulls last; "
        r"found 'y' after 'z'"
    )
    with pytest.raises(InvalidArgumentError, match=wanted):
        fermion.write_table(table, path, sorted_by=["a", "b"], stripe_rows=2)
    assert not path.exists()


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([False, True], pa.bool_()),
        ([1, 2], pa.decimal32(5, 1)),
        ([1, 2], pa.decimal256(50, 1)),
        ([1.0, 2.0], pa.float16()),
        ([2**63 - 1, 2**63], pa.uint64()),
        ([b"\x7f", b"\x80"], pa.binary_view()),
        ([b"aa", b"ab"], pa.binary(2)),
        (["a", "b"], pa.dictionary(pa.int8(), pa.string())),
        (["a", "b"], pa.run_end_encoded(pa.int32(), pa.string())),
        ([1, 2], pa.duration("s")),
        ([b"a" * 16, b"b" * 16], pa.uuid()),
    ],
    ids=str,
)
def test_columns_of_any_type_with_an_order_can_be_sorted_by(values, dtype):
    def array(of: list) -> pa.Array:
        if isinstance(dtype, pa.RunEndEncodedType):
            runs = pa.array(range(1, len(of) + 1), pa.int32())
            return pa.RunEndEncodedArray.from_arrays(runs, pa.array(of))
        if isinstance(dtype, pa.BaseExtensionType):
            return pa.array(of, dtype.storage_type).cast(dtype)
        return pa.array(of, dtype)

    with fermion.open(written(pa.table({"a": array(values)}), ["a"])) as file:
        assert file.verify().problems == ()
    with pytest.raises(InvalidArgumentError, match="row 1: column 'a'"):
        written(pa.table({"a": array(values[::-1])}), ["a"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["c"], "expected one column 'c', found 0"),
        (["twice"], "expected one column 'twice', found 2"),
        (["a", SortKey("a", descending=True)], "column 'a' comes twice"),
        (["l"], r"column 'l' is list<.*>, which has no order"),
    ],
)
def test_keys_that_cannot_be_are_refused_at_once(keys, message, tmp_path):
    schema = pa.schema(
        [("a", pa.int8()), ("twice", pa.int8()), ("twice", pa.int8()), ("l", pa.list_(pa.int8()))]
    )
    with pytest.raises(InvalidArgumentError, match=message):
        fermion.Writer(tmp_path / "f", schema, options=fermion.WriteOptions(sorted_by=keys))
    assert list(tmp_path.iterdir()) == []


def test_batches_keep_the_order_too():
    schema = pa.schema([("a", pa.int64())])
    options = fermion.WriteOptions(sorted_by=[SortKey("a", descending=True)])
    with fermion.Writer(io.BytesIO(), schema, options=options) as writer:
        writer.append_batch(7, {"a": [5, 4]})
        writer.append_batch(8, {"a": [4, 1]})
        info = writer.close()
    assert info.sort_order == (SortKey("a", descending=True),)
    writer = fermion.Writer(io.BytesIO(), schema, options=options)
    writer.append_batch(7, {"a": [5, 4]})
    writer.append_batch(8, {"a": [6]})
    with pytest.raises(InvalidArgumentError, match="row 2: column 'a': expected descending"):
        writer.close()


def test_pages_of_numbers_say_that_they_are_sorted():
    """Those of the columns that the rows are sorted by, where there is no null and no NaN."""
    table = pa.table({"a": range(20), "b": range(20), "n": [None, *range(19)]})
    keys = ["a", SortKey("n", nulls_first=True)]
    with fermion.open(written(table, keys, stripe_rows=10)) as file:
        flags = [
            [block.chunk(1, stripe).flags & (ChunkFlag.SORTED_ASC | ChunkFlag.SORTED_DESC)]
            for block in file.index.blocks(range(3))
            for stripe in range(2)
        ]
    assert flags == [[16], [16], [0], [0], [0], [16]]


def test_a_file_without_an_order_says_none():
    sink = io.BytesIO()
    info = fermion.write_table(pa.table({"a": [1]}), sink)
    with fermion.open(sink.getvalue()) as file:
        assert file.sort_order == info.sort_order == ()


def place_of_key(data: bytes) -> int:
    (place,) = [each for each in Anatomy(data).places if each.dtype == SORT_KEY]
    return place.offset


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("flags", SortFlag.DESCENDING, "sort order: row 1: column 'a'"),
        ("flags", SortFlag.NULLS_FIRST, "sort order: row 5: column 'a'"),
        ("flags", 8, "known flags; found column 0 with flags 0x8"),
        ("ordinal", 1, "sort order: row 1: column 'b'"),
        ("ordinal", 2, "expected columns below 2"),
    ],
)
def test_verify_finds_an_order_that_rows_do_not_keep(field, value, message):
    table = pa.table({"a": [1, 2, 3, 4, 5, None], "b": [2, 1, 1, 1, 1, 1]})
    data = bytearray(written(table, ["a"], stripe_rows=4))
    kind, offset, *_ = (SORT_KEY.fields or {})[field]
    put(data, place_of_key(data) + offset, int(value), kind.itemsize)
    repair(data)
    with fermion.open(data) as file:
        (found,) = file.verify().problems
    assert message in found


@pytest.mark.parametrize(
    ("values", "dtype", "found"),
    [
        ([2**31 - 1, 0], pa.date32(), "found datetime.date(1970, 1, 1) after 2147483647"),
        ([2**62, 1], pa.duration("s"), "found datetime.timedelta(seconds=1) after 4611686018427"),
        ([2**62, 1], pa.timestamp("s"), "after 4611686018427387904"),
        (["x" * 900, ""], pa.string(), "found '' after 'xxx"),
    ],
    ids=str,
)
def test_bug_error_of_python_for_values_that_it_cannot_show(values, dtype, found):
    """Arrow's times go further than Python's."""
    with pytest.raises(InvalidArgumentError) as caught:
        written(pa.table({"a": pa.array(values, dtype)}), ["a"])
    assert found in str(caught.value)
    assert len(str(caught.value)) < 300


def test_damage_to_the_section_is_noticed():
    data = bytearray(written(pa.table({"a": [1, 2]}), ["a"]))
    data[place_of_key(data)] ^= 1
    with pytest.raises((ChecksumError, InvalidFileError)), fermion.open(data) as file:
        _ = file.sort_order
