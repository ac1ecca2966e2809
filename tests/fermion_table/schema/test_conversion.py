"""Conversions: of a user's data by name, and between schema versions by id."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fermion_table.errors import SchemaMismatch
from fermion_table.schema.changes import alter_column
from fermion_table.schema.conversion import convert_batch, find_null, plan_reading, plan_writing
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.schema import _PLAIN
from fermion_table.schema.widening import can_cast_checked, can_widen
from tests.kit.arrow_limits import has_nested_wrappers, message_can_hold
from tests.kit.equality import assert_logically_equal
from tests.kit.strategies import arrow_types, random_array, tables

TYPES = [
    *_PLAIN.values(),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.timestamp("ms", "UTC"),
    pa.timestamp("us", "UTC"),
    pa.decimal32(5, 2),
    pa.decimal64(12, 2),
    pa.decimal128(12, 4),
    pa.decimal256(40, 4),
    pa.binary(4),
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int16(), pa.large_string()),
]
WIDENINGS = [(old, new) for old in TYPES for new in TYPES if old != new and can_widen(old, new)]
TEN_TO_32 = pa.array([Decimal(10**32)])


def written(schema, data):
    batch = data.combine_chunks().to_batches()[0] if isinstance(data, pa.Table) else data
    return convert_batch(plan_writing(schema, batch.schema), batch, schema.to_arrow())


@given(tables())
def test_data_of_the_tables_own_schema_is_taken_as_it_is(table):
    """Only the field ids are new, and taking them out again gives the same table."""
    assume(message_can_hold(table.schema))
    schema = schema_from_arrow(table.schema)
    for batch in table.to_batches():
        found = written(schema, batch)
        assert found.schema.equals(schema.to_arrow(), check_metadata=True)
        found.validate(full=True)
        plan = plan_reading(schema.fields, schema.fields)
        back = convert_batch(plan, found, schema.to_arrow(field_ids=False))
        assert_logically_equal(back, batch)


@given(tables(), st.randoms(use_true_random=False))
def test_columns_come_in_any_order_at_any_depth(table, random):
    assume(message_can_hold(table.schema))
    schema = schema_from_arrow(table.schema)
    names = table.column_names
    random.shuffle(names)
    for batch in table.to_batches():
        assert_logically_equal(written(schema, batch.select(names)), written(schema, batch))


@pytest.mark.parametrize(("old", "new"), WIDENINGS, ids=str)
def test_widening_keeps_every_value(old, new):
    """By Arrow's own checked cast there, and back again where Arrow can go back."""
    values = random_array(np.random.default_rng(1), old, 50)
    if pa.types.is_temporal(old) and pa.types.is_temporal(new):
        values = pa.array([0, -1, None, 12_345], pa.int64()).cast(
            pa.int32() if old.bit_width == 32 else pa.int64()
        )
        scale = 86_400_000 if pa.types.is_date64(old) else 1
        values = pa.array(
            [None if v is None else v * scale for v in values.to_pylist()], values.type
        )
        values = values.view(old) if values.type.bit_width == old.bit_width else values.cast(old)
    schema = schema_from_arrow(pa.schema([("a", old)]))
    wider = alter_column(schema, ("a",), type=new, exceeds=lambda *_: False)
    (conversion,) = plan_reading(wider.fields, schema.fields)
    batch = pa.record_batch([values], names=["a"])
    found = convert_batch([conversion], batch, wider.to_arrow(field_ids=False)).column(0)
    assert found.type == new
    assert found.null_count == values.null_count or pa.types.is_null(old)
    if not pa.types.is_null(old):
        plain = found.dictionary_decode() if pa.types.is_dictionary(new) else found
        source = values.dictionary_decode() if pa.types.is_dictionary(old) else values
        assert_logically_equal(plain.cast(source.type), source)


def test_narrowing_is_not_widening():
    pairs = {(old, new) for old, new in WIDENINGS if not pa.types.is_null(old)}
    both_ways = {(old, new) for old, new in pairs if (new, old) in pairs}
    assert {str(old) for old, _ in both_ways} <= {
        "large_string",
        "string_view",
        "large_binary",
        "binary_view",
    }


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (pa.float64(), pa.float32()),
        (pa.string(), pa.date32()),
        (pa.string(), pa.int64()),
        (pa.bool_(), pa.int8()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.date32()),
        (pa.list_(pa.int8()), pa.int8()),
        (pa.struct([("x", pa.int8())]), pa.list_(pa.int8())),
        (pa.list_(pa.int8()), pa.list_(pa.int8(), 2)),
    ],
)
def test_types_that_need_rounding_or_reading_are_a_mismatch(found, wanted):
    assert not can_cast_checked(found, wanted) or found.num_fields
    schema = schema_from_arrow(pa.schema([("a", wanted)]))
    with pytest.raises(SchemaMismatch, match="~ a"):
        plan_writing(schema, pa.schema([("a", found)]))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([2**31]), pa.int32()),
        (pa.array([-1]), pa.uint8()),
        (pa.array([1.5]), pa.int64()),
        (pa.array([2**53 + 1]), pa.float64()),
        (pa.array([1], pa.timestamp("ns")), pa.timestamp("us")),
        (pa.array([b"\xff"]), pa.string()),
        (pa.array([10**6]), pa.decimal128(5, 0)),
        (pa.array([2**63 - 1]), pa.decimal32(7, 2)),
        (TEN_TO_32, pa.decimal32(7, 2)),
        (pa.array([Decimal(10**70)], pa.decimal256(76, 0)), pa.decimal32(7, 2)),
        (pa.array([Decimal("0.005")]), pa.decimal32(7, 2)),
        (pa.array([[Decimal(10**32)]]), pa.list_(pa.decimal32(7, 2))),
        (TEN_TO_32.dictionary_encode(), pa.dictionary(pa.int32(), pa.decimal32(7, 2))),
        (TEN_TO_32.dictionary_encode(), pa.decimal32(7, 2)),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_never_changed(values, wanted):
    schema = schema_from_arrow(pa.schema([("a", wanted)]))
    with pytest.raises(SchemaMismatch, match=r"column '(a|item)'"):
        written(schema, pa.record_batch([values], names=["a"]))


