"""SQL's three-valued logic in plain Python: what filters are tested against."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from fermion.predicate import Expression, col
from fermion.predicate.expression import (
    And,
    BooleanColumn,
    Comparison,
    Constant,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Or,
    StartsWith,
)

UTC = datetime.UTC
EPOCH = datetime.datetime(2024, 2, 29, 12, tzinfo=UTC)

INTS = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2, 3, 255, 2**53 + 1, 2**63 - 1])
UNSIGNED = st.sampled_from([0, 1, 2, 2**63 - 1, 2**63, 2**64 - 1])
FLOATS = st.sampled_from(
    [math.nan, -math.inf, math.inf, -0.0, 0.0, 1.0, 1.5, -1.5, 5e-324, -5e-324, 1e308]
)
NARROW_FLOATS = st.sampled_from([math.nan, -math.inf, math.inf, -0.0, 0.0, 1.0, 1.5, -2.0])
TEXTS = st.sampled_from(
    [
        "",
        "a",
        "ab",
        "a\0",
        "ab\0",
        "abcdefg",
        "abcdefgh",
        "abcdefghi",
        "abcdefgz",
        "é",
        "日本語",
        "~",
    ]
)
BLOBS = st.sampled_from(
    [b"", b"\0", b"a", b"a\0", b"a\xff", b"ab", b"\xff", b"\xff" * 8, b"\xff" * 9, b"abcdefgh\0"]
)
DECIMALS = st.sampled_from(["0", "0.01", "-0.01", "1.00", "99999.99", "-99999.99"]).map(Decimal)
WIDE_DECIMALS = st.sampled_from(
    [Decimal(0), Decimal(1), Decimal(2**63), Decimal(-(2**63)), Decimal(10**40), Decimal(-(10**40))]
)
DAYS = st.integers(-2, 2).map(lambda days: EPOCH.date() + datetime.timedelta(days))
MOMENTS = st.integers(-2, 2).map(lambda hours: EPOCH + datetime.timedelta(hours=hours))
CLOCKS = st.integers(0, 3).map(lambda hour: datetime.time(hour, 30))
SPANS = st.integers(-2, 2).map(lambda seconds: datetime.timedelta(seconds=seconds))

# Column: its type, its values, and literals that it can be compared with but may not be able to
# hold.
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    "i": (
        pa.int64(),
        INTS,
        st.sampled_from([0.5, -0.5, 2**70, -(2**70), Decimal("1.5"), math.inf]),
    ),
    "u": (pa.uint64(), UNSIGNED, st.sampled_from([-1, 2**64, 1.5])),
    "f": (pa.float64(), FLOATS, st.sampled_from([1, 2**53 + 1, -(10**400), 10**400])),
    "h": (pa.float16(), NARROW_FLOATS, st.sampled_from([0.1, 1e300, -1e300, 1])),
    "g": (pa.float32(), NARROW_FLOATS, st.sampled_from([0.1, 1e300, -1e300, 1])),
    "s": (pa.string(), TEXTS, st.nothing()),
    "v": (pa.string_view(), TEXTS, st.nothing()),
    "k": (pa.dictionary(pa.int8(), pa.large_string()), TEXTS, st.nothing()),
    "b": (pa.binary(), BLOBS, st.nothing()),
    "x": (pa.binary(2), st.sampled_from([b"aa", b"ab", b"a\0", b"\xff\xff"]), BLOBS),
    "d": (pa.decimal128(7, 2), DECIMALS, st.sampled_from([Decimal("0.005"), 10**9, 1])),
    "e": (pa.decimal32(7, 2), DECIMALS, st.sampled_from([Decimal("0.005"), 10**9, 1])),
    "w": (pa.decimal256(60, 3), WIDE_DECIMALS, st.sampled_from([Decimal("1e70"), 2**63 - 1])),
    "day": (pa.date32(), DAYS, st.just(EPOCH.replace(tzinfo=None))),
    "ts": (
        pa.timestamp("s", "UTC"),
        MOMENTS,
        st.just(EPOCH + datetime.timedelta(microseconds=1)),
    ),
    "c": (pa.time32("s"), CLOCKS, st.just(datetime.time(1, 30, 0, 1))),
    "p": (pa.duration("s"), SPANS, st.just(datetime.timedelta(milliseconds=500))),
    "t": (pa.bool_(), st.booleans(), st.nothing()),
    "n": (pa.null(), st.none(), st.just(1)),
}
STRUCT = pa.struct([("i", pa.int32()), ("s", pa.large_string())])
STRUCT_VALUES = st.fixed_dictionaries(
    {
        "i": st.none() | st.sampled_from([-(2**31), 0, 1, 2**31 - 1]),
        "s": st.none() | TEXTS,
    }
)
NESTED = {("st", "i"): st.sampled_from([0, 1, 0.5, 2**40]), ("st", "s"): TEXTS}
STRINGS = {("s",), ("v",), ("k",), ("b",), ("x",), ("st", "s")}
NUMBERS = {("i",), ("u",), ("f",), ("h",), ("g",), ("d",), ("w",), ("n",)}

SCHEMA = pa.schema([*((name, case[0]) for name, case in COLUMNS.items()), ("st", STRUCT)])
PATHS = [*((name,) for name in COLUMNS), *NESTED]


def literals(path: tuple[str, ...]) -> st.SearchStrategy[Any]:
    """Literals that a column can be compared with."""
    if path in NESTED:
        return NESTED[path]
    _, values, others = COLUMNS[path[0]]
    return values | others


@st.composite
def leaves(draw: st.DrawFn, paths: list[tuple[str, ...]] = PATHS) -> Expression:
    """A filter without AND, OR and NOT."""
    path = draw(st.sampled_from(paths))
    column, values = col(*path), literals(path) | st.none()
    kinds = ["compare", "compare", "in", "null", "between"]
    kinds += (
        ["prefix"] * (path in STRINGS) + ["nan"] * (path in NUMBERS) + ["bool"] * (path == ("t",))
    )
    kind = draw(st.sampled_from(kinds))
    if kind == "compare":
        operator = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        return Comparison(path, operator, draw(values))
    if kind == "in":
        return column.isin(draw(st.lists(values, max_size=4)))
    if kind == "between":
        return column.between(draw(literals(path)), draw(literals(path)))
    if kind == "prefix":
        return column.starts_with(draw(BLOBS if path in {("b",), ("x",)} else TEXTS))
    if kind == "nan":
        return column.is_nan()
    return BooleanColumn(path) if kind == "bool" else column.is_null()


def expressions(paths: list[tuple[str, ...]] = PATHS) -> st.SearchStrategy[Expression]:
    """Filters of any shape."""
    constants = st.sampled_from([Constant(True), Constant(False), Constant(None)])
    base = st.one_of(*[leaves(paths)] * 8, constants)
    return st.recursive(
        base,
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(Not, inner),
        ),
        max_leaves=5,
    )


def rows(paths: set[tuple[str, ...]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Rows of the columns that some paths name."""
    cells: dict[str, st.SearchStrategy[Any]] = {}
    for path in sorted(paths):
        values = STRUCT_VALUES if path[0] == "st" else COLUMNS[path[0]][1]
        cells[path[0]] = st.none() | values
    return st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=12)


