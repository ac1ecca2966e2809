"""Methods of `Table` that change its schema, or give columns values; they rewrite no data file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack, get_args

import pyarrow as pa

from fermion.arguments import function as check_function
from fermion.arguments import integer
from fermion.engine import VariantValue
from fermion.errors import InvalidArgumentError
from fermion.typing import TableLike
from fermion_table.argument_checks import (
    check_column,
    check_columns,
    check_kind,
    check_text,
    check_texts,
    described,
)
from fermion_table.commit.request import CommitMetadata
from fermion_table.commit.schema_versions import change_schema
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.operations.column_commit import check_append_table
from fermion_table.operations.column_expressions import ColumnExpressions, schema_of_expressions
from fermion_table.operations.column_task import MapValues
from fermion_table.operations.computed_columns import (
    Computation,
    ComputedColumns,
    FinishedColumns,
    check_new_columns,
)
from fermion_table.operations.filled_columns import FilledColumns, Unmatched
from fermion_table.planning.split import BATCH_ROWS
from fermion_table.scanning.live_values import LiveValues
from fermion_table.schema import changes
from fermion_table.schema.changes import Change, FieldChanges
from fermion_table.schema.schema import PathLike, TableSchema
from fermion_table.schema.selection import ROW_ID, map_keys, select_columns
from fermion_table.schema.update import SchemaUpdate
from fermion_table.table.state import HasState


def update_schema(self: HasState, *, message: str | None = None) -> SchemaUpdate:
    """Several schema changes as one snapshot: ``with t.update_schema() as u: ...``."""
    state = self._state
    state.check_writable()
    metadata = CommitMetadata(message=message)
    values = LiveValues(state.store, state.refresh())

    def publish(changes: Sequence[Change]) -> None:
        def changes_for(snapshot: Snapshot, current: TableSchema) -> Sequence[Change]:
            values.snapshot = snapshot
            return changes

        state.move_to(change_schema(state.publisher, state.snapshot, changes_for, metadata))

    return SchemaUpdate(state.schema, publish, values.have_nulls, values.exceed)


def add_columns(
    self: HasState,
    columns: Mapping[str, pa.DataType] | pa.Schema,
    *,
    defaults: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Add columns; existing rows get their default, or null. No data file is rewritten."""
    fields = columns
    if isinstance(columns, Mapping):
        check_texts(columns, "columns")
        for name, dtype in columns.items():
            check_kind(dtype, pa.DataType, f"columns[{name!r}]")
        fields = pa.schema(dict(columns))
    check_kind(fields, pa.Schema, "columns")
    with update_schema(self) as update:
        update.add_fields(fields, defaults=defaults)
    return self._state.snapshot


def drop_columns(self: HasState, columns: Sequence[PathLike] | str) -> Snapshot:
    """Drop columns. No data file is rewritten; a new column of the same name starts empty."""
    with update_schema(self) as update:
        paths = (columns,) if isinstance(columns, str) else check_columns(columns, "columns")
        resolved = [update.schema.resolve(path) for path in paths]
        update.apply(partial(changes.drop_columns, paths=resolved))
    return self._state.snapshot


def rename_column(self: HasState, old: PathLike, new: str) -> Snapshot:
    """Rename a column. No data file is rewritten."""
    with update_schema(self) as update:
        update.rename_column(check_column(old, "old"), check_text(new, "new"))
    return self._state.snapshot


def alter_column(self: HasState, name: PathLike, **changes: Unpack[FieldChanges]) -> Snapshot:
    """Change a column's ``type``, ``nullable``, ``comment`` or (write) ``default``."""
    with update_schema(self) as update:
        update.alter_column(check_column(name, "name"), **changes)
    return self._state.snapshot


def set_properties(
    self: HasState, updates: Mapping[str, str], *, remove: Sequence[str] = ()
) -> Snapshot:
    """Change the table's settings."""
    with update_schema(self) as update:
        update.set_properties(updates, remove=remove)
    return self._state.snapshot


