"""Filtering rows: a filter over record batches, in SQL's three-valued logic."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pat

from fermion import arrow_compute as pc
from fermion.columns.arrow_buffers import PLAIN, array_of
from fermion.columns.rows import field_within, ordered_decimals, unwrapped
from fermion.columns.types import strip_wrappers, with_wide_floats
from fermion.errors import InvalidArgumentError
from fermion.exports import NamedTuple
from fermion.predicate.expression import (
    And,
    BooleanColumn,
    Comparison,
    Computed,
    Constant,
    Expression,
    IsIn,
    IsNan,
    IsNull,
    Not,
    Opaque,
    Or,
    Path,
    StartsWith,
    as_predicate,
)
from fermion.predicate.literals import raw_scalar, resolve

Data: TypeAlias = "pa.RecordBatch | pa.Table"
Mask: TypeAlias = "pa.BooleanArray | pa.ChunkedArray"

# pa.scalar() imports pandas where it is installed, which importing this package should not.
_NULL = pa.nulls(1, pa.bool_())[0]
# Functions of pyarrow.compute.
_COMPARE: dict[str, str] = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def evaluate(expression: Expression, data: Data) -> Mask:
    """Whether each row matches a bound filter: TRUE, FALSE or NULL.

    Parameters
    ----------
    expression
        Bound to a schema that has the columns of ``data`` it reads.
    data
        Holds at least the filter's columns, under the names it uses.

    Returns
    -------
    pa.BooleanArray or pa.ChunkedArray
        One value a row; an array for a record batch, chunked for a table. A filter selects the
        rows that are TRUE (``data.filter(mask)`` does).
    """
    mask = _Evaluation(data).mask(as_predicate(expression))
    if isinstance(data, pa.Table):
        return mask if isinstance(mask, pa.ChunkedArray) else pa.chunked_array([mask])
    return mask.combine_chunks() if isinstance(mask, pa.ChunkedArray) else mask


class _Evaluation:
    """One pass over one batch; columns are looked up once."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.columns: dict[Path, Any] = {}

    def mask(self, node: Expression) -> Mask:
        match node:
            case And(operands=operands):
                return reduce(pc.and_kleene, map(self.mask, operands))
            case Or(operands=operands):
                return reduce(pc.or_kleene, map(self.mask, operands))
            case Not(operand=operand):
                return pc.invert(self.mask(operand))
            case Constant(value=value):
                return pa.repeat(pa.scalar(value, pa.bool_()), self.data.num_rows)
            case Opaque():
                return _evaluate_opaque(node, self.data)
            case Computed(function=function, paths=paths):
                columns = (self.column(path) for path in paths)
                return function(*map(_plain, columns))
            case _:
                return _leaf(node, self.column(node.path))  # type: ignore[attr-defined]

    def column(self, path: Path) -> Any:
        if path not in self.columns:
            self.columns[path] = column_of(self.data, path)
        return self.columns[path]


def column_of(data: Data, path: Path) -> pa.Array | pa.ChunkedArray:
    """The column at a path; a field of a struct is null where the struct is."""
    ordinals = data.schema.get_all_field_indices(path[0])
    if len(ordinals) != 1:
        raise InvalidArgumentError(
            f"{len(ordinals)} columns are named {path[0]!r} in the rows to filter; expected one"
        )
    return field_within(data.column(ordinals[0]), path[1:])


def _plain(column: Any) -> pa.Array:
    """A column without wrappers: Arrow can't combine chunks of all dictionaries."""
    values = unwrapped(column)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def comparable(column: pa.Array) -> pa.Array:
    """A column's values in a type that pyarrow's kernels compare, look up and make unique.

    Dictionaries, run ends and extension types are taken off; a view where possible.
    """
    return _comparable(unwrapped(column))


def _leaf(node: Expression, column: Any) -> Mask:
    if isinstance(column, pa.ChunkedArray):
        if column.type != strip_wrappers(column.type):
            return pa.chunked_array([_leaf(node, chunk) for chunk in column.chunks], pa.bool_())
    elif pat.is_dictionary(column.type) and len(column.dictionary) <= len(column):
        matches = _leaf(node, column.dictionary).take(column.indices)
        return matches.fill_null(True) if isinstance(node, IsNull) else matches
    values = unwrapped(column)
    if pat.is_null(values.type) and not isinstance(node, IsNull):
        return pa.nulls(len(values), pa.bool_())
    match node:
        case IsNull():
            return pc.is_null(values)
        case BooleanColumn():
            return values
        case Comparison(operator=operator, value=value):
            return _compare(values, operator, value)
        case IsIn(values=literals):
            return _is_in(values, literals)
        case IsNan():
            return _is_nan(values)
        case StartsWith(prefix=prefix):
            return pc.starts_with(_comparable(values), pattern=prefix)
    raise InvalidArgumentError(f"{node!r} cannot be evaluated")


