"""The filter expression: an immutable tree over columns and literals, and how one is written.

Build one with `col`; the other forms that a ``filter=`` takes become the same tree. The meaning
is SQL's three-valued logic: a comparison with NULL is NULL, and only rows where the whole is TRUE
are selected.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import field
from decimal import Decimal
from typing import Any, NoReturn

import pyarrow as pa

from fermion.display import FILTER_LENGTH, shortened
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate.literals import TimestampText, meaning, nanoseconds, normalize

Path = tuple[str, ...]
_PLAIN_NAME = re.compile(r"\w+")
SQL_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Types of parts of Variant columns, as SQL calls them."""
VALUE: Path = ("value",)
"""The column of a filter of a value that is computed from another column."""

NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
OPERATORS = tuple(NEGATED)


class Expression:
    """A filter: combine with ``&``, ``|`` and ``~``; `columns` tells what it reads."""

    __slots__ = ()

    def __and__(self, other: Expression | bool) -> Expression:
        return conjunction((self, other))

    def __rand__(self, other: bool) -> Expression:
        return conjunction((other, self))

    def __or__(self, other: Expression | bool) -> Expression:
        return disjunction((self, other))

    def __ror__(self, other: bool) -> Expression:
        return disjunction((other, self))

    def __invert__(self) -> Expression:
        operand = as_predicate(self)
        return operand.operand if isinstance(operand, Not) else Not(operand)

    def __bool__(self) -> NoReturn:
        raise InvalidArgumentError(
            f"the filter {self.to_sql()} has no truth value of its own: combine filters with "
            "& | ~ instead of and, or, not, put parentheses around each comparison, and use "
            ".between() instead of a chained comparison"
        )

    @property
    def is_opaque(self) -> bool:
        """Whether it can only be evaluated: a pyarrow expression without a counterpart here.

        Statistics never settle such a filter. One that is combined of others is not opaque itself;
        ask the filters of `walk`.
        """
        return False

    def children(self) -> tuple[Expression, ...]:
        """The filters this one is made of."""
        return ()

    def walk(self) -> Iterator[Expression]:
        """This filter and all below it, depth first."""
        yield self
        for child in self.children():
            yield from child.walk()

    def columns(self) -> set[Path]:
        """The paths of the columns it reads; unresolved ones as they were written."""
        found: set[Path] = set()
        for node in self.walk():
            path = getattr(node, "path", None)
            if path is not None:
                found.add(path)
            found.update(getattr(node, "paths", ()))
        return found

    def to_sql(self) -> str:
        """The filter as SQL text, in the dialect that filter strings are read in."""
        raise NotImplementedError  # of `Expression` alone: every kind of node has its own

    def __str__(self) -> str:
        return self.to_sql()

    def __repr__(self) -> str:
        return f"<fermion filter {shortened(self.to_sql(), FILTER_LENGTH)}>"


class _Place(str):
    """A step of a path that was given as a number: a key of a map, or a place in an array."""

    __slots__ = ()


