"""What `Table.merge` and `Transaction.merge` return: takes clauses, and executes the merge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fermion.errors import InvalidArgumentError
from fermion_table.changes.assignments import Assignment
from fermion_table.changes.merge import Merge
from fermion_table.changes.merge_by_key import check_by_key
from fermion_table.changes.merge_clauses import (
    Action,
    Case,
    Clause,
    MergeSides,
    bind_clause,
    check_reachable,
)
from fermion_table.changes.merge_matching import MergeCounts
from fermion_table.changes.merge_source import MergeSource, check_on
from fermion_table.commit.publisher import Publisher
from fermion_table.merging.primary_key import primary_key_of
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.schema.schema import TableSchema


class MergeResult:
    """What a merge did.

    Parameters
    ----------
    snapshot, counts
        Use `MergeBuilder.execute`.

    Attributes
    ----------
    snapshot
        The new one; the latest one if no row changed; None within a transaction, which makes one
        at its end.
    rows_inserted, rows_updated, rows_deleted
        By this call: zeros where an earlier try of the same commit had been published. Within a
        transaction, as of then: a commit that comes first may change them. Of a merge that is an
        upsert (see `Table.merge`), as of the snapshot that it began with: they are counted when
        one of them is asked for first, which reads the keys of that snapshot, and raises
        VersionNotFound where it has expired.
    """

    def __init__(
        self, snapshot: Snapshot | None, counts: MergeCounts | Callable[[], MergeCounts]
    ) -> None:
        self.snapshot = snapshot
        self._counts = counts

    def __reduce__(self) -> tuple[type[MergeResult], tuple[Snapshot | None, MergeCounts]]:
        """With the counts, whatever they are counted from."""
        return MergeResult, (self.snapshot, self._known)

    @property
    def rows_inserted(self) -> int:
        """See above."""
        return self._known.inserted

    @property
    def rows_updated(self) -> int:
        """See above."""
        return self._known.updated

    @property
    def rows_deleted(self) -> int:
        """See above."""
        return self._known.deleted

    @property
    def _known(self) -> MergeCounts:
        if not isinstance(self._counts, MergeCounts):
            self._counts = self._counts()
        return self._counts

    def __repr__(self) -> str:
        snapshot = "no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot.id}"
        if not isinstance(self._counts, MergeCounts):
            return f"<MergeResult: {snapshot}, an upsert, rows not counted yet>"
        return (
            f"<MergeResult: {snapshot}, {self.rows_inserted:,} rows inserted, "
            f"{self.rows_updated:,} updated, {self.rows_deleted:,} deleted>"
        )


class MergeBuilder:
    """A merge that is being described: add clauses, then call `execute`.

    Rows of the table and of the source whose columns of ``on`` are equal match. For each pair, and
    for each row without a partner, the first clause of its case whose condition holds decides what
    happens; a row that no clause takes stays as it is.

    Conditions and values name columns ``target.COLUMN`` and ``source.COLUMN``. A condition is
    anything that `fermion` takes as a filter; to compare two columns pass a pyarrow expression,
    ``pc.field("source", "at") > pc.field("target", "at")``.

    Every method that adds a clause changes this object, and returns it.

    Parameters
    ----------
    source, on
        See `Table.merge`.
    schema
        Of the table: clauses are checked against it.
    run
        Executes the merge.
    publisher
        See `Merge`.
    """

    def __init__(
        self,
        source: Any,
        on: Any,
        schema: TableSchema,
        run: Callable[[Merge], MergeResult],
        publisher: Publisher | None = None,
    ) -> None:
        self._key = primary_key_of(schema)
        self._on = check_on(on, schema)
        self._source = MergeSource(source, self._on, schema)
        self._sides = MergeSides(schema, self._source.schema, self._on)
        self._run = run
        self._publisher = publisher
        self._clauses: list[Clause] = []
        self._is_executed = False

    def when_matched_update(
        self, set: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> MergeBuilder:
        """Update rows of the table that have a partner.

        Parameters
        ----------
        set
            What each column is set to: ``"source.COLUMN"``, ``"target.COLUMN"``, a value (None is
            null), ``fermion.col("source.COLUMN")``, a ``pyarrow.compute.Expression`` such as
            ``pc.field("target", "n") + pc.field("source", "n")``, or a function from a record
            batch with the columns ``target`` and ``source`` (structs) to an array. Text that
            begins with ``source.`` or ``target.`` is a column: pass such a value as
            ``pa.scalar(text)``. None sets every column to that of its name in the source.
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
        """
        return self._add("matched", "update", condition, set)

    def when_matched_delete(self, condition: Any = None) -> MergeBuilder:
        """Delete rows of the table that have a partner.

        Parameters
        ----------
        condition
            Which pairs; None: all.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError
        """
        return self._add("matched", "delete", condition)

    def when_not_matched_insert(
        self, values: Mapping[str, Assignment] | None = None, condition: Any = None
    ) -> MergeBuilder:
        """Insert rows of the source that have no partner.

        Parameters
        ----------
        values
            What each column is set to, as in `when_matched_update`; there is only ``source``.
            Columns that are not named are null, or have their default. None takes every column
            of its name from the source.
        condition
            Which rows of the source; None: all.

        Raises
        ------
        ColumnNotFoundError, SchemaMismatch, TypeError, InvalidArgumentError
            As `when_matched_update`; and SchemaMismatch where a column that is NOT NULL has no
            value.
        """
        return self._add("not_matched", "insert", condition, values)

    def when_not_matched_by_source_update(
        self, set: Mapping[str, Assignment], condition: Any = None
    ) -> MergeBuilder:
        """Update rows of the table that have no partner.

        Parameters
        ----------
        set
            As in `when_matched_update`; there is only ``target``.
        condition
            Which rows of the table; None: all.

        Raises
        ------
        ColumnNotFoundError, SchemaMismatch, TypeError, InvalidArgumentError
            As `when_matched_update`.
        """
        if set is None:
            raise InvalidArgumentError(
                "merge: when_not_matched_by_source_update: set=None: expected the columns to set, "
                "as there is no row of the source to take them from"
            )
        return self._add("not_matched_by_source", "update", condition, set)

    def when_not_matched_by_source_delete(self, condition: Any = None) -> MergeBuilder:
        """Delete rows of the table that have no partner.

        Parameters
        ----------
        condition
            Which rows of the table; None: all.

        Raises
        ------
        ColumnNotFoundError, InvalidArgumentError
        """
        return self._add("not_matched_by_source", "delete", condition)

    def execute(self) -> MergeResult:
        """Merge, as one snapshot.

        Raises
        ------
        InvalidArgumentError
            There is no clause, it was executed before, or several rows of the source match a row
            of the table that clauses update or delete.
        SchemaMismatch
            A value does not fit its column, or the source has a column that the table lacks and
            no clause reads, where a clause takes all.
        CommitConflict, CommitStateUnknown
        """
        if not self._clauses:
            raise InvalidArgumentError(
                "merge: nothing to do: add a clause, such as when_matched_update()"
            )
        if self._is_executed:
            raise InvalidArgumentError("merge: executed before: call merge() again")
        self._is_executed = True
        return self._run(Merge(self._source, self._on, self._clauses, self._publisher))

    def __repr__(self) -> str:
        clauses = ", ".join(clause.method for clause in self._clauses) or "no clauses yet"
        return f"<MergeBuilder on {', '.join(self._on)}: {clauses}>"

    def _add(
        self,
        case: Case,
        action: Action,
        condition: Any,
        values: Mapping[str, Assignment] | None = None,
    ) -> MergeBuilder:
        clause = Clause(case, action, condition, values)
        check_reachable([*self._clauses, clause])
        bound = bind_clause(clause, self._sides)
        if self._key is not None:
            check_by_key(bound, self._key)
        self._clauses.append(clause)
        return self
