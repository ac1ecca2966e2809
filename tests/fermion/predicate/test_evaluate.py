"""Evaluating filters against a model in plain Python, and against pyarrow's own filter."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion.predicate import bind, col, evaluate, parse_filter
from fermion.predicate.arrow_expression import to_pyarrow
from fermion.predicate.expression import BooleanColumn, Expression
from fermion.predicate.sql import from_sql
from tests.kit.files.predicate_model import (
    INTS,
    PATHS,
    SCHEMA,
    expressions,
    leaves,
    rows,
    table_of,
    truth,
)

# What pyarrow's own filter has kernels for.
PYARROW_PATHS = [path for path in PATHS if path[0] not in {"h", "v", "e", "n"}]


def selected(expression: Expression, table: pa.Table) -> list[int]:
    mask = evaluate(expression, table).to_pylist()
    return [row for row, match in enumerate(mask) if match]


def numbered(table: pa.Table) -> pa.Table:
    return table.append_column("row", pa.array(range(table.num_rows)))


@given(st.data())
def test_evaluation_agrees_with_three_valued_logic(data):
    expression = data.draw(expressions())
    records = data.draw(rows(expression.columns() or {("i",)}))
    table = table_of(records)
    bound = bind(expression, SCHEMA)
    expected = [truth(expression, record) for record in records]
    assert evaluate(bound, table).to_pylist() == expected
    sliced = table.slice(1).combine_chunks()
    for batch in sliced.to_batches():
        mask = evaluate(bound, batch)
        assert isinstance(mask, pa.BooleanArray)
        assert mask.to_pylist() == expected[1:]


@given(st.data())
def test_chunks_of_a_table_do_not_matter(data):
    expression = data.draw(expressions())
    records = data.draw(rows(expression.columns() or {("i",)}))
    at = data.draw(st.integers(0, len(records)))
    table = table_of(records)
    pieces = pa.concat_tables([table.slice(0, at), table.slice(at)])
    bound = bind(expression, SCHEMA)
    assert evaluate(bound, pieces).to_pylist() == evaluate(bound, table).to_pylist()


@given(st.data())
def test_all_forms_agree_with_pyarrow_s_own_filter(data):
    """The tree, its SQL text and its pyarrow form select what ``pa.Table.filter`` selects."""
    expression = data.draw(expressions(PYARROW_PATHS))
    records = data.draw(rows(expression.columns() or {("i",)}))
    table = table_of(records)
    bound = bind(expression, SCHEMA)
    foreign = to_pyarrow(bound, SCHEMA)
    expected = numbered(table).filter(foreign).column("row").to_pylist()
    assert selected(bound, table) == expected
    assert selected(parse_filter(foreign, SCHEMA), table) == expected
    assert selected(parse_filter(bound.to_sql(), SCHEMA), table) == expected


@given(leaves(PYARROW_PATHS), st.data())
def test_sql_text_reads_back_as_the_same_condition(leaf, data):
    bound = bind(leaf, SCHEMA)
    again = bind(from_sql(bound.to_sql()), SCHEMA)
    records = data.draw(rows(bound.columns() or {("i",)}))
    table = table_of(records)
    assert evaluate(again, table).to_pylist() == evaluate(bound, table).to_pylist()


OPERATORS = ["=", "==", "!=", "<", ">", "<=", ">="]
PREDICATES = st.one_of(
    st.tuples(st.just("i"), st.sampled_from(OPERATORS), INTS),
    st.tuples(
        st.just("i"), st.sampled_from(["in", "not in"]), st.lists(st.none() | INTS, min_size=1)
    ),
    st.tuples(st.just("s"), st.sampled_from(OPERATORS), st.sampled_from(["a", "b"])),
    st.tuples(st.just("s"), st.sampled_from(["in", "not in"]), st.just({"a", "c"})),
)
DNF = st.one_of(
    st.lists(PREDICATES, min_size=1, max_size=3),
    st.lists(st.lists(PREDICATES, min_size=1, max_size=3), min_size=1, max_size=3),
)


@given(DNF, st.lists(st.tuples(st.none() | INTS, st.sampled_from([None, "a", "b"])), min_size=1))
def test_tuples_select_what_pyarrow_selects(filters, cells):
    table = pa.table(
        {
            "i": pa.array([i for i, _ in cells], pa.int64()),
            "s": pa.array([s for _, s in cells], pa.string()),
        }
    )
    expected = numbered(table).filter(pq.filters_to_expression(filters)).column("row").to_pylist()
    assert selected(parse_filter(filters, table.schema), table) == expected


TABLE = pa.table(
    {
        "a": pa.array([1, 2, None, 4]),
        "b": pa.array([4, 2, 1, None]),
        "f": pa.array([1.0, math.nan, None, -0.0]),
        "s": pa.array([{"x": "p"}, {"x": None}, None, {"x": "q"}]),
        "t": pa.array([True, False, None, True]),
    }
)
FIELD = pc.field


@pytest.mark.parametrize(
    "expression",
    [
        FIELD("a") < FIELD("b"),
        FIELD("a") + 1 > 2,
        (FIELD("a") + 1 > 2) & (FIELD("s", "x") == "q"),
        ~(FIELD("a") + 1 > 2) | FIELD("t"),
        FIELD(0) > 1,
        FIELD("f").is_null(nan_is_null=True),
        pc.is_null(FIELD("f")),
        pc.if_else(FIELD("t"), FIELD("a") > 1, pc.scalar(False)),
        FIELD("a").cast("string") == "1",
        FIELD("a").isin([1, None]),
        ~FIELD("a").isin([1, 4]),
        pc.is_in(FIELD("a"), value_set=pa.array([1, None]), skip_nulls=True),
        pc.starts_with(FIELD("s", "x"), "p"),
        pc.starts_with(FIELD("s", "x"), "P", ignore_case=True),
        pc.match_like(FIELD("s", "x"), "%p"),
        pc.scalar(2) < FIELD("a"),
        pc.scalar(True),
        FIELD("t"),
        ~FIELD("t"),
        pc.is_finite(FIELD("f")),
    ],
    ids=str,
)
def test_any_pyarrow_expression_selects_what_pyarrow_selects(expression):
    expected = numbered(TABLE).filter(expression).column("row").to_pylist()
    bound = parse_filter(expression, TABLE.schema)
    assert selected(bound, TABLE) == expected
    # The rows that reach the filter hold only the columns it says it needs.
    needed = TABLE.select(
        sorted({path[0] for path in bound.columns()}, key=TABLE.schema.names.index)
    )
    if needed.num_columns:
        assert selected(bound, needed) == expected


def test_a_pyarrow_expression_of_half_floats_is_evaluated():
    """pyarrow has no isin of them."""
    table = pa.table({"h": pa.array(np.array([0.5, 2, np.nan], np.float16)), "a": range(3)})
    bound = parse_filter(FIELD("h").isin([0.5, 3]) | (FIELD("a") + 1 > 2), table.schema)
    assert selected(bound, table) == [0, 2]


def test_a_pyarrow_expression_that_gives_no_boolean_is_refused():
    with pytest.raises(InvalidArgumentError, match="int64"):
        evaluate(parse_filter(FIELD("a") + 1, TABLE.schema), TABLE)
    with pytest.raises(InvalidArgumentError, match="pyarrow cannot evaluate"):
        evaluate(parse_filter(pc.is_finite(FIELD("s", "x")), TABLE.schema), TABLE)
    with pytest.raises(InvalidArgumentError, match="expected a condition"):
        parse_filter(pc.scalar(5), TABLE.schema)


def test_many_alternatives_do_not_overflow_the_stack():
    expression = FIELD("a") == 0
    text = "a = 0"
    for value in range(1, 1500):
        expression = expression | (FIELD("a") == value)
        text += f" OR a = {value}"
    assert selected(parse_filter(expression, TABLE.schema), TABLE) == [0, 1, 3]
    assert selected(parse_filter(text, TABLE.schema), TABLE) == [0, 1, 3]


def test_structs_and_lists_can_be_asked_for_null():
    table = pa.table({"l": pa.array([[1], None, []]), "s": pa.array([{"x": 1}, None, {"x": None}])})
    assert selected(parse_filter(col("l").is_null(), table.schema), table) == [1]
    assert selected(parse_filter("s IS NOT NULL AND s.x IS NULL", table.schema), table) == [2]


def test_wrapped_types_are_filtered_by_the_values_inside():
    encoded = pa.RunEndEncodedArray.from_arrays([2, 3], [5, 7])
    table = pa.table(
        {
            "r": encoded,
            "k": pa.DictionaryArray.from_arrays(
                pa.array([0, 1, None], pa.int8()), pa.array(["a", None])
            ),
            "u": pa.ExtensionArray.from_storage(
                pa.uuid(), pa.array([b"a" * 16, None, b"b" * 16], pa.binary(16))
            ),
        }
    )
    assert selected(parse_filter("r > 5", table.schema), table) == [2]
    assert selected(parse_filter("k IS NULL", table.schema), table) == [1, 2]
    assert selected(parse_filter("k <> 'b'", table.schema), table) == [0]
    assert selected(parse_filter(col("u") > b"a" * 16, table.schema), table) == [2]


def test_dictionaries_that_differ_by_chunk_are_filtered_chunk_by_chunk():
    chunks = [pa.array(values).dictionary_encode() for values in (["a", "b"], ["b", "c"])]
    table = pa.table({"k": pa.chunked_array(chunks)})
    assert selected(parse_filter("k = 'b'", table.schema), table) == [1, 2]


def test_a_batch_without_rows_or_columns_gives_a_mask_of_its_length():
    empty = TABLE.slice(0, 0)
    assert evaluate(parse_filter("a > 1 AND TRUE", TABLE.schema), empty).to_pylist() == []
    no_columns = TABLE.select([]).to_batches()
    assert evaluate(parse_filter("TRUE", TABLE.schema), TABLE.select([])).to_pylist() == [True] * 4
    assert all(batch.num_rows for batch in no_columns)


def test_a_bare_column_is_its_own_filter():
    assert selected(parse_filter(col("t"), TABLE.schema), TABLE) == [0, 3]
    assert selected(bind(BooleanColumn(("t",)) & True, TABLE.schema), TABLE) == [0, 3]


def test_times_and_durations_keep_their_nanoseconds():
    table = pa.table(
        {"c": pa.array([0, 1], pa.time64("ns")), "p": pa.array([0, 1], pa.duration("ns"))}
    )
    for text_or_tree in (
        "c = TIME '00:00:00.000000001'",
        "p = INTERVAL '0.000000001' SECOND",
        col("c") == "00:00:00.000000001",
        col("p") == table["p"][1],
    ):
        bound = parse_filter(text_or_tree, table.schema)
        assert selected(bound, table) == [1]
        assert selected(parse_filter(bound.to_sql(), table.schema), table) == [1]


def test_nanosecond_literals_keep_their_last_digits():
    moments = pa.array([0, 1, 2], pa.timestamp("ns"))
    table = pa.table({"m": moments})
    assert selected(parse_filter(col("m") > moments[1], table.schema), table) == [2]
    text = "m = TIMESTAMP '1970-01-01 00:00:00.000000001'"
    assert selected(parse_filter(text, table.schema), table) == [1]
    late = datetime.datetime(9999, 12, 31)
    assert selected(parse_filter(col("m") < late, table.schema), table) == [0, 1, 2]


def test_runs_of_dictionary_values_are_compared():
    """pyarrow cannot decode them by itself; a slice starts within a run."""
    values = pa.array(["a", "b", None, "a"]).dictionary_encode()
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5, 6, 9], pa.int32()), values)
    whole = pa.table({"x": runs})
    assert selected(bind(col("x") == "a", whole.schema), whole) == [0, 1, 6, 7, 8]
    assert selected(bind(col("x") == "b", whole.schema), whole.slice(3, 5)) == [0, 1]
    assert selected(bind(col("x").is_null(), whole.schema), whole.slice(4)) == [1]