def _constant(values: Any, truth: bool) -> Mask:
    """``truth`` where a value is, NULL where none is."""
    return pc.if_else(pc.is_valid(values), pa.scalar(truth), _NULL)


def _compare(values: Any, operator: str, value: Any) -> Mask:
    resolved = resolve(operator, value, values.type)
    if resolved.operator == "null":
        return pa.nulls(len(values), pa.bool_())
    if resolved.operator in ("always", "never"):
        return _constant(values, resolved.operator == "always")
    ordered = ordered_decimals(_comparable(values))
    compare = getattr(pc, _COMPARE[resolved.operator])
    return compare(ordered, raw_scalar(resolved.raw, ordered.type))


def _comparable(values: Any) -> Any:
    """Values in a type that pyarrow's kernels compare and look up; a view where possible."""
    storage = values.type
    if pat.is_float16(storage):
        return values.cast(pa.float32())
    if pat.is_string(storage) or pat.is_fixed_size_binary(storage):
        return values.cast(pa.binary())
    if pat.is_large_string(storage) or pat.is_string_view(storage) or pat.is_binary_view(storage):
        return values.cast(pa.large_binary())
    if pat.is_decimal32(storage) or pat.is_decimal64(storage):
        return values.cast(pa.decimal128(storage.precision, storage.scale))
    return values


def _is_in(values: Any, literals: tuple[Any, ...]) -> Mask:
    comparable = _comparable(values)
    kinds = tuple(map(type, literals))
    chosen = _value_set(literals, kinds, values.type, comparable.type)
    matches = pc.is_in(comparable, value_set=chosen.values)
    if chosen.has_null:
        return pc.if_else(matches, pa.scalar(True), _NULL)
    if values.null_count:
        return pc.if_else(pc.is_valid(values), matches, _NULL)
    return matches


class _ValueSet(NamedTuple):
    """The literals of an IN list that a column's type can hold, and those apart."""

    values: pa.Array
    has_null: bool


@lru_cache(maxsize=64)
def _value_set(
    literals: tuple[Any, ...],
    kinds: tuple[type, ...],  # a float and a Decimal may be equal and mean different decimals
    storage: pa.DataType,
    comparable: pa.DataType,
) -> _ValueSet:
    raws = []
    for literal in literals:
        operator, raw = resolve("==", literal, storage)
        if operator == "==":
            # IN compares as = does: NaN is never here, and both zeros match either.
            raws += [0.0, -0.0] if isinstance(raw, float) and raw == 0 else [raw]
    if comparable in PLAIN:
        values = array_of(raws, comparable)
    else:
        values = pa.array([raw_scalar(raw, comparable) for raw in raws], comparable)
    return _ValueSet(values, any(literal is None for literal in literals))


def _is_nan(values: Any) -> Mask:
    if not pat.is_floating(values.type):
        return _constant(values, False)
    return pc.is_nan(_comparable(values))


def _evaluate_opaque(node: Opaque, data: Data) -> Mask:
    # This imports pandas where it is installed: 0.3 s that other filters need not pay.
    from pyarrow import acero

    names = list(dict.fromkeys(path[0] for path in node.paths))
    columns = {name: column_of(data, (name,)) for name in names}
    # Without any column a table would lose its number of rows.
    table = pa.table(columns or {"": pa.nulls(data.num_rows)})
    # pyarrow has no isin, and other functions, of float16.
    table = table.cast(pa.schema([with_wide_floats(field) for field in table.schema]))
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.ProjectNodeOptions([node.expression], ["match"])
    plan = acero.Declaration.from_sequence([source, acero.Declaration("project", project)])
    try:
        mask = plan.to_table(use_threads=False).column("match")
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"pyarrow cannot evaluate the filter {node.expression}: {error}"
        ) from error
    if not pat.is_boolean(mask.type):
        raise InvalidArgumentError(
            f"the filter {node.expression} gives {mask.type}; a filter has to give booleans"
        )
    return mask
