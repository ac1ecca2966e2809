"""`spark_ext.merge`: rows of a data frame update, delete and insert rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions

from fermion.errors import InvalidArgumentError, column_not_found
from fermion.exports import dataclass
from fermion_table import MergeResult, Scan, Snapshot, StorageAccess, Table
from fermion_table.engine import (
    SOURCE,
    TARGET,
    Clause,
    CommitMetadata,
    FoundRows,
    LiteralValue,
    MergeClauses,
    MergeCounts,
    MergeDescription,
    TransactionTable,
    check_on,
    primary_key_of,
)
from spark_ext.column_names import free_names, quoted
from spark_ext.opening import Written, open_written
from spark_ext.reading.table import frame_of, schema_of
from spark_ext.session import classic, classic_frame
from spark_ext.writing.job import commit_arguments, committed_before
from spark_ext.writing.keyed_changes import run_keyed_changes
from spark_ext.writing.row_changes import (
    DELETE,
    INSERT,
    KEEP,
    REPLACE,
    UPDATE,
    ChangeColumns,
    RowChanges,
    files_with,
    run_changes,
)

_OPERATIONS = {"delete": DELETE, "update": UPDATE, "insert": INSERT}
NONE = -1
"""The number of no clause."""


@dataclass(frozen=True, slots=True)
class FrameMerge:
    """What is merged.

    spark, table, source: Where, and the rows.
    into: The table as it commits; the same, or that of a transaction.
    on: Columns of the source by those of the table that they are compared with.
    source_names: The columns of the source.
    has_target, has_source, clause: Names of columns of pairs: not null where there is a row of the
        table, or of the source, and the number of the clause that takes them.
    Raises InvalidArgumentError: Several columns of the source have one name.
    Raises ColumnNotFoundError: The source lacks a column.
    """

    spark: SparkSession
    table: Table
    source: DataFrame
    on: Mapping[str, str]
    into: Table
    source_names: frozenset[str] = field(init=False)
    has_target: str = field(init=False)
    has_source: str = field(init=False)
    clause: str = field(init=False)

    def __post_init__(self) -> None:
        names = self.source.schema.names
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise InvalidArgumentError(f"source: more than one column is named {twice[0]!r}")
        object.__setattr__(self, "source_names", frozenset(names))
        for name in self.on.values():
            if name not in self.source_names:
                raise column_not_found(name, names, where="merge: on: the source")
        of_pairs = ("has_target", "has_source", "clause")
        free = free_names([*names, *self.names, self.table.schema.row_id_name], *of_pairs)
        for attribute, name in zip(of_pairs, free, strict=True):
            object.__setattr__(self, attribute, name)

    @property
    def names(self) -> list[str]:
        """The columns of the table."""
        return self.table.schema.names

    def scan(self, names: Sequence[str]) -> Scan:
        """Some columns of the table as it is merged into, with what tells its rows apart."""
        paths = [(name,) for name in names]
        if primary_key_of(self.table.schema) is not None:
            return replace(self.table.scan(columns=paths), merges_level0=True)
        return self.table.scan(columns=[*paths, (self.table.schema.row_id_name,)])

    def target(self, names: Sequence[str]) -> DataFrame:
        """The same as a frame named ``target``."""
        frame = frame_of(self.spark, self.scan(names))
        return frame.withColumn(self.has_target, functions.lit(True)).alias(TARGET)

    def named_source(self) -> DataFrame:
        """The source as a frame named ``source``."""
        return self.source.withColumn(self.has_source, functions.lit(True)).alias(SOURCE)

    def is_case(self, case: str) -> Column:
        """Whether a pair is of a case."""
        target, source = (
            functions.col(name).isNotNull() for name in (self.has_target, self.has_source)
        )
        if case == "matched":
            return target & source
        return ~target if case == "not_matched" else ~source

    def matches(self) -> Column:
        """Whether a row of the table and one of the source belong together."""
        return reduce(and_, (_of(TARGET, name) == _of(SOURCE, self.on[name]) for name in self.on))

    def reference(self, clause: Clause, name: str) -> str | None:
        """The column that a clause writes to one of the table as it is; None: something else."""
        column = self.on.get(name, name)
        if clause.values is None and column in self.source_names:
            return f"{SOURCE}.{quoted(column)}"
        if clause.action == "update" and name not in (clause.values or {}):
            return f"{TARGET}.{quoted(name)}"
        return None

    def value(self, clause: Clause, name: str) -> Column:
        """What a clause writes to a column."""
        reference = self.reference(clause, name)
        if reference is not None:
            return functions.col(reference)
        if clause.values is not None and name in clause.values:
            return _expression(clause.values[name])
        default = self.table.schema.by_name[name].write_default
        return functions.lit(None if default is None else default.as_py())


def check_clause(merge: FrameMerge, clause: Clause) -> None:
    """Check that the table and the source have what a clause names.

    Raises pyspark.errors.PySparkException: Spark does not understand an expression.
    Raises ColumnNotFoundError, SchemaMismatch, TypeError, InvalidArgumentError.
    """
    MergeClauses(merge.on).taken_by(clause, merge.table.schema, merge.source_names)
    if clause.case == "not_matched":
        seen = merge.source.alias(SOURCE)
    else:
        seen = merge.spark.createDataFrame([], schema_of(merge.spark, merge.scan(merge.names)))
        seen = seen.alias(TARGET)
    if clause.case == "matched":
        seen = seen.crossJoin(merge.source.alias(SOURCE))
    columns = [merge.value(clause, name).alias(name) for name in clause.values or ()]
    condition = _condition(clause)
    kind = seen.select(condition.alias("condition"), *columns).schema["condition"].dataType
    if kind.simpleString() != "boolean":
        raise InvalidArgumentError(
            f"merge: {clause.method}: condition is {kind.simpleString()}, not boolean"
        )


def run_merge(merge: FrameMerge, clauses: MergeClauses, metadata: CommitMetadata) -> MergeResult:
    """Merge, and commit once.

    Raises SchemaMismatch, UnsupportedBySpark, InvalidArgumentError, CommitConflict,
        CommitStateUnknown, pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError.
    """
    table = merge.table
    _refuse_unread(merge, clauses)
    key = primary_key_of(table.schema)
    scan, known = merge.scan(_needed(merge, clauses)), merge.scan(list(merge.on))
    filters: tuple[Any, ...] = (None,)
    decided = None
    if key is not None and clauses.is_upsert(key):
        filters = ()
        done = run_keyed_changes(_upserted(merge), table, "merge")
    elif key is not None:
        decided = _decided(merge, clauses)
        done = run_keyed_changes(decided, table, "merge")
    else:
        written = any(clause.action != "delete" for clause in clauses.clauses)
        columns = merge.names if written else None
        done = run_changes(_decided(merge, clauses), table, columns, is_strict=True)
    rows = FoundRows(
        base=table.snapshot,
        action=clauses.describe(),
        filters=filters,
        gone=done.gone,
        moved=done.moved,
        relied_on=files_with(done.kept, scan),
    )
    snapshot = merge.into.commit_found(rows, done.messages, **commit_arguments(metadata))
    after = snapshot if key is not None and key.options.sequence_fields else None
    if isinstance(merge.into, TransactionTable):
        after = None  # what will show is not known before the end
    if not filters:
        return MergeResult(snapshot, _counted(merge, known, done, after))
    if decided is None or after is None or not done.counts.inserted:
        return MergeResult(snapshot, done.counts)
    return MergeResult(snapshot, _with_shown(merge, decided, done, after))


def _upserted(merge: FrameMerge) -> DataFrame:
    """Every row of the source, to take the place of that of its key."""
    rows, columns = merge.source, ChangeColumns.of(merge.table)
    old = [
        functions.lit(None).cast(rows.schema[merge.on.get(name, name)].dataType).alias(before)
        for name, before in columns.old.items()
    ]
    new = [
        functions.expr(f"{quoted(merge.on.get(name, name))} AS {quoted(name)}")
        for name in merge.names
    ]
    return rows.select(functions.lit(REPLACE).alias(columns.operation), *old, *new)


def _counted(
    merge: FrameMerge, known: Scan, done: RowChanges, after: Snapshot | None
) -> Callable[[], MergeCounts]:
    """Counts the rows of an upsert that were there before, when that is asked for.

    Rows are looked for in the snapshot `after`, as deletions of a later sequence may hide some;
    None: all show.
    """

    def matching(scan: Scan) -> int:
        rows = frame_of(merge.spark, scan).alias(TARGET)
        return rows.join(merge.named_source(), merge.matches(), "left_semi").count()

    def count() -> MergeCounts:
        updated = matching(known)
        there = done.counts.updated
        if after is not None:
            there = matching(_keys_of(merge.table, list(merge.on), after))
        return MergeCounts(there - updated, updated)

    return count


def _with_shown(
    merge: FrameMerge, decided: DataFrame, done: RowChanges, after: Snapshot
) -> Callable[[], MergeCounts]:
    """Counts the rows that were inserted and show, when that is asked for; see `_counted`."""
    key = primary_key_of(merge.table.schema)
    assert key is not None
    names = list(key.names)

    def count() -> MergeCounts:
        operation = functions.col(quoted(ChangeColumns.of(merge.table).operation))
        inserted = decided.where(operation == INSERT).select(*map(quoted, names)).alias(SOURCE)
        rows = frame_of(merge.spark, _keys_of(merge.table, names, after)).alias(TARGET)
        are_same = reduce(and_, (_of(TARGET, name) == _of(SOURCE, name) for name in names))
        return MergeCounts(
            rows.join(inserted, are_same, "left_semi").count(),
            done.counts.updated,
            done.counts.deleted,
        )

    return count


def _keys_of(table: Table, names: Sequence[str], snapshot: Snapshot) -> Scan:
    scan = table.scan(columns=[(name,) for name in names], snapshot_id=snapshot.id)
    return replace(scan, merges_level0=True)


def _decided(merge: FrameMerge, clauses: MergeClauses) -> DataFrame:
    """What happens to each row that a clause takes."""
    cases = {clause.case for clause in clauses.clauses}
    how = {
        (True, True): "full_outer",
        (True, False): "right_outer",
        (False, True): "left_outer",
        (False, False): "inner",
    }["not_matched" in cases, "not_matched_by_source" in cases]
    pairs = merge.target(_needed(merge, clauses)).join(merge.named_source(), merge.matches(), how)
    with_clause = pairs.withColumn(merge.clause, _first_clause(merge, clauses))
    is_taken = functions.col(merge.clause) != NONE
    is_keyed = primary_key_of(merge.table.schema) is not None
    if (
        "not_matched" in cases and not is_keyed
    ):  # the partners of rows that are not inserted must stay
        is_taken = is_taken | merge.is_case("matched")
    decided = with_clause.where(is_taken)
    operation = _by_clause(
        merge,
        {
            number: functions.lit(_OPERATIONS[clause.action])
            for number, clause in enumerate(clauses.clauses)
        },
        functions.lit(KEEP),
    )
    names = ChangeColumns.of(merge.table)
    columns = [operation.alias(names.operation)]
    if not is_keyed:
        columns.append(_of(TARGET, merge.table.schema.row_id_name).alias(names.row))
    columns += [_of(TARGET, name).alias(before) for name, before in names.old.items()]
    writing = {n: clause for n, clause in enumerate(clauses.clauses) if clause.action != "delete"}
    for name in merge.names if writing else ():
        columns.append(_written(merge, writing, name))
    return decided.select(*columns)


def _written(merge: FrameMerge, writing: Mapping[int, Clause], name: str) -> Column:
    """What the clauses write to a column.

    Columns that are taken as they are become one text: in a wide table each call of the JVM counts.
    """
    taken = {number: merge.reference(each, name) for number, each in writing.items()}
    if None in taken.values():
        values = {number: merge.value(each, name) for number, each in writing.items()}
        return _by_clause(merge, values, functions.lit(None)).alias(name)
    written = next(iter(taken.values()))
    if len(set(taken.values())) > 1:
        cases = (f"WHEN {merge.clause} = {number} THEN {each}" for number, each in taken.items())
        written = f"CASE {' '.join(cases)} END"
    return functions.expr(f"{written} AS {quoted(name)}")


def _first_clause(merge: FrameMerge, clauses: MergeClauses) -> Column:
    conditions = {
        number: merge.is_case(clause.case)
        & functions.coalesce(_condition(clause), functions.lit(False))
        for number, clause in enumerate(clauses.clauses)
    }
    chain: Any = functions
    for number, condition in conditions.items():
        chain = chain.when(condition, functions.lit(number))
    clause: Column = chain.otherwise(functions.lit(NONE))
    return clause


def _by_clause(merge: FrameMerge, values: Mapping[int, Column], otherwise: Column) -> Column:
    chain: Any = functions
    for number, value in values.items():
        chain = chain.when(functions.col(merge.clause) == number, value)
    chosen: Column = chain.otherwise(otherwise)
    return chosen


def _needed(merge: FrameMerge, clauses: MergeClauses) -> list[str]:
    """Columns of the table that are read: all where rows are written again."""
    names = merge.names
    if any(clause.action == "update" for clause in clauses.clauses):
        return names
    always = {*merge.on}
    if primary_key_of(merge.table.schema) is not None:
        always.update(ChangeColumns.of(merge.table).old)
    texts = _texts(clauses)
    if texts is None:
        return names
    return [name for name in names if name in always or name.lower() in texts]


def _texts(clauses: MergeClauses) -> str | None:
    """All expressions in lower case; None where one is no text."""
    given = [clause.condition for clause in clauses.clauses if clause.condition is not None]
    given += [value for clause in clauses.clauses for value in (clause.values or {}).values()]
    if any(isinstance(expression, Column) for expression in given):
        return None
    return " ".join(map(str, given)).lower()


def _refuse_unread(merge: FrameMerge, clauses: MergeClauses) -> None:
    """Refuse columns of the source that nothing reads though a clause takes all."""
    texts = _texts(clauses)
    if texts is None:
        return
    used = {*merge.on.values(), *(merge.on.get(name, name) for name in merge.names)}
    names = merge.source.schema.names
    unread = [name for name in names if name not in used and name.lower() not in texts]
    clauses.refuse_unread(unread, "drop it, or name the columns that are taken")


def _condition(clause: Clause) -> Column:
    return functions.lit(True) if clause.condition is None else _expression(clause.condition)


def _expression(given: Any) -> Column:
    """An SQL expression, a column, or a value that is neither."""
    if isinstance(given, Column):
        return given
    if isinstance(given, LiteralValue):
        return functions.lit(given.value)
    return functions.expr(given) if isinstance(given, str) else functions.lit(given)


def _of(side: str, name: str) -> Column:
    return functions.col(f"{side}.{quoted(name)}")


def merge(
    spark: SparkSession,
    path: Written,
    source: DataFrame,
    on: Sequence[str] | Mapping[str, str] | str,
    *,
    message: str | None = None,
    properties: Mapping[str, str] | None = None,
    commit_user: str | None = None,
    commit_identifier: int | str | None = None,
    branch: str | None = None,
    storage_options: dict[str, Any] | None = None,
    access: StorageAccess | None = None,
) -> FrameMergeBuilder:
    """Merge the rows of a data frame into a table, as one snapshot; needs no catalog.

    ``merge(spark, path, changes, on=["id"]).when_matched_update().when_not_matched_insert()
    .execute()`` does what `fermion_table.Table.merge` does, in Spark's tasks.

    Parameters
    ----------
    spark
        A classic session.
    path
        The table. It must exist. That of a transaction (``tx.table(name)``) must not have been
        changed by the transaction before: its rows are those that the transaction began with.
    source
        The rows to merge. It is computed once, and of a primary-key table once more where the rows
        of an upsert are counted.
    on
        Columns whose values are equal in rows that match: names that both sides have, or a mapping
        from columns of the table to those of the source. Null matches nothing; NaN matches NaN.
        Values of the source are cast to the table's types.
    message, properties, commit_user, commit_identifier
        As for `spark_ext.append`.
    branch, storage_options, access
        As for `spark_ext.append`.

    Returns
    -------
    FrameMergeBuilder
        Add clauses to it, and call its ``execute()``.

    Raises
    ------
    TypeError, InvalidArgumentError
        Names the argument that is wrong.
    ColumnNotFoundError
        A column of `on` is not there.
    TableNotFound, VersionNotFound, UnsupportedBySpark
        As for `spark_ext.append`.
    """
    classic(spark, "merge")
    classic_frame(source, "merge: source")
    metadata = CommitMetadata(message, properties, commit_user, commit_identifier)
    table = open_written(
        path, metadata, branch=branch, storage_options=storage_options, access=access
    )
    return FrameMergeBuilder(spark, table, source, on, metadata)


class FrameMergeBuilder(MergeDescription):
    """A merge that is being described: add clauses, then call `execute`.

    Conditions and values are SQL expressions (text, or a Spark column) that name columns
    ``target.COLUMN`` and ``source.COLUMN``; ``fermion_table.lit(text)`` is a text.

    spark, table, source, on, metadata: Use `merge`.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        source: DataFrame,
        on: Sequence[str] | Mapping[str, str] | str,
        metadata: CommitMetadata,
    ) -> None:
        super().__init__(check_on(on, table.schema))
        read = table
        if isinstance(table, TransactionTable):  # which can't go to tasks
            read = Table(table.store, table.snapshot)
        self._merge = FrameMerge(spark, read, source, self._on, table)
        self._metadata = metadata

    def execute(self) -> MergeResult:
        """Merge, as one snapshot.

        Returns: The new snapshot, or the latest one if no row changed, and how many rows were
            changed.
        Raises InvalidArgumentError: There is no clause, or it was executed before.
        Raises pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError: A task failed, also
            where several rows of the source match a row that clauses update or delete; the second
            where workers died. Nothing was published.
        Raises SchemaMismatch, UnsupportedBySpark: What is written does not fit the table, or Spark
            can't hold it.
        Raises CommitConflict, CommitStateUnknown: As `fermion_table.Table.commit_found`.
        """
        clauses = self._begun()
        earlier = committed_before(self._merge.into, self._metadata)
        if earlier is not None:
            return MergeResult(earlier, MergeCounts())
        return run_merge(self._merge, clauses, self._metadata)

    def _checked(self, clause: Clause) -> Clause:
        check_clause(self._merge, clause)
        return clause
