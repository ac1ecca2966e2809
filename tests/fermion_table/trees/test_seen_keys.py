"""Keys that were seen, in each form in which they are held, beside a set of Python."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.schema.key_options import KeyOptions
from fermion_table.trees.seen_keys import SeenKeys

MOST = 2**63 - 1
NARROW = st.integers(-3, 3)
LONGS = NARROW | st.sampled_from([-MOST - 1, -MOST, -(2**40), 2**40, MOST - 1, MOST])
VALUES = {
    pa.int64(): LONGS,
    pa.int8(): NARROW | st.sampled_from([-128, 127]),
    pa.uint64(): LONGS.map(lambda value: value + MOST + 1),
    pa.date32(): NARROW | st.sampled_from([-(2**31), 2**31 - 1]),
    pa.string(): NARROW.map(str),
}


@st.composite
def runs(draw: st.DrawFn):
    """Draw types of key columns, and runs of keys."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    keys = st.tuples(*(VALUES[each] for each in types))
    return types, draw(st.lists(st.sets(keys, max_size=12), min_size=2, max_size=5))


@given(runs())
def test_keys_are_found_where_a_set_has_them(drawn):
    """Numbers of several columns are packed, then packed more widely, then held as bytes."""
    types, sets = drawn
    names = [f"k{number}" for number in range(len(types))]
    key = PrimaryKey(tuple(names), tuple(types), KeyOptions())
    schema = pa.schema(list(zip(names, types, strict=True)))
    seen, model = SeenKeys(key), set()
    for keys in sets:
        ordered = sorted(keys)
        columns = list(zip(*ordered, strict=True)) or [()] * len(types)
        arrays = [
            pa.array(values, pa.int32()).cast(dtype)
            if dtype == pa.date32()
            else pa.array(values, dtype)
            for values, dtype in zip(columns, types, strict=True)
        ]
        rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
        found = seen.places(seen.of(rows)).tolist()
        assert found == [place for place, one in enumerate(ordered) if one in model]
        seen.add([seen.of(rows.slice(0, 2)), seen.of(rows.slice(2))])
        model |= keys


def held(*keys: tuple[int, int]) -> SeenKeys:
    """Return keys of two columns, each added as a run."""
    types = (pa.int64(), pa.int64())
    seen = SeenKeys(PrimaryKey(("a", "b"), types, KeyOptions()))
    for a, b in keys:
        rows = pa.record_batch([pa.array([a], pa.int64()), pa.array([b], pa.int64())], ["a", "b"])
        seen.add([seen.of(rows)])
    return seen


def test_keys_are_bytes_only_where_their_columns_take_more_than_63_bits():
    """The forms are looked at: packed numbers, or bytes."""
    assert not held((1, 2), (2**40, 3), (-(2**40), 2**20))._texts
    assert held((0, 0), (2**40, 2**40))._texts
    assert held((0, 0), (2**40, 2**40))._packing is None
