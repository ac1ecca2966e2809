"""What a literal means, whatever was asked before, however it was spelled, and in any context."""

from __future__ import annotations

import datetime
import decimal
import enum
import io
import itertools
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fermion
from fermion import col
from fermion.errors import InvalidArgumentError
from fermion.predicate import Expression, bind, evaluate, literals, parse_filter
from fermion.predicate.arrow_expression import to_pyarrow
from fermion.predicate.evaluate import _value_set
from fermion.predicate.expression import Comparison, IsIn
from fermion.predicate.literals import _resolve, resolve
from fermion.predicate.prune import _key_set
from fermion.predicate.sql import from_sql

BERLIN = ZoneInfo("Europe/Berlin")
EARLY = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
LATE = EARLY.replace(fold=1)
INSTANT = pa.timestamp("us", "UTC")
OPERATORS = ["==", "!=", "<", "<=", ">", ">="]


def forget() -> None:
    """Empty the caches that have literals as keys."""
    for known in (_resolve, _key_set, _value_set):
        known.cache_clear()


def selected(table: pa.Table, chosen: Any, **options: Any) -> list[Any]:
    """Values of column c of the rows that a filter selects, in a file."""
    sink = io.BytesIO()
    fermion.write_table(table, sink, page_rows_max=1, **options)
    with fermion.open(sink.getvalue()) as file:
        return file.read(["c"], filter=chosen).column("c").to_pylist()


@pytest.mark.parametrize("options", [{}, {"statistics": False}, {"page_bloom_filters": ["c"]}])
@pytest.mark.parametrize(("first", "second"), [(EARLY, LATE), (LATE, EARLY)])
def test_a_datetime_of_the_repeated_hour_is_told_by_its_fold(
    first: datetime.datetime, second: datetime.datetime, options: dict[str, Any]
):
    """Python takes both as equal, so that a cache gives the answer of the first for the second."""
    table = pa.table({"c": pa.array([EARLY, LATE], INSTANT)})
    moments = {each.fold: each.astimezone(datetime.UTC) for each in (EARLY, LATE)}
    for chosen in (first, second):
        expected = [moments[chosen.fold]]
        for form in (
            col("c") == chosen,
            col("c").isin([chosen]),
            col("c").between(chosen, chosen),
            [("c", "=", chosen)],
            [("c", "in", [chosen])],
            (col("c") == chosen).to_sql(),
            pa.compute.field("c") == pa.scalar(chosen, INSTANT),
        ):
            assert selected(table, form, **options) == expected, form
        others = selected(table, col("c") != chosen, **options)
        assert others == [moments[1 - chosen.fold]]
    assert selected(table, col("c").isin([first, second]), **options) == list(moments.values())


def test_datetimes_of_the_repeated_hour_are_two_filters():
    one, other = col("c") == EARLY, col("c") == LATE
    assert not isinstance(one, fermion.predicate.Column)
    assert (one == other) is False
    assert len({one, other, col("c") == EARLY}) == 2