@pytest.mark.parametrize("wanted", [pa.decimal32(7, 2), pa.decimal128(20, 3), pa.decimal256(5, 2)])
@pytest.mark.parametrize("found", [pa.int64(), pa.uint64(), pa.decimal128(38, 0)])
def test_bug_numbers_that_a_decimal_holds_were_refused(wanted, found):
    schema = schema_from_arrow(pa.schema([("a", wanted)]))
    batch = written(schema, pa.record_batch([pa.array([5, None, 0], found)], names=["a"]))
    assert batch.column(0).to_pylist() == [Decimal(5), None, Decimal(0)]


def test_the_difference_names_every_field():
    schema = schema_from_arrow(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("s", pa.struct([("x", pa.int32()), ("l", pa.list_(pa.int8()))])),
            ]
        )
    )
    data = pa.schema(
        [("new", pa.int8()), ("s", pa.struct([("x", pa.string()), ("l", pa.list_(pa.date32()))]))]
    )
    with pytest.raises(SchemaMismatch) as caught:
        plan_writing(schema, data)
    assert str(caught.value).splitlines()[1:] == [
        "  - id: int64 not null: not in the data, and it has no default",
        "  ~ s.x: the table has int32, the data has string",
        "  ~ s.l.element: the table has int8, the data has date32[day]",
        "  + new: int8: not in the table",
    ]


@pytest.mark.parametrize(
    ("dtype", "values", "path"),
    [
        (pa.int8(), [1, None], "a"),
        (pa.struct([pa.field("x", pa.int8(), nullable=False)]), [{"x": None}, None], "a.x"),
        (pa.list_(pa.field("e", pa.int8(), nullable=False)), [[1], [None]], "a.e"),
        (
            pa.map_(pa.string(), pa.field("v", pa.int8(), nullable=False)),
            [[("k", None)]],
            "a.entries.v",
        ),
        (pa.list_(pa.field("e", pa.int8(), nullable=False), 2), [[1, 2], None, [3, None]], "a.e"),
        (pa.list_view(pa.field("e", pa.string_view(), nullable=False)), [["x"], [None]], "a.e"),
    ],
)
def test_a_null_where_none_may_be_is_found_at_any_depth(dtype, values, path):
    top = pa.field("a", dtype, nullable=not pa.types.is_integer(dtype))
    assert find_null(top, pa.array(values, dtype)) == path
    assert find_null(top, pa.array([None, *values], dtype).slice(1)) == path
    assert find_null(top, pa.array(values, dtype).slice(0, 0)) is None


@given(arrow_types(), st.integers(0, 9))
def test_a_missing_column_is_valid_nulls_of_any_type(dtype, length):
    assume(message_can_hold(pa.schema([("a", dtype)])) and not has_nested_wrappers(dtype))
    schema = schema_from_arrow(pa.schema([("a", dtype)]))
    plan = plan_reading(schema.fields, [])
    batch = pa.record_batch({"other": pa.array(range(length))})
    found = convert_batch(plan, batch, schema.to_arrow(field_ids=False))
    found.validate(full=True)
    assert found.column(0).to_pylist() == [None] * length


@given(tables())
def test_what_arrow_calls_valid_holds_no_null_where_none_may_be(table):
    """Drawn arrays hide nulls of required fields under null parents, in every layout."""
    for batch in table.to_batches():
        for field, column in zip(batch.schema, batch.columns, strict=True):
            assert find_null(field, column) is None


def test_nulls_hidden_by_a_null_parent_are_no_nulls():
    inner = pa.array([1, None], pa.int8())
    dtype = pa.struct([pa.field("x", pa.int8(), nullable=False)])
    array = pa.StructArray.from_arrays([inner], fields=list(dtype), mask=pa.array([False, True]))
    assert find_null(pa.field("a", dtype), array) is None
