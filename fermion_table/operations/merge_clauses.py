"""Clauses of a merge: which rows each one takes, and what it makes of them.

Conditions and expressions see a row of the target and a row of the source as two structs,
``target`` and ``source``; a row without a partner has only its own.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fermion.arguments import mapping
from fermion.display import names_text, short_repr
from fermion.engine import pyarrow_columns
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.exports import dataclass
from fermion.predicate import Column, Expression, bind, parse_filter, resolve_path
from fermion_table.errors import SchemaMismatch
from fermion_table.merging.primary_key import PrimaryKey
from fermion_table.operations.assignments import (
    Assignment,
    evaluated,
    fitted,
    read_text,
    settled,
)
from fermion_table.operations.sql_expressions import SqlExpression
from fermion_table.planning.filters import selected
from fermion_table.schema.conversion import empty_columns, plan_writing
from fermion_table.schema.repeated import nulls
from fermion_table.schema.schema import Field, Path, TableSchema
from fermion_table.schema.selection import select_paths

TARGET = "target"
SOURCE = "source"
Case = Literal["matched", "not_matched", "not_matched_by_source"]
Action = Literal["update", "delete", "insert"]
SIDES: dict[str, tuple[str, ...]] = {
    "matched": (TARGET, SOURCE),
    "not_matched": (SOURCE,),
    "not_matched_by_source": (TARGET,),
}
"""What a clause sees of a row, by its case."""


@dataclass(frozen=True, slots=True)
class Clause:
    """What the caller asked for.

    Attributes
    ----------
    case
        Which rows it is about.
    action
        What happens to them.
    condition
        Which of them; None: all.
    values
        What each column is set to; None: every column to that of its name in the source.
    """

    case: Case
    action: Action
    condition: Any = None
    values: Mapping[str, Assignment] | None = None

    __repr__ = short_repr

    @property
    def method(self) -> str:
        """What made it, for messages."""
        return f"when_{self.case}_{self.action}"

    @property
    def takes_all(self) -> bool:
        """Whether it takes every column from the source."""
        return self.action != "delete" and self.values is None


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """What a merge does to which rows, whoever carries it out.

    Attributes
    ----------
    on
        Columns of the source by those of the table that they are compared with.
    clauses
        Of those of a row's case the first one whose condition holds decides what happens to it.

    Raises
    ------
    InvalidArgumentError
        A clause is behind one of the same case that takes every row.
    """

    on: Mapping[str, str]
    clauses: tuple[Clause, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        closed: dict[Case, Clause] = {}
        for clause in self.clauses:
            before = closed.get(clause.case)
            if before is not None:
                raise InvalidArgumentError(
                    f"{clause.method}: the {before.method} before it has no condition and takes "
                    "every row; give that one a condition, or put it last"
                )
            if clause.condition is None:
                closed[clause.case] = clause

    def describe(self) -> str:
        """What is merged how, for the history."""
        actions = dict.fromkeys(clause.action for clause in self.clauses)
        return f"merge on {', '.join(self.on)}: {', '.join(actions)}"

    def is_upsert(self, key: PrimaryKey) -> bool:
        """Whether every row of the source takes the place of the one of its key, or is new."""
        taken = {
            (clause.case, clause.action)
            for clause in self.clauses
            if clause.takes_all and clause.condition is None
        }
        return (
            key.engine.replaces
            and set(self.on) == set(key.names)
            and len(self.clauses) == 2
            and taken == {("matched", "update"), ("not_matched", "insert")}
        )

    def taken_by(
        self, clause: Clause, schema: TableSchema, source: Container[str]
    ) -> dict[str, str]:
        """The columns of the source that a clause takes as they are, by those of the table.

        None where it names the columns that it sets. Of those that the source lacks an insert
        leaves defaults.

        Raises
        ------
        TypeError, InvalidArgumentError
            The values are no mapping, or nothing is set.
        ColumnNotFoundError
            The table lacks a column that is set.
        SchemaMismatch
            The source lacks a column that an update sets.
        """
        if clause.values is not None:
            parameter = "values" if clause.action == "insert" else "set"
            mapping(clause.values, parameter)
            if not clause.values:
                raise InvalidArgumentError(
                    f"merge: {clause.method}: {parameter}: expected a column to set"
                )
            for name in clause.values:
                schema.find((name,), where=f"merge: {clause.method}")
        if not clause.takes_all:
            return {}
        columns = {name: self.on.get(name, name) for name in schema.names}
        missing = [column for column in columns.values() if column not in source]
        if missing and clause.action == "update":
            raise SchemaMismatch(
                f"merge: {clause.method}: set=None sets every column, but the source has no "
                f"column {missing[0]!r}: name the columns that change in set="
            )
        return {name: column for name, column in columns.items() if column in source}

    def refuse_unread(self, unread: Sequence[str], hint: str) -> None:
        """Refuse columns of the source that nothing reads though a clause takes all.

        Raises
        ------
        SchemaMismatch
        """
        takers = [clause.method for clause in self.clauses if clause.takes_all]
        if takers and unread:
            raise SchemaMismatch(
                f"merge: {takers[0]} takes every column of the source, but the table has no "
                f"column {', '.join(map(repr, unread))}, and no clause reads it: {hint}"
            )


@dataclass(frozen=True, slots=True)
class MergeSides:
    """What is merged: the schemas of both sides, and how their rows find each other.

    source: Of the source; names are unique.
    merge: Says which columns they find each other by.
    """

    schema: TableSchema
    source: pa.Schema
    merge: MergeClauses

    @property
    def on(self) -> Mapping[str, str]:
        """Columns of the source by those of the table that they are compared with."""
        return self.merge.on

    def seen_by(self, case: Case) -> pa.Schema:
        """What conditions and expressions see."""
        types = {TARGET: self.schema.to_arrow(field_ids=False), SOURCE: self.source}
        return pa.schema([(side, pa.struct(list(types[side]))) for side in SIDES[case]])

    def bound_clauses(self) -> tuple[BoundClause, ...]:
        """The clauses with the columns found that they name; raises as `bind_clause`."""
        return tuple(bind_clause(clause, self) for clause in self.merge.clauses)


@dataclass(frozen=True, slots=True)
class BoundClause:
    """A clause whose columns were found.

    condition: None selects every row.
    values: What is set, by column; columns of the table that are not here stay as they are, or get
        their default where rows are inserted.
    """

    clause: Clause
    sides: MergeSides
    condition: Expression | None
    values: Mapping[str, Assignment]
    asked: frozenset[Path]
    read: frozenset[Path]

    @property
    def carried(self) -> tuple[Field, ...]:
        """Fields of the table that an update reads: those that stay, and those its values name."""
        schema = self.sides.schema
        stay = [(field.name,) for field in schema.fields if field.name not in self.values]
        return fields_of(schema, [*stay, *below(self.read, TARGET)])

    def selects(self, rows: pa.RecordBatch) -> np.ndarray:
        """Whether each row meets the condition: ``bool``, shape (num_rows,)."""
        if self.condition is None:
            return np.ones(rows.num_rows, bool)
        return selected(self.condition, rows)

    def made_of(
        self, rows: pa.RecordBatch, target: pa.RecordBatch | None, *, is_trial: bool = False
    ) -> pa.RecordBatch:
        """The rows that an update or insert writes, as the values give them.

        rows: What values see.
        target: Rows of the table that are updated, with the columns of `carried` at least.
        is_trial: Whether only the types are wanted: functions are not called then.
        """
        arrays: list[pa.Array] = []
        fields: list[pa.Field] = []
        for item in self.sides.schema.fields:
            if item.name in self.values:
                value = self.values[item.name]
                if is_trial and _is_function(value):
                    value = None
                array = evaluated(value, rows, item, where=self.clause.method)
            elif target is not None:
                array = target.column(item.name)
            else:
                continue
            arrays.append(array)
            fields.append(pa.field(item.name, array.type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def fitting(self, made: pa.RecordBatch, wanted: pa.Schema | None = None) -> pa.RecordBatch:
        """What `made_of` gave, with every column of the table, in its type.

        wanted: See `fitted`; None: all blobs are values.
        Raises SchemaMismatch: A value does not fit its column.
        """
        schema = self.sides.schema
        return fitted(schema, made, wanted or schema.to_arrow(field_ids=False))


def bind_clause(clause: Clause, sides: MergeSides) -> BoundClause:
    """Find a clause's columns, and check that what it writes fits the table.

    Raises ColumnNotFoundError: A column that a condition or value names is not there.
    Raises SchemaMismatch: Values do not fit the table's columns, or the source lacks columns that
        are set.
    Raises InvalidArgumentError: Nothing is set, a literal is none of its column's, or an expression
        can't be evaluated.
    """
    seen = sides.seen_by(clause.case)
    with_names = _NamedColumns(seen, clause.method)
    condition, asked = None, frozenset[Path]()
    if clause.condition is not None:
        condition = with_names.condition(clause.condition)
        asked = frozenset(_condition_columns(condition, seen))
    values: dict[str, Assignment] = {}
    if clause.action != "delete":
        values = _bound_values(clause, sides, with_names)
    read = frozenset(path for value in values.values() for path in _value_columns(value, seen))
    bound = BoundClause(clause, sides, condition, values, asked, read)
    _try(bound, seen)
    return bound


def fields_of(schema: TableSchema, paths: Iterable[Path]) -> tuple[Field, ...]:
    """Fields of a table by path, pruned below structs, each once; the empty path is all of them."""
    wanted = sorted(set(paths))
    if () in wanted:
        return schema.fields
    return select_paths(schema.fields, wanted, where="merge")


def below(paths: Iterable[Path], side: str) -> list[Path]:
    """The paths within one side; the empty one stands for all of it."""
    return [path[1:] for path in paths if path[0] == side]


def joined(num_rows: int, **sides: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of both sides next to each other, or of one: each side is a struct."""
    structs = [
        batch.to_struct_array()
        if batch.num_columns
        else empty_columns(pa.schema([]), num_rows).to_struct_array()
        for batch in sides.values()
    ]
    return pa.RecordBatch.from_arrays(structs, names=list(sides))