ALIKE = [1, True, 1.0, Decimal(1), Decimal("1.00"), np.float32(1), np.int8(1), np.True_]
HALVES = [0.5, Decimal("0.5"), Decimal("0.50"), np.float16(0.5)]
TENTHS = [0.1, Decimal("0.1"), Decimal.from_float(0.1), np.float32(0.1)]
ZEROS = [0, False, 0.0, -0.0, Decimal("-0.00"), math.nan, Decimal("NaN"), Decimal("sNaN")]
MIDNIGHTS = [
    datetime.date(2024, 1, 1),
    datetime.datetime(2024, 1, 1),
    datetime.datetime(2024, 1, 1, fold=1),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(2024, 1, 1, 1, tzinfo=BERLIN),
    np.datetime64("2024-01-01"),
    "2024-01-01",
    EARLY,
    LATE,
]
TYPES = [
    pa.int32(),
    pa.uint64(),
    pa.bool_(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(10, 1),
    pa.decimal32(5, -1),
    pa.decimal256(60, 55),
    pa.date32(),
    pa.timestamp("s"),
    INSTANT,
]
BOUNDABLE = st.sampled_from([*ALIKE, *HALVES, *TENTHS, *ZEROS, *MIDNIGHTS])


def cells(dtype: pa.DataType) -> pa.Array:
    """Some of the values that the literals are equal to, and a null."""
    if pa.types.is_decimal(dtype):
        return pa.array([*(literals.raw_scalar(each, dtype) for each in (0, 1, 10)), None], dtype)
    if pa.types.is_temporal(dtype):
        days = pa.array([0, 19_723, 20_023, None], pa.int32()).cast(pa.date32())
        return days.cast(pa.timestamp("s")).cast(dtype) if dtype != days.type else days
    return pa.array([False, True, None] if pa.types.is_boolean(dtype) else [0, 1, None], dtype)


@given(st.sampled_from(TYPES), st.lists(BOUNDABLE, min_size=2, max_size=6))
def test_no_literal_gets_the_answer_of_one_that_python_takes_as_equal(
    dtype: pa.DataType, values: list[Any]
):
    """Filters that are asked one after the other answer as each alone does."""
    rows = pa.table({"c": cells(dtype)})
    filters: list[Expression] = []
    for value in values:
        for form in (col("c") == value, col("c") < value, col("c").isin([value, 1])):
            try:
                filters.append(bind(form, rows.schema))
            except InvalidArgumentError:
                continue
    alone = []
    for each in filters:
        forget()
        alone.append((evaluate(each, rows).to_pylist(), selected(rows, each)))
    forget()
    assert [(evaluate(each, rows).to_pylist(), selected(rows, each)) for each in filters] == alone


def test_filters_are_equal_where_their_literals_mean_the_same():
    def filters(value: Any) -> list[Expression]:
        return [col("c") == value, col("c").isin([value, 7])]

    different: list[Any] = [1, True, 1.0, Decimal(1), "1", b"1", None, math.nan, 0.0, False, 0]
    for one, other in itertools.combinations(different, 2):
        for left, right in zip(filters(one), filters(other), strict=True):
            assert (left == right) is False, (one, other)
    same = [(0.0, -0.0), (math.nan, float("nan")), (Decimal(1), Decimal("1.0")), (1, np.int64(1))]
    for one, other in same:
        for left, right in zip(filters(one), filters(other), strict=True):
            assert (left == right) is True, (one, other)
            assert hash(left) == hash(right)
    assert (filters(1)[0] == filters(1)[1]) is False


class Color(str, enum.Enum):  # noqa: UP042 - whose str() is not its value
    RED = "red"


class Code(bytes, enum.Enum):
    RED = b"red"


class Level(enum.IntEnum):
    ONE = 1


class Shouted(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Strange(datetime.datetime):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = datetime.datetime.__hash__


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Color.RED, "red"),
        (Code.RED, b"red"),
        (Level.ONE, 1),
        (Shouted("red"), "red"),
        (Strange(2024, 1, 1), datetime.datetime(2024, 1, 1)),
    ],
)
def test_an_object_of_a_subclass_means_its_plain_value(value: Any, plain: Any):
    """`str()` of a member of an enum of texts is its name, not its text."""
    for chosen in (col("c") == value, col("c").isin([value])):
        assert isinstance(chosen, Comparison | IsIn)
        (found,) = chosen.values if isinstance(chosen, IsIn) else (chosen.value,)
        assert type(found) is type(plain)
        assert found == plain
    if isinstance(plain, str):
        rows = pa.table({"c": ["red", "Color.RED", "blue"]})
        assert selected(rows, col("c") == value) == ["red"]
        assert selected(rows, col("c").starts_with(value)) == ["red"]


def test_a_time_of_day_with_a_zone_is_refused():
    """12:00 in UTC and 13:00 one hour east of it are equal in Python; a column has neither."""
    east = datetime.timezone(datetime.timedelta(hours=1))
    for value in (datetime.time(12, tzinfo=datetime.UTC), datetime.time(13, tzinfo=east)):
        with pytest.raises(InvalidArgumentError, match="times of day have no time zone"):
            col("c") == value  # noqa: B015 - what is tested
    for text in ("c = TIME '12:00:00+01:00'", "c = '12:00:00+01:00'"):
        with pytest.raises(InvalidArgumentError, match="no time zone"):
            parse_filter(text, pa.schema([("c", pa.time64("us"))]))


@pytest.mark.parametrize(
    "build",
    [
        lambda text: col("c") == text,
        lambda text: col("c").isin([text]),
        lambda text: col("c").starts_with(text),
    ],
)
def test_text_without_a_utf_8_form_is_refused_in_words(build: Any):
    with pytest.raises(InvalidArgumentError, match="no UTF-8 form"):
        build("a\ud800")