def add_columns_with(
    self: HasState,
    function: Callable[[pa.RecordBatch], Any] | Mapping[str, Any],
    *,
    read: Sequence[PathLike | VariantValue] | None = None,
    schema: pa.Schema | None = None,
    batch_rows: int = BATCH_ROWS,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    resume: FinishedColumns | None = None,
    runner: Callable[..., Any] | None = None,
    message: str | None = None,
) -> Snapshot:
    """Add columns whose values a function computes from other columns, as one snapshot.

    Only the columns in `read` are read, and only the new ones are written, to a column file beside
    each data file. Rows that others append meanwhile are null in the new columns.

    A new column such as ``features['new']`` is a key of the map ``features``: the maps of all rows
    are read and written again, and nothing else is. A value takes the place of one that a map has
    for the key; where it is null the map has no such key, and a null map stays null.

    Parameters
    ----------
    function
        Takes a record batch of the columns in `read`, and returns the new columns of its rows: a
        record batch, a table, a dict, or anything else with Arrow columns; of one column the array
        will do. It sees no deleted rows, and is called by several threads. Or a dict from each new
        column to an expression: SQL such as ``"price * amount"``, which needs DuckDB,
        ``fermion.col``, a ``pyarrow.compute.Expression`` or ``fermion_table.lit(value)``. Of SQL
        see `SqlExpression`.
    read
        Columns that it is given: names, dotted paths, keys of maps, parts of Variant columns,
        ``_row_id``. None: those that the expressions of a dict name.
    schema
        The new columns; a key of a map has the type of its values. None: of the types that the
        expressions of a dict give.
    batch_rows
        Rows a call, at most.
    threads
        Files computed side by side; None takes the number of processors.
    progress
        Called with the files done and the files in all.
    resume
        The ``finished`` of a `ColumnFunctionError`: its files are not computed again.
    runner
        For engines: takes a `ColumnTask` and entries of data files, computes them anywhere, and
        yields a `FinishedFile` for each; None: threads of this process.
    message
        For the history.

    Returns
    -------
    Snapshot
        The new one.

    Raises
    ------
    ColumnFunctionError
        The function raised, or returned other columns, types or another number of rows. Names the
        file and the rows; nothing was published.
    TypeError, InvalidArgumentError, ColumnNotFoundError
        Also where a column is there already, or the table has a primary key.
    CommitConflict, CommitStateUnknown
    """
    state = self._state
    if not isinstance(function, Mapping):
        check_function(function, "function")
    if function is None:
        raise TypeError("function: expected a function, found None")
    asked = None if read is None else check_columns(read, "read")
    if asked is None and not isinstance(function, Mapping):
        raise TypeError("read: expected the columns that the function is given, found None")
    metadata = CommitMetadata(message=message)
    batch_rows = integer(batch_rows, "batch_rows", minimum=1)
    if threads is not None:
        threads = integer(threads, "threads", minimum=1)
    check_function(progress, "progress")
    check_function(runner, "runner")
    if resume is not None:
        check_kind(resume, FinishedColumns, "resume")
    action = "add_columns_with"
    where = f"{state.location}: {action}"
    state.check_writable()
    state.refresh()
    is_typed = schema is None
    if schema is None and isinstance(function, Mapping):
        schema = schema_of_expressions(function, state.schema.to_arrow(field_ids=False), where)
    new = check_new_columns(check_kind(schema, pa.Schema, "schema"), action, state.location)
    found = map_keys(state.schema, new.names, where=where)
    keys = {at: each for at, each in found.items() if not isinstance(each.key, VariantValue)}
    for at, each in keys.items():
        if is_typed:
            new = new.set(at, new.field(at).with_type(each.field.type))
        elif new.field(at).type != each.field.type:
            raise InvalidArgumentError(
                f"{where}: schema: column {new.names[at]!r}: expected type {each.field.type}, that "
                f"of the map's values, found {new.field(at).type}"
            )
    if isinstance(function, Mapping):
        function = ColumnExpressions(function, new, where)
    columns = _named(function) if asked is None else asked
    check_append_table(state.schema, action, state.location)
    read_keys = map_keys(state.schema, columns, where=state.location)
    fields = select_columns(state.schema, columns, where=state.location, keys=read_keys)
    if isinstance(function, ColumnExpressions):
        function.check(pa.schema([pa.field(each.name, each.type) for each in fields]))
    written = new
    maps = tuple(
        map(state.schema.by_id.__getitem__, dict.fromkeys(k.map_id for k in keys.values()))
    )
    if keys:
        beside = frozenset(each.name for each in maps).difference(each.name for each in fields)
        function = MapValues(function, new, keys, maps, beside)
        written, columns = function.columns, (*columns, *sorted(beside))
    change = ComputedColumns(
        state.publisher,
        metadata,
        Computation(function, columns, new, batch_rows, written, maps),
        threads=threads,
        progress=progress,
        resume=resume,
        runner=runner,
    )
    return state.move_to(change.publish(state.snapshot))