@dataclass(frozen=True, slots=True)
class _NamedColumns:
    """Finds the columns that a clause names among those that it sees."""

    seen: pa.Schema
    where: str
    _known: list[str] = field(init=False)

    def __post_init__(self) -> None:
        known = [f"{side.name}.{child.name}" for side in self.seen for child in side.type]
        object.__setattr__(self, "_known", known)

    def condition(self, given: Any) -> Expression:
        where = f"{self._shown}: condition"
        try:
            expression = parse_filter(given)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"{where}: {error}") from error
        assert expression is not None
        return self._helped(lambda: bind(expression, self.seen, where=where, known=self._known))

    def value(self, text: str, field: Field) -> Assignment:
        """What text sets a column to: one of these columns, or SQL."""
        if text in self._known or re.fullmatch(rf"({TARGET}|{SOURCE})(\.\w+)+", text):
            return Column((text,))
        where = f"{self._shown}: column {field.name!r}"
        words = {name.rpartition(".")[2] for name in self._known} | {TARGET, SOURCE}
        return self._helped(
            lambda: read_text(text, field, self.seen.names, where=where, words=words)
        )

    def path(self, path: Path) -> Path:
        found: Path = self._helped(
            lambda: resolve_path(path, self.seen, where=self._shown, known=self._known)[0]
        )
        return found

    @property
    def _shown(self) -> str:
        return f"merge: {self.where}"

    def _helped(self, find: Callable[[], Any]) -> Any:
        try:
            return find()
        except ColumnNotFoundError as error:
            sides = " or ".join(f"{name}.COLUMN" for name in self.seen.names)
            raise ColumnNotFoundError(f"{error.args[0]}; columns are named {sides} here") from None