def test_a_moment_outside_of_python_s_years_in_utc_keeps_its_place():
    """An hour before midnight of the last day, west of Greenwich, is a day of the year 10000."""
    west = datetime.timezone(-datetime.timedelta(hours=5))
    last = datetime.datetime.max.replace(tzinfo=west)
    ticks = [(253_402_300_799 + hours * 3600) * 10**6 for hours in (0, 4, 6)]
    rows = pa.table({"c": pa.array(ticks, INSTANT), "row": [0, 1, 2]})
    found = evaluate(bind(col("c") <= last, rows.schema), rows)
    assert found.to_pylist() == [True, True, False]


@pytest.mark.parametrize("day", [2_932_897, 4_000_000, -800_000])
def test_a_date_outside_of_python_s_years_is_compared(day: int):
    """Arrow holds it, though Python's ``date`` does not."""
    rows = pa.table({"d": pa.array([0, day - 1, day], pa.int32()).cast(pa.date32())})
    literal = rows["d"][2]
    for chosen in (col("d") == literal, col("d").isin([literal]), [("d", "=", literal)]):
        assert evaluate(parse_filter(chosen, rows.schema), rows).to_pylist() == [False, False, True]


NUMBERS = st.one_of(
    st.integers(-(10**80), 10**80),
    st.floats(),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.builds(
        lambda digits, exponent: Decimal(f"{digits}e{exponent}"),
        st.integers(-(10**76), 10**76),
        st.integers(-150, 150),
    ),
)
NUMBER_TYPES = [
    pa.int8(),
    pa.uint64(),
    pa.float16(),
    pa.float32(),
    pa.float64(),
    pa.decimal32(9, 3),
    pa.decimal128(38, -20),
    pa.decimal128(38, 10),
    pa.decimal256(76, 40),
]
ZONES = st.sampled_from([datetime.UTC, BERLIN, ZoneInfo("America/New_York")])
SPELLED: list[tuple[st.SearchStrategy[Any], list[pa.DataType]]] = [
    (NUMBERS, NUMBER_TYPES),
    (st.text() | st.binary(), [pa.string(), pa.binary()]),
    (st.dates() | st.datetimes(), [pa.date32(), pa.timestamp("s"), pa.timestamp("us")]),
    (st.datetimes(timezones=ZONES), [INSTANT, pa.timestamp("s", "Europe/Berlin")]),
    (st.times(), [pa.time32("s"), pa.time64("ns")]),
    (st.timedeltas(), [pa.duration("s"), pa.duration("us")]),
    (st.booleans(), [pa.bool_()]),
]


@pytest.mark.parametrize(("values", "types"), SPELLED, ids=lambda each: str(each)[:20])
@given(data=st.data())
def test_a_literal_means_the_same_after_a_round_trip_through_sql(
    values: st.SearchStrategy[Any], types: list[pa.DataType], data: Any
):
    """In columns of all types that it can be compared with, beside every operator."""
    value, dtype = data.draw(values), data.draw(st.sampled_from(types))
    schema = pa.schema([("c", dtype)])
    operator = data.draw(st.sampled_from(OPERATORS))
    with decimal.localcontext(decimal.Context(prec=data.draw(st.sampled_from([1, 28])))):
        bound = bind(Comparison(("c",), operator, literals.normalize(value)), schema)
        again = bind(from_sql(bound.to_sql()), schema)
    assert isinstance(bound, Comparison)
    assert isinstance(again, Comparison)
    expected = resolve(operator, bound.value, dtype)
    assert resolve(again.operator, again.value, dtype) == expected, bound.to_sql()


def test_a_negative_decimal_keeps_all_digits_whatever_the_context():
    """Python's minus rounds to the digits of the thread's context, 28 unless someone changed it."""
    text = "-99999999999999999999.0000000001"
    for context in (decimal.Context(prec=28), decimal.Context(prec=2)):
        with decimal.localcontext(context):
            found = from_sql(f"c = {text}")
        assert isinstance(found, Comparison)
        assert str(found.value) == text


@pytest.mark.parametrize("amount", ["0.0000000001", "1e-400", "nan", "inf", "1e400", "x"])
def test_an_interval_that_nanoseconds_cannot_hold_is_refused(amount: str, monkeypatch):
    # For it '1e-400' is no time at all.
    monkeypatch.setattr("fermion.sql.engine.has_duckdb", lambda: False)
    with pytest.raises(InvalidArgumentError, match="INTERVAL"):
        from_sql(f"c = INTERVAL '{amount}' SECOND")


NEGATIVE_SCALES = [
    pa.decimal32(5, -2),
    pa.decimal64(12, -3),
    pa.decimal128(20, -2),
    pa.decimal128(38, -38),
    pa.decimal256(50, -4),
]