def table_of(records: list[dict[str, Any]]) -> pa.Table:
    """The rows as a table; columns that they lack are left out."""
    fields = [field for field in SCHEMA if field.name in records[0]]
    return pa.table(
        [_array([record[field.name] for record in records], field.type) for field in fields],
        pa.schema(fields),
    )


def _array(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode().cast(dtype)
    return pa.array(values, dtype)


def truth(node: Expression, record: dict[str, Any]) -> bool | None:
    """What a filter says of one row: True, False, or None for NULL."""
    match node:
        case Constant(value=value):
            return value
        case Not(operand=operand):
            inner = truth(operand, record)
            return None if inner is None else not inner
        case And(operands=operands):
            found = [truth(operand, record) for operand in operands]
            return False if False in found else None if None in found else True
        case Or(operands=operands):
            found = [truth(operand, record) for operand in operands]
            return True if True in found else None if None in found else False
    value = cell(node.path, record)
    match node:
        case IsNull():
            return value is None
        case BooleanColumn():
            return value
        case IsNan():
            return None if value is None else isinstance(value, float) and math.isnan(value)
        case StartsWith(prefix=prefix):
            return None if value is None else ordered(value).startswith(ordered(prefix))
        case Comparison(operator=operator, value=literal):
            return compare(value, operator, literal)
        case IsIn(values=literals_):
            return is_in(value, literals_)
    raise AssertionError(node)


def cell(path: tuple[str, ...], record: dict[str, Any]) -> Any:
    """The value at a path; None inside a struct that is None."""
    value: Any = record
    for name in path:
        value = None if value is None else value[name]
    return value


def compare(value: Any, operator: str, literal: Any) -> bool | None:
    """Python compares numbers of all kinds exactly, and NaN as pyarrow does."""
    if value is None or literal is None:
        return None
    a, b = ordered(value), ordered(literal)
    if operator in ("==", "!="):
        return (a == b) == (operator == "==")
    if operator in ("<", ">="):
        return a < b if operator == "<" else a >= b
    return a > b if operator == ">" else a <= b


def is_in(value: Any, choices: tuple[Any, ...]) -> bool | None:
    """IN as the OR of the equalities."""
    found = [compare(value, "==", choice) for choice in choices]
    return True if True in found else None if None in found else False


def ordered(value: Any) -> Any:
    """A value that Python orders as SQL does: strings by bytes, dates as midnights."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return datetime.datetime.combine(value, datetime.time())
    return value