def _named(expressions: Any) -> tuple[PathLike, ...]:
    """The columns that expressions name."""
    paths = expressions.paths
    if paths is None:
        raise InvalidArgumentError("read: expected columns: an expression names them by position")
    return tuple(path[0] if len(path) == 1 else path for path in paths)


def fill_columns(
    self: HasState,
    data: TableLike,
    *,
    on: str | Sequence[str] = ROW_ID.name,
    columns: Sequence[str] | None = None,
    unmatched: Unmatched | None = None,
    message: str | None = None,
) -> Snapshot:
    """Give columns of some rows values that were computed elsewhere, as one snapshot.

    Only files that hold such rows get a column file. Other rows keep their values; columns that
    the table lacks are added, and are null there. Rows of the data that match none are left out.

    Parameters
    ----------
    data
        Any Arrow producer: the columns `on`, and those to fill.
    on
        What tells the rows: ``_row_id``, or columns of which no two rows of the data are equal. A
        null matches nothing.
    columns
        To fill; None: all others of the data.
    unmatched
        ``error`` refuses rows of the data, or of the table, that have no partner; ``null`` makes
        the columns null in rows of the table that have none; ``ignore`` takes all as it is. None:
        the same, but data of which no row matches is refused.
    message
        For the history.

    Returns
    -------
    Snapshot
        The new one; the latest one if no row was found and no column added. Its ``properties``
        tell, as text, how many rows of the table ``matched``, how many of the data
        (``unmatched_source``) and of the table (``unmatched_target``) have no partner.

    Raises
    ------
    SchemaMismatch
        Values do not fit a column.
    TypeError, InvalidArgumentError, ColumnNotFoundError
        Also where two rows of the data are of the same row, or the table has a primary key; or rows
        have no partner (see `unmatched`).
    CommitConflict, CommitStateUnknown
    """
    state = self._state
    if unmatched not in (None, *get_args(Unmatched)):
        raise InvalidArgumentError(f"unmatched={unmatched!r}: expected 'error', 'null' or 'ignore'")
    names = (on,) if isinstance(on, str) else check_texts(on, "on")
    if not names:
        raise InvalidArgumentError(f"on={on!r}: expected {ROW_ID.name!r} or columns")
    chosen = None if columns is None else check_texts(columns, "columns")
    if chosen is not None and not chosen:
        raise InvalidArgumentError("columns: expected at least one column")
    if isinstance(columns, str):
        raise TypeError(f"columns: expected a list of names, found {described(columns)}")
    metadata = CommitMetadata(message=message)
    state.check_writable()
    state.refresh()
    check_append_table(state.schema, "fill_columns", state.location)
    by_id = names == (ROW_ID.name,) and ROW_ID.name not in state.schema.by_name
    change = FilledColumns(
        state.publisher,
        metadata,
        data,
        on=() if by_id else names,
        columns=chosen,
        unmatched=unmatched,
    )
    return state.move_to(change.publish(state.snapshot))