@pytest.mark.parametrize("dtype", NEGATIVE_SCALES, ids=str)
@pytest.mark.parametrize("options", [{}, {"statistics": False}], ids=["bounds", "plain"])
@given(data=st.data())
def test_decimals_of_a_negative_scale_are_filtered(
    dtype: pa.DataType, options: dict[str, Any], data: Any
):
    """Arrow compares none of them, which was reported as damage of the file."""
    numbers = data.draw(st.lists(st.integers(-3, 3) | st.none(), max_size=8))
    scalars = [None if each is None else literals.raw_scalar(each, dtype) for each in numbers]
    rows = pa.table({"c": pa.array(scalars, dtype), "row": pa.array(range(len(numbers)))})
    unit = 10**-dtype.scale
    value = Decimal(data.draw(st.integers(-3 * unit, 3 * unit))) / data.draw(
        st.sampled_from([1, 2])
    )
    sink = io.BytesIO()
    fermion.write_table(rows, sink, page_rows_max=2, stripe_rows=5, **options)
    exact = literals.rational(value)
    expected = {
        "==": [
            row for row, each in enumerate(numbers) if each is not None and each * unit == exact
        ],
        "<": [row for row, each in enumerate(numbers) if each is not None and each * unit < exact],
        ">=": [
            row for row, each in enumerate(numbers) if each is not None and each * unit >= exact
        ],
    }
    for operator, wanted in expected.items():
        with fermion.open(sink.getvalue()) as file:
            found = file.read(["row"], filter=Comparison(("c",), operator, value))
        assert found.column("row").to_pylist() == wanted


@pytest.mark.parametrize("dtype", NEGATIVE_SCALES, ids=str)
def test_files_are_sorted_by_decimals_of_a_negative_scale(dtype: pa.DataType):
    scalars = [literals.raw_scalar(each, dtype) for each in (-2, 1, 1, 2)]
    sink = io.BytesIO()
    fermion.write_table(pa.table({"c": pa.array(scalars, dtype)}), sink, sorted_by=["c"])
    with fermion.open(sink.getvalue()) as file:
        file.verify()
    with pytest.raises(InvalidArgumentError, match="expected ascending order"):
        fermion.write_table(
            pa.table({"c": pa.array(scalars[::-1], dtype)}), io.BytesIO(), sorted_by=["c"]
        )


@pytest.mark.parametrize("dtype", NEGATIVE_SCALES, ids=str)
def test_decimals_of_a_negative_scale_have_a_pyarrow_filter(dtype: pa.DataType):
    scalars = [literals.raw_scalar(each, dtype) for each in (-2, 1, 3)]
    rows = pa.table({"c": pa.array(scalars, dtype)})
    bound = bind(col("c") > scalars[1], rows.schema)
    assert rows.filter(to_pyarrow(bound, rows.schema)).num_rows == 1


@pytest.mark.parametrize("dtype", [pa.string_view(), pa.binary_view()], ids=str)
@pytest.mark.parametrize("wrap", ["runs", "dictionary", "both"])
def test_views_within_run_ends_and_dictionaries_are_filtered(dtype: pa.DataType, wrap: str):
    """Arrow decodes neither run ends nor dictionaries of views, which was reported as damage."""
    texts = ["a", "b", None, "a", "c"]
    wide = pa.large_string() if dtype == pa.string_view() else pa.large_binary()
    plain = pa.array(texts, pa.string()).cast(wide)
    values: Any = plain.cast(dtype)
    if wrap != "runs":
        encoded = plain.dictionary_encode()
        entries = encoded.dictionary.cast(dtype)
        values = pa.DictionaryArray.from_arrays(encoded.indices, entries)
    if wrap != "dictionary":
        ends = pa.array(range(1, len(texts) + 1), pa.int32())
        values = pa.RunEndEncodedArray.from_arrays(ends, values)
    rows = pa.table({"c": values, "row": range(5)})
    sink = io.BytesIO()
    fermion.write_table(rows, sink)
    for chosen, expected in (
        (col("c") == "a", [0, 3]),
        (col("c") > "a", [1, 4]),
        (col("c").isin(["c", "x"]), [4]),
        (col("c").is_null(), [2]),
        (col("c").starts_with("b"), [1]),
    ):
        with fermion.open(sink.getvalue()) as file:
            found = file.read(["row"], filter=chosen).column("row").to_pylist()
            batches = file.iter_batches(["row"], filter=chosen & (col("row") < 5))
            assert found == expected
            assert [row for batch in batches for row in batch["row"].to_pylist()] == expected