class Column(Expression):
    """A column to compare; by itself, in a filter, it stands for a boolean column being true."""

    __slots__ = ("path",)
    path: Path

    def __init__(self, path: Path) -> None:
        object.__setattr__(self, "path", path)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"filters are immutable: cannot set {name!r}")

    def __reduce__(self) -> tuple[type[Column], tuple[Path]]:
        return Column, (self.path,)

    def __hash__(self) -> int:
        return hash(self.path)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compare("==", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: object) -> Expression:
        return self._compare("<", other)

    def __le__(self, other: object) -> Expression:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Expression:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Expression:
        return self._compare(">=", other)

    __iter__ = None
    """Else Python would take a column for a sequence of its fields."""

    def __getitem__(self, key: str | int) -> Column:
        """The value of a key of a map, or a field of a struct: ``col("features")["age"] > 3``."""
        if isinstance(key, bool) or not isinstance(key, (str, int)):
            raise InvalidArgumentError(
                f"{self.to_sql()}[{key!r}]: expected a key of a map or the name of a field, found "
                f"{type(key).__name__}"
            )
        return Column((*self.path, key if isinstance(key, str) else _Place(key)))

    def _compare(self, operator: str, other: object) -> Expression:
        if isinstance(other, Expression):
            raise InvalidArgumentError(
                f"{self.to_sql()} {operator} {other.to_sql()}: a filter compares a column with a "
                "literal; for two columns pass a pyarrow.compute.Expression"
            )
        return self.leaf(Comparison, operator, normalize(other))

    def leaf(self, kind: Callable[..., Expression], *arguments: Any) -> Expression:
        """A filter of the column: ``kind(path, *arguments)``."""
        return kind(self.path, *arguments)

    def cast(self, type: pa.DataType) -> VariantValue:
        """A part of a Variant column as a column of a type.

        ``col("event")["user"]["id"].cast(pa.int64()) == 7``. A value that can't be of the type is
        an error: see `fermion.variant.get`.
        """
        steps = [int(each) if isinstance(each, _Place) else each for each in self.path[1:]]
        return VariantValue(self.path[0], steps, type)

    def isin(self, values: Iterable[Any]) -> Expression:
        """True where the column equals one of the values: ``isin([a, b])`` is ``== a or == b``.

        So a NaN among them matches nothing, not even NaN (ask `is_nan`), ``0.0`` and ``-0.0`` match
        each other, and with None among them the answer is NULL where nothing else matches.
        """
        return self.leaf(IsIn, literal_set(values))

    def between(self, low: Any, high: Any) -> Expression:
        """True where ``low <= column <= high``."""
        return (self >= low) & (self <= high)

    def is_null(self) -> Expression:
        """True where the column is NULL."""
        return self.leaf(IsNull)

    def is_valid(self) -> Expression:
        """True where the column is not NULL."""
        return Not(self.is_null())

    is_not_null = is_valid

    def is_nan(self) -> Expression:
        """True where the column is NaN; NULL where it is NULL."""
        return self.leaf(IsNan)

    def starts_with(self, prefix: str | bytes) -> Expression:
        """True where a string or binary column starts with ``prefix``."""
        if not isinstance(prefix, (str, bytes)):
            raise InvalidArgumentError(
                f"starts_with: prefix={prefix!r}: expected text or bytes, found "
                f"{type(prefix).__name__}"
            )
        return self.leaf(StartsWith, normalize(prefix))

    def to_sql(self) -> str:
        """The column's name, quoted where SQL wants it."""
        return column_text(self.path)


def col(*path: str) -> Column:
    """A column by name, or by its path into structs.

    ``col("s", "b")`` is field ``b`` of column ``s``. ``col("s.b")`` is the column of that very
    name if there is one, and that path otherwise.
    """
    if len(path) == 1 and isinstance(path[0], tuple):
        path = path[0]
    if not path or not all(isinstance(name, str) for name in path):
        raise InvalidArgumentError(
            f"col: path={path!r}: expected names, as in col('a') or col('s', 'b')"
        )
    return Column(path)


def literal_set(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of an IN list, normalized, each once, in their order."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidArgumentError(f"isin: values={values!r}: expected a collection of values")
    if isinstance(values, (set, frozenset)):
        values = sorted(values, key=lambda value: (type(value).__name__, repr(value)))
    unique = {meaning(value): value for value in map(normalize, values)}
    return tuple(unique.values())


@dataclass(frozen=True, slots=True, repr=False)
class Constant(Expression):
    """TRUE, FALSE or, as None, NULL for every row."""

    value: bool | None

    def to_sql(self) -> str:
        """``TRUE``, ``FALSE`` or ``NULL``."""
        return "NULL" if self.value is None else str(self.value).upper()


@dataclass(frozen=True, slots=True, repr=False)
class BooleanColumn(Expression):
    """A boolean column as it is."""

    path: Path

    def to_sql(self) -> str:
        """The column's name."""
        return column_text(self.path)


class _OfLiterals(Expression):
    """A leaf with literals; equal to one of the same meaning: 1, 1.0 and TRUE differ."""

    __slots__ = ()

    def _meaning(self) -> Hashable:
        raise NotImplementedError  # each leaf has its own; this class is never a leaf itself

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OfLiterals) and self._meaning() == other._meaning()

    def __hash__(self) -> int:
        return hash(self._meaning())


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Comparison(_OfLiterals):
    """A column compared with a literal; operator is one of ``== != < <= > >=``."""

    path: Path
    operator: str
    value: Any

    def _meaning(self) -> Hashable:
        return self.path, self.operator, meaning(self.value)

    def to_sql(self) -> str:
        """``column operator literal``."""
        operator = {"==": "=", "!=": "<>"}.get(self.operator, self.operator)
        return f"{column_text(self.path)} {operator} {literal_text(self.value)}"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class IsIn(_OfLiterals):
    """``column = a OR column = b OR ...``; with NULL among the literals it is never FALSE."""

    path: Path
    values: tuple[Any, ...]

    def _meaning(self) -> Hashable:
        return self.path, tuple(map(meaning, self.values))

    def to_sql(self) -> str:
        """``column IN (...)``."""
        return _in_text(self, "IN") if self.values else "FALSE"