def _bound_values(clause: Clause, sides: MergeSides, named: _NamedColumns) -> dict[str, Assignment]:
    """What columns are set to, with the columns found that it is made of."""
    taken = sides.merge.taken_by(clause, sides.schema, frozenset(sides.source.names))
    values: dict[str, Assignment] = {}
    values |= {name: Column((SOURCE, column)) for name, column in taken.items()}
    for name, value in (clause.values or {}).items():
        if isinstance(value, str):
            value = named.value(value, sides.schema.by_name[name])
        if isinstance(value, Column):
            value = Column(named.path(value.path))
        elif isinstance(value, Expression):
            raise InvalidArgumentError(
                f"merge: {clause.method}: column {name!r}: a filter is no value: pass a column, a "
                "pyarrow.compute.Expression or a function"
            )
        elif isinstance(value, (pc.Expression, SqlExpression)):
            for path in _value_columns(value, named.seen):
                named.path(path)
        values[name] = value
    return values


def _condition_columns(condition: Expression, seen: pa.Schema) -> Iterable[Path]:
    names = set(seen.names)
    return [path if path[0] in names else (path[0],) for path in condition.columns()]


def _value_columns(value: Assignment, seen: pa.Schema) -> Iterable[Path]:
    """The columns that a value is computed from; all of them where that is not known."""
    if isinstance(value, Column):
        return [value.path]
    paths: Iterable[Path] | None = ()
    if isinstance(value, SqlExpression):
        paths = value.paths
    elif isinstance(value, pc.Expression):
        paths = pyarrow_columns(value)
    elif _is_function(value):
        paths = None
    return [(name,) for name in seen.names] if paths is None else paths


