"""A filter on the table, taken apart for files that were written under other schemas.

A filter is a conjunction. Each of its parts is pushed into a file's reader under the file's own
names if the file holds all columns it reads, and left for the rows otherwise. Comparisons place
their literal exactly in whatever type a column has, so a part says the same of a file's narrower
values as of the widened ones; only an opaque pyarrow expression needs the types to be equal.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion import arrow_compute as pc
from fermion.arguments import INT64_MAX, INT64_MIN, integer, integers
from fermion.display import FILTER_LENGTH, shortened
from fermion.engine import EXACT_FLAGS, key_name, strip_wrappers
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.predicate import (
    VALUE,
    Bounds,
    Expression,
    KeyCondition,
    RowRanges,
    bind,
    candidate_names,
    col,
    conjuncts,
    evaluate,
    parse_filter,
    ranges_that_may_match,
    ranges_that_must_match,
    rename_columns,
    transform,
)
from fermion_table.schema.schema import Field, Path, TableSchema, field_to_arrow
from fermion_table.schema.selection import BATCH_ID, queryable_fields

if TYPE_CHECKING:
    from fermion_table.schema import blob_columns, key_statistics
else:  # few tables have any
    blob_columns = LoadedWhenAskedFor("fermion_table.schema.blob_columns")
    key_statistics = LoadedWhenAskedFor("fermion_table.schema.key_statistics")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A filter bound to a table's schema."""

    expression: Expression
    parts: tuple[Expression, ...]

    @property
    def paths(self) -> list[Path]:
        """The columns it reads, in a stable order."""
        return sorted(self.expression.columns())

    def to_sql(self) -> str:
        """The filter in words."""
        return self.expression.to_sql()

    @property
    def shown(self) -> str:
        """The same for people: the beginning of a long one."""
        return shortened(self.to_sql(), FILTER_LENGTH)


def table_filter(given: Any, schema: TableSchema, *, where: str) -> TableFilter | None:
    """A filter in any form that `fermion` takes, bound to a table's schema; None for None.

    Raises ColumnNotFoundError, InvalidArgumentError: Names the column, and what the literal and the
        column are.
    """
    expression = parse_filter(given)
    if expression is None:
        return None
    fields = queryable_fields(schema)
    names = candidate_names(expression)  # None: it may need every column
    wanted = [field for field in fields if names is None or field.name in names]
    arrow = pa.schema([field_to_arrow(field, field_ids=False) for field in wanted])
    bound = bind(expression, arrow, where=where, known=[field.name for field in fields])
    return TableFilter(bound, conjuncts(bound))


def by_keys(chosen: TableFilter, schema: TableSchema) -> TableFilter:
    """A filter that asks for keys of maps as columns, where entries have statistics of them."""
    if not schema.statistics_keys:
        return chosen
    known = key_statistics.statistics_of_keys(schema)

    def leaf(node: Expression) -> Expression:
        if isinstance(node, KeyCondition):
            path = (key_name(node.paths[0][0], node.key),)
            return rename_columns(node.inner, {VALUE: path}) if path in known else node
        return node

    expression = transform(chosen.expression, leaf)
    return TableFilter(expression, tuple(transform(part, leaf) for part in chosen.parts))


def both(one: TableFilter | None, other: TableFilter | None) -> TableFilter | None:
    """What selects the rows that both select; None selects all."""
    if one is None or other is None:
        return one or other
    return TableFilter(one.expression & other.expression, one.parts + other.parts)


def batch_filter(
    batch_id: int | Iterable[int], schema: TableSchema, *, where: str
) -> TableFilter | None:
    """The rows of one batch, or of several.

    Raises InvalidArgumentError: A column of the table has the name of the virtual column of batch
        ids.
    Raises TypeError: A batch id is no integer.
    """
    if BATCH_ID.name in schema.by_name:
        raise InvalidArgumentError(
            f"{where}: column {BATCH_ID.name!r} hides the batch ids; filter by it instead"
        )
    if isinstance(batch_id, Iterable) and getattr(batch_id, "ndim", True):
        ids = integers(batch_id, "batch_id").tolist()
    else:
        ids = [integer(batch_id, "batch_id")]
    return table_filter(col(BATCH_ID.name).isin(ids), schema, where=where)


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All parts as one filter; None for none."""
    return reduce(operator.and_, parts) if parts else None


def field_at(fields: Iterable[Field], path: Path) -> list[Field] | None:
    """The fields along a path, outermost first; None where there is none."""
    chain: list[Field] = []
    siblings = tuple(fields)
    for name in path:
        field = next((field for field in siblings if field.name == name), None)
        if field is None:
            return None
        chain.append(field)
        siblings = field.children if field.kind == "struct" else ()
    return chain


def same_ids(fields: Iterable[Field], chain: Sequence[Field]) -> list[Field] | None:
    """The fields of a file that have the ids of a chain of the table's; None where one lacks."""
    file_chain: list[Field] = []
    siblings = tuple(fields)
    for wanted in chain:
        field = next((sibling for sibling in siblings if sibling.id == wanted.id), None)
        if field is None:
            return None
        file_chain.append(field)
        siblings = field.children if field.kind == "struct" else ()
    return file_chain