@dataclass(frozen=True, slots=True, repr=False)
class IsNull(Expression):
    """A column is NULL; never NULL itself."""

    path: Path

    def to_sql(self) -> str:
        """``column IS NULL``."""
        return f"{column_text(self.path)} IS NULL"


@dataclass(frozen=True, slots=True, repr=False)
class IsNan(Expression):
    """A column is NaN; FALSE for types that have none."""

    path: Path

    def to_sql(self) -> str:
        """``ISNAN(column)``."""
        return f"ISNAN({column_text(self.path)})"


@dataclass(frozen=True, slots=True, repr=False)
class StartsWith(Expression):
    """A string or binary column starts with a prefix."""

    path: Path
    prefix: str | bytes

    def to_sql(self) -> str:
        """``STARTS_WITH(column, prefix)``."""
        return f"STARTS_WITH({column_text(self.path)}, {literal_text(self.prefix)})"


@dataclass(frozen=True, slots=True, repr=False)
class Not(Expression):
    """The operand negated; NULL stays NULL."""

    operand: Expression

    def children(self) -> tuple[Expression, ...]:
        """The operand."""
        return (self.operand,)

    def to_sql(self) -> str:
        """``NOT operand``, with SQL's shorthands."""
        inner = self.operand
        if isinstance(inner, IsNull):
            return f"{column_text(inner.path)} IS NOT NULL"
        if isinstance(inner, IsIn) and inner.values:
            return _in_text(inner, "NOT IN")
        return f"NOT ({inner.to_sql()})"


@dataclass(frozen=True, slots=True, repr=False)
class And(Expression):
    """All operands: FALSE if one is FALSE, else NULL if one is NULL, else TRUE."""

    operands: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        """The operands."""
        return self.operands

    def to_sql(self) -> str:
        """``a AND b AND ...``."""
        return " AND ".join(
            f"({child.to_sql()})" if isinstance(child, Or) else child.to_sql()
            for child in self.operands
        )


@dataclass(frozen=True, slots=True, repr=False)
class Or(Expression):
    """Any operand: TRUE if one is TRUE, else NULL if one is NULL, else FALSE."""

    operands: tuple[Expression, ...]

    def children(self) -> tuple[Expression, ...]:
        """The operands."""
        return self.operands

    def to_sql(self) -> str:
        """``a OR b OR ...``."""
        return " OR ".join(child.to_sql() for child in self.operands)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Opaque(Expression):
    """A pyarrow expression that only pyarrow can evaluate; statistics never settle it.

    expression: The ``pyarrow.compute.Expression``.
    positional: Whether it names columns by position, so that it needs every column of the schema,
        in order.
    """

    expression: Any
    paths: tuple[Path, ...] = ()
    positional: bool = field(default=False)

    @property
    def is_opaque(self) -> bool:
        """True."""
        return True

    def to_sql(self) -> str:
        """Pyarrow's text of the expression; not SQL."""
        return f"pyarrow({self.expression})"


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Computed(Expression):
    """A filter that a function computes from whole columns; statistics never settle it.

    Attributes
    ----------
    function
        Takes the columns at ``paths``, ``pyarrow.Array`` of one length and of the types that the
        filter is bound to, without dictionaries, run ends and extensions around them, and returns a
        ``pyarrow.BooleanArray`` of this length. Picklable, if the filter has to be.
    text
        What it computes, as SQL or for people.
    """

    function: Callable[..., pa.BooleanArray]
    paths: tuple[Path, ...]
    text: str

    @property
    def is_opaque(self) -> bool:
        """True."""
        return True

    @property
    def by_key(self) -> Expression | None:
        """The same if all columns are maps with integers as keys; None: there is no such form."""
        return None

    def text_of_sizes(self, is_blob: Callable[[str], bool]) -> str | None:
        """SQL that takes ``image.size`` for ``octet_length(image)`` of blobs; None: as it is."""
        return None

    def bound(self, schema: pa.Schema, dtypes: Sequence[pa.DataType]) -> Expression:
        """The filter over columns of some types; others may be added that select its rows, too.

        Parameters
        ----------
        dtypes
            Of the columns, without wrappers.

        Raises
        ------
        InvalidArgumentError
            The function does not take these types.
        """
        return self

    def missing(self, error: ColumnNotFoundError, path: Path) -> ColumnNotFoundError:
        """The error of a column that is not there; it may say more about its name."""
        return error

    def to_sql(self) -> str:
        """The text."""
        return self.text