def _is_function(value: Assignment) -> bool:
    return callable(value) and not isinstance(value, pc.Expression | pa.Scalar | SqlExpression)


def _try(bound: BoundClause, seen: pa.Schema) -> None:
    """Do everything once for no rows, so that what can't be done is refused before any is read."""
    types = {side.name: pa.schema(list(side.type)) for side in seen}
    empty = {
        side: pa.RecordBatch.from_arrays([nulls(item.type, 0) for item in schema], schema=schema)
        for side, schema in types.items()
    }
    rows = joined(0, **empty)
    bound.selects(rows)
    if bound.clause.action != "delete":
        target = empty[TARGET] if bound.clause.action == "update" else None
        plan_writing(bound.sides.schema, bound.made_of(rows, target, is_trial=True).schema)


class MergeDescription(ABC):
    """Takes clauses, and is executed once.

    Rows of the table and of the source whose columns of ``on`` are equal match. For each pair, and
    for each row without a partner, the first clause of its case whose condition holds decides what
    happens; a row that no clause takes stays as it is.

    Every method that adds a clause changes this object, and returns it.

    Parameters
    ----------
    on
        Columns of the source by those of the table that they are compared with.
    """

    def __init__(self, on: Mapping[str, str]) -> None:
        self._on = on
        self._clauses = MergeClauses(on)
        self._is_executed = False

    def when_matched_update(
        self, set: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> Self:
        """Update rows of the table that have a partner.

        Parameters
        ----------
        set
            What columns are set to: values as the class says, by column. None sets every column to
            that of its name in the source.
        condition
            Which pairs; None: all.

        Raises
        ------
        ColumnNotFoundError
            The table or the source lacks a column.
        SchemaMismatch
            A value does not fit its column; or the source lacks a column, with ``set=None``.
        TypeError, InvalidArgumentError
            No mapping, nothing to set, a condition or a value that can't be understood, or a
            clause that is never reached.
        pyspark.errors.PySparkException
            In `spark_ext.merge`: Spark does not understand an expression.
        """
        return self._add("matched", "update", condition, set)

    def when_matched_delete(self, condition: Any = None) -> Self:
        """Delete rows of the table that have a partner; raises as `when_matched_update`.

        Parameters
        ----------
        condition
            Which pairs; None: all.
        """
        return self._add("matched", "delete", condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> Self:
        """Insert rows of the source that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        values
            As in `when_matched_update`; there is only ``source``. Columns that are not named are
            null, or have their default. None takes every column of its name from the source.
        condition
            Which rows of the source; None: all.
        """
        return self._add("not_matched", "insert", condition, values)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Assignment], condition: Any = None
    ) -> Self:
        """Update rows of the table that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        set
            As in `when_matched_update`; there is only ``target``.
        condition
            Which rows of the table; None: all.
        """
        if set is None:
            raise InvalidArgumentError(
                "merge: when_not_matched_by_source_update: set=None: expected the columns to set, "
                "as there is no row of the source to take them from"
            )
        return self._add("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> Self:
        """Delete rows of the table that have no partner; raises as `when_matched_update`.

        Parameters
        ----------
        condition
            Which rows of the table; None: all.
        """
        return self._add("not_matched_by_source", "delete", condition)

    def __repr__(self) -> str:
        clauses = (
            names_text([each.method for each in self._clauses.clauses], "clauses")
            or "no clauses yet"
        )
        return f"<{type(self).__name__} on {names_text(list(self._on), 'columns')}: {clauses}>"

    @abstractmethod
    def _checked(self, clause: Clause) -> Clause:
        """A clause, checked against the table and the source; text that is a value is marked."""
        return clause

    def _begun(self) -> MergeClauses:
        """The clauses, which are executed now.

        Raises InvalidArgumentError: There are none, or they were executed before.
        """
        if not self._clauses.clauses:
            raise InvalidArgumentError(
                "merge: nothing to do: add a clause, such as when_matched_update()"
            )
        if self._is_executed:
            raise InvalidArgumentError("merge: executed before: call merge() again")
        self._is_executed = True
        return self._clauses

    def _add(
        self,
        case: Case,
        action: Action,
        condition: Assignment,
        values: Mapping[str, Assignment] | None = None,
    ) -> Self:
        clause = Clause(case, action, settled(condition), settled(values))
        MergeClauses(self._on, (*self._clauses.clauses, clause))  # refuses one out of reach
        self._clauses = MergeClauses(self._on, (*self._clauses.clauses, self._checked(clause)))
        return self