def push_down(
    part: Expression, table_fields: Sequence[Field], sources: Sequence[Field]
) -> Expression | None:
    """A part of a filter under the names of a file; None if the file alone can't decide it.

    table_fields: Those of the table, which the part is bound to.
    sources: Those of the file that hold data.
    """
    # Only a pyarrow expression, which no comparison can be made of, names several columns.
    if candidate_names(part) is None:  # it names columns by their position in the table
        return None
    exact = {path for node in part.walk() if node.is_opaque for path in node.columns()}
    mapping: dict[Path, Path] = {}
    for path in part.columns():
        chain = field_at(table_fields, path)
        file_chain = same_ids(sources, chain) if chain else None
        if not chain or not file_chain:
            return None
        if path in exact and not file_chain[-1].type.equals(chain[-1].type):
            return None
        mapping[path] = tuple(field.name for field in file_chain)
    return rename_columns(part, mapping)


def selected(expression: Expression, batch: pa.RecordBatch) -> np.ndarray:
    """Whether each row of a batch is selected: ``bool``, shape (num_rows,)."""
    types = (batch.schema.field(path[0]).type for path in expression.columns())
    if any(pa.types.is_struct(strip_wrappers(each)) for each in types):  # perhaps handles
        expression = blob_columns.by_sizes(expression, batch.schema)
    mask = pc.fill_null(evaluate(expression, batch), False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


@dataclass(frozen=True, slots=True)
class Unit:
    """What is known of one column in one file or manifest.

    min, max: Keys of bounds, both inclusive.
    nulls: How many; -1 when that is not known.
    flags: `fermion.ChunkFlag` bits. Without HAS_MINMAX the bounds are not known.
    """

    rows: int
    min: int = INT64_MIN
    max: int = INT64_MAX
    nulls: int = -1
    flags: int = 0


def all_null(rows: int) -> Unit:
    """A unit where every row is null."""
    return Unit(rows, INT64_MAX, INT64_MIN, rows, EXACT_FLAGS)


def bounds_of(units: Sequence[Unit], dtype: pa.DataType) -> Bounds:
    """Units that follow each other from row 0 on.

    dtype: The type of the column in the units.
    """
    return Bounds(
        boundaries=_boundaries(units),
        min=np.array([unit.min for unit in units], np.int64),
        max=np.array([unit.max for unit in units], np.int64),
        null_count=np.array([unit.nulls for unit in units], np.int64),
        flags=np.array([unit.flags for unit in units], np.uint32),
        type=dtype,
    )


def units_that_may_match(
    expression: Expression, known: Mapping[Path, Bounds], units: Sequence[Unit]
) -> np.ndarray:
    """Which units may hold a row that a filter selects: ``bool``, shape (u,)."""
    return places_that_may_match(expression, known, _boundaries(units))


def places_that_may_match(
    expression: Expression, known: Mapping[Path, Bounds], boundaries: np.ndarray
) -> np.ndarray:
    """The same of units that lie between boundaries: ``int64``, shape (u + 1,), from 0 on."""
    ranges = ranges_that_may_match(expression, known.get, int(boundaries[-1]))
    return ranges.in_units(boundaries)


def units_that_must_match(
    expression: Expression, known: Mapping[Path, Bounds], units: Sequence[Unit]
) -> np.ndarray:
    """Which units hold only rows that a filter selects, and some: ``bool``, shape (u,)."""
    return places_that_must_match(expression, known, _boundaries(units))


def places_that_must_match(
    expression: Expression, known: Mapping[Path, Bounds], boundaries: np.ndarray
) -> np.ndarray:
    """Which of them hold only rows that a filter selects, and some: ``bool``, shape (u,)."""
    ranges = ranges_that_must_match(expression, known.get, int(boundaries[-1]))
    return _lie_within(ranges, boundaries[:-1], boundaries[1:])


def _lie_within(ranges: RowRanges, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    at = np.searchsorted(ranges.stops, starts, side="right")
    inside = at < len(ranges.starts)
    numbers = at[inside]
    inside[inside] = (ranges.starts[numbers] <= starts[inside]) & (
        ranges.stops[numbers] >= stops[inside]
    )
    return inside & (starts < stops)


def _boundaries(units: Sequence[Unit]) -> np.ndarray:
    return np.cumsum([0, *(unit.rows for unit in units)], dtype=np.int64)