class VariantValue(Column):
    """The value at a path of a Variant column, as a column of a type.

    column: Of the table or file.
    steps: Names of fields, and places of items from 0 on.
    strict: Whether a value that can't be of the type is an error, or null.
    """

    __slots__ = ("steps", "strict", "type")
    steps: tuple[str | int, ...]
    type: pa.DataType
    strict: bool
    needs_whole = False
    """Whether a filter needs whole values where the column of the path has another type."""

    def __init__(
        self, column: str, steps: Sequence[str | int], type: pa.DataType, strict: bool = True
    ) -> None:
        super().__init__((column,))
        if not isinstance(type, pa.DataType):
            raise InvalidArgumentError(f"cast: type={type!r}: expected a pyarrow.DataType")
        object.__setattr__(self, "steps", tuple(steps))
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "strict", strict)

    def __reduce__(self) -> tuple[Any, ...]:
        return VariantValue, (self.path[0], self.steps, self.type, self.strict)

    def __hash__(self) -> int:
        return hash((self.path, self.steps, self.type, self.strict))

    def __getitem__(self, key: str | int) -> Column:
        """Nothing lies below a value that has a type."""
        raise InvalidArgumentError(f"{self.to_sql()}[{key!r}]: name the whole path before cast()")

    def leaf(self, kind: Callable[..., Expression], *arguments: Any) -> Expression:
        """A filter of the value."""
        inner = kind(VALUE, *arguments)
        text = inner.to_sql().replace(VALUE[0], self.to_sql(), 1)
        return VariantCondition(_not_bound, (self.path,), text, inner, self)

    def of(self, column: str) -> VariantValue:
        """The same of a column of another name."""
        return VariantValue(column, self.steps, self.type, self.strict)

    def values_of(self, array: pa.Array) -> pa.Array:
        """The value in each row of the Variant column, or of the column of the path.

        Raises as `fermion.variant.get`.
        """
        from fermion.variant import values  # few files have Variant columns

        if not pa.types.is_struct(array.type) and not isinstance(array, pa.ExtensionArray):
            return values.cast_column(array, self.steps, self.type, strict=self.strict)
        if not isinstance(array, pa.ExtensionArray):
            array = pa.ExtensionArray.from_storage(values.VariantType(array.type), array)
        return values.get(array, self.steps, self.type, strict=self.strict)

    def chosen(self, matches: pa.Array, values: pa.Array, array: pa.Array) -> pa.Array:
        """The rows that a filter selects: of values of the Variant column, those that match it."""
        return matches

    def to_sql(self) -> str:
        """A call of ``variant_get``."""
        name = "variant_get" if self.strict else "try_variant_get"
        return f"{name}({super().to_sql()}, {steps_text(self.steps)}, '{_sql_name(self.type)}')"


def steps_text(steps: Iterable[str | int]) -> str:
    """A path within Variant values as a text of SQL."""
    path = "$" + "".join(map(_step_text, steps))
    return "'{}'".format(path.replace("'", "''"))


def _step_text(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if _PLAIN_NAME.fullmatch(step) else "['{}']".format(step.replace("'", "''"))


def _sql_name(type: pa.DataType) -> str:
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision},{type.scale})"
    return next((name for name, known in SQL_TYPES.items() if known == type), str(type))


def _not_bound(*columns: pa.Array) -> NoReturn:
    raise TypeError("the filter is not bound to a schema")


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class VariantCondition(Computed):
    """A filter of a part of a Variant column.

    Attributes
    ----------
    inner
        The filter, of a column at `VALUE`.
    value
        Which part that is.
    """

    inner: Expression
    value: VariantValue


def as_predicate(value: Expression | bool | None) -> Expression:
    """An operand of a filter: a bare column becomes a boolean column, a bool a constant."""
    if isinstance(value, Column):
        return value.leaf(BooleanColumn)
    if isinstance(value, Expression):
        return value
    if value is None or isinstance(value, bool):
        return Constant(value)
    raise InvalidArgumentError(
        f"cannot combine a filter with {value!r} of type {type(value).__name__}; put parentheses "
        "around each comparison: (col('a') > 1) & (col('b') < 2)"
    )


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """The filters that must all be TRUE for a row to be selected.

    Returns
    -------
    tuple of Expression
        The operands of an AND, in their order; any other filter alone.
    """
    return expression.operands if isinstance(expression, And) else (expression,)


def without_opaque(expression: Expression) -> tuple[Expression | None, Expression | None]:
    """The operands of an AND without opaque filters in them, and the others; None where no one is.

    Of any other filter, it is one of the two.
    """
    parts: tuple[list[Expression], list[Expression]] = [], []
    for part in conjuncts(expression):
        parts[any(node.is_opaque for node in part.walk())].append(part)
    plain, opaque = (conjunction(each) if each else None for each in parts)
    return plain, opaque


def conjunction(operands: Iterable[Expression | bool]) -> Expression:
    """All of the operands, nested ANDs made flat."""
    return _combined(And, operands)


def disjunction(operands: Iterable[Expression | bool]) -> Expression:
    """Any of the operands, nested ORs made flat."""
    return _combined(Or, operands)


def _combined(kind: type[And] | type[Or], operands: Iterable[Expression | bool]) -> Expression:
    flat: list[Expression] = []
    for operand in map(as_predicate, operands):
        flat.extend(operand.children() if isinstance(operand, kind) else (operand,))
    if not flat:
        return Constant(kind is And)
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


def column_text(path: Path) -> str:
    """A path as SQL: names joined by dots, always in quotes but for plain lower-case words."""
    return ".".join(map(_name_text, path))


def _in_text(node: IsIn, operator: str) -> str:
    return f"{column_text(node.path)} {operator} ({', '.join(map(literal_text, node.values))})"


def _name_text(name: str) -> str:
    if name.isidentifier() and name.isascii() and name.upper() not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


_RESERVED_WORDS = """
ALL AND ANY ARRAY AS BETWEEN BY CASE CAST CROSS DATE DISTINCT ELSE END ESCAPE EXCEPT EXISTS FALSE
FROM GROUP HAVING IF IN INTERVAL INTO IS JOIN LEFT LIKE LIMIT MAP NOT NULL ON OR ORDER OUTER RIGHT
ROW SELECT SET SOME STRUCT TABLE THEN TIME TIMESTAMP TRUE UNION UNIQUE USING VALUES WHEN WHERE WITH
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())


FLOAT_DIGITS = 15
"""Integers of so many digits are floats without loss."""


def literal_text(value: Any) -> str:
    """A literal as SQL."""
    if value is None or isinstance(value, bool):
        return Constant(value).to_sql()
    if isinstance(value, float) and not math.isfinite(value):
        return f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return _decimal_text(value)
    if isinstance(value, TimestampText):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, datetime.datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, datetime.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, datetime.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, (datetime.timedelta, pa.DurationScalar)):
        return f"INTERVAL '{Decimal(f'{nanoseconds(value)}e-9'):f}' SECOND"
    return _scalar_text(value) if isinstance(value, pa.Scalar) else str(value)


def quotes_advice(name: str) -> str:
    """What to write for a text that was written like a name."""
    return f"double quotes are for names of columns: write {literal_text(name)} for a text"


def _decimal_text(value: Decimal) -> str:
    """A decimal as SQL: all of its digits, which do not become those of a float or integer."""
    if not -100 < value.adjusted() < 100:
        return f"CAST('{value}' AS DECIMAL)"
    text = format(value, "f")
    return text if "." in text or value.adjusted() < FLOAT_DIGITS else f"{text}.0"


def _scalar_text(scalar: pa.Scalar) -> str:
    text = str(scalar.cast(pa.string()))
    if isinstance(scalar, pa.TimestampScalar) and scalar.type.unit != "ns":
        # The calendar repeats itself after 400 years; Arrow writes no year beyond 32767.
        ticks = {"s": 1, "ms": 1000, "us": 1_000_000}[scalar.type.unit]
        cycle = 146_097 * 86_400 * ticks
        text = str(pa.scalar(scalar.value % cycle, scalar.type).cast(pa.string()))
        year = int(text[:4]) + 400 * (scalar.value // cycle)
        text = f"{year:0{4 + (year < 0)}d}{text[4:]}"
    return f"{'TIMESTAMP' if isinstance(scalar, pa.TimestampScalar) else 'TIME'} '{text}'"
